"""Claims of chapter 19 that the recorded runs of the experiment `mnist` decide.

All comparisons, whatever their metric, are one family: paired by seed, t tests corrected by Holm at
5%. The verdict on one is that of `statistics.compare` with the margin of its metric; a claim that
rests on several has the verdict they share, else it is inconclusive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from layernorm.lab import records
from layernorm.lab.analysis.statistics import Comparison, compare
from layernorm.lab.claims import Finding, declare
from layernorm.lab.claims.judging import GUESSING, final

if TYPE_CHECKING:
    from pandas import DataFrame

SPEED, ERROR, SECONDS = "mean_test_nll", "best_test_error", "test_nll over seconds"
DRIFT, BELOW = "drift", "drift_below"
GAP = "test_nll - train_nll"
MARGINS = {SPEED: 0.01, SECONDS: 0.01, GAP: 0.01, ERROR: 0.2, DRIFT: 0.1, BELOW: 0.1}
UNITS = {ERROR: "points", DRIFT: "starting standard deviations"}
UNITS[BELOW] = UNITS[DRIFT]
SIZES = (128, 4, 1)


def named(arm: str, size: int) -> str:
    """The arm's name at a batch size, as the experiment has it (which needs more to import)."""
    return arm if size == 128 else f"{arm}-{size}"


@dataclass(frozen=True)
class Contrast:
    """The metric of the arms of `favored` added up, less that of `other`: better if negative."""

    metric: str
    favored: tuple[str, ...]
    other: tuple[str, ...]


def _pair(metric: str, favored: str, other: str, size: int = 128) -> dict[str, Contrast]:
    arms = (named(favored, size),), (named(other, size),)
    return {f"{favored} - {other}, {metric}, batch {size}": Contrast(metric, *arms)}


def _start(start: str) -> dict[str, Contrast]:
    cost = (f"layer/{start}", "none"), (f"none/{start}", "layer")
    alone = (f"layer/{start}",), ("layer",)
    return {
        f"{start} start, layer - none": Contrast(SPEED, *cost),
        f"{start} start, layer": Contrast(SPEED, *alone),
    }


FAMILY: dict[str, Contrast] = {}
for _n in SIZES:
    for _other in ("none", "rescaled", "rms", "layer/logits"):
        FAMILY |= _pair(SPEED, "layer", _other, _n)
    FAMILY |= _pair(SECONDS, "layer", "none", _n)
for _n in (128, 4):
    FAMILY |= _pair(SPEED, "layer", "batch", _n)
    FAMILY |= _pair(ERROR, "layer", "none", _n) | _pair(ERROR, "layer", "batch", _n)
FAMILY |= _pair(SPEED, "layer", "batch/logits") | _pair(SPEED, "layer", "batch/logits/unbiased", 4)
FAMILY |= _pair(SPEED, "layer", "layer/plain") | _pair(SPEED, "layer", "layer/noise")
FAMILY |= _pair(DRIFT, "layer", "layer/noise") | _pair(BELOW, "layer", "rescaled")
FAMILY |= _pair(GAP, "batch/few", "layer/few") | _start("small") | _start("large")
COST_OF_4 = "cost of batch 4, layer - batch"
FAMILY[COST_OF_4] = Contrast(ERROR, ("layer-4", "batch"), ("layer", "batch-4"))


def over_seconds(frame: DataFrame, arm: str, until: float) -> np.ndarray:
    """The mean of the test cross-entropy over the seconds from 0 to `until`, by seed."""
    rows = frame[(frame.arm == arm) & (frame.metric == "test_nll") & frame.step.notna()]
    means = []
    for _, curve in rows.sort_values(["seed", "step"]).groupby("seed"):
        inside = curve[curve.seconds < until]
        at = np.append(inside.seconds, until)
        means.append(np.trapezoid(np.interp(at, curve.seconds, curve.value), at) / until)
    return np.array(means)


def total_seconds(frame: DataFrame, arm: str) -> float:
    return float(frame[frame.arm == arm].seconds.max())


def difference(frame: DataFrame, contrast: Contrast) -> np.ndarray:
    """The contrast's value by seed."""
    sides = []
    for arms in (contrast.favored, contrast.other):
        if contrast.metric == SECONDS:
            both = (*contrast.favored, *contrast.other)
            until = min(total_seconds(frame, arm) for arm in both)
            values = [over_seconds(frame, arm, until) for arm in arms]
        elif contrast.metric == GAP:
            values = [final(frame, a, "test_nll") - final(frame, a, "train_nll") for a in arms]
        else:
            values = [final(frame, arm, contrast.metric) for arm in arms]
        sides.append(np.sum([np.asarray(v) for v in values], axis=0))
    with np.errstate(invalid="ignore"):  # two diverged runs have no difference
        return sides[0] - sides[1]


def compared(frame: DataFrame) -> dict[str, Comparison]:
    """The family's comparisons, but for those with a diverged run.

    Each is divided by its margin, so that one family can hold all metrics.
    """
    values = {name: difference(frame, c) / MARGINS[c.metric] for name, c in FAMILY.items()}
    pairs = {name: (d, 0 * d) for name, d in values.items() if np.isfinite(d).all()}
    return compare(pairs, margin=1.0)


def problem(frame: DataFrame, arms: Iterable[str]) -> str | None:
    """Why these arms cannot be compared: one guesses, or does not fit 32 examples; else None."""
    heart = records.load("mnist", "standard_overfit")
    for arm in arms:
        if arm.endswith(("/small", "/large")):
            continue  # what such a start costs is the question
        if not (final(frame, arm, "test_error") < GUESSING).all():
            return f"No better than guessing ({GUESSING:.0f}% error): {arm}."
        if not (final(heart, arm, "train_error") == 0).all():
            return f"Errors on 32 training examples: {arm}."
    return None


@dataclass(frozen=True)
class Result:
    """The comparisons named, their values in the evidence, and why they cannot be judged."""

    found: dict[str, Comparison]
    evidence: str
    problem: str | None

    def verdicts(self) -> list[str]:
        return [c.verdict for c in self.found.values()]

    def finding(self, verdict: str, reason: str | None = None) -> Finding:
        numbers = {name: c.difference.mean for name, c in self.found.items()}
        return Finding(verdict, self.evidence, reason=reason, numbers=numbers)

    def shared(self) -> Finding:
        if self.problem:
            return self.finding("inconclusive", self.problem)
        verdicts = set(self.verdicts())
        if len(verdicts) == 1 and verdicts != {"inconclusive"}:
            return self.finding(verdicts.pop())
        said = (f"{name}: {c.verdict} (Holm's p {c.p:.2g})" for name, c in self.found.items())
        return self.finding("inconclusive", f"Of the comparisons, {'; '.join(said)}.")


def results(*names: str) -> Result | None:
    """The named comparisons of the family; None where nothing is published yet."""
    if not records.runs("mnist", "standard"):
        return None
    frame = records.load("mnist", "standard")
    family = compared(frame)
    found = {name: family[name] for name in names if name in family}
    diverged = [name for name in names if name not in family]
    arms = dict.fromkeys(a for name in names for a in (*FAMILY[name].favored, *FAMILY[name].other))
    parts = []
    for name, c in found.items():
        metric, d = FAMILY[name].metric, c.difference
        mean, low, high = (MARGINS[metric] * value for value in (d.mean, d.low, d.high))
        parts.append(f"{name}: {mean:.3g} [{low:.3g}, {high:.3g}] {UNITS.get(metric, 'nats')}")
    evidence = f"Mean difference [95% interval]: {'; '.join(parts)}." if parts else ""
    reason = f"A run diverged in {', '.join(diverged)}." if diverged else problem(frame, arms)
    return Result(found, evidence, reason)


def shared(*names: str) -> Finding:
    """The verdict that the named comparisons share."""
    result = results(*names)
    return Finding("not yet tested") if result is None else result.shared()


def pair(metric: str, favored: str, other: str, *sizes: int) -> list[str]:
    """The names of comparisons, one for each batch size."""
    return [name for size in sizes for name in _pair(metric, favored, other, size)]


COMMON = {"kind": "experiment", "chapter": "19"}
FAMILY_RULE = (
    "each arm at its tuned rate, five seeds, paired, all {count} comparisons of the experiment one "
    "family (Holm, 5%), margin {margin}; {verdict}; inconclusive if an arm only guesses, does not "
    "fit 32 examples or diverges"
)
METRIC_WORDS = {
    SPEED: "mean test cross-entropy over the curve",
    ERROR: "test error where the validation cross-entropy is lowest",
    SECONDS: "mean test cross-entropy over the seconds that the quicker of the two arms takes",
    DRIFT: "drift of summed inputs",
    GAP: "test less training cross-entropy at the end",
}


def rule(metric: str, what: str, verdict: str = "the verdict they share, else inconclusive") -> str:
    margin = f"{MARGINS[metric]:g} {UNITS.get(metric, 'nats')}"
    family = FAMILY_RULE.format(count=len(FAMILY), margin=margin, verdict=verdict)
    return f"experiment mnist, profile standard, {METRIC_WORDS[metric]}: {what}; {family}"


def decided_by(
    id: str, statement: str, said_by: tuple[str, ...], metric: str, favored: str, other: str, *sizes
) -> None:
    """Declares a claim that the comparisons of two arms at these batch sizes decide."""
    names = pair(metric, favored, other, *sizes)
    what = f"{favored} less {other} at batch size {', '.join(map(str, sizes))}"
    declare(
        id=id,
        statement=statement,
        said_by=said_by,
        rule=rule(metric, what),
        check=lambda: shared(*names),
        **COMMON,
    )


def shared_unless_costly(*names: str) -> Finding:
    """Supported if no comparison differs, opposite if one surely costs, else inconclusive."""
    result = results(*names)
    if result is None:
        return Finding("not yet tested")
    if result.problem:
        return result.finding("inconclusive", result.problem)
    if set(result.verdicts()) == {"no difference here"}:
        return result.finding("supported here")
    if "opposite here" in result.verdicts():
        return result.finding("opposite here")
    return result.finding("inconclusive", "An interval reaches beyond the margin.")
