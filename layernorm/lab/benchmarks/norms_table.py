"""What `layernorm bench norms` prints: a block for each device, then devices side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from layernorm.lab import records
from layernorm.lab.benchmarks.implementations import BASELINE
from layernorm.lab.benchmarks.plans import Plan
from layernorm.lab.benchmarks.report import MEASURED, NO_DEVICE, Row
from layernorm.lab.benchmarks.survey import row_of

Table = list[list[str]]
HEAD = ["benchmark", "mode", "shape", "dtype", "implementation"]
COLUMNS = ["µs", "ratio to torch [95%]", "GB/s", "of roof", "peak MB"]


def recorded(plan: Plan) -> list[Row]:
    """The rows of all records, own and published, of the plan's cases, on whatever device.

    Raises:
        RecordError: a record is damaged.
    """
    sweeps = {(f"bench_{case.benchmark}", case.profile) for case in plan.cases}
    wanted = {(case.benchmark, case.shape, case.dtype, case.mode) for case in plan.cases}
    rows = [row_of(record) for sweep in sorted(sweeps) for record in records.runs(*sweep)]
    return [row for row in rows if (row.benchmark, row.shape, row.dtype, row.mode) in wanted]


def machine(row: Row) -> str:
    return row.options.get("machine", row.device)


def tables(rows: Sequence[Row]) -> Iterator[tuple[str, Table]]:
    """Title and table, head first: one for each machine, one that sets several side by side."""
    machines = list(dict.fromkeys(machine(row) for row in rows if row.seconds is not None))
    for name in machines:
        here = [row for row in rows if machine(row) == name and row.seconds is not None]
        roofs = sorted(row.roof for row in here if row.roof)
        told = f", copies {roofs[0] / 1e9:.0f} to {roofs[-1] / 1e9:.0f} GB/s" if roofs else ""
        yield f"{name} ({here[0].device}{told})", [HEAD + COLUMNS, *map(_line, here)]
    if len(machines) > 1:
        yield "side by side: µs, fraction of the roof", _side_by_side(rows, machines)


def reasons(rows: Iterable[Row]) -> list[str]:
    """Why rows have no time: what is not here once, what is wrong or failed by its case."""
    said: dict[str, None] = {}
    for row in rows:
        if row.status in (MEASURED, NO_DEVICE):
            continue
        where = f"{' '.join(_key(row)[:-1])}: " if ":" in row.status else ""
        said.setdefault(f"{where}{row.implementation}: {row.status}")
    return list(said)


def progress(rows: Sequence[Row]) -> str:
    """One line about a case."""
    row = rows[0]
    times = (f"{r.implementation} {r.seconds * 1e6:.1f} µs" for r in rows if r.seconds is not None)
    return f"{row.benchmark} {row.mode} {_shape(row)} {row.dtype}: {', '.join(times) or row.status}"


def _line(row: Row) -> list[str]:
    return [
        *_key(row),
        f"{row.seconds * 1e6:.1f}",
        _ratio(row),
        "" if row.bandwidth is None else f"{row.bandwidth / 1e9:.1f}",
        _fraction(row),
        "" if row.peak_memory is None else f"{row.peak_memory / 1e6:.1f}",
    ]


def _ratio(row: Row) -> str:
    if row.ratio is None:
        return ""
    told = f"{row.ratio:.2f} [{row.ratio_low:.2f}, {row.ratio_high:.2f}]"
    return told if row.baseline == BASELINE else f"{told} to {row.baseline}"


def _fraction(row: Row) -> str:
    """With a mark where it is more than the roof, which is never right."""
    return "" if row.fraction is None else f"{row.fraction:.0%}" + ("!" if row.note else "")


def _side_by_side(rows: Sequence[Row], machines: Sequence[str]) -> Table:
    cells: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        if row.seconds is not None:
            told = f"{row.seconds * 1e6:.1f} {_fraction(row)}".rstrip()
            cells.setdefault(tuple(_key(row)), {})[machine(row)] = told
    lines = [
        [*key, *(by.get(m, "not measured yet") for m in machines)] for key, by in cells.items()
    ]
    return [HEAD + list(machines), *lines]


def _key(row: Row) -> list[str]:
    return [row.benchmark, row.mode, _shape(row), row.dtype, row.implementation]


def _shape(row: Row) -> str:
    return "x".join(map(str, row.shape))
