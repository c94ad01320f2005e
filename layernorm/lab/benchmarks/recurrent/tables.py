"""The tables of `layernorm bench recurrent`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from layernorm.lab import records
from layernorm.lab.benchmarks.measure import resume
from layernorm.lab.benchmarks.measure.case import MEASURED, Row
from layernorm.lab.benchmarks.measure.table import Table, megabytes, number, problems, shape
from layernorm.lab.benchmarks.recurrent.case import MODES
from layernorm.lab.benchmarks.recurrent.plan import SHAPES
from layernorm.lab.benchmarks.recurrent.subjects import BASELINE, KINDS, OURS, SUBJECTS

TORCHS = {"lstm": "nn.LSTM", "gru": "nn.GRU"}


def select(rows: Iterable[Row], **wanted: str) -> list[Row]:
    """The rows with these values of `kind`, `mode`, `huge_pages`, `implementation`."""
    return _grouped(rows, *wanted).get(tuple(wanted.values()), [])


def _grouped(rows: Iterable[Row], *names: str) -> dict[tuple, list[Row]]:
    """The rows by these values, in order of appearance."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        values = (row.options[n] if n in row.options else getattr(row, n) for n in names)
        groups.setdefault(tuple(values), []).append(row)
    return groups


def recorded(profile: str = "cpu") -> list[Row]:
    """The rows of the records there are, in the order in which they are measured.

    Raises:
        RecordError: they are of several machines, whose times no table may mix.
    """
    rows = of_one_machine("recurrent", profile)
    shapes = {shape: i for i, shape in enumerate(SHAPES)}

    def place(row: Row) -> tuple:
        kind = row.options["kind"]
        return (
            row.options["huge_pages"] == "on",
            KINDS.index(kind),
            MODES.index(row.mode),
            shapes.get(row.shape, len(shapes)),
            list(SUBJECTS[kind]).index(row.implementation),
        )

    return sorted(rows, key=place)


def of_one_machine(benchmark: str, profile: str, any_threads: bool = False) -> list[Row]:
    """The rows of the records there are, with one number of threads or any.

    Raises:
        RecordError: they are of several machines, whose times no table may mix.
    """
    rows = resume.recorded(benchmark, profile)
    names = {row.machine.partition(", ")[0] if any_threads else row.machine for row in rows}
    if len(machines := sorted(names)) > 1:
        raise records.RecordError(
            f"records of bench_{benchmark} in profile {profile!r} are of several machines "
            f"({'; '.join(machines)}): give each a profile of its own"
        )
    return rows


def geometric_mean(rows: Sequence[Row]) -> float | None:
    """The geometric mean of the rows' ratios; None where there are none, or one is missing."""
    ratios = [row.ratio for row in rows]
    if not ratios or None in ratios:
        return None
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    """Every table of a measurement."""
    for (kind, mode, pages), chosen in _grouped(rows, "kind", "mode", "huge_pages").items():
        dtype, threads = chosen[0].dtype, chosen[0].options["threads"]
        what = f"{kind.upper()}, {mode}, {dtype}, threads: {threads}, huge pages {pages}"
        yield speeds(chosen, f"{what}: ratio of times to {TORCHS[kind]}")
    held = [row for row in rows if row.held_memory is not None]
    for (kind,), chosen in _grouped(held, "kind").items():
        told = "training: MB held for the backward pass, growth of the process"
        yield memories(chosen, f"{kind.upper()}, {told}")


def speeds(rows: Sequence[Row], title: str = "") -> Table:
    """Shapes down, implementations across: torch's time, the others' ratio to it [95% interval].

    The rows are of one kind, mode and setting of huge pages; the last line has the geometric means
    of those that have a ratio at every shape.
    """
    by = {name: mine for (name,), mine in _grouped(rows, "implementation").items()}
    names = sorted(by, key=lambda name: name != BASELINE)  # the others as they came
    titles = {BASELINE: f"{TORCHS[rows[0].options['kind']]} ms"} if rows else {}
    cells = {(shape(row), row.implementation): _speed(row) for row in rows}
    shapes = dict.fromkeys(map(shape, rows))
    lines = [[one, *(cells.get((one, name), "") for name in names)] for one in shapes]
    whole = [name for name in names if name != BASELINE and len(by[name]) == len(shapes)]
    means = (number(geometric_mean(by[name])) if name in whole else "" for name in names)
    lines.append(["geometric mean", *means])
    return Table(["T,B,I,H", *(titles.get(name, name) for name in names)], lines, title)


def memories(rows: Sequence[Row], title: str = "") -> Table:
    """The memory that training takes, in MB: held for the backward, and growth of a process."""
    by = {(shape(row), row.implementation): row for row in rows}
    columns = [f"{what}: {whose}" for what in ("held", "process") for whose in ("torch", "ours")]
    head, lines = ["T,B,I,H", *columns[:2], "ratio", *columns[2:], "ratio"], []
    for one in dict.fromkeys(map(shape, rows)):
        line = [one]
        for field in ("held_memory", "resident_memory"):
            theirs, ours = (getattr(by.get((one, n)), field, None) for n in (BASELINE, OURS))
            line += [megabytes(theirs), megabytes(ours)]
            line += [f"{ours / theirs:.2f}" if ours is not None and theirs else ""]
        lines.append(line)
    return Table(head, lines, title)


def verdict(rows: Sequence[Row]) -> str:
    """The gate's verdict, the functions it judged, and the machine."""
    here = records.environment()
    right = sum(row.status == MEASURED for row in rows)
    paths = sorted({row.options["path"] for row in rows if "path" in row.options})
    return "\n".join([
        *problems(rows),
        f"correctness: {right} of {len(rows)} measurements passed the gate "
        "(their definitions in float64, before and after timing)",
        "functions: ours, definition and the GRU's loop and script are the paper's; the LSTM's "
        "loop and script carry the normalized cell; torch, plain loop and 'no norms', our C++, "
        "have none",
        f"ours: {', '.join(paths)}",
        f"machine: {here['cpu']}, {here['cpu_capability']}, torch {here['versions']['torch']}",
    ])  # fmt: skip


def _speed(row: Row) -> str:
    if row.status != MEASURED:
        return row.status.partition(":")[0]
    if row.implementation == BASELINE or row.ratio is None:
        return f"{row.seconds * 1e3:.2f}" + ("" if row.implementation == BASELINE else " ms")
    return f"{number(row.ratio)} [{number(row.ratio_low)}, {number(row.ratio_high)}]"
