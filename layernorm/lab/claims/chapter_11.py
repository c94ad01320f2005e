"""Claims about what layer normalization costs a recurrent layer on a CPU, on packed sequences
and `torch.compile`, decided by the published records of `layernorm bench recurrent`, `packed` and
`compile`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from layernorm.lab.benchmarks import compiling, packed, recurrent
from layernorm.lab.benchmarks.measure import Row, quotient
from layernorm.lab.benchmarks.recurrent import tables
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.checks import shared
from layernorm.lab.experiments.judged import of_ratio

MARGIN = 1.05  # of benchmarks: at most a twentieth longer is not "significantly" more
Interval = tuple[float, float]


def training_steps() -> dict[tuple[str, tuple[int, ...], str], Row]:
    """The recorded training steps with ordinary pages, by kind, shape and implementation."""
    rows = tables.select(tables.recorded("cpu"), mode="training", huge_pages="off")
    return {(row.options["kind"], row.shape, row.implementation): row for row in rows}


def judged(
    ratios: Mapping[tuple[str, tuple[int | str, ...]], Interval],
    says: str,
    kinds: Iterable[str] = ("lstm", "gru"),
) -> Finding:
    """The verdict that all shapes of these kinds share, ratios taken in logarithms."""
    if {kind for kind, _ in ratios} != set(kinds):
        return Finding("not yet tested")
    found = {place: of_ratio(*ends, MARGIN, says) for place, ends in ratios.items()}
    said, numbers = [], {}
    for kind in recurrent.KINDS:
        count = Counter(v for (its_kind, _), v in found.items() if its_kind == kind)
        if kind not in kinds:
            continue
        numbers[f"{kind}_shapes"] = count.total()
        said.append(f"{kind.upper()} " + ", ".join(f"{v} on {n}" for v, n in count.items()))
    evidence = f"Ratio of times, margin {MARGIN:.2f}, by shape: {'; '.join(said)}."
    why = "Not all shapes are decided, or not alike."
    return shared(found.values(), evidence, why, numbers=numbers)


@claim(
    id="no-significant-cost-per-step/recurrent_cpu",
    statement="On a CPU an update of our LSTM and GRU, which have norms, takes no significantly "
    "longer than one of torch's layers, which have none.",
    kind="experiment",
    rule="record bench_recurrent, profile cpu: training step with ordinary pages, our layer's time "
    "over that of torch.nn's layer, 95% interval of the median of the ratios; "
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
    "with norms over that of the loop without, 95% interval of the median of the processes' "
    "ratios (of a record of one process, from the ends of both loops' intervals); the loop "
    f"without better by more than the margin, {MARGIN:.2f}, in logarithms, for LSTM and GRU on "
    "every shape",
)
def slower_per_update() -> Finding:
    rows = training_steps()
    ratios = {}
    for (kind, shape, name), row in rows.items():
        if name == "loop":
            ratios[kind, shape] = quotient(rows[kind, shape, "plain loop"], row)[1:]
    return judged(ratios, says="better")


AT_MOST = 0.75  # of the padded batch's time, for 0.63 of its rows
TIMES, LONG = {1: 8, 2: 6}, 100  # faster than torch, by threads, from so many steps on


def _over(name: str, aim: float) -> dict[tuple[str, tuple[int, ...]], Interval]:
    """The time of ours on packed sequences over that of another, relative to what is aimed for, by
    kind, and shape and threads."""
    return {
        (row.options["kind"], (*row.shape, row.options["threads"])): (
            1 / (row.ratio_high * aim),
            1 / (row.ratio_low * aim),
        )
        for row in packed.recorded("cpu")
        if row.implementation == name
    }


_RULE = (
    "record bench_packed, profile cpu: {}, 95% interval of the median of the ratios, "
    f"over {{}}; not worse than 1 by more than the margin, {MARGIN:.2f}, in logarithms, for {{}}"
)


@claim(
    id="three-quarters-of-padded/packed_cpu",
    statement="A training step of our LSTM or GRU on packed sequences, whose lengths are uniform "
    "between T/4 and T, takes at most 0.75 of the time that the padded batch takes (to the margin "
    "of 5%).",
    kind="experiment",
    rule=_RULE.format(
        "ours packed over ours padded", AT_MOST, "LSTM and GRU on every shape, one thread and two"
    ),
)
def packed_sequences_save_time() -> Finding:
    return judged(_over(packed.PADDED, AT_MOST), says="not worse")


def _faster(threads: int) -> None:
    """Declare the claim for so many threads."""
    times = TIMES[threads]
    word, on = {1: ("eight", "one thread"), 2: ("six", "two threads")}[threads]

    @claim(
        id=f"{word}-times-faster/packed_cpu",
        statement=f"On packed sequences of at least {LONG} steps, a training step of our LSTM, "
        f"which has norms, is at least {times} times faster (to the margin of 5%) than one of "
        f"torch.nn.LSTM, which has none, on {on} of a CPU.",
        kind="experiment",
        rule=_RULE.format(
            f"ours packed over torch's packed on {on}",
            f"1/{times}",
            f"the LSTM on every shape of at least {LONG} steps",
        ),
    )
    def faster() -> Finding:
        found = {
            (kind, shape): ends
            for (kind, shape), ends in _over(packed.TORCH_PACKED, 1 / times).items()
            if kind == "lstm" and shape[0] >= LONG and shape[-1] == threads
        }
        return judged(found, says="not worse", kinds=["lstm"])


for _threads in TIMES:
    _faster(_threads)


COMPILED = 5  # times faster


@claim(
    id="compiles-five-times-faster/compile_cpu",
    statement="torch.compile takes at least five times longer (to the margin of 5%) for torch.nn's "
    "LSTM and GRU over ten steps, if told to look into them, than for ours, packed sequences "
    "included.",
    kind="experiment",
    rule="record bench_compile, profile cpu: seconds of the first training step, ours and ours "
    "packed over torch traced, 95% interval of the median of the ratios, over "
    f"1/{COMPILED}; not worse than 1 by more than the margin, {MARGIN:.2f}, in logarithms, for "
    "LSTM and GRU",
)
def compiles_faster() -> Finding:
    ratios = {
        (row.options["kind"], (*row.shape, row.implementation)): (
            row.ratio_low * COMPILED,
            row.ratio_high * COMPILED,
        )
        for row in compiling.recorded()
        if row.implementation in (recurrent.OURS, compiling.PACKED)
    }
    return judged(ratios, says="not worse")
