"""Claims that chapter 03 decides about computing layer normalization in finite precision."""

from __future__ import annotations

import torch

from layernorm import functional as F
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.chapter_03 import EPS, draw, plain
from layernorm.lab.claims.checks import LAYER_NORM, below, held, largest


def eps_outside(x, normalized_shape, weight=None, bias=None, eps=EPS):
    """Mutant: eps added to the standard deviation."""
    d = x - x.mean(-1, keepdim=True)
    return d / (d.square().mean(-1, keepdim=True).sqrt() + eps)


def one_pass(x, normalized_shape, weight=None, bias=None, eps=EPS):
    """The variance as E[x²] − E[x]², which needs one pass over x."""
    mu = x.mean(-1, keepdim=True)
    return (x - mu) / (x.square().mean(-1, keepdim=True) - mu.square() + eps).sqrt()


def eps_inside(x, normalized_shape, eps=EPS):
    """Every step in the type of x, as the equation reads."""
    d = x - x.mean(-1, keepdim=True)
    return d / (d.square().mean(-1, keepdim=True) + eps).sqrt()


def error(norm, a, eps=EPS) -> float:
    """The largest error against the definition in float64; infinite if something is not finite."""
    y = norm(a, a.shape[-1:], eps=eps).double()
    return largest(y - plain(a.double(), eps)) if y.isfinite().all() else float("inf")


@claim(
    id="eps-inside-the-root-bounds-the-gain",
    statement="With eps inside the root a nearly constant case is amplified by at most 1/√eps, 316 "
    "times; with eps added to σ it would be up to 1/eps, 100,000 times.",
    rule="100 cases of 32 units with standard deviation 1e-8, eps = 1e-5: held if each is "
    "amplified by 1/√eps to 0.1 % and, with eps outside, by 1/eps to 0.2 %, and no row of the "
    "adversary by more",
    sabotage=(LAYER_NORM, eps_outside),
)
def eps_inside_the_root_bounds_the_gain() -> Finding:
    def amplified(norm, a):
        return norm(a, a.shape[1:], eps=EPS).std(1, correction=0) / a.std(1, correction=0)

    a = draw(100, 32)
    a = 1e-8 * (a - a.mean(1, keepdim=True)) / a.std(1, correction=0, keepdim=True)
    inside, outside = (amplified(norm, a) for norm in (F.layer_norm, eps_outside))
    hard = torch.cat([a for a in adversary.rows(32).values() if adversary.varies(a)])
    most = largest(amplified(F.layer_norm, hard)) * EPS**0.5
    return held(
        max(largest(inside * EPS**0.5 - 1), most - 1) < 1e-3 and largest(outside * EPS - 1) < 2e-3,
        f"A case of standard deviation 1e-8 is amplified by {inside.mean():.0f} with eps inside "
        f"the root, by {outside.mean() / 1000:.0f} thousand with eps outside; no row of the "
        f"adversary by {'more' if most - 1 < 1e-3 else 'as little'}.",
    )


@claim(
    id="one-pass-variance-fails-at-large-means",
    statement="In float32 the variance E[x²] − E[x]² of summed inputs with mean 10,000 and "
    "standard deviation 1 is useless; the variance of the deviations is not.",
    rule="100 cases of 512 units: held if E[x²] − E[x]² gives a NaN or an error above 0.1 and "
    "the definition none above 0.005, five steps of float32 at 10,000; the error is against "
    "float64 on the same inputs",
    sabotage=(LAYER_NORM, one_pass),
)
def one_pass_variance_fails_at_large_means() -> Finding:
    a = (1e4 + torch.randn(100, 512)).float()
    bad, good = error(one_pass, a), error(F.layer_norm, a)
    return held(
        bad > 0.1 and good < 0.005,
        f"The largest error is {'above 0.1 or a NaN' if bad > 0.1 else 'below 0.1'} with "
        f"E[x²] − E[x]² and {below(good, 0.005)} with deviations.",
        one_pass=bad,
        two_passes=good,
    )


@claim(
    id="half-precision-needs-float32-statistics",
    statement="In float16 and bfloat16 layer normalization should compute its statistics in "
    "float32: then the only error is the rounding of the result.",
    rule="100 cases of 512 units with mean 100 and standard deviation 1, both types: held if the "
    "definition errs by at most half a step of the type at the largest output (and 1 % for the "
    "statistics' own rounding) while computing in the type errs more than ten times as much",
    sabotage=("layernorm.functional._statistics_type", lambda x: x),
)
def half_precision_needs_float32_statistics() -> Finding:
    ratios, rounded_once = {}, True
    for dtype in (torch.float16, torch.bfloat16):
        a = (100 + torch.randn(100, 512)).to(dtype)
        top = largest(plain(a.double(), EPS))
        step = torch.finfo(dtype).eps * 2.0 ** int(torch.tensor(top).log2().floor())
        good = error(F.layer_norm, a)
        rounded_once &= good <= 1.01 * step / 2
        ratios[str(dtype)] = error(eps_inside, a) / good
    return held(
        rounded_once and min(ratios.values()) > 10,
        f"With float32 statistics the error {'is' if rounded_once else 'exceeds'} one rounding; "
        f"without, it is {'more than' if min(ratios.values()) > 10 else 'less than'} ten times as "
        "large.",
        **ratios,
    )
