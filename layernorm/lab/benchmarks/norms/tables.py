"""The tables of `layernorm bench norms`: one for each device, then devices side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from layernorm.lab.benchmarks.measure.case import Row
from layernorm.lab.benchmarks.measure.resume import Plan, recorded, sweeps
from layernorm.lab.benchmarks.measure.table import Table, megabytes, microseconds, ratio, shape


def _ratio(row: Row) -> str:
    return ratio(row) + ("" if row.ratio is None or row.baseline == "torch" else " to definition")


def _fraction(row: Row) -> str:
    """Percent of the roof, with a mark where it is more than all."""
    return "" if row.fraction is None else f"{row.fraction:.0%}" + ("!" if row.note else "")


PLACE: dict[str, Callable[[Row], str]] = {
    "benchmark": lambda row: row.benchmark,
    "mode": lambda row: row.mode,
    "shape": lambda row: shape(row, "x"),
    "dtype": lambda row: row.dtype,
    "implementation": lambda row: row.implementation,
}
COLUMNS: dict[str, Callable[[Row], str]] = {
    **PLACE,
    "µs": microseconds,
    "ratio to torch [95%]": _ratio,
    "GB/s": lambda row: "" if row.bandwidth is None else f"{row.bandwidth / 1e9:.1f}",
    "of roof": _fraction,
    "peak MB": lambda row: megabytes(row.peak_memory),
}


def elsewhere(plan: Plan) -> list[Row]:
    """The rows of own and published records of the plan's cases, measured on whatever device.

    Raises:
        RecordError: a record is damaged.
    """
    wanted = {(case.benchmark, case.shape, case.dtype, case.mode) for case in plan}
    return [
        row
        for experiment, profile in sorted(sweeps(plan))
        for row in recorded(experiment.removeprefix("bench_"), profile)
        if (row.benchmark, row.shape, row.dtype, row.mode) in wanted
    ]


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    """One table for each machine, and one that sets several side by side."""
    timed = [row for row in rows if row.seconds is not None]
    machines = list(dict.fromkeys(row.machine for row in timed))
    for name in machines:
        here = [row for row in timed if row.machine == name]
        roofs = sorted(row.roof for row in here if row.roof)
        told = f", copies {roofs[0] / 1e9:.0f} to {roofs[-1] / 1e9:.0f} GB/s" if roofs else ""
        yield table(here, f"{name} ({here[0].device}{told})")
    if len(machines) > 1:
        cells: dict[tuple[str, ...], dict[str, str]] = {}
        for row in timed:
            key = tuple(cell(row) for cell in PLACE.values())
            cells.setdefault(key, {})[row.machine] = f"{microseconds(row)} {_fraction(row)}"
        lines = [
            [*key, *(by.get(name, "not measured yet").rstrip() for name in machines)]
            for key, by in cells.items()
        ]
        yield Table([*PLACE, *machines], lines, "side by side: µs, fraction of the roof")


def table(rows: Sequence[Row], title: str = "") -> Table:
    """A line for each row: time, ratio, bandwidth, memory."""
    lines = [[cell(row) for cell in COLUMNS.values()] for row in rows]
    return Table([*COLUMNS], lines, title)
