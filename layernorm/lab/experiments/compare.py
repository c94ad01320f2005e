"""One plan, one interval, one verdict: what sweeps, claims, tables and figures all read.

`Verdicts` judges the comparisons of a plan (`contrasts`) on runs, `recorded` on published ones. An
interval is Student's t over the seeds' differences; the comparisons of a family share 5%
(Bonferroni), so that all their intervals hold together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from layernorm.lab import records
from layernorm.lab.analysis.statistics import Interval, interval
from layernorm.lab.experiments.contrasts import Comparison, Comparisons, difference

if TYPE_CHECKING:
    from pandas import DataFrame

INCONCLUSIVE, DEPENDS, NOT_BETTER = "inconclusive", "depends", "not better here"


def verdict(low: float, high: float, margin: float, says: str = "better") -> str:
    """The verdict on a statement by the interval of a difference, better when negative."""
    if low > margin or (high < -margin and says == "same"):
        return "opposite here"
    if high < -margin or (high <= margin and says == "not worse"):
        return "supported here"
    if -margin <= low and high <= margin:
        return "supported here" if says == "same" else "no difference here"
    return NOT_BETTER if low >= -margin and says == "better" else INCONCLUSIVE


def together(verdicts: Iterable[str]) -> str:
    """The verdict on a statement from those on its conditions: all of them must be decided."""
    found = set(verdicts)
    if len(found) == 1 or INCONCLUSIVE in found:
        return INCONCLUSIVE if INCONCLUSIVE in found else found.pop()
    one_side = found in ({NOT_BETTER, "no difference here"}, {NOT_BETTER, "opposite here"})
    return NOT_BETTER if one_side else DEPENDS


@dataclass(frozen=True)
class Judged:
    """A comparison's interval and what follows from it; `problem`: why nothing does."""

    row: Comparison
    confidence: float
    difference: Interval | None = None
    problem: str | None = None

    @property
    def verdict(self) -> str:
        return INCONCLUSIVE if self.problem else self._at(self.row.margin.size)

    def _at(self, margin: float) -> str:
        return verdict(self.difference.low, self.difference.high, margin, self.row.says)

    def margins(self) -> tuple[float, float]:
        """From which margin to which the verdict would be the same."""
        edges = sorted({0.0, abs(self.difference.low), abs(self.difference.high), np.inf})
        same = [
            span
            for span in pairwise(edges)
            if self._at(min(sum(span) / 2, span[0] + 1)) == self.verdict
        ]  # they follow each other
        return same[0][0], same[-1][1]

    def notes(self) -> list[str]:
        """The margins of this verdict; of an open one also its sign, and what may still be."""
        if self.problem:
            return []
        m, d = self.row.margin.size, self.difference
        low, high = self.margins()
        span = [f"from {low:.3g}"] * (low > 0) + [f"up to {high:.3g}"] * (high < np.inf)
        said = [f"for margins {' '.join(span)}" if span else "for any margin"]
        if self.verdict == INCONCLUSIVE:
            said += ["below 0"] * (d.high < 0) + ["above 0"] * (d.low > 0)
            may = ["an advantage that matters"] * (d.low < -m)
            may += ["none that matters"] * (d.high >= -m and d.low <= m)
            may += ["a disadvantage"] * (d.high > m)
            said.append(f"possible: {', '.join(may)}" if len(may) < 3 else "anything is possible")
        return said

    def __str__(self) -> str:
        m = self.row.margin
        shown = f"{self.difference:.3g} {m.unit}, margin {m.size:g}: " if self.difference else ""
        return f"{shown}{self.verdict}" + f" ({'; '.join(self.notes())})" * (not self.problem)


class Verdicts(Mapping[str, Judged]):
    """A plan's comparisons by name, each judged when it is asked for.

    `frame`, `few`: the runs, and those on a few examples. `arms`, `seeds`: those of the profile.
    """

    def __init__(
        self,
        plan: Comparisons,
        frame: DataFrame,
        few: DataFrame,
        arms: Iterable[str],
        seeds: Iterable[int],
    ) -> None:
        self.plan, self.frame, self.few = plan, frame, few
        self.arms, self.seeds = tuple(arms), set(seeds)
        self.rows = {row.name: row for row in plan.rows if set(row.arms) <= set(self.arms)}
        self._judged: dict[str, Judged] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Judged:
        if name not in self._judged:
            row = self.rows[name]
            confidence = self.plan.confidence(row.family, self.arms)
            self._judged[name] = Judged(row, confidence, *self._seen(row, confidence))
        return self._judged[name]

    def _seen(self, row: Comparison, confidence: float) -> tuple[Interval | None, str | None]:
        """The interval, where there is one, and why it decides nothing, if so."""
        there = self.frame.groupby("arm").seed.agg(set)
        lack = [arm for arm in row.arms if not self.seeds <= there.get(arm, set())]
        if lack or len(self.seeds) < 2:
            return None, f"Runs are missing: {', '.join(lack) or 'one seed has no interval'}."
        with np.errstate(invalid="ignore"):  # two diverged runs have no difference
            values = difference(self.frame, row.contrast).reindex(sorted(self.seeds))
        found = None
        if np.isfinite(values).all():
            found = interval(values, confidence)
            if np.ptp(values) == 0:
                half, at = row.margin.resolution, found.mean
                found = Interval(at, at - half, at + half, found.n)
        for gate, arm in product(self.plan.gates, row.arms):
            if not gate.passed(self.few if gate.by_heart else self.frame, arm):
                return found, f"Gate failed: {arm} {gate.fails}."
        return found, None if found else f"A run of {' or '.join(row.arms)} diverged."


def recorded(experiment: Any) -> Verdicts | None:
    """An experiment's comparisons on the runs that decide its claims; None where there are none."""
    plan = experiment.comparisons
    if not records.runs(experiment.name, plan.profile):
        return None
    runs, few = (records.runs(experiment.name, p) for p in (plan.profile, plan.by_heart))
    scale = experiment.profile(plan.profile)
    return Verdicts(plan, records.tidy(runs), records.tidy(few), scale.arms, scale.seeds)
