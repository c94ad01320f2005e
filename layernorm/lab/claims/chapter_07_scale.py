"""Claims that chapter 07 decides about the scale of the first weights."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from layernorm import functional as F
from layernorm.lab.analysis import scale
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import LAYER_NORM, conditional, draw, largest, less, worst

Case = tuple[Tensor, ...]


def no_norm(x, normalized_shape, gain, bias, eps=0.0):
    """Mutant: nothing is normalized."""
    return gain * x + bias


def start(units: int = 16) -> Case:
    """50 cases of 8 features, two hidden weight matrices, that of the logits, gains and biases."""
    affine = torch.tensor([[1.0], [0.0]]).double().expand(2, 2, units).clone()
    drawn = (0.4 * draw(*shape) for shape in ((units, 8), (units, units), (3, units)))
    return draw(50, 8), *drawn, affine


def hard_starts(case: Case, huge: float) -> dict[str, Case]:
    """The case with the adversary's inputs or weights of the second layer, and few units."""
    x, first, second, *rest = case
    found = {
        f"x {k}": (v, first, second, *rest) for k, v in adversary.matrices(50, 8, huge).items()
    }
    weights = adversary.matrices(*second.shape, huge).items()
    return (
        found
        | {f"W {k}": (x, first, v, *rest) for k, v in weights}
        | {f"H = {n}": start(n) for n in adversary.SIZES}
    )


def hidden(x, first, second, head, affine, c=1.0, eps=0.0) -> Iterator[tuple[Tensor, Tensor]]:
    """The summed inputs and the outputs of both hidden layers, their weights times c."""
    for w, (gain, bias) in zip((first, second), affine, strict=True):
        a = x @ (c * w).T
        x = torch.tanh(F.layer_norm(a, a.shape[1:], gain, bias, eps))
        yield a, x


def logits(*case: Tensor, **options: float) -> Tensor:
    *_, (_, h) = hidden(*case, **options)
    return h @ case[3].T


def rounding(*case: Tensor) -> float:
    """The factor on rounding errors; infinite where the units of a layer do not vary."""
    layers = [a for a, _ in hidden(*case)]
    vary = all(map(adversary.varies, layers))
    return math.prod(map(adversary.conditioning, layers)) if vary else math.inf


def moved(case: Case, *factors: float, eps: float = 0.0) -> float:
    """By how much the logits change with hidden weights times one of the factors, at most."""
    base = logits(*case, eps=eps)
    return worst(*(largest(logits(*case, c=c, eps=eps) - base) for c in factors))


def units_vary(*case: Tensor) -> bool:
    return rounding(*case) < 1e9


@claim(
    id="initial-function-ignores-scale",
    statement="At the start, a layer-normalized network computes the same whatever the scale of "
    "its hidden weights.",
    rule="two hidden layers, hidden weights times 1e-40, 0.0001, 1000 and 1e40: five draws of 16 "
    "units, a climb and the adversary's inputs, weights and sizes. Refuted unless the logits "
    "agree to 1e-12 (times largest entry over standard deviation, of both layers) with eps = 0 "
    "where the units of each case vary (entries below 1e9 standard deviations); held if in all "
    "cases, and to 1e-10 with eps = 1e-5 and with c = -1 in the first layer; else conditional",
    sabotage=(LAYER_NORM, no_norm),
)
def initial_function_ignores_scale() -> Finding:
    factors = (1e-40, 1e-4, 1e3, 1e40)

    def violation(*case: Tensor) -> float:
        return moved(case, *factors) / min(rounding(*case), 1e9)

    draws = [start() for _ in range(5)]
    only_if = (
        "eps = 0, the factor is positive, and in each case the units of every hidden layer vary",
        units_vary,
    )
    found = adversary.searched(
        1e-12,
        "For c from 1e-40 to 1e40 the logits agree but for rounding with eps = 0.",
        violation,
        draws,
        hard_starts(draws[0], 1e50),
        only_if,
    )
    with_eps = worst(*(moved(case, *factors, eps=1e-5) for case in draws))
    turned = worst(*(largest(logits(x, -w, *k) - logits(x, w, *k)) for x, w, *k in draws))
    return conditional(
        found.verdict != "refuted",
        found.verdict == "held" and worst(with_eps, turned) < 1e-10,
        only_if[0],
        f"{found.evidence} They differ by up to {with_eps:.1f} with eps = 1e-5, and by up to "
        f"{turned:.1f} for c = -1 in the first layer.",
        **found.numbers,
        eps=with_eps,
        turned=turned,
    )


def learned(optimizer: str, case: Case, updates: int, c=1.0, factor=1.0, eps=0.0):
    """The logits after updates from hidden weights c times larger, learning `factor` times as
    fast, and whether at the first one units vary and, for Adam, no derivative is 0.

    Adam's own eps is 0 as well, or else torch's.
    """
    x, first, second, *rest = (k.clone() for k in case)
    p = [k.requires_grad_() for k in (c * first, c * second, *rest)]
    kind, options = scale.OPTIMIZERS[optimizer]
    rate = {"sgd": 0.1, "adam": 0.01}[optimizer]
    groups = [{"params": p[:2], "lr": rate * factor}, {"params": p[2:], "lr": rate}]
    stepper = kind(groups, lr=rate, **({} if eps else options))
    labels, least = torch.arange(len(x)) % 3, math.inf
    for _ in range(updates):
        stepper.zero_grad()
        cross_entropy(logits(x, *p, eps=eps), labels).backward()
        if least == math.inf:
            least = min((k.grad.abs().min() * k.detach().norm()).item() for k in p)
        stepper.step()
    defined = units_vary(*case) and (optimizer == "sgd" or least > 1e-9)
    return logits(x, *p, eps=eps).detach(), defined


@claim(
    id="initial-scale-is-a-learning-rate",
    statement="A layer-normalized network whose hidden weights start c times larger learns as if "
    "their learning rate were c² times smaller (SGD) or c times smaller (Adam).",
    rule="30 updates of two draws of 16 units (c = 0.1 and 10), 5 of the adversary's inputs, "
    "weights and sizes (c = 10), eps = 0: refuted unless the logits agree with those from c = 1 "
    "to 1e-8 where the rate of the hidden weights is multiplied by c² (SGD) or c (Adam), if at "
    "the first update units vary (entries below 1e9 standard deviations) and, for Adam, no "
    "derivative is 0 (|w||derivative| above 1e-9), and the draws' differ by more than 0.01 at "
    "the same rate; held if they agree in all cases and with torch's eps (1e-5, Adam's 1e-8), "
    "too; else conditional",
    sabotage=(LAYER_NORM, no_norm),
)
def initial_scale_is_a_learning_rate() -> Finding:
    draws = [start() for _ in range(2)]
    hard = hard_starts(draws[0], 1e6)
    matched, with_eps, same, met, broken = 0.0, 0.0, [], 0, set()
    for optimizer, power in (("sgd", 2), ("adam", 1)):
        for case in draws:
            plain, _ = learned(optimizer, case, 30)
            for c in (0.1, 10.0):
                other, wrong = (learned(optimizer, case, 30, c, k)[0] for k in (c**power, 1.0))
                matched = worst(matched, largest(other - plain))
                same.append(largest(wrong - plain))
        pair = (learned(optimizer, draws[0], 30, c, c**power, 1e-5)[0] for c in (0.1, 1.0))
        with_eps = worst(with_eps, largest(torch.sub(*pair)))
        for case in hard.values():
            plain, defined = learned(optimizer, case, 5)
            off = largest(learned(optimizer, case, 5, 10.0, 10.0**power)[0] - plain)
            if defined:
                matched, met = worst(matched, off), met + 1
            elif not off < 1e-8:
                broken.add({"sgd": "SGD", "adam": "Adam"}[optimizer])
    return conditional(
        matched < 1e-8 and min(same) > 0.01,
        not broken and with_eps < 1e-8,
        "eps = 0, in Adam as well, units vary, and with Adam no derivative is 0",
        f"After 30 updates the logits agree to {less(matched, 1e-8)} at the matched rate with "
        f"eps = 0 (with torch's eps to {less(with_eps, 1e-8)}), and differ by {min(same):.1f} or "
        f"more at the same rate. Against the adversary they agree in {met} of {2 * len(hard)} "
        "cases; in the others units do not vary (0/0), or a derivative, which Adam divides by its "
        "own size, is 0 but for rounding, and that breaks the rule for "
        f"{' and '.join(sorted(broken)) or 'none'}.",
        matched=matched,
        with_eps=with_eps,
        same=min(same),
    )
