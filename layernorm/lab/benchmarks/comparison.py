"""The tables of `layernorm bench recurrent`: rows of text, the first one the head."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from layernorm.lab import records
from layernorm.lab.benchmarks import recurrent
from layernorm.lab.benchmarks.recurrent import BASELINE, OURS
from layernorm.lab.benchmarks.report import MEASURED, Row, from_record
from layernorm.lab.records.files import write

Table = list[list[str]]
TORCHS = {"lstm": "nn.LSTM", "gru": "nn.GRU"}


def select(rows: Iterable[Row], **wanted: str) -> list[Row]:
    """The rows with these values of `kind`, `mode`, `huge_pages`, `implementation`."""

    def value(row: Row, name: str) -> object:
        return row.options[name] if name in row.options else getattr(row, name)

    return [r for r in rows if all(value(r, name) == w for name, w in wanted.items())]


def geometric_mean(rows: Sequence[Row]) -> float | None:
    """Of the rows' ratios; None where there are none, or one is missing."""
    ratios = [row.ratio for row in rows]
    if not ratios or None in ratios:
        return None
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def tables(rows: Sequence[Row]) -> Iterator[tuple[str, Table]]:
    """Every table of a measurement with its title."""
    for row in _firsts(rows, "kind", "mode", "huge_pages"):
        kind, pages = row.options["kind"], row.options["huge_pages"]
        wanted = {"kind": kind, "mode": row.mode, "huge_pages": pages}
        title = f"{kind.upper()}, {row.mode}, {row.dtype}, threads: {row.options['threads']}"
        yield (
            f"{title}, huge pages {pages}: ratio of times to {TORCHS[kind]}",
            speeds(select(rows, **wanted)),
        )
    for row in _firsts(select(rows, mode="training", huge_pages="off"), "kind"):
        kind = row.options["kind"]
        chosen = select(rows, kind=kind, mode="training", huge_pages="off")
        yield (
            f"{kind.upper()}, training: MB held for the backward pass, growth of the process",
            (memories(chosen)),
        )


def verdict(rows: Sequence[Row]) -> str:
    """What the gate said, of what, and where it was measured."""
    here = records.environment()
    wrong = problems(rows)
    paths = sorted({row.options["path"] for row in rows if "path" in row.options})
    right = f"{len(rows) - len(wrong)} of {len(rows)} measurements passed the gate"
    return "\n".join([
        *wrong,
        f"correctness: {right} (their definitions in float64, before and after timing)",
        "functions: ours, definition and the GRU's loop and script are the paper's; the LSTM's "
        "loop and script carry the normalized cell; torch and plain loop have no norms",
        f"ours: {', '.join(paths)}",
        f"machine: {here['cpu']}, {here['cpu_capability']}, torch {here['versions']['torch']}",
    ])  # fmt: skip


def progress(row: Row) -> str:
    """One line about a row that was just measured."""
    return (
        f"{row.options['kind']} {row.mode} {_shape(row.shape)} huge pages "
        f"{row.options['huge_pages']} {row.implementation}: {_speed(row)}"
    )


def write_json(rows: Iterable[Row], path: Path) -> None:
    """All rows with their samples, and the machine, as one JSON object."""
    document = {"environment": records.environment(), "rows": [asdict(row) for row in rows]}
    write(path, json.dumps(document, indent=1) + "\n")


def recorded(profile: str = "cpu") -> list[Row]:
    """The rows of the published records, in the order in which they are measured."""
    found = [from_record(record) for record in records.runs("bench_recurrent", profile)]
    shapes = {shape: i for i, shape in enumerate(recurrent.SHAPES)}

    def place(row: Row) -> tuple:
        kind = row.options["kind"]
        return (
            row.options["huge_pages"] == "on",
            recurrent.KINDS.index(kind),
            recurrent.MODES.index(row.mode),
            shapes.get(row.shape, len(shapes)),
            list(recurrent.SUBJECTS[kind]).index(row.implementation),
        )

    return sorted(found, key=place)


def origin(profile: str = "cpu") -> str:
    """Where the published records were made: processor, threads, torch, rounds, commit.

    Raises:
        RecordError: there are none.
    """
    found = records.runs("bench_recurrent", profile)
    if not found:
        raise records.RecordError(
            f"there is no record of bench_recurrent in profile {profile!r}; make one with: "
            f"layernorm bench recurrent --profile {profile}"
        )
    here, options = found[0].environment, found[0].config["options"]
    return (
        f"{here['cpu']} ({here['cpu_capability']}), threads: {options['threads']}, torch "
        f"{here['versions']['torch']}, {options['rounds']} rounds, commit "
        f"{(here['commit'] or 'unknown')[:8]}"
    )


def _firsts(rows: Iterable[Row], *names: str) -> list[Row]:
    """One row for each combination of these values, in order of appearance."""
    first: dict[tuple, Row] = {}
    for row in rows:
        key = tuple(row.mode if name == "mode" else row.options[name] for name in names)
        first.setdefault(key, row)
    return list(first.values())


def speeds(rows: Sequence[Row]) -> Table:
    """Shapes down, implementations across: torch's time, the others' ratio to it [95% interval].

    The rows are of one kind, mode and setting of huge pages; the last line has geometric means.
    """
    names = list(dict.fromkeys(row.implementation for row in rows))
    names = [name for name in names if name == BASELINE] + [n for n in names if n != BASELINE]
    titles = {BASELINE: f"{TORCHS[rows[0].options['kind']]} ms"} if rows else {}
    shapes = list(dict.fromkeys(row.shape for row in rows))
    cells = {(row.shape, row.implementation): _speed(row) for row in rows}
    means = [geometric_mean(select(rows, implementation=name)) for name in names]
    table = [["T,B,I,H", *(titles.get(name, name) for name in names)]]
    table += [[_shape(s), *(cells.get((s, name), "") for name in names)] for s in shapes]
    shown = ["" if n == BASELINE else _number(m) for n, m in zip(names, means, strict=True)]
    return [*table, ["geometric mean", *shown]]


def memories(rows: Sequence[Row]) -> Table:
    """What training takes, in MB (10^6 bytes): held for the backward, and growth of a process."""
    by = {(row.shape, row.implementation): row for row in rows}
    table = [["T,B,I,H"]]
    for what in ("held", "process"):
        table[0] += [f"{what}: torch", f"{what}: ours", "ratio"]
    for shape in dict.fromkeys(row.shape for row in rows):
        pair = [by.get((shape, name)) for name in (BASELINE, OURS)]
        line = [_shape(shape)]
        for field in ("held_memory", "resident_memory"):
            theirs, ours = (getattr(row, field, None) for row in pair)
            line += [_megabytes(theirs), _megabytes(ours)]
            line += [f"{ours / theirs:.2f}" if ours is not None and theirs else ""]
        table.append(line)
    return table


def problems(rows: Iterable[Row]) -> list[str]:
    """What was not measured, and why; empty if every implementation passed the gate."""
    return [
        f"{row.options['kind']} {row.mode} {_shape(row.shape)} {row.implementation}: {row.status}"
        for row in rows
        if row.status != MEASURED
    ]


def _shape(shape: Iterable[int]) -> str:
    return ",".join(map(str, shape))


def _speed(row: Row) -> str:
    if row.status != MEASURED:
        return row.status.partition(":")[0]
    if row.implementation == BASELINE:
        return f"{row.seconds * 1e3:.2f}"
    if row.ratio is None:
        return f"{row.seconds * 1e3:.2f} ms"
    return f"{_number(row.ratio)} [{_number(row.ratio_low)}, {_number(row.ratio_high)}]"


def _number(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}" if ratio < 9.95 else f"{ratio:.1f}"


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.1f}"
