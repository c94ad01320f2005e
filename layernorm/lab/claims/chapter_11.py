"""Claims about what layer normalization costs a recurrent layer on a CPU, on packed sequences
and `torch.compile`, decided by the published records of `layernorm bench recurrent`, `packed` and
`compile`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from layernorm.lab.benchmarks import compiling, packed, recurrent
from layernorm.lab.benchmarks.measure import Row, quotient
from layernorm.lab.benchmarks.recurrent import tables
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.checks import shared, timed
from layernorm.lab.experiments.judged import of_ratio

MARGIN = 1.05  # of benchmarks: at most a twentieth longer is not "significantly" more


class Ratio(NamedTuple):
    """One time over another: the median with its interval, and of how many processes it is."""

    middle: float
    low: float
    high: float
    processes: int = 1

    def inverse(self) -> Ratio:
        return Ratio(1 / self.middle, 1 / self.high, 1 / self.low, self.processes)


def ratio(row: Row) -> Ratio:
    """The recorded ratio of a row to its baseline."""
    return Ratio(row.ratio, row.ratio_low, row.ratio_high, row.options.get("processes", 1))


def training_steps() -> dict[tuple[str, tuple[int, ...], str], Row]:
    """The recorded training steps with ordinary pages, by kind, shape and implementation."""
    rows = tables.select(tables.recorded("cpu"), mode="training", huge_pages="off")
    return {(row.options["kind"], row.shape, row.implementation): row for row in rows}


def judged(
    ratios: Mapping[tuple[str, tuple[int | str, ...]], Ratio],
    says: str,
    kinds: Iterable[str] = ("lstm", "gru"),
    most: float = 1.0,
) -> Finding:
    """The verdict that all shapes of these kinds share: ratios are less than `most` ("better") or
    not more ("not worse"), in logarithms."""
    if {kind for kind, _ in ratios} != set(kinds):
        return Finding("not yet tested")
    found = {
        place: of_ratio(one.low / most, one.high / most, MARGIN, says)
        for place, one in ratios.items()
    }
    said, numbers = [], {}
    for kind in recurrent.KINDS:
        count = Counter(v for (its_kind, _), v in found.items() if its_kind == kind)
        if kind not in kinds:
            continue
        numbers[f"{kind}_shapes"] = count.total()
        said.append(f"{kind.upper()} " + ", ".join(f"{v} on {n}" for v, n in count.items()))
    evidence = f"Ratio of times, margin {MARGIN:.2f}, by shape: {'; '.join(said)}."
    why = "Not all shapes are decided, or not alike."
    margin = f"{MARGIN:g}" + f" times {most:.3g}" * (most != 1)
    table = [
        timed(f"{kind.upper()} {','.join(map(str, shape))}", *one, margin, found[kind, shape])
        for (kind, shape), one in ratios.items()
    ]
    return shared(found.values(), evidence, why, numbers=numbers, table=table)


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
        (kind, shape): ratio(row)
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
            plain = rows[kind, shape, "plain loop"]
            ratios[kind, shape] = Ratio(*quotient(plain, row), ratio(row).processes)
    return judged(ratios, says="better")


AT_MOST = 0.75  # of the padded batch's time, for 0.63 of its rows
TIMES, LONG = {1: 8, 2: 6}, 100  # faster than torch, by threads, from so many steps on


def _over(name: str) -> dict[tuple[str, tuple[int, ...]], Ratio]:
    """The time of ours on packed sequences over that of another, by kind, and shape and threads."""
    return {
        (row.options["kind"], (*row.shape, row.options["threads"])): ratio(row).inverse()
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
    return judged(_over(packed.PADDED), says="not worse", most=AT_MOST)


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
            (kind, shape): one
            for (kind, shape), one in _over(packed.TORCH_PACKED).items()
            if kind == "lstm" and shape[0] >= LONG and shape[-1] == threads
        }
        return judged(found, says="not worse", kinds=["lstm"], most=1 / times)


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
        (row.options["kind"], (*row.shape, row.implementation)): ratio(row)
        for row in compiling.recorded()
        if row.implementation in (recurrent.OURS, compiling.PACKED)
    }
    return judged(ratios, says="not worse", most=1 / COMPILED)
