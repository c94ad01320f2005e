"""The comparisons of a plan, declared once; `compare` judges them.

A comparison is a sum of signed terms, the final metric of an arm each, better when negative. ::

    NATS = Margin(0.01, "nats", "the mean of the test cross-entropy over the curve", "...")
    COMPARISONS = Comparisons((
        Comparison("layer - none", less("layer", "none", "mean_test_nll"), NATS,
                   Said("faster-than-plain/mnist", "A network ...")),
    ), chapter="19")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

import numpy as np

from layernorm.lab.analysis.curves import final
from layernorm.lab.analysis.statistics import interval

if TYPE_CHECKING:
    from pandas import DataFrame, Series

SAYS, FAMILIES = ("better", "not worse", "same"), ("primary", "exploratory")
SHARED = 0.05  # the chance that any interval of a family is wrong
Contrast = tuple[tuple[float, str, Any], ...]  # weight, arm, metric (a name, or as in `curves`)


@dataclass(frozen=True)
class Margin:
    """The smallest difference that matters, of what, and why; and the metric's resolution.

    `null`: of a metric that scores nothing (a correlation, a drift, an angle), what it was compared
    with or measured on where nothing is learned; there the rule must not support a claim.
    """

    size: float
    unit: str
    of: str
    why: str
    resolution: float = 0.0
    null: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.size < math.inf:
            raise ValueError(
                f"margin must be positive and finite, got {self.size}; it is the smallest "
                "difference that matters"
            )

    def __str__(self) -> str:
        unit = self.unit.removesuffix("s") if self.size == 1 else self.unit
        return f"{self.size:.3g} {unit}".strip()


@dataclass(frozen=True)
class Said:
    """A claim; rows that share it are its conditions, `given` names rows that come before it."""

    id: str
    statement: str
    given: tuple[str, ...] = ()
    chapter: str | None = None


@dataclass(frozen=True)
class Comparison:
    """A row of a plan. `says`: what its statement says of the first arm, of `SAYS`. `plateau`: runs
    either leave a plateau or do not, so that an exact sign-flip test has to agree."""

    name: str
    contrast: Contrast
    margin: Margin
    claim: Said | None = None
    says: str = "better"
    family: str = "primary"
    plateau: bool = False

    def __post_init__(self) -> None:
        for given, known in ((self.says, SAYS), (self.family, FAMILIES)):
            if given not in known:
                raise ValueError(f"{self.name}: must be one of {', '.join(known)}, got {given!r}")

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(arm for _, arm, _ in self.contrast))


@dataclass(frozen=True)
class Gate:
    """An arm counts if its metric is below a bound with every seed, or `surely` in the mean.

    `below`: the bound, or what gives it for an arm's options. `by_heart`: in its run on a few
    examples. `exempt`: patterns of arms whose failure is what is asked about.
    """

    fails: str
    metric: str
    below: float | Callable[[dict], float]
    by_heart: bool = False
    surely: bool = False
    exempt: tuple[str, ...] = ()

    def passed(self, frame: DataFrame, arm: str) -> bool:
        if any(fnmatch(arm, pattern) for pattern in self.exempt):
            return True
        values, below = final(frame, arm, self.metric), self.below
        runs = frame.loc[frame.arm == arm, "seed"].nunique()
        if not 0 < runs == len(values) or not np.isfinite(values).all():
            return False
        if callable(below):
            below = below(frame.loc[frame.arm == arm, "options"].iloc[0])
        return bool((interval(values).high if self.surely else values.max()) < below)


GATES = (
    Gate("is no better than guessing one of ten classes", "test_error", 90.0),
    Gate("does not memorize a few examples", "train_error", 1e-9, by_heart=True),
)


@dataclass(frozen=True)
class Comparisons:
    """All that an experiment compares; its claims are decided on the runs of `profile`."""

    rows: tuple[Comparison, ...] = ()
    chapter: str = ""
    gates: tuple[Gate, ...] = GATES
    profile: str = "standard"

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two comparisons have one name: {', '.join(sorted(twice))}")

        said = {row.claim: row.family for row in self.rows}
        if mixed := [row.name for row in self.rows if row.claim and said[row.claim] != row.family]:
            raise ValueError(f"a claim's rows must be of one family: {', '.join(mixed)}")

    def confidence(self, family: str, arms: Iterable[str]) -> float:
        """That of each interval: the family's comparisons among these arms share the 5%."""
        count = sum(row.family == family and set(row.arms) <= set(arms) for row in self.rows)
        return 1 - SHARED / max(count, 1)

    def primary_arms(self) -> set[str]:
        return {arm for row in self.rows if row.family == "primary" for arm in row.arms}

    def claims(self) -> dict[Said, list[Comparison]]:
        """The rows of each claim."""
        said = dict.fromkeys(row.claim for row in self.rows if row.claim)
        return {claim: [row for row in self.rows if row.claim == claim] for claim in said}


def families(rows: Iterable[Comparison], *primary: str) -> tuple[Comparison, ...]:
    """These rows, the named ones as the primary family and all others as the exploratory one.

    A claim that a primary row decides is decided by such rows alone; its others are shown without
    it. Raises `ValueError` for a name that no row has.

    >>> layer, rms = (Comparison(a, less(a, "none", "x"), Margin(1, "", "", "")) for a in "lr")
    >>> [row.family for row in families([layer, rms], "l")]
    ['primary', 'exploratory']
    """
    rows = tuple(rows)
    if unknown := set(primary) - {row.name for row in rows}:
        raise ValueError(f"no comparison has the name {', '.join(sorted(unknown))}")
    decided = {row.claim for row in rows if row.name in primary}
    return tuple(
        replace(row, family="primary")
        if row.name in primary
        else replace(row, family="exploratory", claim=None if row.claim in decided else row.claim)
        for row in rows
    )


def less(favored: str, other: str, metric: Any) -> Contrast:
    """The arm that is said to be better, less the other."""
    return (1, favored, metric), (-1, other, metric)


def within(share: float, favored: str, other: str, metric: Callable) -> Contrast:
    """The ratio of two arms, less a share, of a metric that is a logarithm: below 0 where the first
    needs less than this share of the other."""

    def beside_share(*given: Any) -> Series:
        return metric(*given) - math.log(share)

    return (1, favored, beside_share), (-1, other, metric)


def minus(one: Contrast, other: Contrast, share: float = 1) -> Contrast:
    """A difference of differences: `one` less a share of the other."""
    return (*one, *((-share * weight, arm, metric) for weight, arm, metric in other))


def difference(frame: DataFrame, contrast: Contrast) -> Series:
    """The sum of a contrast's terms by seed, NaN for a seed that an arm lacks."""
    arms = tuple(dict.fromkeys(arm for _, arm, _ in contrast))
    total: Any = 0
    for weight, arm, metric in contrast:
        total = total + weight * term(frame, arm, metric, arms)
    return total


def term(frame: DataFrame, arm: str, metric: Any, arms: tuple[str, ...]) -> Series:
    """An arm's metric by seed, as a contrast of these arms takes it."""
    return metric(frame, arm, arms) if callable(metric) else final(frame, arm, metric)
