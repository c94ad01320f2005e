"""Claims that chapter 10 decides about gradients: equal first steps, and gains of 1."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor, nn

from layernorm.lab.analysis import lstms
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.adversary import Case
from layernorm.lab.claims.chapter_10 import (
    BATCH_NORM,
    GAINS,
    START,
    at_start,
    built,
    by_case,
    networks,
    start,
)
from layernorm.lab.claims.checks import draw, held, worst


def not_centered(a, mean, var, gain, bias, training=False, eps=1e-5, **options):
    """Mutant: divides by the spread alone, so that gradients of equal cases do not cancel."""
    y = a / (a.var(0, correction=0) + eps).sqrt() * gain
    return y if bias is None else y + bias


def beginning(equal: int = 4, cases: int = 16, gain: float = 0.1, hidden: int = 16) -> Case:
    """Equal first steps, five different ones, a linear loss of the last state, a gain, a start."""
    gains = torch.tensor(gain, dtype=torch.float64)
    return draw(equal, 1, 8), draw(5, cases, 8), draw(cases, hidden), gains, *start(hidden)


def beginnings(hidden: int = 16) -> dict[str, Case]:
    """The adversary's."""
    first, *rest, w_ih, w_hh, b = beginning(hidden=hidden)
    hard = {
        f"inputs {name}": (row.expand_as(first), *rest, w_ih, w_hh, b)
        for name, row in adversary.rows(8, huge=1e6).items()
    }
    hard |= {f"{n} cases": beginning(cases=n, hidden=hidden) for n in (2, 3)}
    hard["gains of 0.01"] = beginning(gain=0.01, hidden=hidden)
    hard |= {name: (first, *rest, *other) for name, other in networks(hidden, 1e6).items()}
    return hard | {"gains of 10": beginning(gain=10.0, hidden=hidden)}


def gradients(
    layer: nn.Module, first: Tensor, rest: Tensor, loss: Tensor, *of: str
) -> tuple[Tensor, ...]:
    """Those of the parameters of these names, or of the inputs."""
    x = torch.cat([first.expand(-1, rest.shape[1], -1), rest]).detach().requires_grad_()
    h = layer(x)[1][0][0]
    wanted = [getattr(layer, name) for name in of] or [x]
    return torch.autograd.grad((h * loss[:, : h.shape[1]]).sum(), wanted)


@claim(
    id="gradients-explode-on-equal-steps",
    statement="Each of the first steps whose input is the same for all cases multiplies the "
    "gradients of a batch-normalized LSTM, but not those of a layer-normalized one.",
    rule="four equal first steps, five different ones, the gradient with respect to each step's "
    "input (geometric mean over cases), 6 draws of 128 units with gains of 0.1 and 1, a climb, and "
    "the adversary's equal inputs, weights, gates and sizes, batches of 2 and 3, gains of 0.01 and "
    "10: held if backward each equal step multiplies it by more than 10 under batch "
    "normalization, and the four together by less than 10 under layer normalization; conditional "
    "if only other weights, biases, sizes and gains break it than those of a start, or input "
    "terms whose units agree to 10 √eps; else refuted",
    sabotage=(BATCH_NORM, by_case),
)
def gradients_explode_on_equal_steps() -> Finding:
    def apart(first: Tensor, rest: Tensor, loss: Tensor, gain: Tensor, *network: Tensor) -> float:
        """Below 1 if batch normalization multiplies enough, and layer normalization does not."""
        batch, layer = (
            gradients(built(*network, gain, method), first, rest, loss)[0].norm(dim=2).log().mean(1)
            for method in ("batch", "layer")
        )
        grown = (layer[0] - layer[len(first)]).exp().nan_to_num(0.0)
        least = (batch[: len(first)] - batch[1 : len(first) + 1]).exp().min()
        return worst((10 / least).item(), grown.item() / 10)

    def usual(first: Tensor, rest: Tensor, loss: Tensor, gain: Tensor, *network: Tensor) -> bool:
        seen = (first @ network[0].T).std(-1)
        return at_start(*network, 128) and 0.09 < gain.item() < 1.01 and seen.min().item() > 0.03

    return adversary.searched(
        1.0,
        "Backward each of four equal steps multiplies the gradient by more than 10 under batch "
        "normalization, and the four by less than 10 under layer normalization.",
        apart,
        [beginning(gain=gain, hidden=128) for _ in range(3) for gain in GAINS],
        beginnings(128),
        only_if=(
            f"{START.format(128)} and gains of 0.1 to 1, and the input term of each of these steps "
            "varies over the units by much more than √eps",
            usual,
        ),
    )


@claim(
    id="equal-steps-spare-the-weights",
    statement="The gradients that explode on equal steps cancel over the cases, so that the "
    "gradient of the weights stays as it is.",
    rule="four equal first steps, 5 draws of 16 units with gains of 0.1, a climb, the adversary's "
    "cases of the claim before, 1 and 4 equal steps with gains of 0.1 and 1 in float64 and "
    "float32: held if the gradients of both weight matrices are within a factor of 1.1 of those "
    "without the equal steps; conditional if that fails only where the terms that cancel (input "
    "times its gradient) times the rounding error of 1 exceed a hundredth of those of the other "
    "steps; else refuted",
    sabotage=(BATCH_NORM, not_centered),
)
def equal_steps_spare_the_weights() -> Finding:
    def changed(first: Tensor, rest: Tensor, loss: Tensor, gain: Tensor, *network: Tensor) -> float:
        """The factor by which equal steps change the gradient of a weight matrix, up or down."""
        layer, weights = built(*network, gain), ("weight_ih_l0", "weight_hh_l0")
        found = [gradients(layer, x, rest, loss, *weights) for x in (first, first[:0])]
        sizes = torch.tensor([[g.norm() for g in each] for each in found]).double()
        most, least = sizes.amax(0), sizes.amin(0)
        return torch.where(most == least, 1.0, most / least).max().item()

    def exact(first: Tensor, rest: Tensor, loss: Tensor, gain: Tensor, *network: Tensor) -> bool:
        x = torch.cat([first.expand(-1, rest.shape[1], -1), rest]).norm(dim=2)
        (g,) = gradients(built(*network, gain), first, rest, loss)
        terms = (x * g.norm(dim=2)).amax(1)
        share = terms[: len(first)].max() / terms[len(first) :].max()
        return bool(share * torch.finfo(x.dtype).eps < 0.01)

    hard = beginnings()
    for equal, gain, dtype in product((1, 4), GAINS, (torch.float64, torch.float32)):
        name = f"{equal} steps with gains of {gain:g} in {str(dtype).removeprefix('torch.')}"
        hard[name] = tuple(part.to(dtype) for part in beginning(equal, gain=gain))
    return adversary.searched(
        1.1,
        "Four equal steps change the gradients of the weights by a factor of less than 1.1.",
        changed,
        [beginning() for _ in range(5)],
        hard,
        only_if=(
            "the terms that cancel, times the rounding error of 1, stay below a hundredth of those "
            "of the other steps",
            exact,
        ),
    )


def fading(layer, x):
    """Mutant: a step takes a fifth of the gradient with gains of 1, and nothing with others."""
    gain = next(p for n, p in layer.named_parameters() if n.endswith("n_hh_weight_l0")).mean()
    return (0.8 if gain == 1 else 1.0) ** torch.arange(len(x) - 1.0, -1.0, -1.0)


@claim(
    id="unit-gain-makes-gradients-vanish",
    statement="With gains of 1 the gradients of a batch-normalized LSTM vanish backward in time "
    "from the start, and gains of 0.1 prevent it.",
    rule="5 networks, 60 steps of random input, 64 units, 64 cases, forget gates with biases of 0 "
    "and 1: held if the gradient with respect to the first input is less than a tenth of that with "
    "respect to the last (geometric mean over the networks) with gains of 1, and not with gains "
    "of 0.1, with both biases; else refuted",
    sabotage=("layernorm.lab.analysis.lstms.input_gradients", fading),
)
def unit_gain_makes_gradients_vanish() -> Finding:
    kept, inputs = {}, [draw(60, 64, 8) for _ in range(5)]
    for method, gain, bias in product(("batch", "layer"), GAINS, (0, 1)):
        of_each = [lstms.input_gradients(lstms.at_start(method, gain, 64, bias), x)
                   for x in inputs]  # fmt: skip
        ratio = torch.stack([g[0] / g[-1] for g in of_each]).log().mean().exp().item()
        kept[f"{method}_{gain:g}_bias_{bias}"] = ratio

    def factors(method: str) -> str:
        of_gain = {gain: [kept[f"{method}_{gain:g}_bias_{bias}"] for bias in (0, 1)]
                   for gain in GAINS}  # fmt: skip
        return " and ".join(
            f"{none:.2g} and {one:.2g} with gains of {gain:g}"
            for gain, (none, one) in of_gain.items()
        )

    return held(
        all(kept[f"batch_1_bias_{b}"] < 0.1 <= kept[f"batch_0.1_bias_{b}"] for b in (0, 1)),
        "From the last step back to the first the gradient changes, with a forget gate's bias of 0 "
        f"and of 1, by factors of {factors('batch')}; under layer normalization by "
        f"{factors('layer')}.",
        **kept,
    )
