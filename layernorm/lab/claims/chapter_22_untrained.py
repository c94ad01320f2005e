"""Claims of chapter 22 that are measured in untrained transformers without norms."""

from __future__ import annotations

import math

import numpy as np

from layernorm.lab.analysis.statistics import Interval, interval
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.chapter_21 import said
from layernorm.lab.claims.checks import conditional, held, seeds
from layernorm.lab.experiments.transformer import without

BRANCH = "layernorm.lab.experiments.transformer.model.Branch.forward"
TANH = "layernorm.functional.dynamic_tanh"
STDS = (0.01, 0.03, 0.1)
SLOPE = {"dyt/much": 0.5, "derf/much": 1 / math.sqrt(math.pi)}  # at 0, with alpha 0.5


def further(arm: str, **options) -> tuple[np.ndarray, Interval]:
    """Gradients by seed and depth, and the growth of their logarithm from the second depth to the
    third, less that from the first to the second."""
    values = without.over_depth(arm, seeds=seeds(5), **options)["gradient"]
    one, two = without.growth(values)
    return values, interval(two - one)


def near(found: Interval, exponent: float) -> bool:
    """Tell whether an interval lies within 0.1 of a theory's exponent."""
    return exponent - 0.1 < found.low and found.high < exponent + 0.1


@claim(
    id="dynamic-tanh-gradients-grow-faster-than-a-power",
    statement="From 4 to 64 blocks of an untrained transformer the gradient grows ever faster on "
    "logarithmic axes with dynamic tanh, and along a line with layer normalization (after Alekseev "
    "2026, who derives growth faster than any power, and a power).",
    rule="the loss's gradient at the embeddings over that at the stream's end; untrained networks "
    "of 48 units and 4, 16 and 64 blocks, five seeds. The growth of its logarithm from 16 to 64 "
    "blocks, less that from 4 to 16, is 0 for a power. Held if its 95% interval lies above 0 under "
    "dynamic tanh whose alpha is 0.5 and, the adversary, 1, and under layer normalization reaches "
    "0 and lies wholly below both; conditional if so, but the gradient at 64 blocks is less than "
    "twice as large where residual matrices start divided by √(2L), the control; else refuted",
    # Mutant: the branches are nearly left out.
    sabotage=(BRANCH, lambda branch, x: x + 1e-3 * branch.f(branch.norm(x))),
)
def gradients() -> Finding:
    values, half = further("dyt/much")
    one, norm = further("dyt/much", alpha=1.0)[1], further("layer")[1]
    control = without.over_depth("dyt/much", without.DEPTHS[-1:], seeds(5), scaled=True)["gradient"]
    divided = interval(control[:, 0])
    return conditional(
        min(half.low, one.low) > max(0.0, norm.high) and norm.low <= 0,
        divided.high >= 2,
        "the matrices that write to the residual stream do not start divided by √(2L)",
        f"The logarithm's further growth is {said(half)} with dynamic tanh, {said(one)} where "
        f"alpha is 1, and {said(norm)} with layer normalization. With 64 blocks the gradient is "
        f"{values[:, -1].mean():.1f} times as large at the embeddings, with divided matrices "
        f"{divided.mean:.2f} times.",
        half=half.mean,
        one=one.mean,
        norm=norm.mean,
    )


@claim(
    id="small-embeddings-make-dynamic-tanh-linear",
    statement="If embeddings start small, dynamic tanh and dynamic erf do little more than "
    "multiply by a constant, as in a network without norms; so they need larger embeddings (Zhu et "
    "al. 2025 multiply them by the root of the width).",
    rule="untrained networks, embeddings of standard deviation 0.01, 0.03 and 0.1, five seeds; how "
    "far the logits are from those with the curve's slope at 0 in the norms' place, and the "
    "exponent of the embeddings' scale in it. Held if its 95% interval lies within 0.1 of 2 for "
    "dynamic tanh and erf at 4 blocks and, the adversary, dynamic tanh at 12 blocks, and for layer "
    "normalization within 0.1 of 0; else refuted",
    sabotage=(TANH, lambda x, alpha, *_: alpha * x.sign() * x.abs().sqrt()),
)
def linear() -> Finding:
    def found(arm: str, depth: int = 4) -> tuple[np.ndarray, Interval]:
        values = np.array(
            [[without.apart(arm, s, SLOPE.get(arm, 1 / s), seed, depth) for s in STDS]
             for seed in seeds(5)]
        )  # fmt: skip
        return values, interval(np.polyfit(np.log(STDS), np.log(values).T, 1)[0])

    curves = [found("dyt/much"), found("derf/much"), found("dyt/much", 12)]
    norm = found("layer")
    return held(
        all(near(one, 2.0) for _, one in curves) and near(norm[1], 0.0),
        f"The exponents are {said(curves[0][1])}, {said(curves[1][1])} and {said(curves[2][1])}, "
        f"with layer normalization {abs(norm[1].mean):.2f}. At 0.01 the logits are "
        f"{curves[0][0][:, 0].mean():.0e} apart.",
        dyt=curves[0][1].mean,
        norm=norm[1].mean,
    )
