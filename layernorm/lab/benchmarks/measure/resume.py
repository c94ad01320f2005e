"""Measure a plan case by case, write each result down at once, and go on after an interruption.

A marker stands beside a case's records while it is measured. One that is left tells that the
process was killed or crashed: the case is tried once more, after the others, and if that ends the
process too, its records say so. What failed with an error is tried again as well. Where an error
makes a GPU useless to the process (`Poisoned`), the marker keeps who did it; another process
measures the others without it.
"""

from __future__ import annotations

import gc
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from layernorm.lab import records
from layernorm.lab.benchmarks.measure.case import MEASURED, Case, Poisoned, Row, failure
from layernorm.lab.benchmarks.measure.recording import (
    configuration,
    from_record,
    identity,
    record_of,
)
from layernorm.lab.benchmarks.measure.table import place
from layernorm.lab.benchmarks.measure.timing import alive, present
from layernorm.lab.records import Record
from layernorm.lab.records.files import runs_folder, write
from layernorm.lab.records.table import own

Plan = tuple[Case, ...]
CRASHED = "crashed: the process that measured it was killed or crashed"


def run(
    plan: Iterable[Case],
    root: str | Path | None = None,
    again: bool = False,
    until: float = math.inf,
) -> Iterator[tuple[Case, list[Row]]]:
    """Yield each case with its rows: measured, or read from records of the same code, torch and
    machine. Cases that failed or crashed before come last.

    Args:
        root: of own records; None: `$LAYERNORM_RUNS`, else `./runs`.
        again: measure what was measured before, too.
        until: by `time.monotonic()`; no case is begun later, and what is left is not yielded.

    Raises:
        RecordError: a record of an earlier run is damaged.
        Poisoned: the GPU is useless to this process; another one goes on.
    """
    plan = tuple(plan)
    book = _Book(plan, root)
    waiting = []
    for case in plan:
        rows = [] if again else book.rows(case)
        known = rows and not any(row.status.startswith("failed") for row in rows)
        if known and not book.to_repeat(case):
            yield case, rows
        elif not again and (rows or book.marker(case).exists()):
            waiting.append((case, rows))
        elif time.monotonic() < until:
            yield case, book.measured(case)
    for case, rows in waiting:
        if time.monotonic() < until:
            rows = book.measured(case)
        if rows:
            yield case, rows


def known(plan: Iterable[Case], root: str | Path | None = None) -> list[list[Row]]:
    """The rows of each case's own records; none where it is still to be measured."""
    plan = tuple(plan)
    book = _Book(plan, root)
    return [[] if book.to_repeat(case) else book.rows(case) for case in plan]


class _Book:
    """Own records of a plan's cases."""

    def __init__(self, plan: Plan, root: str | Path | None):
        self.root = root
        found = [record for sweep in sweeps(plan) for record in own(*sweep, root)]
        self.known = {identity(record.config): record for record in found}

    def rows(self, case: Case) -> list[Row]:
        """The rows of a case's records; none if one is missing, or not as good as a new one."""
        if case.profile is None or not present(torch.device(case.device)):
            return []
        wanted = [configuration(case.blank(name), case.profile) for name in case.implementations]
        found = [self.known.get(identity(config)) for config in wanted]
        current = all(record and _current(record, case) for record in found)
        return list(map(from_record, found)) if current else []

    def marker(self, case: Case) -> Path:
        """The file that is there while a case is measured."""
        config = configuration(case.blank(case.implementations[0]), case.profile or "none")
        return records.path(config, self.root).with_suffix(".begun")

    def measured(self, case: Case) -> list[Row]:
        """The rows of a case, as written down."""
        if case.profile is None or not present(torch.device(case.device)):
            return _measured(case)
        marker, culprits, crashed = self.marker(case), self.culprits(case), []
        if marker.exists():  # these stay if it ends the process once more
            crashed = [case.blank(name, CRASHED) for name in case.implementations]
            self.save(case, crashed)
        self.mark(case, culprits)
        try:
            rows = _measured(case, culprits)
        except Poisoned as error:
            unknown = error.culprit or next(n for n in case.implementations if n not in culprits)
            self.mark(
                case, culprits | {unknown: error.status.replace("failed", "crashed", 1)}, True
            )
            raise
        except BaseException:  # stopped by hand, which is no crash: as it was before
            for row in crashed:
                records.path(configuration(row, case.profile), self.root).unlink(missing_ok=True)
            if not crashed:
                marker.unlink(missing_ok=True)
            raise
        made = self.save(case, rows)
        marker.unlink(missing_ok=True)
        return made

    def mark(self, case: Case, culprits: Mapping[str, str], repeat: bool = False) -> None:
        """Write the marker: those that are left out, with their status, and whether the others are
        still to be measured."""
        told = {"case": place(case.blank(case.implementations[0])), "culprits": dict(culprits)}
        write(self.marker(case), json.dumps(told | {"repeat": repeat}) + "\n")

    def culprits(self, case: Case) -> dict[str, str]:
        """The implementations that made the GPU useless to a process, with their status."""
        return self._marked(case).get("culprits", {})

    def to_repeat(self, case: Case) -> bool:
        """True if it is known which implementations end a process, and the others are left."""
        return self._marked(case).get("repeat", False)

    def _marked(self, case: Case) -> dict[str, Any]:
        try:
            return json.loads(self.marker(case).read_text())
        except (OSError, json.JSONDecodeError):  # none, or written by an earlier version
            return {}

    def save(self, case: Case, rows: Iterable[Row]) -> list[Row]:
        """Records in place of earlier ones of the same thing, whatever came out then."""
        made = []
        for row in rows:
            record = record_of(row, case.profile, case.depends_on(row.implementation))
            earlier = self.known.get(identity(record.config), record)
            records.save(record, self.root)
            if earlier.key != record.key:
                records.path(earlier.config, self.root).unlink(missing_ok=True)
            self.known[identity(record.config)] = record
            made.append(replace(from_record(record), samples=row.samples))
        return made


def _measured(case: Case, culprits: Mapping[str, str] | None = None) -> list[Row]:
    """Measure a case without the culprits; where even the definition cannot be computed, every row
    says why."""
    case.check()  # what is out of range is an error of whoever asked
    culprits = culprits or {}
    others = tuple(name for name in case.implementations if name not in culprits)
    known = [case.blank(name, status) for name, status in culprits.items()]
    try:
        return known + (replace(case, implementations=others).measured() if others else [])
    except Poisoned:
        raise
    except Exception as error:  # of any kind: there may be too little memory, for one
        if not alive(torch.device(case.device)):
            raise Poisoned("", failure(error)) from error
        return known + [case.blank(name, failure(error)) for name in others]
    finally:
        if present(torch.device(case.device)) and alive(torch.device(case.device)):
            gc.collect()
            torch.cuda.empty_cache()  # of a GPU that was used; else it does nothing


def sweeps(plan: Iterable[Case]) -> list[tuple[str, str]]:
    """Experiment and profile of the plan's records."""
    named = ((f"bench_{case.benchmark}", case.profile) for case in plan if case.profile)
    return list(dict.fromkeys(named))


def folders(plan: Iterable[Case]) -> list[Path]:
    """Where the plan's own records are; `layernorm records add` publishes them."""
    return [runs_folder() / experiment / profile for experiment, profile in sweeps(plan)]


def recorded(benchmark: str, profile: str | None = None) -> list[Row]:
    """The rows of what was measured, by own and published records.

    Raises:
        RecordError: a record is damaged.
    """
    rows = map(from_record, records.runs(f"bench_{benchmark}", profile))
    return [row for row in rows if row.status == MEASURED]


def origin(benchmark: str, profile: str) -> str:
    """Processor, threads, torch, rounds and commit of records.

    Raises:
        RecordError: there are none.
    """
    found = records.runs(f"bench_{benchmark}", profile)
    if not found:
        raise records.RecordError(
            f"there is no record of bench_{benchmark} in profile {profile!r}; make one with: "
            f"layernorm bench {benchmark} --profile {profile}"
        )
    here, options = found[0].environment, found[0].config["options"]
    return (
        f"{here['cpu']} ({here['cpu_capability']}), threads: {options['threads']}, torch "
        f"{here['versions']['torch']}, {_sampled(options)}, commit "
        f"{(here['commit'] or 'unknown')[:8]}"
    )


def _sampled(options: Mapping[str, Any]) -> str:
    """How often was measured, in words."""
    processes = options.get("processes", 1)
    return f"{f'{processes} processes of ' if processes > 1 else ''}{options['rounds']} rounds"


def write_json(rows: Iterable[Row], path: Path) -> None:
    """All rows with their samples, and the machine, as one JSON object."""
    document = {"environment": records.environment(), "rows": [asdict(row) for row in rows]}
    write(path, json.dumps(document, indent=1) + "\n")


def _current(record: Record, case: Case) -> bool:
    """True if measuring again would tell no more."""
    told = record.config["options"]
    return (
        (told.get("rounds"), told.get("processes", 1)) == (case.rounds, case.processes)
        and record.environment["versions"]["torch"] == str(torch.__version__)
        and not records.stale(record)
    )
