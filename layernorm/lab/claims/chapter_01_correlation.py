"""Claims about correlated summed inputs, and about what the layer below does to a gradient.

They are shown on the page of side paths (`pages.py`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from layernorm import functional as F
from layernorm.lab.analysis import activations, scale
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.chapter_01 import as_it_is, bare, never_centers
from layernorm.lab.claims.checks import (
    BATCH_NORM,
    LAYER_NORM,
    conditional,
    draw,
    held,
    largest,
    size,
    worst,
)

_layer_norm = F.layer_norm  # what a mutant is made of


@claim(
    id="covariate-shift-is-correlation",
    statement="Covariate shift is high correlation in the summed inputs to different units.",
    rule="refuted if summed inputs can drift by 3 standard deviations with mean squared "
    "correlations below 0.01, and have ones above 0.5 without drift (below 1e-9); else held",
    sabotage=(
        "layernorm.lab.analysis.activations.drift",
        lambda a, start: activations.squared_correlation(a),
    ),
)
def covariate_shift_is_correlation() -> Finding:
    def standardized(a):
        return (a - a.mean(0)) / a.std(0, correction=0)

    start = standardized(draw(1000, 16))
    cases = start + 3, standardized(start + 3 * start[:, :1])  # shifted, correlated
    drifts = [activations.drift(a, start) for a in cases]
    squares = [activations.squared_correlation(a) for a in cases]
    apart = drifts[0] >= 2.999 and squares[0] < 0.01 and drifts[1] < 1e-9 and squares[1] > 0.5
    return held(
        not apart,
        f"Either occurs without the other: a drift of {drifts[0]:.1f} standard deviations at a "
        f"mean squared correlation of {squares[0]:.3f}, and one of {squares[1]:.1f} at a drift of "
        f"{drifts[1]:.1f}.",
        drift=drifts[0],
        correlation=squares[1],
    )


@claim(
    id="removes-correlation",
    statement="Layer normalization removes the correlation of summed inputs to different units.",
    rule="64 units with a common cause, of correlation 0.9: held if the mean squared correlation "
    "falls below 0.01 when the cause moves all units alike, in layers of 2, 3 and 8 units, too, "
    "and when it moves half of them up and half down; conditional if with 64 units moved alike "
    "only; else refuted",
    sabotage=(LAYER_NORM, as_it_is),
)
def removes_correlation() -> Finding:
    alike = {f"alike_{units}": torch.ones(units).double() for units in (64, 8, 3, 2)}
    before, left = {}, {}
    for name, along in {**alike, "up_and_down": torch.tensor([1.0, -1.0] * 32).double()}.items():
        a = 3 * draw(4000, 1) * along + draw(4000, len(along))
        before[name], left[name] = map(activations.squared_correlation, (a, bare(a)))
    return conditional(
        left["alike_64"] < 0.01,
        max(left.values()) < 0.01,
        "the units are many, and what they have in common moves all of them alike",
        f"Of a mean squared correlation of {before['alike_64']:.1f} there remain, where the cause "
        f"moves all units alike, {left['alike_64']:.3f} with 64 units, {left['alike_8']:.3f} with "
        f"8, {left['alike_3']:.2f} with 3 and {left['alike_2']:.2f} with 2, and where it moves "
        f"half of 64 up and half down {left['up_and_down']:.2f}.",
        **left,
    )


@claim(
    id="layer-normalization-cannot-decorrelate",
    statement="Without gain and bias, the outputs of layer normalization are never uncorrelated: "
    "in every case the products of two different ones average to -1/(H - 1).",
    rule="held if so to 1e-12 (times largest entry over spread) for 100 random cases of each H "
    "from 2 to 65 units and for the adversary's rows at 2, 3 and 65; conditional if only rows "
    "that do not vary break it",
    sabotage=(LAYER_NORM, never_centers),
)
def layer_normalization_cannot_decorrelate() -> Finding:
    def off(a: Tensor) -> Tensor:
        y, units = bare(a), a.shape[1]
        products = (y.sum(1).square() - y.square().sum(1)) / (units * (units - 1))
        return size(products + 1 / (units - 1)) / adversary.conditioning(a.detach())

    return adversary.searched(
        1e-12,
        "For H = 2 to 65 the average product is -1/(H - 1) to 1e-12.",
        off,
        [(draw(100, units) * 3 + draw(100, 1),) for units in range(2, 66)],
        {f"{k} (H = {h})": (a,) for h in (2, 3, 65) for k, a in adversary.rows(h).items()},
        only_if=(adversary.VARIES, adversary.varies),
    )


@claim(
    id="per-unit-methods-keep-correlations",
    statement="Batch and weight normalization leave every correlation of two summed inputs as it "
    "is.",
    rule="refuted unless the correlation matrices of 500 cases of 16 units agree to 1e-12 at gain "
    "1, for 20 random layers and the adversary's weights without a unit that never varies; held if "
    "at gains of both signs, too; else conditional",
    # Mutant: averages over the units of a case.
    sabotage=(BATCH_NORM, lambda x, *_, **options: _layer_norm(x, x.shape[1:])),
)
def per_unit_methods_keep_correlations() -> Finding:
    def off(v: Tensor, gain: Tensor) -> float:
        batch = F.batch_norm(x @ v.T, None, None, gain, training=True, eps=0.0)
        weight = x @ F.weight_norm(v, gain[:, None]).T
        if not all(y.std(0).all() for y in (batch, weight)):
            return math.inf  # no correlation
        before = activations.correlation(x @ v.T)
        return largest(*(activations.correlation(y) - before for y in (batch, weight)))

    x, one = draw(500, 8), torch.ones(16).double()
    hard = {k: (v, one) for k, v in adversary.matrices(16, 8).items() if v.any(1).all()}
    hard["gains of both signs"] = draw(16, 8), one * (1 - 2 * (torch.arange(16) % 2))
    return adversary.searched(
        1e-12,
        "All correlations agree to 1e-12.",
        off,
        [(draw(16, 8), one) for _ in range(20)],
        hard,
        only_if=("all gains are positive", lambda v, gain: bool((gain > 0).all())),
    )


@claim(
    id="gradients-follow-the-layer-below",
    statement="The gradient of a layer's weights depends on the outputs of the layer below; layer "
    "normalization removes the dependence on their length, but not the one on their direction.",
    rule="held if for 20 random layers and cases the rows of the gradient are parallel to h, "
    "without and with layer normalization, and doubling h doubles the gradient without and leaves "
    "it with layer normalization, all to 1e-10; conditional if only adversarial weights for which "
    "the summed inputs all agree break it; else refuted",
    # Mutant: subtracts the mean and does not divide.
    sabotage=(LAYER_NORM, lambda x, *args, **options: x - x.mean(-1, keepdim=True)),
)
def gradients_follow_the_layer_below() -> Finding:
    def off(w: Tensor, h: Tensor, back: Tensor) -> float:
        found = []
        for normalize, factor in ((False, 2), (True, 1)):
            gradient, doubled = (scale.weight_gradient(w, c * h, back, normalize) for c in (1, 2))
            parallel = torch.outer(gradient @ h, h) / (h @ h)
            violation = largest(gradient - parallel, doubled - factor * gradient)
            found.append(violation / max(1.0, largest(gradient)))
        return worst(*found)

    return adversary.searched(
        1e-10,
        "With and without layer normalization every row of the gradient is parallel to h; doubling "
        "h doubles it without and leaves it with layer normalization, to 1e-10.",
        off,
        [(draw(12, 8), draw(8), draw(12)) for _ in range(20)],
        {name: (w, draw(8), draw(12)) for name, w in adversary.matrices(12, 8).items()},
        only_if=(adversary.VARIES, lambda w, h, _: adversary.varies(w @ h)),
    )
