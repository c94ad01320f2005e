"""Claims of chapter 15 that the experiment `attentive_reader` decides, on its profile `standard`.

All comparisons, whatever their metric, are one family: paired by seed, t tests corrected by Holm at
5%. The verdict on one is that of `statistics.compare` with the margin of its metric; a claim that
rests on several has the verdict they share, else it is inconclusive.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from layernorm.lab import records
from layernorm.lab.analysis.statistics import Comparison, compare, interval
from layernorm.lab.claims import Finding, declare
from layernorm.lab.claims.chapter_19_mnist import over_seconds, total_seconds
from layernorm.lab.claims.judging import final

if TYPE_CHECKING:
    from pandas import DataFrame

NAME, PROFILE = "attentive_reader", "standard"
SPEED, ERROR, SECONDS = "mean_test_error", "best_test_error", "test_nll over seconds"
MARGINS = {SPEED: 2.0, ERROR: 1.0, SECONDS: 0.05}
UNITS = {SPEED: "points", ERROR: "points", SECONDS: "nats"}
OTHERS = ("batch", "batch/everywhere", "batch/sequence")
PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    SPEED: (
        *(("layer", other) for other in ("none", "rescaled", *OTHERS)),
        ("layer", "layer/gain-0.1"),
        ("batch", "batch/gain-1"),
        ("batch", "batch/sequence"),
        ("layer/small", "none/small"),
    ),
    ERROR: tuple(("layer", other) for other in ("none", *OTHERS)),
    SECONDS: (("layer", "none"),),
}
FAMILY = {
    f"{favored} - {other}, {metric}": (metric, favored, other)
    for metric, pairs in PAIRS.items()
    for favored, other in pairs
}
MAY_FAIL = ("layer/gain-0.1", "batch/gain-1", "none/small")  # what that costs is the question


def difference(frame: DataFrame, metric: str, favored: str, other: str) -> np.ndarray:
    """The favored arm's metric less the other's, by seed; better if negative."""
    if metric == SECONDS:
        until = min(total_seconds(frame, arm) for arm in (favored, other))
        one, two = (over_seconds(frame, arm, until) for arm in (favored, other))
    else:
        one, two = (final(frame, arm, metric).to_numpy() for arm in (favored, other))
    with np.errstate(invalid="ignore"):  # two diverged runs have no difference
        return one - two


def compared(frame: DataFrame) -> dict[str, Comparison]:
    """The family's comparisons, but for those with a diverged run, each in units of its margin."""
    values = {name: difference(frame, *what) / MARGINS[what[0]] for name, what in FAMILY.items()}
    pairs = {name: (d, 0 * d) for name, d in values.items() if np.isfinite(d).all()}
    return compare(pairs, margin=1.0) if pairs else {}


def trivial_error() -> float:
    """The error of the best trivial strategy on the test stories, in percent."""
    from layernorm.lab.data.cloze_baselines import best_trivial
    from layernorm.lab.experiments import get
    from layernorm.lab.experiments.attentive_reader.model import held_out

    options = get(NAME).config(PROFILE, "none", 0).options
    stories = held_out(options.world(), options.held_out)["test"]
    return 100 * (1 - best_trivial(options.world(), stories))


def problem(frame: DataFrame, arms: Iterable[str]) -> str | None:
    """Why these arms cannot be compared: one did not learn; else None."""
    few, trivial = records.load(NAME, f"{PROFILE}_overfit"), trivial_error()
    for arm in arms:
        if arm not in set(few.arm) or not (final(few, arm, "train_error") == 0).all():
            return f"Does not know a handful of stories by heart: {arm}."
        errors = final(frame, arm, ERROR)
        if arm not in MAY_FAIL and not np.isfinite(errors).all():
            return f"A run diverged: {arm}."
        if arm not in MAY_FAIL and not interval(errors).high < trivial:
            return f"Not clearly below the {trivial:.1f}% error of a trivial strategy: {arm}."
    return None


def judged(*names: str) -> Finding:
    """The verdict that the named comparisons of the family share."""
    if not records.runs(NAME, PROFILE):
        return Finding("not yet tested")
    frame = records.load(NAME, PROFILE)
    family = compared(frame)
    found = {name: family[name] for name in names if name in family}
    parts = []
    for name, c in found.items():
        metric = FAMILY[name][0]
        d = c.difference
        mean, low, high = (MARGINS[metric] * value for value in (d.mean, d.low, d.high))
        parts.append(f"{name}: {mean:.3g} [{low:.3g}, {high:.3g}] {UNITS[metric]}")
    evidence = f"Mean difference [95% interval]: {'; '.join(parts)}." if parts else ""
    numbers = {name: MARGINS[FAMILY[name][0]] * c.difference.mean for name, c in found.items()}
    arms = dict.fromkeys(arm for name in names for arm in FAMILY[name][1:])
    lost = [name for name in names if name not in family]
    reason = f"A run diverged in {', '.join(lost)}." if lost else problem(frame, arms)
    verdicts = {c.verdict for c in found.values()}
    if reason is None and (len(verdicts) > 1 or verdicts == {"inconclusive"}):
        said = (f"{name}: {c.verdict} (Holm's p {c.p:.2g})" for name, c in found.items())
        reason = f"Of the comparisons, {'; '.join(said)}."
    if reason is not None:
        return Finding("inconclusive", evidence, reason=reason, numbers=numbers)
    return Finding(verdicts.pop(), evidence, numbers=numbers)


WORDS = {
    SPEED: "the mean of the test error over the curve",
    ERROR: "the test error where the validation cross-entropy is lowest",
    SECONDS: "the mean of the test cross-entropy over the seconds that the quicker arm takes",
}
RULE = (
    "experiment attentive_reader on generated stories: {metric}, {pairs}, each arm at its tuned "
    "rate, ten seeds, paired, all {count} comparisons of the experiment one family (Holm, 5%), "
    "margin {margin}; the verdict they share, else inconclusive; so too if an arm does not "
    "learn a handful of stories by heart, or, unless its gain or start is what is asked about, if "
    "its mean test error is not clearly (95%) below the best trivial strategy's"
)
FROM_PAPER = "paper section 6.2"
CLAIMS = (
    (
        "faster-than-plain",
        "An attentive reader with layer normalization learns in fewer updates than one without.",
        (FROM_PAPER, "summary A"),
        SPEED,
        "layer",
        ("none",),
    ),
    (
        "faster-than-rescaled",
        "It is layer normalization that makes the attentive reader learn in fewer updates, not the "
        "scale of the start: it is faster than one without whose weights start at a good scale.",
        ("this book",),
        SPEED,
        "layer",
        ("rescaled",),
    ),
    (
        "faster-from-a-small-start",
        "Where embeddings start small, as in the code that the paper uses, an attentive reader "
        "with layer normalization learns in fewer updates than one without.",
        ("this book",),
        SPEED,
        "layer/small",
        ("none/small",),
    ),
    (
        "faster-than-batch",
        "An attentive reader with layer normalization learns in fewer updates than one with "
        "recurrent batch normalization.",
        (FROM_PAPER, "summary A", "summary C"),
        SPEED,
        "layer",
        ("batch", "batch/everywhere"),
    ),
    (
        "faster-than-sequence-wise-batch",
        "An attentive reader with layer normalization learns in fewer updates than one with "
        "sequence-wise batch normalization, too, the best kind, which the paper leaves out.",
        ("this book",),
        SPEED,
        "layer",
        ("batch/sequence",),
    ),
    (
        "better-result-than-batch",
        "An attentive reader with layer normalization ends with a lower validation error than "
        "one with recurrent batch normalization, in the LSTM alone or everywhere.",
        (FROM_PAPER, "summary A", "summary C"),
        ERROR,
        "layer",
        ("batch", "batch/everywhere"),
    ),
    (
        "gains-of-one-are-better",
        "An attentive reader with layer normalization learns much better with gains that start "
        "at 1 than with gains that start at 0.1.",
        (FROM_PAPER, "summary E"),
        SPEED,
        "layer",
        ("layer/gain-0.1",),
    ),
    (
        "batch-needs-small-gains",
        "An attentive reader with recurrent batch normalization learns faster with gains that "
        "start at 0.1 than with gains that start at 1.",
        ("this book",),
        SPEED,
        "batch",
        ("batch/gain-1",),
    ),
    (
        "each-steps-statistics-are-better",
        "An attentive reader with recurrent batch normalization learns faster if the input term, "
        "too, has statistics for each step instead of one for the whole sequence.",
        ("this book",),
        SPEED,
        "batch",
        ("batch/sequence",),
    ),
    (
        "faster-in-seconds",
        "Although its updates take longer, an attentive reader with layer normalization learns "
        "faster in seconds, too, than one without.",
        ("this book",),
        SECONDS,
        "layer",
        ("none",),
    ),
)


def _declare(id: str, statement: str, said_by, metric: str, favored: str, others) -> None:
    names = [f"{favored} - {other}, {metric}" for other in others]
    pairs = " and ".join(f"{favored} - {other}" for other in others)
    margin = f"{MARGINS[metric]:g} {UNITS[metric]}"
    declare(
        id=f"{id}/attentive_reader",
        statement=statement,
        said_by=said_by,
        kind="experiment",
        chapter="15",
        rule=RULE.format(metric=WORDS[metric], pairs=pairs, count=len(FAMILY), margin=margin),
        check=lambda: judged(*names),
    )


for _claim in CLAIMS:
    _declare(*_claim)
