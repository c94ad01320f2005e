"""Plans, intervals and verdicts, as read by sweeps, claims, tables and figures.

`Verdicts` judges the comparisons of a plan (`contrasts`) on runs, `report.recorded` on published
ones. An interval is Student's t over the seeds' differences; the comparisons of a family share 5%
(Bonferroni), so that all their intervals hold together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np

from layernorm.lab.analysis.curves import final
from layernorm.lab.analysis.statistics import interval, needed, sign_flip
from layernorm.lab.experiments.contrasts import Comparison, Comparisons, difference
from layernorm.lab.experiments.judged import INCONCLUSIVE, Judged, elsewhere, verdict

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from layernorm.lab.experiments.experiment import Original

EXPLORED = 5  # seeds of an exploratory comparison where seeds are planned in two stages
NARROW = 0.7  # the half-width that is planned for, in margins
SIGNS = 10  # seeds that an exact sign-flip test needs


@dataclass(eq=False)
class Verdicts(Mapping[str, Judged]):
    """A plan's comparisons by name, each judged when it is asked for.

    `frame`, `few`, `next_best`: the runs, those on a few examples, and those at the rate that
    tuning cannot tell from the best, which arms `tied` should have. `arms`, `seeds`, `first`,
    `short_first`: those of the profile.
    `rate_of`: the arm for which an arm's rate was tuned, if that is another. `original`: the
    paper's experiment.
    """

    plan: Comparisons
    frame: DataFrame
    few: DataFrame
    arms: Collection[str]
    seeds: Sequence[int]
    first: int | None = None
    short_first: int | None = None
    next_best: DataFrame | None = None
    tied: Collection[str] = ()
    rate_of: Mapping[str, str] = field(default_factory=dict)
    original: Original | None = None
    _judged: dict[str, Judged] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def rows(self) -> dict[str, Comparison]:
        """The comparisons among the arms."""
        return {row.name: row for row in self.plan.rows if set(row.arms) <= set(self.arms)}

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Judged:
        if name not in self._judged:
            one, *others = self.at_rates(name)
            one = replace(one, others=tuple(others))
            otherwise = {other.verdict for other in others} - {INCONCLUSIVE, one.verdict}
            if otherwise and one.verdict != INCONCLUSIVE:
                one = replace(one, problem=f"{elsewhere(one.verdict, otherwise)}.")
            self._judged[name] = one
        return self._judged[name]

    def at_rates(self, name: str) -> list[Judged]:
        """A comparison at the best rates, then at all choices of next best ones that were run."""
        row = self.rows[name]
        return [self._judge(row, frame) for frame in self.frames(row.arms)]

    def made(self, row: Comparison) -> bool:
        """Tell whether all runs that are planned for a comparison are there: of a primary one also
        those at a learning rate that tuning cannot tell from the best."""
        seeds = self.seeds[: self.count(row)]
        frames = self.frames(row.arms) if row.family == "primary" else [self.frame]
        return not any(self._lack(row, frame, seeds) for frame in frames)

    def count(self, row: Comparison) -> int | None:
        """The seeds that decide a comparison: all; in two stages, of a primary one as many as are
        planned for all of its arms, None while its first ones are missing. More seeds than it needs
        itself leave its interval exact: their number, too, follows from spreads alone."""
        if self.first is None:
            return len(self.seeds)
        if row.family != "primary":
            return min(EXPLORED, len(self.seeds))
        if self._needed[row.name] is None:
            return None
        planned = {
            arm: max(
                n
                for name, n in self._needed.items()
                if n is not None and arm in self.rows[name].arms
            )
            for arm in row.arms
        }
        return min(planned.values())

    @cached_property
    def _needed(self) -> dict[str, int | None]:
        """The seeds that make each primary comparison's half-width narrow, by the spread of the
        first ones (of a first stage that was lengthened, by the larger of both plans; the interval
        has the long one's spread, which is independent of the mean whichever number follows); None
        while these are missing."""
        return {name: self._need(row) for name, row in self.rows.items() if row.family == "primary"}

    def _need(self, row: Comparison) -> int | None:
        first = self.seeds[: self.first]
        if self._lack(row, self.frame, first):
            return None
        values = self._values(row, self.frame, first)
        if not np.isfinite(values).all():
            return self.first
        half, confidence = NARROW * row.margin.size, self._confidence(row)
        stages = filter(None, (self.short_first, self.first))
        return max(needed(values[:n], half, confidence, len(self.seeds)) for n in stages)

    def gate(self, arms: Iterable[str], frame: DataFrame | None = None) -> str:
        """The first gate that one of the arms fails, in words; "" where there is none."""
        frame = self.frame if frame is None else frame
        for gate, arm in product(self.plan.gates, arms):
            if not gate.passed(self.few if gate.by_heart else frame, arm):
                return f"Gate failed: {arm} {gate.fails}."
        return ""

    def _confidence(self, row: Comparison) -> float:
        return self.plan.confidence(row.family, self.arms)

    def frames(self, arms: Collection[str]) -> Iterator[DataFrame]:
        """The runs at the best rates; then with every choice of these arms at next best ones."""
        import pandas

        yield self.frame
        none = self.frame.head(0)
        next_best = none if self.next_best is None else self.next_best
        again = {*next_best.arm, *self.tied} & {*arms}
        tuned = {arm: self.rate_of.get(arm, arm) for arm in arms}
        rates = sorted({tuned[arm] for arm in again})
        for chosen in (some for n in range(len(rates)) for some in combinations(rates, n + 1)):
            other = [arm for arm in arms if tuned[arm] in chosen]
            best = self.frame[~self.frame.arm.isin(other)]
            yield pandas.concat([best, next_best[next_best.arm.isin(other)]])

    def _lack(self, row: Comparison, frame: DataFrame, seeds: Iterable[int]) -> list[str]:
        there = frame.groupby("arm").seed.agg(set)
        return [arm for arm in row.arms if not set(seeds) <= there.get(arm, set())]

    def _values(self, row: Comparison, frame: DataFrame, seeds: Iterable[int]) -> Series:
        with np.errstate(invalid="ignore"):  # two diverged runs have no difference
            return difference(frame, row.contrast).reindex(list(seeds))

    def _judge(self, row: Comparison, frame: DataFrame) -> Judged:
        one = Judged(row, self._confidence(row))
        seeds = self.seeds[: self.count(row)]
        lack = self._lack(row, frame, seeds)
        if lack or len(seeds) < 2:
            missing = ", ".join(lack) or "one seed has no interval"
            return replace(one, problem=f"Runs are missing: {missing}.")
        if unknown := _unknown(row, frame):
            return replace(one, problem=f"The records have no final metric {unknown}.")
        values = self._values(row, frame, seeds)
        if finite := np.isfinite(values).all():
            first = self.first if row.family == "primary" else None
            if np.ptp(values[:first]) == 0:  # a spread that says nothing of those that follow
                first = None
            found, half = interval(values, one.confidence, first), row.margin.resolution
            if np.ptp(values) == 0:
                found = replace(found, low=found.mean - half, high=found.mean + half)
            one = replace(one, difference=found)
        if failed := self.gate(row.arms, frame):
            return replace(one, problem=failed)
        if not finite:
            lost = f"A run of {' or '.join(row.arms)} diverged"
            return replace(one, problem=f"{lost}, or its curve never reached the level.")
        if row.plateau and len(values) < SIGNS:
            few = (
                f"{len(values)} seeds are too few for an exact sign-flip test, which needs {SIGNS}."
            )
            return replace(one, problem=few)
        if row.plateau and not _signs_agree(one, values):
            return replace(one, problem="An exact sign-flip test does not agree with the interval.")
        return one


def _unknown(row: Comparison, frame: DataFrame) -> str:
    """The metrics of a comparison that no record of its arm has."""
    named = [(arm, metric) for _, arm, metric in row.contrast if isinstance(metric, str)]
    return " and ".join(dict.fromkeys(m for arm, m in named if final(frame, arm, m).empty))


def _signs_agree(judged: Judged, values: Series) -> bool:
    """Tell whether exact tests at the two margins give the interval's verdict."""
    level, margin = (1 - judged.confidence) / 2, judged.row.margin.size
    ends = (-margin, margin)
    high = min((end for end in ends if sign_flip(values - end) <= level), default=np.inf)
    low = max((end for end in ends if sign_flip(end - values) <= level), default=-np.inf)
    within = np.nextafter(low, np.inf), np.nextafter(high, -np.inf)
    return verdict(*within, margin, judged.row.says) == judged.verdict
