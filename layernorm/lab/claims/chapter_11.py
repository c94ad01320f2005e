"""Claims about what layer normalization costs a recurrent layer on a CPU, on packed sequences
and `torch.compile`, decided by the published records of `layernorm bench recurrent`, `packed` and
`compile`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from layernorm.lab.benchmarks import compiling, packed, recurrent
from layernorm.lab.benchmarks.measure import Row, quotient
from layernorm.lab.benchmarks.recurrent import tables
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.checks import shared, timed
from layernorm.lab.experiments.judged import (
    INCONCLUSIVE,
    NO_DIFFERENCE,
    NOT_BETTER,
    OPPOSITE,
    SUPPORTED,
    of_ratio,
)

MARGIN = 1.05  # of benchmarks: at most a twentieth longer is not "significantly" more
TOLD = {
    **{SUPPORTED: "supported", OPPOSITE: "excluded", NOT_BETTER: "not better"},
    **{NO_DIFFERENCE: "no difference", INCONCLUSIVE: "undecided"},
}
Places = dict[tuple[str, tuple[int | str, ...]], "Ratio"]  # by kind and shape


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


def split(verdicts: Iterable[str]) -> str:
    """Say on how many shapes a statement has which verdict, the most frequent one first.

    >>> split(["inconclusive", *["opposite here"] * 4])
    'Excluded on 4 of 5 shapes, undecided on 1.'
    """
    (first, most), *others = Counter(verdicts).most_common()
    total = most + sum(n for _, n in others)
    shapes = "shape" if total == 1 else "shapes"
    of_all = f"{most} of {total}" if others else f"all {total}" if total > 1 else "the one"
    said = [f"{TOLD[first]} on {of_all} {shapes}", *(f"{TOLD[v]} on {n}" for v, n in others)]
    return f"{', '.join(said).capitalize()}."


def training_steps() -> dict[tuple[str, tuple[int, ...], str], Row]:
    """The recorded training steps with ordinary pages, by kind, shape and implementation."""
    rows = tables.select(tables.recorded("cpu"), mode="training", huge_pages="off")
    return {(row.options["kind"], row.shape, row.implementation): row for row in rows}


def judged(
    ratios: Mapping[tuple[str, tuple[int | str, ...]], Ratio],
    says: str,
    kinds: Iterable[str] = ("lstm", "gru"),
    most: float = 1.0,
    inverse: bool = False,
) -> Finding:
    """The verdict that all shapes of these kinds share: ratios (`inverse`: what they divide by) are
    less than `most` ("better") or not more ("not worse"), in logarithms."""
    if {kind for kind, _ in ratios} != set(kinds):
        return Finding("not yet tested")
    found = {
        place: of_ratio(one.low / most, one.high / most, MARGIN, says, inverse)
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
    margin = f"{MARGIN:g}" + f" times {most:.3g}" * (most != 1)
    table = [
        timed(f"{kind.upper()} {','.join(map(str, shape))}", *one, margin, found[kind, shape])
        for (kind, shape), one in ratios.items()
    ]
    return shared(found.values(), evidence, split(found.values()), numbers=numbers, table=table)


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


_LOOPS = (
    "record bench_recurrent, profile cpu: training step with ordinary pages, time of the loop with "
    "norms over that of the loop without, 95% interval of the median of the processes' ratios (of "
    "a record of one process, from the ends of both loops' intervals); the loop {} by more than "
    f"the margin, {MARGIN:.2f}, in logarithms, for LSTM and GRU on every shape"
)


def loops() -> Places:
    """The time of the loop with norms over that of the loop without, by kind and shape."""
    rows = training_steps()
    return {
        (kind, shape): Ratio(*quotient(row, rows[kind, shape, "plain loop"]), ratio(row).processes)
        for (kind, shape, name), row in rows.items()
        if name == "loop"
    }


@claim(
    id="slower-per-update/recurrent_cpu",
    statement="Layer normalization slows down each update: on a CPU, a loop over the steps of an "
    "LSTM or a GRU with norms against the same loop without them.",
    kind="experiment",
    rule=_LOOPS.format("without faster"),
)
def slower_per_update() -> Finding:
    return judged(loops(), says="better", inverse=True)


@claim(
    id="no-significant-cost-per-step/loop_cpu",
    statement="Layer normalization adds no significant cost to an update: on a CPU, a loop over "
    "the steps of an LSTM or a GRU with norms against the same loop without them.",
    kind="experiment",
    rule=_LOOPS.format("with norms not slower"),
)
def no_significant_cost_of_norms() -> Finding:
    return judged(loops(), says="not worse")


AT_MOST = 0.75  # of the padded batch's time
TIMES, LONG = {1: 8, 2: 6}, 100  # faster than torch, by threads, from so many steps on


def _place(row: Row) -> tuple[str, tuple[int, ...]]:
    return row.options["kind"], (*row.shape, row.options["threads"])


def _over(name: str) -> Places:
    """The time of ours on packed sequences over that of another, by kind, and shape and threads."""
    rows = (row for row in packed.recorded("cpu") if row.implementation == name)
    return {_place(row): ratio(row).inverse() for row in rows}


def _span(values: Iterable[float], form: str) -> str:
    values = list(values)
    return f"{min(values):{form}} to {max(values):{form}}"


_DRAWN = _span((packed.PackedCase("lstm", size).options["rows"] for size in packed.SHAPES), ".0%")


_RULE = (
    "record bench_packed, profile cpu: {}, 95% interval of the median of the ratios, "
    f"over {{}}; not worse than 1 by more than the margin, {MARGIN:.2f}, in logarithms, for {{}}"
)


@claim(
    id="three-quarters-of-padded/packed_cpu",
    statement="A training step of our LSTM or GRU on packed sequences, whose lengths were drawn "
    f"between T/4 and T, takes at most {AT_MOST} of the time that the padded batch takes (to the "
    "margin of 5%).",
    kind="experiment",
    rule=_RULE.format(
        "ours packed over ours padded", AT_MOST, "LSTM and GRU on every shape, one thread and two"
    )
    + f"; the lengths are one draw for each shape, of {_DRAWN} of the padded batch's rows",
)
def packed_sequences_save_time() -> Finding:
    ratios = _over(packed.PADDED)
    found = judged(ratios, says="not worse", most=AT_MOST)
    if not ratios:
        return found
    rows = {_place(row): row.options["rows"] for row in packed.recorded("cpu")}
    beside = [one.middle / rows[place] for place, one in ratios.items()]
    drawn = (
        f" The drawn lengths have {_span(map(rows.get, ratios), '.0%')} of the padded batch's rows;"
        f" the time is {_span(beside, '.2f')} times that share."
    )
    return replace(found, evidence=found.evidence + drawn)


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
        (row.options["kind"], (*row.shape, row.implementation)): (
            ratio(row)._replace(processes=row.options["rounds"])  # each is a process of its own
        )
        for row in compiling.recorded()
        if row.implementation in (recurrent.OURS, compiling.PACKED)
    }
    return judged(ratios, says="not worse", most=1 / COMPILED)
