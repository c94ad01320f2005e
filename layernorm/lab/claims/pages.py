"""The page that shows a claim: that of its chapter, or the page of side paths.

A claim belongs to a chapter. Those that a first reading can leave out are shown beside it, on one
page for all chapters; here they are named, and nowhere else.
"""

from __future__ import annotations

from layernorm.lab.claims import Claim, ClaimError, decide, get, select
from layernorm.lab.claims.render import Decided

SIDE_PATHS = "side-paths"
IDS = (
    # correlated summed inputs
    "covariate-shift-is-correlation",
    "correlated-changes/digits",
    "relu-changes-more-correlated/digits",
    "removes-correlation",
    "removes-correlation/digits",
    "layer-normalization-cannot-decorrelate",
    "per-unit-methods-keep-correlations",
    "gradients-follow-the-layer-below",
    # how the first weights are drawn
    "robust-to-initial-scale/digits",
    "robust-to-shifted-weights/digits",
    "robust-to-uneven-weights/digits",
    "learning-ignores-initial-scale/digits",
    "robust-to-initial-scale/deep_digits",
    "learning-ignores-initial-scale/deep_digits",
    # learning at rates that are too large
    "sigma-makes-learning-stable",
    # learning the gain, learning the length
    "gain-metric-is-the-prediction-error",
    "gain-metric-ignores-the-scale-of-inputs",
    "length-metric-is-scaled-by-the-input",
    "weight-normalization-learns-lengths-as-without",
)


def on_side_paths(claim: Claim) -> bool:
    """Tell whether a claim is shown on the page of side paths, not on that of its chapter."""
    return claim.id in IDS


def shown(page: str) -> tuple[Claim, ...]:
    """Return the claims of a page.

    Args:
        page: a chapter, `"01"` to `"22"`, or `"side-paths"`.

    Raises:
        ClaimError: no such page, or a claim that a side path names is not there.
    """
    if page == SIDE_PATHS:
        return tuple(map(get, IDS))
    try:
        return tuple(claim for claim in select(page) if not on_side_paths(claim))
    except ClaimError as error:
        raise ClaimError(f"page must be a chapter or {SIDE_PATHS!r}: {error}") from error


def show(page: str) -> Decided:
    """Decide the claims of a page, as the last line of a notebook's cell shows them.

    Raises:
        ClaimError: as `shown` and `decide` do.
    """
    return Decided([(claim, decide(claim.id)) for claim in shown(page)])
