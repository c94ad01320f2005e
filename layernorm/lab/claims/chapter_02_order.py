"""Experiments of chapter 02, on the records of the study `batch_order`."""

from __future__ import annotations

import math

from layernorm.lab import records
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.judging import final, guessing, not_fitting, not_learning, one_verdict
from layernorm.lab.experiments.studies import batch_order

CONFIDENCE = 0.975  # two claims share the study


def extra_error(frame, method: str):
    """What sorting costs a method: final test error (points), sorted − shuffled, by seed."""
    costs = [final(frame, f"{method}-{order}", "test_error") for order in ("sorted", "shuffled")]
    return costs[0] - costs[1]


@claim(
    id="batches-must-be-scattered/digits",
    statement="Batch normalization needs batches scattered over the data as much as possible.",
    said_by="summary D",
    kind="experiment",
    chapter="02",
    rule="study batch_order: what sorting costs (final test error, sorted - shuffled, paired by "
    "seed) for each of none, rescaled and layer against what it costs batch, Holm over the three "
    "at 2.5% (two claims share the study); the verdict they share with a margin of 1 point, else "
    "inconclusive; so too if a shuffled arm only guesses or any arm does not fit 32 examples",
)
def batches_must_be_scattered() -> Finding:
    plan = batch_order.EXPERIMENT
    if not records.runs(plan.name, "book"):
        return Finding("not yet tested")
    shuffled = [arm for arm in plan.arms if arm.endswith("shuffled")]
    if reason := guessing(plan.name, shuffled) or not_fitting(plan.name, list(plan.arms)):
        return Finding("inconclusive", reason=reason)
    frame = records.load(plan.name, "book")
    cost = {method: extra_error(frame, method) for method in ("none", "rescaled", "layer", "batch")}
    batch = cost.pop("batch")
    pairs = {f"{m} - batch": (values.tolist(), batch.tolist()) for m, values in cost.items()}
    return one_verdict(pairs, plan.margin, "points", CONFIDENCE)


def loss_at_level(frame, arm: str, level: float):
    """Test cross-entropy where the training curve first falls to the level (nats), by seed.

    Between two readings of the curves both are taken as straight; NaN if never reached.
    """
    rows = frame[(frame.arm == arm) & frame.step.notna()]
    table = rows.pivot_table(index=["seed", "step"], columns="metric", values="value")
    return table.groupby("seed").apply(_crossing, level)


def _crossing(run, level: float) -> float:
    train, test = run.train_nll.to_numpy(), run.test_nll.to_numpy()
    below = (train <= level).argmax()
    if train[below] > level:
        return math.nan
    share = (train[below - 1] - level) / (train[below - 1] - train[below])
    return test[below - 1] + share * (test[below] - test[below - 1])


@claim(
    id="batch-normalization-avoids-overfitting/digits",
    statement="Batch normalization ties the cases of a batch together and so avoids overfitting.",
    said_by=("paper section 1", "summary D"),
    kind="experiment",
    chapter="02",
    rule="study batch_order, shuffled arms: test cross-entropy at the update where the training "
    "cross-entropy first falls to 0.05 nats, batch against none, rescaled and layer, paired by "
    "seed, Holm over the three at 2.5%; the verdict they share with a margin of 0.01 nats, else "
    "inconclusive; so too if an arm does not learn or a run never reaches the level",
)
def batch_normalization_avoids_overfitting() -> Finding:
    plan = batch_order.EXPERIMENT
    if not records.runs(plan.name, "book"):
        return Finding("not yet tested")
    methods = ("none", "rescaled", "layer", "batch")
    if reason := not_learning(plan.name, [f"{method}-shuffled" for method in methods]):
        return Finding("inconclusive", reason=reason)
    frame = records.load(plan.name, "book")
    loss = {m: loss_at_level(frame, f"{m}-shuffled", batch_order.LEVEL) for m in methods}
    if never := [method for method, values in loss.items() if values.isna().any()]:
        reason = f"Not every run of {', '.join(never)} reaches {batch_order.LEVEL} nats."
        return Finding("inconclusive", reason=reason)
    batch = loss.pop("batch")
    pairs = {f"batch - {m}": (batch.tolist(), values.tolist()) for m, values in loss.items()}
    return one_verdict(pairs, 0.01, "nats", CONFIDENCE)
