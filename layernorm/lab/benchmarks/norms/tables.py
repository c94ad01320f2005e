"""The tables of `layernorm bench norms`: one for each device, then devices side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from layernorm.lab.benchmarks.measure.case import Row
from layernorm.lab.benchmarks.measure.resume import Plan, recorded, sweeps
from layernorm.lab.benchmarks.measure.table import Table, megabytes, ratio, shape

HEAD = ["benchmark", "mode", "shape", "dtype", "implementation"]
COLUMNS = ["µs", "ratio to torch [95%]", "GB/s", "of roof", "peak MB"]


def elsewhere(plan: Plan) -> list[Row]:
    """The rows of own and published records of the plan's cases, measured on whatever device.

    Raises:
        RecordError: a record is damaged.
    """
    wanted = {(case.benchmark, case.shape, case.dtype, case.mode) for case in plan}
    rows = [
        row
        for experiment, profile in sorted(sweeps(plan))
        for row in recorded(experiment.removeprefix("bench_"), profile)
    ]
    return [row for row in rows if (row.benchmark, row.shape, row.dtype, row.mode) in wanted]


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
        yield _side_by_side(timed, machines)


def table(rows: Sequence[Row], title: str = "") -> Table:
    """A line for each row: time, ratio, bandwidth, memory."""
    lines = []
    for row in rows:
        gigabytes = "" if row.bandwidth is None else f"{row.bandwidth / 1e9:.1f}"
        cells = [_micros(row), _ratio(row), gigabytes, _fraction(row), megabytes(row.peak_memory)]
        lines.append([*_key(row), *cells])
    return Table(HEAD + COLUMNS, lines, title)


def progress(rows: Sequence[Row]) -> str:
    """One line about a case."""
    row = rows[0]
    times = (f"{r.implementation} {_micros(r)} µs" for r in rows if r.seconds is not None)
    return f"{' '.join(_key(row)[:-1])}: {', '.join(times) or row.status}"


def _micros(row: Row) -> str:
    return "" if row.seconds is None else f"{row.seconds * 1e6:.1f}"


def _ratio(row: Row) -> str:
    return ratio(row) + ("" if row.ratio is None or row.baseline == "torch" else " to definition")


def _fraction(row: Row) -> str:
    """With a mark where it is more than the roof, which is never right."""
    return "" if row.fraction is None else f"{row.fraction:.0%}" + ("!" if row.note else "")


def _side_by_side(rows: Sequence[Row], machines: Sequence[str]) -> Table:
    cells: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        told = f"{_micros(row)} {_fraction(row)}".rstrip()
        cells.setdefault(tuple(_key(row)), {})[row.machine] = told
    lines = [
        [*key, *(by.get(m, "not measured yet") for m in machines)] for key, by in cells.items()
    ]
    return Table(HEAD + list(machines), lines, "side by side: µs, fraction of the roof")


def _key(row: Row) -> list[str]:
    return [row.benchmark, row.mode, shape(row, "x"), row.dtype, row.implementation]
