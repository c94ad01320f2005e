"""Claims of chapter 03 that its two studies decide, `batch_size` and `data_shift`."""

from __future__ import annotations

from collections.abc import Callable

from layernorm.lab import records
from layernorm.lab.analysis.statistics import Comparison, compare, interval
from layernorm.lab.claims import Finding, claim, declare
from layernorm.lab.claims.judging import GUESSING, final, not_learning
from layernorm.lab.experiments.studies import batch_size, data_shift

SPEED, ERROR = batch_size.EXPERIMENT.primary, "best_test_error"
UNITS = {SPEED: "nats", ERROR: "points"}
LEVEL = f"[{batch_size.CONFIDENCE * 100:g}% interval]"


def study(plan, arms):
    """The runs of a study; a finding where there are none, or where an arm does not learn."""
    if not records.runs(plan.name, "book"):
        return Finding("not yet tested")
    if reason := not_learning(plan.name, arms):
        return Finding("inconclusive", reason=reason)
    return records.load(plan.name, "book")


def paired(favored, other) -> tuple[list[float], list[float]]:
    """Two arms' values, in the order of their common seeds."""
    return favored.tolist(), other[favored.index].tolist()


def compared(frame, metric: str) -> dict[str, Comparison]:
    """All comparisons of the study on one metric, a family: layer − other, by batch size."""

    def value(arm, size):
        return final(frame, f"{arm}-{size}", metric)

    pairs = {
        f"layer - {other}, {size}": paired(value("layer", size), value(other, size))
        for size in ((128, 4, 1) if metric == SPEED else (128, 4))
        for other in ("rescaled", "none", "batch")
        if f"{other}-{size}" in batch_size.EXPERIMENT.arms
    }
    if metric == SPEED:
        return compare(pairs, batch_size.EXPERIMENT.margin, batch_size.CONFIDENCE)
    layer, batch = (value(arm, 4) - value(arm, 128) for arm in ("layer", "batch"))
    pairs["cost of batch 4, layer - batch"] = paired(layer, batch)
    return compare(pairs, batch_size.ERROR_MARGIN, batch_size.CONFIDENCE)


def judged(arms, metric: str, names) -> Finding:
    """The verdict of the first comparison named; the evidence gives all of them."""
    frame = study(batch_size.EXPERIMENT, arms)
    if isinstance(frame, Finding):
        return frame
    found = compared(frame, metric)
    parts = "; ".join(f"{name} {found[name].difference:.3f}" for name in names)
    evidence = f"Mean difference in {UNITS[metric]} {LEVEL}: {parts}."
    numbers = {name: found[name].difference.mean for name in names}
    verdict = found[names[0]].verdict
    reason = f"Holm's p is {found[names[0]].p:.2f}, and the interval reaches beyond the margin."
    return Finding(verdict, evidence, None, reason if verdict == "inconclusive" else None, numbers)


def against(others: tuple[str, ...], size: int, metric: str) -> Callable[[], Finding]:
    """The check that compares layer normalization with the others at one batch size."""
    arms = [f"{arm}-{size}" for arm in ("layer", *others)]
    return lambda: judged(arms, metric, [f"layer - {other}, {size}" for other in others])


RULE = (
    "study batch_size, batches of {size}: {metric}, each arm at its tuned rate, paired by seed, "
    "Holm over the study's {count} such comparisons at 2.5%, margin {margin}; the verdict on "
    "layer - {other}; inconclusive if an arm only guesses or does not fit 32 examples"
)
SPEED_RULE = {
    "metric": "the mean of the test cross-entropy over the curve",
    "count": "eight",
    "margin": "0.01 nats",
}
ERROR_RULE = {
    "metric": "the test error where the validation cross-entropy is lowest",
    "count": "seven",
    "margin": "1 point",
}
CONTROL = "rescaled, since what a well-scaled start explains is not credited to normalization"
FASTER = ("paper abstract", "paper section 6.6", "summary A", "summary B", "summary C")
BETTER = ("paper section 6.6", "summary A", "summary C")
COMMON = {"kind": "experiment", "chapter": "03"}

WELL_SCALED = "one without normalization whose weights start at a good scale"

for n in (128, 4, 1):
    declare(
        id=f"faster-than-plain/digits_batch_{n}",
        statement=f"In batches of {n}, a network with layer normalization learns the digits in "
        "fewer updates than one without normalization that starts as PyTorch starts it.",
        said_by=FASTER,
        rule=RULE.format(size=n, other="none", **SPEED_RULE),
        check=against(("none",), n, SPEED),
        **COMMON,
    )
    declare(
        id=f"faster-per-update/digits_batch_{n}",
        statement=f"In batches of {n}, it is normalization that makes the network learn in fewer "
        f"updates: it learns faster than {WELL_SCALED}, too.",
        said_by=FASTER,
        rule=RULE.format(size=n, other=CONTROL, **SPEED_RULE),
        check=against(("rescaled",), n, SPEED),
        **COMMON,
    )
for n in (128, 4):
    declare(
        id=f"faster-than-batch/digits_batch_{n}",
        statement=f"In batches of {n}, a network with layer normalization learns the digits in "
        "fewer updates than one with batch normalization.",
        said_by=BETTER,
        rule=RULE.format(size=n, other="batch", **SPEED_RULE),
        check=against(("batch",), n, SPEED),
        **COMMON,
    )
    declare(
        id=f"better-result/digits_batch_{n}",
        statement=f"In batches of {n}, a network with layer normalization ends with a lower test "
        f"error on the digits than {WELL_SCALED}.",
        said_by=BETTER,
        rule=RULE.format(size=n, other=CONTROL, **ERROR_RULE),
        check=against(("rescaled", "none"), n, ERROR),
        **COMMON,
    )
    declare(
        id=f"better-result-than-batch/digits_batch_{n}",
        statement=f"In batches of {n}, a network with layer normalization ends with a lower test "
        "error on the digits than one with batch normalization.",
        said_by=BETTER,
        rule=RULE.format(size=n, other="batch", **ERROR_RULE),
        check=against(("batch",), n, ERROR),
        **COMMON,
    )


@claim(
    id="robust-to-small-batches/digits",
    statement="Layer normalization is robust to small batches where batch normalization is not: "
    "going from 128 to 4 costs it less test error on the digits.",
    said_by=("paper section 6.6", "summary A", "summary C", "summary D"),
    rule=RULE.format(size="4 and 128", other="batch of (error at 4 - error at 128)", **ERROR_RULE),
    **COMMON,
)
def robust_to_small_batches() -> Finding:
    arms = [f"{arm}-{n}" for arm in ("layer", "batch") for n in (4, 128)]
    return judged(arms, ERROR, ["cost of batch 4, layer - batch"])


@claim(
    id="learns-online/digits",
    statement="A network with layer normalization learns the digits online, one case an update.",
    said_by=("paper section 3", "summary A", "summary C"),
    rule="study batch_size, layer at batch size 1: supported if its test error where the "
    "validation cross-entropy is lowest is below 10% with every seed, opposite if it is that of "
    "guessing, 90%, with every seed, else inconclusive",
    **COMMON,
)
def learns_online() -> Finding:
    if not records.runs(batch_size.EXPERIMENT.name, "book"):
        return Finding("not yet tested")
    error = final(records.load(batch_size.EXPERIMENT.name, "book"), "layer-1", ERROR)
    evidence = (
        f"After {batch_size.EPOCHS} epochs of single cases the test error is "
        f"{interval(error.tolist()):.1f}% [95% interval], at worst {error.max():.1f}%."
    )
    if error.max() < 10:
        return Finding("supported here", evidence)
    if error.min() >= GUESSING:
        return Finding("opposite here", evidence)
    return Finding("inconclusive", evidence, reason="Some seeds learn and others do not.")


def shifts(frame) -> dict[str, Comparison]:
    """The family of data_shift: what a preparation costs a method against plain data."""
    pairs = {
        f"{method}, {kind} - plain": paired(
            *(final(frame, f"{method}-{k}", data_shift.EXPERIMENT.primary) for k in (kind, "plain"))
        )
        for method, kind in (("layer", "centered"), ("layer", "shifted"), ("batch", "shifted"))
    }
    return compare(pairs, data_shift.EXPERIMENT.margin)


def unharmed(method: str, kind: str) -> Finding:
    """Supported if the preparation costs less than the margin; opposite if it surely costs."""
    frame = study(data_shift.EXPERIMENT, [f"{method}-{kind}", f"{method}-plain"])
    if isinstance(frame, Finding):
        return frame
    name = f"{method}, {kind} - plain"
    found = shifts(frame)[name]
    evidence = f"Mean difference in nats [95% interval]: {name} {found.difference:.3f}."
    if found.difference.high < data_shift.EXPERIMENT.margin:
        return Finding("supported here", evidence)
    if found.verdict == "opposite here":
        return Finding("opposite here", evidence)
    return Finding("inconclusive", evidence, reason=f"Holm's p is {found.p:.2f}.")


SHIFT_RULE = (
    "study data_shift: the mean of the test cross-entropy over the curve, {pair}, each arm at its "
    "tuned rate, paired by seed; supported if the whole 95% interval is below the margin of 0.01 "
    "nats, opposite if the difference is positive at Holm's 5% over three comparisons, else "
    "inconclusive; so too if an arm only guesses or does not fit 32 examples"
)


@claim(
    id="data-shift-harmless-if-centered/digits",
    statement="That layer normalization is not invariant to a shift of the data set does no harm "
    "where data are centered.",
    said_by="summary C",
    rule=SHIFT_RULE.format(pair="layer on shifted data that are then centered - plain data"),
    **COMMON,
)
def data_shift_harmless_if_centered() -> Finding:
    return unharmed("layer", "centered")


@claim(
    id="data-shift-harmless-if-not-centered/digits",
    statement="A shift of the data set that is not centered away does no harm to a network with "
    "layer normalization.",
    said_by="this book",
    rule=SHIFT_RULE.format(pair="layer on shifted data - plain data"),
    **COMMON,
)
def data_shift_harmless_if_not_centered() -> Finding:
    return unharmed("layer", "shifted")


@claim(
    id="data-shift-harmless-to-batch-normalization/digits",
    statement="Batch normalization, which is invariant to a shift of the data set, learns from "
    "shifted data as it does from plain ones.",
    said_by=("paper section 5.1", "paper table 1"),
    rule=SHIFT_RULE.format(pair="batch on shifted data - plain data"),
    **COMMON,
)
def data_shift_harmless_to_batch_normalization() -> Finding:
    return unharmed("batch", "shifted")
