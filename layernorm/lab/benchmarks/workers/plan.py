"""The plan and the tables of `layernorm bench workers`."""

from __future__ import annotations

from collections.abc import Sequence

from layernorm.lab.benchmarks.measure import resume
from layernorm.lab.benchmarks.measure.case import Row
from layernorm.lab.benchmarks.measure.resume import Plan
from layernorm.lab.benchmarks.measure.row import quotient
from layernorm.lab.benchmarks.measure.table import Table, ratio
from layernorm.lab.benchmarks.measure.words import some_of
from layernorm.lab.benchmarks.workers import runs, updates
from layernorm.lab.benchmarks.workers.runs import RunsCase
from layernorm.lab.benchmarks.workers.updates import UpdatesCase, parts_of

WHAT = ("updates", "sweeps")
WORKERS = [
    "batch",
    "implementation",
    "ms/update",
    "speed-up [95% interval]",
    "operations",
    "bytes",
    "gradient off by",
]
SWEEPS = ["runs", "implementation", "ms/run", "overhead, ms/run", "ratio [95% interval]"]


def plan(what: str | None = None, quick: bool = False, profile: str | None = None) -> Plan:
    """The cases of these words, `updates` and `sweeps`; None: both.

    Raises:
        ValueError: naming the option, what was expected, what came and what was probably meant.
    """
    names = some_of("what", what, WHAT, WHAT)
    few = {"rounds": 6, "processes": 1} if quick else {}
    cases = {
        "updates": [
            UpdatesCase("digits", shape, profile=profile, **few) for shape in updates.SHAPES
        ],
        "sweeps": [RunsCase("runs", (runs.RUNS,), profile=profile, **few)],
    }
    return tuple(case for name in names for case in cases[name])


def recorded(benchmark: str = "workers", profile: str = "cpu") -> list[Row]:
    """The rows of the records there are, in the order in which they are measured."""
    names = updates.NAMES if benchmark == "workers" else runs.NAMES
    found = resume.recorded(benchmark, profile)
    return sorted(found, key=lambda row: (row.machine, row.shape, names.index(row.implementation)))


def tables(rows: Sequence[Row]) -> list[Table]:
    """One table of updates and one of sweeps, as far as there are rows."""
    shared = [row for row in rows if row.benchmark == "workers"]
    swept = [row for row in rows if row.benchmark == "sweeps"]
    found = [Table(WORKERS, [_update(row, shared) for row in shared])] if shared else []
    return found + ([Table(SWEEPS, [_sweep(row, swept) for row in swept])] if swept else [])


def speedup(row: Row, rows: Sequence[Row]) -> tuple[float, float, float] | None:
    """The time of one worker with the same method and batch over that of several: median and 95%
    interval, as `quotient` has them; None if either was not measured."""
    alone = [r for r in rows if r.ratio is not None and parts_of(r.implementation)[1] == 1]
    one = {(r.machine, r.shape, r.method): r for r in alone}.get(
        (row.machine, row.shape, row.method)
    )
    return None if row.ratio is None or one is None else quotient(one, row)


def _update(row: Row, rows: Sequence[Row]) -> list[str]:
    name = [str(row.shape[0]), row.implementation]
    if row.seconds is None:
        return [*name, row.status, "", "", "", ""]
    faster, told = speedup(row, rows), row.options
    alone = parts_of(row.implementation)[1] == 1
    return [
        *name,
        f"{1e3 * row.seconds:.1f}",
        "" if faster is None else "1" if alone else "{:.2f} [{:.2f}, {:.2f}]".format(*faster),
        f"{told['operations']}",
        f"{told['bytes']:,}",
        f"{told['apart']:.1g}",
    ]


def _sweep(row: Row, rows: Sequence[Row]) -> list[str]:
    count = row.shape[0]
    if row.seconds is None:
        return [str(count), row.implementation, row.status, "", ""]
    alone = {r.machine: r.seconds for r in rows if r.implementation == runs.ALONE}
    one, each = alone.get(row.machine), 1e3 / count
    more = (
        "" if one is None or row.implementation[-1] != "1" else f"{each * (row.seconds - one):.1f}"
    )
    return [str(count), row.implementation, f"{each * row.seconds:.1f}", more, ratio(row)]
