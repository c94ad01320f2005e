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
    below,
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
    rule="summed inputs: a cause of standard deviation 3 times how each unit follows it, plus a "
    "rest of each unit's own and an offset, 2000 cases. Held if the mean squared correlation "
    "falls below 0.01 in 20 draws, a climb and the adversary's cases: its rows up to 1e6 as what "
    "follows the cause, as standard deviations of the rest and as offsets, a skewed and a "
    "heavy-tailed rest, one unit noisier than the others, layers of 2, 3 and 8 units. "
    "Conditional if only layers of fewer than 32 units break it, units that follow the cause "
    "differently (by more than 1% of the rest), or rests of which one spreads more than twice as "
    "far as another",
    sabotage=(LAYER_NORM, as_it_is),
)
def removes_correlation() -> Finding:
    def left(follows: Tensor, own: Tensor, offset: Tensor, *power: Tensor) -> float:
        rest = draw(2000, len(own)).pow(int(power[0]) if power else 1)
        y = bare(3 * draw(2000, 1) * follows + own * rest + offset)
        return activations.squared_correlation(y) if (y.std(0) > 0).all() else math.inf

    def alike(follows: Tensor, own: Tensor, *_: Tensor) -> bool:
        apart = follows.max() - follows.min()
        similar = bool(own.max() <= 2 * own.min() and apart <= 0.01 * own.min())
        return len(own) >= 32 and similar

    def units(count: int) -> tuple[Tensor, Tensor, Tensor]:
        ones = torch.ones(count).double()
        return ones, ones, 0 * ones

    ones, _, zeros = units(64)
    hard = {f"H = {count}": units(count) for count in (2, 3, 8)}
    hard["one noisy unit"] = ones, ones + 99 * torch.eye(64).double()[0], zeros
    hard |= {name: (ones, ones, zeros, torch.tensor(p)) for name, p in (("skew", 6), ("tails", 7))}
    for name, (row,) in adversary.rows(64, huge=1e6).items():
        hard[f"following by {name}"] = row, ones, zeros
        hard[f"spreads by {name}"] = ones, 1 + row.abs(), zeros
        hard[f"offsets by {name}"] = ones, ones, row
    draws = [units(count) for count in torch.randint(32, 65, (20,)).tolist()]
    return adversary.searched(
        0.01,
        "Of the correlation of units that follow a cause alike a mean square "
        f"{below(left(*units(32)), 0.01)} is left with 32, of {left(*units(8)):.2f} with 8 and of "
        f"{left(*units(2)):.2f} with 2; where half of 64 follow it up and half down, one "
        f"{below(left(*hard['following by two values']), 0.4)}.",
        left,
        [(follows, own + torch.rand(len(own)), 3 * draw(len(own))) for follows, own, _ in draws],
        hard,
        only_if=(
            "the layer has 32 units or more, the common cause moves all of them alike, and what is "
            "each unit's own spreads at most twice as far in one unit as in another",
            alike,
        ),
    )


@claim(
    id="layer-normalization-cannot-decorrelate",
    statement="Without gain and bias, the outputs of layer normalization are never uncorrelated: "
    "over any cases the covariances of different ones add up to minus the sum of the variances, "
    "and in every case the products of different ones average to -1/(H - 1).",
    rule="eps = 0. Held if both to 1e-12 (the first as a share of the variances; times largest "
    "entry over spread) and some output varies over the cases, so that not all covariances are 0, "
    "for 100 random cases of each H from 2 to 65 units, a climb, and at 2, 3 and 65 units the "
    "adversary's rows beside a drawn case and its matrices as 50 cases; conditional if only cases "
    "break it that do not vary, or all have the same outputs",
    sabotage=(LAYER_NORM, never_centers),
)
def layer_normalization_cannot_decorrelate() -> Finding:
    def off(a: Tensor) -> Tensor:
        y, units = bare(a), a.shape[1]
        products = (y.sum(1).square() - y.square().sum(1)) / (units * (units - 1))
        covariance = (y - y.mean(0)).T @ (y - y.mean(0)) / len(y)
        variances = covariance.diagonal().sum()
        together = (covariance.sum() - variances) / variances  # nan if none varies
        return size(products + 1 / (units - 1), together + 1) / adversary.conditioning(a.detach())

    def varies(a: Tensor) -> bool:
        return adversary.varies(a) and largest(bare(a) - bare(a)[:1]) > 1e-6

    hard = {}
    for h in (2, 3, 65):
        for name, a in adversary.rows(h).items():
            hard[f"{name} (H = {h})"] = (torch.cat([a, draw(1, h)]),)
        hard |= {f"{k}, 50 (H = {h})": (a,) for k, a in adversary.matrices(50, h).items()}
    return adversary.searched(
        1e-12,
        "For H = 2 to 65 the covariances of different outputs add up to minus the sum of the "
        "variances, and the average product is -1/(H - 1), to 1e-12.",
        off,
        [(draw(100, units) * 3 + draw(100, 1),) for units in range(2, 66)],
        hard,
        only_if=(
            "eps = 0, the units of each case do not all agree, and some output varies over the "
            "cases",
            varies,
        ),
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
