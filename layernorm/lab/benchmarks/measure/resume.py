"""Measure a plan case by case, write each result down at once, and go on after an interruption.

A marker stands beside a case's records while it is measured. One that is left tells that the
process was killed or crashed: the case is tried once more, after the others, and if that ends the
process too, its records say so. What failed with an error is tried again as well.
"""

from __future__ import annotations

import gc
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from layernorm.lab import records
from layernorm.lab.benchmarks.measure.case import MEASURED, Case, Row, failure, with_roof
from layernorm.lab.benchmarks.measure.table import place
from layernorm.lab.benchmarks.measure.timing import present
from layernorm.lab.records import Record
from layernorm.lab.records.files import runs_folder, write
from layernorm.lab.records.table import own

Plan = tuple[Case, ...]
CRASHED = "crashed: the process that measured it was killed or crashed"
TIMES = ("seconds", "p20", "p80", "ratio", "ratio_low", "ratio_high", "bandwidth", "roof")
SIZES = ("peak_memory", "held_memory", "resident_memory")
PEERS = ("liger-kernel", "apex", "transformer-engine", "quack-kernels", "flash-attn")
# Options that do not tell what was measured.
OUTCOME = ("baseline", "rounds", "status", "path", "operations", "bytes", "apart")


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
    """
    plan = tuple(plan)
    book = _Book(plan, root)
    waiting = []
    for case in plan:
        rows = [] if again else book.rows(case)
        if rows and not any(row.status.startswith("failed") for row in rows):
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


class _Book:
    """Own records of a plan's cases."""

    def __init__(self, plan: Plan, root: str | Path | None):
        self.root = root
        found = [record for sweep in sweeps(plan) for record in own(*sweep, root)]
        self.known = {_identity(record.config): record for record in found}

    def rows(self, case: Case) -> list[Row]:
        """The rows of a case's records; none if one is missing, or not as good as a new one."""
        if case.profile is None or not present(torch.device(case.device)):
            return []
        wanted = [_config(case.blank(name), case.profile) for name in case.implementations]
        found = [self.known.get(_identity(config)) for config in wanted]
        current = all(record and _current(record, case) for record in found)
        return list(map(from_record, found)) if current else []

    def marker(self, case: Case) -> Path:
        """The file that is there while a case is measured."""
        config = _config(case.blank(case.implementations[0]), case.profile or "none")
        return records.path(config, self.root).with_suffix(".begun")

    def measured(self, case: Case) -> list[Row]:
        """The rows of a case, as written down."""
        if case.profile is None or not present(torch.device(case.device)):
            return _measured(case)
        marker, crashed = self.marker(case), []
        if marker.exists():  # these stay if it ends the process once more
            crashed = [case.blank(name, CRASHED) for name in case.implementations]
            self.save(case, crashed)
        write(marker, f"{place(case.blank(case.implementations[0]))}\n")
        try:
            rows = _measured(case)
        except BaseException:  # stopped by hand, which is no crash: as it was before
            for row in crashed:
                records.path(_config(row, case.profile), self.root).unlink(missing_ok=True)
            if not crashed:
                marker.unlink(missing_ok=True)
            raise
        made = self.save(case, rows)
        marker.unlink(missing_ok=True)
        return made

    def save(self, case: Case, rows: Iterable[Row]) -> list[Row]:
        """Records in place of earlier ones of the same thing, whatever came out then."""
        made = []
        for row in rows:
            record = record_of(row, case.profile, case.depends_on(row.implementation))
            earlier = self.known.get(_identity(record.config), record)
            records.save(record, self.root)
            if earlier.key != record.key:
                records.path(earlier.config, self.root).unlink(missing_ok=True)
            self.known[_identity(record.config)] = record
            made.append(replace(from_record(record), samples=row.samples))
        return made


def _measured(case: Case) -> list[Row]:
    """Measure a case; where even the definition cannot be computed, every row says why."""
    case.check()  # what is out of range is an error of whoever asked
    try:
        return case.measured()
    except Exception as error:  # of any kind: there may be too little memory, for one
        return [case.blank(name, failure(error)) for name in case.implementations]
    finally:
        if present(torch.device(case.device)):
            gc.collect()
            torch.cuda.empty_cache()  # of a GPU that was used; else it does nothing


def sweeps(plan: Iterable[Case]) -> list[tuple[str, str]]:
    """Experiment and profile of the plan's records."""
    named = ((f"bench_{case.benchmark}", case.profile) for case in plan if case.profile)
    return list(dict.fromkeys(named))


def folders(plan: Iterable[Case], root: str | Path | None = None) -> list[Path]:
    """Where the plan's own records are; `layernorm records add` publishes them."""
    return [runs_folder(root) / experiment / profile for experiment, profile in sweeps(plan)]


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
        f"{here['versions']['torch']}, {options['rounds']} rounds, commit "
        f"{(here['commit'] or 'unknown')[:8]}"
    )


def write_json(rows: Iterable[Row], path: Path) -> None:
    """All rows with their samples, and the machine, as one JSON object."""
    document = {"environment": records.environment(), "rows": [asdict(row) for row in rows]}
    write(path, json.dumps(document, indent=1) + "\n")


def _config(row: Row, profile: str) -> dict[str, Any]:
    """A record's configuration. The machine is part of it, so that measurements of two machines
    stand side by side."""
    told = {name: getattr(row, name) for name in ("mode", "dtype", "device", "baseline")}
    told |= {} if row.status == MEASURED else {"status": row.status}
    return {
        "experiment": f"bench_{row.benchmark}",
        "profile": profile,
        "arm": row.implementation,
        "method": row.method,
        "seed": row.seed,
        "options": {**told, "shape": list(row.shape), **row.options},
    }


def _identity(config: Mapping[str, Any]) -> str:
    """The entries that make two measurements one of the same thing."""
    options = {n: value for n, value in config["options"].items() if n not in OUTCOME}
    return json.dumps({**config, "options": options, "data": None}, sort_keys=True)


def _current(record: Record, case: Case) -> bool:
    """True if measuring again would tell no more."""
    return (
        record.config["options"].get("rounds") == case.rounds
        and record.environment["versions"]["torch"] == str(torch.__version__)
        and not records.stale(record)
    )


def record_of(row: Row, profile: str, depends_on: Sequence[Any] = ()) -> Record:
    """The record of a row: what is measured goes into `timing`, without single samples.

    The result holds what the same seed gives again: bytes of the byte model, and the error.
    """
    final = {"error": math.inf if row.error is None else row.error}
    final |= {} if row.traffic is None else {"bytes": row.traffic}
    timing = {name: getattr(row, name) for name in TIMES + SIZES if getattr(row, name) is not None}
    timing |= {name: float(f"{timing[name]:.6g}") for name in TIMES if name in timing}
    made = records.new(_config(row, profile), {"final": final}, timing, depends_on=depends_on)
    here = made.environment
    versions = here["versions"] | _versions()
    return replace(made, environment={**here, "versions": versions, "driver": _driver()})


def from_record(record: Record) -> Row:
    """The row that `record_of` wrote down, as far as it did."""
    config, options = record.config, dict(record.config["options"])
    fields = {name: options.pop(name) for name in ("mode", "dtype", "device", "baseline")}
    status, final = options.pop("status", MEASURED), record.result["final"]
    row = Row(
        benchmark=config["experiment"].removeprefix("bench_"),
        method=config["method"],
        implementation=config["arm"],
        shape=tuple(options.pop("shape")),
        seed=config["seed"],
        status=status,
        error=None if math.isinf(final["error"]) else final["error"],
        traffic=final.get("bytes"),
        options=options,
        **fields,
        **record.timing,
    )
    return with_roof(row)


@cache
def _versions() -> dict[str, str]:
    """The versions that torch's list leaves out."""
    found = {"cuda": torch.version.cuda}
    for package in ("triton", *PEERS):
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return {name: version for name, version in found.items() if version}


@cache
def _driver() -> str | None:
    """NVIDIA's, as Linux tells it."""
    try:
        return Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except OSError:
        return None
