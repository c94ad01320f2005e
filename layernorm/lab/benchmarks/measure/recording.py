"""Rows as records, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from layernorm.lab import records
from layernorm.lab.benchmarks.measure.row import MEASURED, Row, with_roof
from layernorm.lab.records import Record

TIMES = ("seconds", "p20", "p80", "host", "ratio", "ratio_low", "ratio_high", "bandwidth", "roof")
RATIO = "ratio_of_process_"  # and its number
SIZES = ("peak_memory", "held_memory", "resident_memory")
PEERS = (
    *("liger-kernel", "apex", "transformer-engine", "quack-kernels", "flash-attn"),
    *("nvidia-cudnn-frontend", "haste-pytorch", "flashrnn"),
)
OUTCOME = (
    "baseline",
    "rounds",
    "processes",
    "status",
    "path",
    "launches",
    "operations",
    "bytes",
    "apart",
)  # options that do not tell what was measured


def configuration(row: Row, profile: str) -> dict[str, Any]:
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


def identity(config: Mapping[str, Any]) -> str:
    """The entries that make two measurements one of the same thing."""
    options = {n: value for n, value in config["options"].items() if n not in OUTCOME}
    return json.dumps({**config, "options": options, "data": None}, sort_keys=True)


def subject(record: Record) -> str:
    """The name of the thing that a record tells of: a measurement's `identity`, a run's key."""
    timed = record.config["experiment"].startswith("bench_")
    return identity(record.config) if timed else record.key


def record_of(row: Row, profile: str, depends_on: Sequence[Any] = ()) -> Record:
    """The record of a row: what is measured goes into `timing`, without single samples.

    The result holds what the same seed gives again: bytes of the byte model, and the error.
    """
    final = {"error": math.inf if row.error is None else row.error}
    final |= {} if row.traffic is None else {"bytes": row.traffic}
    timing = {name: getattr(row, name) for name in TIMES + SIZES if getattr(row, name) is not None}
    timing |= {f"{RATIO}{n}": ratio for n, ratio in enumerate(row.ratios)}
    timing = {n: value if n in SIZES else float(f"{value:.6g}") for n, value in timing.items()}
    made = records.new(configuration(row, profile), {"final": final}, timing, depends_on=depends_on)
    here = made.environment
    versions = here["versions"] | _versions()
    return replace(made, environment={**here, "versions": versions, "driver": _driver()})


def from_record(record: Record) -> Row:
    """The row that `record_of` wrote down, as far as it did."""
    config, options = record.config, dict(record.config["options"])
    fields = {name: options.pop(name) for name in ("mode", "dtype", "device", "baseline")}
    status, final = options.pop("status", MEASURED), record.result["final"]
    ratios = [name for name in record.timing if name.startswith(RATIO)]
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
        ratios=tuple(record.timing[f"{RATIO}{n}"] for n in range(len(ratios))),
        **fields,
        **{name: value for name, value in record.timing.items() if name not in ratios},
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
