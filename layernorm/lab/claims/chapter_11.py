"""Claims about what layer normalization costs a recurrent layer on a CPU, decided by the published
record of `layernorm bench recurrent`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from layernorm.lab.benchmarks import recurrent
from layernorm.lab.benchmarks.measure import Row
from layernorm.lab.benchmarks.recurrent import tables
from layernorm.lab.claims import Finding, claim
from layernorm.lab.experiments.judged import DEPENDS, INCONCLUSIVE, together, verdict

MARGIN = 1.10  # a step that takes at most a tenth longer costs "not significantly" more
Interval = tuple[float, float]


def training_steps() -> dict[tuple[str, tuple[int, ...], str], Row]:
    """The recorded training steps with ordinary pages, by kind, shape and implementation."""
    rows = tables.select(tables.recorded("cpu"), mode="training", huge_pages="off")
    return {(row.options["kind"], row.shape, row.implementation): row for row in rows}


def judged(ratios: Mapping[tuple[str, tuple[int, ...]], Interval], says: str) -> Finding:
    """The verdict that all kinds and shapes share, ratios taken in logarithms."""
    if not ratios:
        return Finding("not yet tested")
    margin, found = math.log(MARGIN), {}
    for place, (low, high) in ratios.items():
        found[place] = verdict(math.log(low), math.log(high), margin, says)
    said, numbers = [], {}
    for kind in recurrent.KINDS:
        count = Counter(v for (its_kind, _), v in found.items() if its_kind == kind)
        numbers[f"{kind}_shapes"] = count.total()
        said.append(f"{kind.upper()} " + ", ".join(f"{v} on {n}" for v, n in count.items()))
    evidence = f"Ratio of times, margin {MARGIN:.2f}, by shape: {'; '.join(said)}."
    whole = together(found.values())
    reason = (
        "Not all shapes are decided, or not alike." if whole in (INCONCLUSIVE, DEPENDS) else None
    )
    return Finding(whole, evidence, reason=reason, numbers=numbers)


@claim(
    id="no-significant-cost-per-step/recurrent_cpu",
    statement="Layer normalization adds no significant cost to an update of an LSTM or a GRU: on a "
    "CPU, our layers against torch's, which have no norms.",
    kind="experiment",
    rule="record bench_recurrent, profile cpu: training step with ordinary pages, our layer's time "
    "over that of torch.nn's layer, 95% interval of the median of the ratios within rounds; "
    f"not worse by more than the margin, {MARGIN:.2f}, in logarithms, for LSTM and GRU on every "
    "shape",
)
def no_significant_cost_per_step() -> Finding:
    ratios = {
        (kind, shape): (row.ratio_low, row.ratio_high)
        for (kind, shape, name), row in training_steps().items()
        if name == recurrent.OURS
    }
    return judged(ratios, says="not worse")


@claim(
    id="slower-per-update/recurrent_cpu",
    statement="Layer normalization slows down each update: on a CPU, a loop over the steps of an "
    "LSTM or a GRU with norms against the same loop without them.",
    kind="experiment",
    rule="record bench_recurrent, profile cpu: training step with ordinary pages, time of the loop "
    "with norms over that of the loop without, an interval from the ends of both loops' intervals "
    "(each relative to torch.nn's layer); the loop without better by more than the margin, "
    f"{MARGIN:.2f}, in logarithms, for LSTM and GRU on every shape",
)
def slower_per_update() -> Finding:
    rows = training_steps()
    ratios = {}
    for (kind, shape, name), row in rows.items():
        if name == "loop":
            plain = rows[kind, shape, "plain loop"]
            ratios[kind, shape] = plain.ratio_low / row.ratio_high, plain.ratio_high / row.ratio_low
    return judged(ratios, says="better")
