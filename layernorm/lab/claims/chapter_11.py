"""Claims about what layer normalization costs a recurrent layer on a CPU, decided by the published
record of `layernorm bench recurrent`."""

from __future__ import annotations

from collections.abc import Mapping

from layernorm.lab.benchmarks import recurrent
from layernorm.lab.benchmarks.measure import Row
from layernorm.lab.benchmarks.recurrent import tables
from layernorm.lab.claims import Finding, claim

MARGIN = 1.10  # a step that takes at most a tenth longer costs "not significantly" more
Interval = tuple[float, float]


def training_steps() -> dict[tuple[str, tuple[int, ...], str], Row]:
    """The recorded training steps with ordinary pages, by kind, shape and implementation."""
    rows = tables.select(tables.recorded("cpu"), mode="training", huge_pages="off")
    return {(row.options["kind"], row.shape, row.implementation): row for row in rows}


def judged(
    ratios: Mapping[tuple[str, tuple[int, ...]], Interval], below: str, above: str
) -> Finding:
    """`below` if every interval ends at or below the margin, `above` if every one begins above."""
    if not ratios:
        return Finding("not yet tested")
    counts, numbers = [], {}
    for kind in recurrent.KINDS:
        intervals = [interval for (its_kind, _), interval in ratios.items() if its_kind == kind]
        under = sum(high <= MARGIN for _, high in intervals)
        over = sum(low > MARGIN for low, _ in intervals)
        counts.append((len(intervals), under, over))
        numbers |= {f"{kind}_shapes": len(intervals), f"{kind}_below": under, f"{kind}_above": over}
    evidence = f"Ratio of times, against {MARGIN:.2f}: " + "; ".join(
        f"{kind.upper()} surely below on {under} and surely above on {over} of {count} shapes"
        for kind, (count, under, over) in zip(recurrent.KINDS, counts, strict=True)
    )
    if all(count == under for count, under, _ in counts):
        return Finding(below, evidence + ".", numbers=numbers)
    if all(count == over for count, _, over in counts):
        return Finding(above, evidence + ".", numbers=numbers)
    reason = "Not all shapes lie surely on one side."
    return Finding("inconclusive", evidence + ".", reason=reason, numbers=numbers)


@claim(
    id="no-significant-cost-per-step/recurrent_cpu",
    statement="Layer normalization adds no significant cost to an update of an LSTM or a GRU: on a "
    "CPU, our layers against torch's, which have no norms.",
    kind="experiment",
    chapter="11",
    rule="record bench_recurrent, profile cpu: training step with ordinary pages, our layer's time "
    "over that of torch.nn's layer, 95% interval of the median of the ratios within rounds; "
    f"supported here if it ends at or below {MARGIN:.2f} for LSTM and GRU on every shape, opposite "
    f"here if it begins above {MARGIN:.2f} on every shape, else inconclusive",
)
def no_significant_cost_per_step() -> Finding:
    ratios = {
        (kind, shape): (row.ratio_low, row.ratio_high)
        for (kind, shape, name), row in training_steps().items()
        if name == recurrent.OURS
    }
    return judged(ratios, below="supported here", above="opposite here")


@claim(
    id="slower-per-update/recurrent_cpu",
    statement="Layer normalization slows down each update: on a CPU, a loop over the steps of an "
    "LSTM or a GRU with norms against the same loop without them.",
    kind="experiment",
    chapter="11",
    rule="record bench_recurrent, profile cpu: training step with ordinary pages, time of the loop "
    "with norms over that of the loop without, an interval from the ends of both loops' intervals "
    f"(each relative to torch.nn's layer); supported here if it begins above {MARGIN:.2f} for LSTM "
    f"and GRU on every shape, opposite here if it ends at or below {MARGIN:.2f} on every shape, "
    "else inconclusive",
)
def slower_per_update() -> Finding:
    rows = training_steps()
    ratios = {}
    for (kind, shape, name), row in rows.items():
        if name == "loop":
            plain = rows[kind, shape, "plain loop"]
            low, high = row.ratio_low / plain.ratio_high, row.ratio_high / plain.ratio_low
            ratios[kind, shape] = low, high
    return judged(ratios, below="opposite here", above="supported here")
