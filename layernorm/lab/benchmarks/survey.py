"""`layernorm bench norms`: cases measured once, each result written down at once.

    from layernorm.lab.benchmarks import plans, survey
    for case, rows in survey.run(plans.plan(quick=True)): ...

The implementations of a case are timed in turns, then each becomes a record. A case whose records
are there, made by the same code and torch on the same machine, is read instead of measured: a
survey that was killed goes on where it was.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path

import torch

from layernorm.lab import records
from layernorm.lab.benchmarks import norms
from layernorm.lab.benchmarks.harness import Benchmark, measure, times
from layernorm.lab.benchmarks.implementations import (
    BASELINE,
    KERNELS,
    OURS,
    candidates,
    retained_graphs,
)
from layernorm.lab.benchmarks.peers import PEERS
from layernorm.lab.benchmarks.plans import Case, Plan, present
from layernorm.lab.benchmarks.report import MEASURED, NO_DEVICE, Row, from_record, to_records
from layernorm.lab.records import Record
from layernorm.lab.records.table import own

PEERS_TABLE = "layernorm.lab.benchmarks.peers.PEERS"
DIGITS = 6  # of times in records
LONGEST = 300  # characters of why something failed

Known = dict[tuple, Record]


def run(
    plan: Plan, root: str | Path | None = None, again: bool = False, until: float = math.inf
) -> Iterator[tuple[Case, list[Row]]]:
    """Each case with its rows: measured, or read if its records are there.

    Rows without a time say why in `status`; the option `machine` says where a row was measured.

    Args:
        root: of own records; None: `$LAYERNORM_RUNS`, else `./runs`.
        again: measure what was measured before, too.
        until: by `time.monotonic()`; no case is begun later, and what is left is not yielded.

    Raises:
        RecordError: a record of an earlier run is damaged.
    """
    there = present(plan.device)
    known = _known(plan, root) if there else {}
    for case in plan.cases:
        if time.monotonic() >= until:
            return
        benchmark, refused = candidates(norms.BENCHMARKS[case.name], plan.device, plan.compiled)
        names, blank = list(benchmark.implementations), _blank(plan, case)
        if not there:
            yield case, [replace(blank, implementation=n, status=NO_DEVICE) for n in names]
            continue
        earlier = [known.get(_identity_of(plan, case, name)) for name in names]
        if again or not all(record and _current(record, plan) for record in earlier):
            rows = rebased(_measured(plan, case, benchmark))
            made = [_save(_record(plan, case, row), root, known) for row in rows]
        else:
            made = earlier
        without = [replace(blank, implementation=n, status=why) for n, why in refused.items()]
        yield case, [*map(row_of, made), *without]


def rebased(rows: Sequence[Row]) -> list[Row]:
    """With ratios to the definition where torch's own did not pass the gate. (In half precision on
    a CPU its gradients of gain and bias lose digits.)"""
    by = {row.implementation: row for row in rows}
    if by[BASELINE].status == MEASURED or by["definition"].status != MEASURED:
        return list(rows)
    reference = list(by["definition"].samples)
    return [
        replace(row, baseline="definition", **times(list(row.samples), reference))
        if row.status == MEASURED
        else row
        for row in rows
    ]


def row_of(record: Record) -> Row:
    """The row of a record, with its status, its fraction of the roof and its machine."""
    row = from_record(record)
    options = {**row.options, "machine": record.config["options"]["machine"]}
    fraction = row.bandwidth / row.roof if row.bandwidth and row.roof else None
    return replace(
        row,
        status=options.pop("status", MEASURED),
        error=None if math.isinf(row.error) else row.error,
        options=options,
        fraction=fraction,
        note="above the roof" if (fraction or 0) > 1 else "",
    )


def folders(plan: Plan, root: str | Path | None = None) -> list[Path]:
    """Where the plan's own records are."""
    blank = {"arm": BASELINE, "method": "layer", "seed": 0}
    sweeps = [(f"bench_{case.benchmark}", case.profile) for case in plan.cases]
    return [
        records.path({"experiment": name, "profile": profile, **blank}, root).parent
        for name, profile in dict.fromkeys(sweeps)
    ]


def _measured(plan: Plan, case: Case, benchmark: Benchmark) -> list[Row]:
    """As `harness.measure`; if not even the definition can be computed, every row says why."""
    try:
        with retained_graphs():
            return measure(
                benchmark,
                case.shape,
                getattr(torch, case.dtype),
                plan.device,
                case.mode,
                baseline=BASELINE,
                rounds=plan.rounds,
                sample_seconds=plan.sample_seconds,
                graph=case.graph,
            )
    except Exception as error:  # of any kind: there may be too little memory, for one
        why = f"failed: {type(error).__name__}: {error}"
        blank = replace(_blank(plan, case), error=None, status=why)
        return [replace(blank, implementation=name) for name in benchmark.implementations]
    finally:
        gc.collect()
        if plan.device.type == "cuda":
            torch.cuda.empty_cache()


def _blank(plan: Plan, case: Case) -> Row:
    return Row(
        case.benchmark,
        norms.BENCHMARKS[case.name].method,
        "",
        BASELINE,
        case.mode,
        case.shape,
        case.dtype,
        str(plan.device),
        0,
        MEASURED,
    )


def _record(plan: Plan, case: Case, row: Row) -> Record:
    """As `report.to_records`, of what failed, too, with the versions of compilers and peers."""
    options = {"rounds": plan.rounds} | ({"graph": True} if case.graph else {})
    if row.status != MEASURED:
        options["status"] = " ".join(row.status.split())[:LONGEST]
    row = replace(
        row,
        benchmark=case.benchmark,
        error=math.inf if row.error is None else row.error,
        samples=(),
        options=options,
    )
    ours = [KERNELS[case.name]] if row.implementation == OURS else []
    theirs = [PEERS_TABLE] if row.implementation in {peer.name for peer in PEERS} else []
    (record,) = to_records([row], case.profile, [_measured, *ours, *theirs])
    here = record.environment
    return replace(
        record,
        timing={name: _short(value) for name, value in record.timing.items()},
        environment={**here, "versions": here["versions"] | _versions(), "driver": _driver()},
    )


def _short(value: float | int) -> float | int:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _identity(record: Record) -> tuple:
    """What makes two measurements one of the same thing."""
    config, options = record.config, record.config["options"]
    return (
        *(config[name] for name in ("experiment", "profile", "arm")),
        tuple(options["shape"]),
        *(options[name] for name in ("dtype", "mode", "device", "machine")),
    )


def _identity_of(plan: Plan, case: Case, name: str) -> tuple:
    """That of the record which the measurement of this implementation will become."""
    experiment, machine = f"bench_{case.benchmark}", machine_of(plan.device)
    what = (experiment, case.profile, name, case.shape, case.dtype, case.mode)
    return (*what, str(plan.device), machine)


@cache
def machine_of(device: torch.device) -> str:
    """The device's name in records."""
    row = Row("name", "layer", "torch", "torch", "", (), "", str(device), 0, MEASURED, error=0.0)
    return to_records([row], "name", ())[0].config["options"]["machine"]


def _known(plan: Plan, root: str | Path | None) -> Known:
    """Own records of the plan's benchmarks and profiles."""
    sweeps = {(f"bench_{case.benchmark}", case.profile) for case in plan.cases}
    found = [record for sweep in sorted(sweeps) for record in own(*sweep, root)]
    return {_identity(record): record for record in found}


def _current(record: Record, plan: Plan) -> bool:
    """Whether it is as good as measuring again."""
    return (
        record.config["options"].get("rounds") == plan.rounds
        and record.environment["versions"]["torch"] == str(torch.__version__)
        and not records.stale(record)
    )


def _save(record: Record, root: str | Path | None, known: Known) -> Record:
    """Written in place of an earlier one of the same thing, whatever came out then."""
    earlier = known.get(_identity(record), record)
    records.save(record, root)
    if earlier.key != record.key:
        records.path(earlier.config, root).unlink(missing_ok=True)
    known[_identity(record)] = record
    return record


@cache
def _versions() -> dict[str, str]:
    """Of what torch's list leaves out."""
    found = {"cuda": torch.version.cuda} | {peer.package: peer.version() for peer in PEERS}
    with suppress(metadata.PackageNotFoundError):
        found["triton"] = metadata.version("triton")
    return {name: version for name, version in found.items() if version}


@cache
def _driver() -> str | None:
    """NVIDIA's, as Linux tells it."""
    try:
        return Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except OSError:
        return None
