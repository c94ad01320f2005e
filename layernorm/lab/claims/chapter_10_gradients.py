"""Claims about gradients in batch-normalized LSTMs that chapter 10 decides: equal steps, gains."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch.nn import functional as F

from layernorm.lab.analysis import lstms
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.chapter_10 import BATCH_NORM, by_case, draw
from layernorm.lab.claims.checks import held, less

GAINS = (0.1, 1.0)
_batch_norm = F.batch_norm


def swapped_gains(a, mean, var, gain, *args, **options):
    """Mutant: a gain of 1 acts as one of 0.1 and the other way round."""
    return _batch_norm(a, mean, var, 0.1 / gain, *args, **options)


def not_centered(a, mean, var, gain, bias, training=False, eps=1e-5, **options):
    """Mutant: divides by the spread alone, so that gradients of equal cases do not cancel."""
    y = a / (a.var(0, correction=0) + eps).sqrt() * gain
    return y if bias is None else y + bias


@claim(
    id="gradients-explode-on-equal-steps",
    statement="Every first step that is the same for all cases multiplies the gradients of a "
    "batch-normalized LSTM, and not those of a layer-normalized one.",
    rule="0 to 4 equal first steps, five different ones, gains of 0.1 and of 1: proved if each of "
    "them multiplies the gradient with respect to the first input by more than 10 under batch "
    "normalization, and four of them by less than 10 under layer normalization",
    sabotage=(BATCH_NORM, by_case),
)
def gradients_explode_on_equal_steps() -> Finding:
    grown = {}
    for method in ("batch", "layer"):
        for gain in GAINS:
            torch.manual_seed(0)
            layer = lstms.at_start(method, gain)
            first = [lstms.input_gradients(layer, lstms.equal_steps(k))[0].item() for k in range(5)]
            grown[method, gain] = [b / a for a, b in pairwise(first)]
    least = {gain: min(grown["batch", gain]) for gain in GAINS}
    total = max(torch.tensor(grown["layer", gain]).prod().item() for gain in GAINS)
    holds = min(least.values()) > 10 and total < 10
    bounds = ", ".join(f"{_power(least[gain])} with gains of {gain:g}" for gain in GAINS)
    return held(
        holds,
        f"Each equal step multiplies the gradient by more than {bounds} under batch "
        f"normalization; four of them by {less(total, 10)} under layer "
        "normalization.",
        **({f"least_{gain:g}": least[gain] for gain in GAINS} | {"layer": total}),
    )


def _power(x: float) -> str:
    """The largest power of ten that x exceeds."""
    return f"{10 ** int(torch.tensor(x).log10().floor()):,}" if x >= 1 else "0"


@claim(
    id="equal-steps-spare-the-weights",
    statement="The gradients that explode on equal steps cancel over the cases, so that the "
    "gradient of the weights stays as it is.",
    rule="four equal first steps, gains of 0.1, the gradient of the input weights: conditional if "
    "it is within a factor of 3 of that without them in float64 and more than 100 times as large "
    "in float32; proved if float32 is within the factor too; else refuted",
    sabotage=(BATCH_NORM, not_centered),
)
def equal_steps_spare_the_weights() -> Finding:
    layer = lstms.at_start("batch", 0.1)
    x = lstms.equal_steps(4)
    state = torch.get_rng_state()
    ratios = {}
    for dtype in (torch.float64, torch.float32):
        found = []
        for part in (x, x[4:]):
            torch.set_rng_state(state)
            found.append(lstms.weight_gradient(layer.to(dtype), part.to(dtype)))
        ratios[dtype] = found[0] / found[1]
        layer.to(torch.float64)
    double, single = ratios[torch.float64], ratios[torch.float32]
    kept = 1 / 3 < double < 3
    evidence = (
        f"Four equal steps leave the gradient of the weights {'within' if kept else 'beyond'} a "
        f"factor of 3 in float64, and make it {'more' if single > 100 else 'less'} than 100 times "
        "larger in float32."
    )
    numbers = {"float64": double, "float32": single}
    if not kept:
        return Finding("refuted", evidence, numbers=numbers)
    if single < 3:
        return Finding("proved", evidence, numbers=numbers)
    condition = "rounding errors are too small to be multiplied along"
    return Finding("conditional", evidence, condition=condition, numbers=numbers)


@claim(
    id="unit-gain-makes-gradients-vanish",
    statement="With gains of 1 the gradients of a batch-normalized LSTM vanish backward in time "
    "from the start, and gains of 0.1 prevent it.",
    rule="60 steps of random input, 64 units, 64 cases: proved if the gradient with respect to the "
    "first input is less than a tenth of that with respect to the last with gains of 1, and not "
    "with gains of 0.1; else refuted",
    sabotage=(BATCH_NORM, swapped_gains),
)
def unit_gain_makes_gradients_vanish() -> Finding:
    kept = {}
    x = draw(60, 64, 8)
    for method in ("batch", "layer"):
        for gain in GAINS:
            gradients = lstms.input_gradients(lstms.at_start(method, gain, hidden=64), x)
            kept[method, gain] = (gradients[0] / gradients[-1]).item()
    vanish = {gain: kept["batch", gain] < 0.1 for gain in GAINS}

    def shape(method: str, gain: float) -> str:
        ratio = kept[method, gain]
        return "grow" if ratio > 3 else "shrink" if ratio < 1 / 3 else "keep their size"

    return held(
        vanish[1.0] and not vanish[0.1],
        f"From the last step back to the first, gradients {shape('batch', 1.0)} with gains of 1 "
        f"and {shape('batch', 0.1)} with gains of 0.1; under layer normalization they "
        f"{shape('layer', 1.0)} and {shape('layer', 0.1)}.",
        **({f"{method}_{gain:g}": value for (method, gain), value in kept.items()}),
    )
