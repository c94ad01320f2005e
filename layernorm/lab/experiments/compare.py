"""One plan, one interval, one verdict: what sweeps, claims, tables and figures all read.

`Verdicts` judges the comparisons of a plan (`contrasts`) on runs, `recorded` on published ones. An
interval is Student's t over the seeds' differences; the comparisons of a family share 5%
(Bonferroni), so that all their intervals hold together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np

from layernorm.lab import records
from layernorm.lab.analysis.statistics import Interval, interval, needed, sign_flip
from layernorm.lab.experiments.contrasts import Comparison, Comparisons, difference
from layernorm.lab.experiments.judged import INCONCLUSIVE, Judged, verdict

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from layernorm.lab.experiments.experiment import Original

EXPLORED = 5  # seeds of an exploratory comparison where seeds are planned in two stages
NARROW = 0.7  # the half-width that is planned for, in margins
SIGNS = 10  # seeds that an exact sign-flip test needs


class Verdicts(Mapping[str, Judged]):
    """A plan's comparisons by name, each judged when it is asked for.

    `frame`, `few`, `next_best`: the runs, those on a few examples, and those at the rate that
    tuning cannot tell from the best. `arms`, `seeds`, `first`: those of the profile. `rate_of`: the
    arm for which an arm's rate was tuned, if that is another. `original`: the paper's experiment.
    """

    def __init__(
        self,
        plan: Comparisons,
        frame: DataFrame,
        few: DataFrame,
        arms: Iterable[str],
        seeds: Sequence[int],
        *,
        first: int | None = None,
        next_best: DataFrame | None = None,
        rate_of: Mapping[str, str] | None = None,
        original: Original | None = None,
    ) -> None:
        self.plan, self.frame, self.few, self.first = plan, frame, few, first
        self.arms, self.seeds = tuple(arms), tuple(seeds)
        self.next_best, self.rate_of = next_best, rate_of or {}
        self.original = original
        self.rows = {row.name: row for row in plan.rows if set(row.arms) <= set(self.arms)}
        self._judged: dict[str, Judged] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Judged:
        if name not in self._judged:
            row = self.rows[name]
            one, *others = (self._judge(row, frame) for frame in self._frames(row))
            otherwise = {other.verdict for other in others} - {INCONCLUSIVE, one.verdict}
            if otherwise and one.verdict != INCONCLUSIVE:
                said = (
                    f"At a learning rate that tuning cannot tell from the best, it is {one.verdict}"
                )
                one = replace(one, problem=f"{said}, at another {' or '.join(sorted(otherwise))}.")
            self._judged[name] = one
        return self._judged[name]

    def count(self, row: Comparison) -> int | None:
        """The seeds that decide a comparison: all; in two stages, as many as make the half-width
        of a primary one narrow, by the spread of the first ones; None while these are missing."""
        if self.first is None:
            return len(self.seeds)
        if row.family != "primary":
            return min(EXPLORED, len(self.seeds))
        seeds = self.seeds[: self.first]
        if self._lack(row, self.frame, seeds):
            return None
        values = self._values(row, self.frame, seeds)
        if not np.isfinite(values).all():
            return self.first
        half_width = NARROW * row.margin.size
        return needed(values, half_width, self._confidence(row), len(self.seeds))

    def share(self, row: Comparison) -> str:
        """The least and the most updates of the runs of a comparison, as fractions of those of the
        paper; "" where it does not say how many it made, or there are no runs."""
        options = self.frame[self.frame.arm.isin(row.arms)].drop_duplicates("arm").options
        shares = [self.original and self.original.share(each) for each in options]
        known = sorted(share for share in shares if share is not None)
        return " to ".join(dict.fromkeys(f"{share:.2%}" for share in (*known[:1], *known[-1:])))

    def _confidence(self, row: Comparison) -> float:
        return self.plan.confidence(row.family, self.arms)

    def _frames(self, row: Comparison) -> Iterator[DataFrame]:
        """The runs at the best rates; then with every choice of arms at their next best ones."""
        import pandas

        yield self.frame
        if self.next_best is None:
            return
        tuned = {arm: self.rate_of.get(arm, arm) for arm in row.arms}
        again = sorted({tuned[arm] for arm in row.arms if arm in set(self.next_best.arm)})
        choices = (combinations(again, n + 1) for n in range(len(again)))
        for chosen in chain.from_iterable(choices):
            arms = [arm for arm in row.arms if tuned[arm] in chosen]
            best = self.frame[~self.frame.arm.isin(arms)]
            yield pandas.concat([best, self.next_best[self.next_best.arm.isin(arms)]])

    def _lack(self, row: Comparison, frame: DataFrame, seeds: Iterable[int]) -> list[str]:
        there = frame.groupby("arm").seed.agg(set)
        return [arm for arm in row.arms if not set(seeds) <= there.get(arm, set())]

    def _values(self, row: Comparison, frame: DataFrame, seeds: Iterable[int]) -> Series:
        with np.errstate(invalid="ignore"):  # two diverged runs have no difference
            return difference(frame, row.contrast).reindex(list(seeds))

    def _judge(self, row: Comparison, frame: DataFrame) -> Judged:
        confidence = self._confidence(row)
        seeds = self.seeds[: self.count(row)]
        lack = self._lack(row, frame, seeds)
        if lack or len(seeds) < 2:
            missing = f"Runs are missing: {', '.join(lack) or 'one seed has no interval'}."
            return Judged(row, confidence, None, missing)
        values = self._values(row, frame, seeds)
        found = None
        if np.isfinite(values).all():
            found = interval(values, confidence, self.first if row.family == "primary" else None)
            if np.ptp(values) == 0:
                half, at = row.margin.resolution, found.mean
                found = Interval(at, at - half, at + half, found.n)
        for gate, arm in product(self.plan.gates, row.arms):
            if not gate.passed(self.few if gate.by_heart else frame, arm):
                return Judged(row, confidence, found, f"Gate failed: {arm} {gate.fails}.")
        if found is None:
            infinite = f"A run of {' or '.join(row.arms)} diverged or has no finite value."
            return Judged(row, confidence, None, infinite)
        judged = Judged(row, confidence, found)
        if row.plateau and not _signs_agree(judged, values):
            disagree = f"An exact sign-flip test of at least {SIGNS} seeds does not agree."
            return replace(judged, problem=disagree)
        return judged


def _signs_agree(judged: Judged, values: Series) -> bool:
    """Tell whether exact tests at the two margins give the interval's verdict."""
    if len(values) < SIGNS:
        return False
    level, margin = (1 - judged.confidence) / 2, judged.row.margin.size
    ends = (-margin, margin)
    high = min((end for end in ends if sign_flip(values - end) <= level), default=np.inf)
    low = max((end for end in ends if sign_flip(end - values) <= level), default=-np.inf)
    within = np.nextafter(low, np.inf), np.nextafter(high, -np.inf)
    return verdict(*within, margin, judged.row.says) == judged.verdict


def recorded(experiment: Any, plan: Comparisons | None = None) -> Verdicts | None:
    """An experiment's main comparisons, or another of its `plans`, on the runs that decide its
    claims; None where there are none."""
    plan = plan or experiment.comparisons
    scale = experiment.current(plan.profile)
    plan = scale.comparisons or plan
    profiles = (plan.profile, plan.by_heart, f"{plan.profile}_next_best")
    runs, few, next_best = (records.runs(experiment.name, profile) for profile in profiles)
    if not runs:
        return None
    return Verdicts(
        plan,
        records.tidy(runs),
        records.tidy(few),
        scale.arms,
        scale.seeds,
        first=scale.first,
        next_best=records.tidy(next_best) if next_best else None,
        rate_of=experiment.rate_of,
        original=experiment.original,
    )
