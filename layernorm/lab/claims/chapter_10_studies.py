"""Claims of chapter 10 that its study `step_statistics` decides."""

from __future__ import annotations

from layernorm.lab import records
from layernorm.lab.analysis.statistics import Comparison, compare
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.judging import final, not_learning
from layernorm.lab.experiments.studies.step_statistics import CONFIDENCE, EXPERIMENT

BATCH, LAYER = "batch-0.1", "layer-1"
LEVEL = f"[{CONFIDENCE * 100:g}% interval]"
SPEED = {  # favored arm, other
    "batch, gain 0.1 - 1": (BATCH, "batch-1"),
    "layer, gain 1 - 0.1": (LAYER, "layer-0.1"),
    "batch, padding left out - counted": (BATCH, "batch-padded"),
    "layer - batch": (LAYER, BATCH),
    "layer - rescaled": (LAYER, "rescaled"),
    "batch - rescaled": (BATCH, "rescaled"),
}
# Favored, other; each an arm and the metric, or the difference of two metrics, it is judged by.
TRAINED = {
    "each step's - shared": ((BATCH, "test_nll"), (BATCH, "shared_nll")),
    "three digits - one, layer - batch": (
        (LAYER, "test_3_nll", "test_1_nll"),
        (BATCH, "test_3_nll", "test_1_nll"),
    ),
    "six digits - three, layer - batch": (
        (LAYER, "test_6_nll", "test_3_nll"),
        (BATCH, "test_6_nll", "test_3_nll"),
    ),
    "last step's - own, six digits": ((BATCH, "test_6_nll"), (BATCH, "own_6_nll")),
}


def values(frame, arm: str, metric: str, less: str | None = None) -> list[float]:
    """Final values by seed, of a metric or of a difference of two."""
    found = final(frame, arm, metric)
    return (found if less is None else found - final(frame, arm, less)).tolist()


def compared(frame) -> dict[str, Comparison]:
    """All comparisons of both families."""
    speed = {
        name: tuple(values(frame, arm, EXPERIMENT.primary) for arm in arms)
        for name, arms in SPEED.items()
    }
    trained = {
        name: tuple(values(frame, *side) for side in sides) for name, sides in TRAINED.items()
    }
    return compare(speed, EXPERIMENT.margin, CONFIDENCE) | compare(
        trained, EXPERIMENT.margin, CONFIDENCE
    )


def judged(name: str) -> Finding:
    """The verdict of one comparison."""
    arms = SPEED[name] if name in SPEED else sorted({side[0] for side in TRAINED[name]})
    if not records.runs(EXPERIMENT.name, "book"):
        return Finding("not yet tested")
    if reason := not_learning(EXPERIMENT.name, arms):
        return Finding("inconclusive", reason=reason)
    found = compared(records.load(EXPERIMENT.name, "book"))[name]
    evidence = f"Mean difference in nats {LEVEL}: {name} {found.difference:.3f}."
    reason = None
    if found.verdict == "inconclusive":
        reason = f"Holm's p is {found.p:.2f}, and the interval reaches beyond the margin."
    numbers = {"difference": found.difference.mean}
    return Finding(found.verdict, evidence, None, reason, numbers)


RULE = (
    "study step_statistics, digits read row by row: {metric}, each arm at its tuned rate, paired "
    "by seed, Holm over {count} comparisons at 2.5%, margin 0.02 nats; the verdict on {name}; "
    "inconclusive if an arm only guesses or does not fit 32 sequences"
)
SPEED_RULE = {"metric": "the mean of the test cross-entropy over the curve", "count": "six"}
TRAINED_RULE = {"metric": "final cross-entropies on test sequences", "count": "four"}
COMMON = {"kind": "experiment", "chapter": "10"}


def rule(name: str) -> str:
    return RULE.format(name=name, **(SPEED_RULE if name in SPEED else TRAINED_RULE))


@claim(
    id="batch-needs-small-gains/digit_rows",
    statement="An LSTM with batch normalization learns faster with gains that start at 0.1 than "
    "with gains that start at 1.",
    said_by="paper section 6.2",
    rule=rule("batch, gain 0.1 - 1"),
    **COMMON,
)
def batch_needs_small_gains() -> Finding:
    return judged("batch, gain 0.1 - 1")


@claim(
    id="layer-needs-gains-of-one/digit_rows",
    statement="An LSTM with layer normalization learns faster with gains that start at 1 than with "
    "gains that start at 0.1.",
    said_by="paper section 6.2",
    rule=rule("layer, gain 1 - 0.1"),
    **COMMON,
)
def layer_needs_gains_of_one() -> Finding:
    return judged("layer, gain 1 - 0.1")


@claim(
    id="counting-padding-slows-learning/digit_rows",
    statement="An LSTM with batch normalization learns more slowly if padding counts in its "
    "statistics.",
    said_by="summary D",
    rule=rule("batch, padding left out - counted"),
    **COMMON,
)
def counting_padding_slows_learning() -> Finding:
    return judged("batch, padding left out - counted")


@claim(
    id="faster-than-batch-lstm/digit_rows",
    statement="An LSTM learns faster with layer normalization than with recurrent batch "
    "normalization.",
    said_by=("paper section 6.2", "summary A", "summary C"),
    rule=rule("layer - batch"),
    **COMMON,
)
def faster_than_batch_lstm() -> Finding:
    return judged("layer - batch")


@claim(
    id="layer-lstm-faster-than-rescaled/digit_rows",
    statement="An LSTM with layer normalization learns faster than one without that starts at a "
    "good scale.",
    said_by="this book",
    rule=rule("layer - rescaled"),
    **COMMON,
)
def layer_lstm_faster_than_rescaled() -> Finding:
    return judged("layer - rescaled")


@claim(
    id="batch-lstm-faster-than-rescaled/digit_rows",
    statement="An LSTM with recurrent batch normalization learns faster than one without that "
    "starts at a good scale.",
    said_by="this book",
    rule=rule("batch - rescaled"),
    **COMMON,
)
def batch_lstm_faster_than_rescaled() -> Finding:
    return judged("batch - rescaled")


@claim(
    id="shared-statistics-harm/digit_rows",
    statement="A trained LSTM with batch normalization does worse with statistics that all steps "
    "share than with those of each step.",
    said_by=("paper section 3.1", "summary A", "summary C"),
    rule=rule("each step's - shared"),
    **COMMON,
)
def shared_statistics_harm() -> Finding:
    return judged("each step's - shared")


@claim(
    id="late-steps-harm-batch-normalization/digit_rows",
    statement="Where few training sequences are long, long ones cost an LSTM with batch "
    "normalization more than one with layer normalization.",
    said_by="summary D",
    rule=rule("three digits - one, layer - batch"),
    **COMMON,
)
def late_steps_harm_batch_normalization() -> Finding:
    return judged("three digits - one, layer - batch")


@claim(
    id="longer-sequences-harm-batch-normalization/digit_rows",
    statement="Test sequences longer than all training sequences harm an LSTM with batch "
    "normalization more than one with layer normalization.",
    said_by=("paper section 3.1", "summary A", "summary C"),
    rule=rule("six digits - three, layer - batch"),
    **COMMON,
)
def longer_sequences_harm_batch_normalization() -> Finding:
    return judged("six digits - three, layer - batch")


@claim(
    id="last-statistics-suffice/digit_rows",
    statement="Beyond the longest training sequence the statistics of its last step serve as well "
    "as statistics of the further steps' own.",
    said_by="this book",
    rule=rule("last step's - own, six digits") + "; supported too where there is no difference",
    **COMMON,
)
def last_statistics_suffice() -> Finding:
    found = judged("last step's - own, six digits")
    if found.verdict != "no difference here":
        return found
    return Finding("supported here", found.evidence, numbers=found.numbers)
