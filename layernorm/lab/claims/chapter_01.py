"""Claims about summed inputs that chapter 01 decides: their moments and their correlation.

Those about gradients and the scale of weights are in `chapter_01_scale.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from layernorm import functional as F
from layernorm.lab.analysis import activations
from layernorm.lab.claims import Finding, claim

LAYER_NORM = "layernorm.functional.layer_norm"
EDGE = 2.18  # where the slope of tanh falls below 5% of its largest
_layer_norm = F.layer_norm  # what a mutant is made of


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def bare(a: Tensor, eps: float = 0.0) -> Tensor:
    """Layer normalization over the last dimension, without gain, bias and, at first, eps."""
    return F.layer_norm(a, a.shape[-1:], eps=eps)


def worst(values: Tensor) -> float:
    return values.abs().max().item()


def as_it_is(x, *args, **options):
    """Mutant: does not normalize."""
    return x


def never_centers(x, *args, **options):
    """Mutant: divides by the root mean square."""
    return x / x.square().mean(-1, keepdim=True).sqrt()


def by_case(x, *args, **options):
    """Mutant: averages over the units of a case."""
    return _layer_norm(x, x.shape[1:])


@claim(
    id="inactive-region-avoided",
    statement="Normalization keeps the input of the activation function out of its inactive "
    "region.",
    kind="property",
    chapter="01",
    rule=f"tanh, inactive beyond |a| = {EDGE}: proved if no case has more than 1/{EDGE}² of its "
    "units there, whatever the gain; conditional if so at gain 1 and bias 0 only; else refuted "
    "(random cases of 100 units, with common means and scales up to 100, and the worst case)",
    sabotage=(LAYER_NORM, as_it_is),
)
def inactive_region_avoided() -> Finding:
    worst_case = torch.tensor([1.0] * 10 + [-1.0] * 10 + [0.0] * 80).double()
    cases = [draw(100, 100) * s + m for s in (0.01, 1, 100) for m in (0, 100)]
    normalized = bare(torch.cat([*cases, worst_case[None]]))
    shares = [(gain * normalized.abs() > EDGE).double().mean(1).max().item() for gain in (1, 10)]
    bound = 1 / EDGE**2
    evidence = (
        f"At gain 1 and bias 0 at most {shares[0]:.0%} of the units of a case lie beyond {EDGE} "
        f"(Chebyshev allows {bound:.0%}); at gain 10 up to {shares[1]:.0%} do."
    )
    numbers = {"gain_1": shares[0], "gain_10": shares[1]}
    if shares[0] > bound:
        return Finding("refuted", evidence, numbers=numbers)
    if shares[1] <= bound:
        return Finding("proved", evidence, numbers=numbers)
    condition = "the gain is 1 and the bias 0, and then for all but 1/c² of the units beyond c"
    return Finding("conditional", evidence, condition=condition, numbers=numbers)


def off_standard(values: Tensor, dim: int) -> float:
    """How far means from 0 and variances from 1 are, along a dimension."""
    return max(worst(values.mean(dim)), worst(values.var(dim, correction=0) - 1))


@claim(
    id="layer-inputs-standardized",
    statement="Normalization gives the input of each layer mean 0 and variance 1, the same for "
    "every mini-batch.",
    kind="property",
    chapter="01",
    rule="summed inputs whose units differ in mean and scale, two batches of 64 cases, 32 units: "
    "proved if after layer (batch) normalization the moments over units and over cases are 0 and "
    "1 to 1e-9, also after gain and bias and after ReLU; conditional if over units (cases) before "
    "gain and bias only, all else off by more than 0.1; else refuted",
    sabotage=(LAYER_NORM, never_centers),
)
def layer_inputs_standardized() -> Finding:
    own, other = 0.0, []
    for _ in range(2):
        a = draw(64, 32) * (1 + draw(32).abs()) + 3 * draw(32)
        layer = bare(a)
        batch = F.batch_norm(a, None, None, training=True, eps=0.0)
        own = max(own, off_standard(layer, 1), off_standard(batch, 0))
        other += [off_standard(layer, 0), off_standard(batch, 1)]
        other += [off_standard(2 * layer + 1, 1), off_standard(layer.relu(), 1)]
    evidence = (
        f"Over the units of a case (layer) or the cases of a batch (batch) the moments are off by "
        f"{'less' if own < 1e-9 else 'more'} than 1e-9; the other way round, after gain and bias "
        f"or after ReLU always by {'more' if min(other) > 0.1 else 'less'} than 0.1."
    )
    numbers = {"own": own, "other": min(other)}
    if own < 1e-9 and max(other) < 1e-9:
        return Finding("proved", evidence, numbers=numbers)
    if own >= 1e-9 or min(other) <= 0.1:
        return Finding("refuted", evidence, numbers=numbers)
    condition = (
        "it means the summed inputs before gain, bias and activation, over the units of each case "
        "(layer) or the cases of the batch for each unit (batch)"
    )
    return Finding("conditional", evidence, condition=condition, numbers=numbers)


@claim(
    id="covariate-shift-is-correlation",
    statement="Covariate shift is high correlation in the summed inputs to different units.",
    kind="property",
    chapter="01",
    rule="refuted if summed inputs can drift by 3 standard deviations with mean squared "
    "correlations below 0.01, and have ones above 0.5 without drift (below 1e-9); else proved",
    sabotage=(
        "layernorm.lab.analysis.activations.drift",
        lambda a, start: activations.squared_correlation(a),
    ),
)
def covariate_shift_is_correlation() -> Finding:
    start = draw(1000, 16)
    start = (start - start.mean(0)) / start.std(0, correction=0)
    shifted, correlated = start + 3, start + 3 * start[:, :1]
    correlated = (correlated - correlated.mean(0)) / correlated.std(0, correction=0)
    drifts = [activations.drift(a, start) for a in (shifted, correlated)]
    squares = [activations.squared_correlation(a) for a in (shifted, correlated)]
    apart = drifts[0] >= 2.999 and squares[0] < 0.01 and drifts[1] < 1e-9 and squares[1] > 0.5
    return Finding(
        "refuted" if apart else "proved",
        f"Either occurs without the other: a drift of {drifts[0]:.1f} standard deviations at a "
        f"mean squared correlation of {squares[0]:.3f}, and one of {squares[1]:.1f} at a drift of "
        f"{drifts[1]:.1f}.",
        numbers={"drift": drifts[0], "correlation": squares[1]},
    )


@claim(
    id="removes-correlation",
    statement="Layer normalization removes the correlation of summed inputs to different units.",
    kind="property",
    chapter="01",
    rule="64 units with a common cause, of correlation 0.9: proved if the mean squared correlation "
    "falls below 0.01 when the cause moves all units alike and when it moves half of them up and "
    "half down; conditional if in the first case only; else refuted",
    sabotage=(LAYER_NORM, as_it_is),
)
def removes_correlation() -> Finding:
    alternating = torch.tensor([1.0, -1.0] * 32).double()
    left = {}
    for name, along in (("alike", torch.ones(64).double()), ("up_and_down", alternating)):
        a = 3 * draw(4000, 1) * along + draw(4000, 64)
        left[name] = activations.squared_correlation(bare(a))
    evidence = (
        f"Of a mean squared correlation of 0.8 there remain {left['alike']:.2f} where the cause "
        f"moves all units alike, and {left['up_and_down']:.2f} where it moves half of them up and "
        "half down."
    )
    if left["alike"] >= 0.01:
        return Finding("refuted", evidence, numbers=left)
    if left["up_and_down"] < 0.01:
        return Finding("proved", evidence, numbers=left)
    condition = "what the units have in common moves all of them alike"
    return Finding("conditional", evidence, condition=condition, numbers=left)


@claim(
    id="layer-normalization-cannot-decorrelate",
    statement="Without gain and bias, the outputs of layer normalization are never uncorrelated: "
    "in every case the products of two different ones average to -1/(H - 1).",
    kind="property",
    chapter="01",
    rule="proved if so to 1e-12 for 100 random cases of each H from 2 to 65 units",
    sabotage=(LAYER_NORM, never_centers),
)
def layer_normalization_cannot_decorrelate() -> Finding:
    off = 0.0
    for units in range(2, 66):
        y = bare(draw(100, units) * 3 + draw(100, 1))
        products = (y.sum(1).square() - y.square().sum(1)) / (units * (units - 1))
        off = max(off, worst(products + 1 / (units - 1)))
    return Finding(
        "proved" if off < 1e-12 else "refuted",
        f"For H = 2 to 65 the average product is -1/(H - 1), to {'less' if off < 1e-12 else 'more'}"
        " than 1e-12.",
        numbers={"off": off},
    )


@claim(
    id="per-unit-methods-keep-correlations",
    statement="Batch and weight normalization leave every correlation of two summed inputs as it "
    "is.",
    kind="property",
    chapter="01",
    rule="proved if the correlation matrices of 500 cases of 16 units agree to 1e-12",
    sabotage=("layernorm.functional.batch_norm", by_case),
)
def per_unit_methods_keep_correlations() -> Finding:
    x, v = draw(500, 8), draw(16, 8)
    a = x @ v.T
    batch = F.batch_norm(a, None, None, training=True)
    weight = x @ F.weight_norm(v, torch.ones(16, 1).double()).T
    before = activations.correlation(a)
    off = max(worst(activations.correlation(y) - before) for y in (batch, weight))
    return Finding(
        "proved" if off < 1e-12 else "refuted",
        f"All correlations agree to {'less' if off < 1e-12 else 'more'} than 1e-12.",
        numbers={"off": off},
    )
