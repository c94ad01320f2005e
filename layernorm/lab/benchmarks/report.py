"""What a measurement says: rows, as a table and as records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import pandas

    from layernorm.lab.records import Record

MEASURED = "measured"
NO_DEVICE = "not measured yet on this device"
MEMORY = ("peak_memory", "held_memory", "resident_memory")


@dataclass(frozen=True)
class Row:
    """One implementation of one benchmark: times in seconds, sizes in bytes.

    `status` is "measured", "not measured yet on this device", "wrong: …" (it differs from the
    oracle) or "failed: …" (it raised); all but the first have no times. `ratio` is its median
    time over that of `baseline`; `ratio_low` and `ratio_high` are the 95% interval of the median
    of the ratios within each round. `bandwidth` is `traffic` (the byte model) over the median
    time, `roof` the measured copy bandwidth, `fraction` their quotient. `error` is the largest
    error against the oracle as a fraction of what the gate allows. `held_memory` is what a forward
    pass leaves for its backward, `resident_memory` how much a process grows at most. `options` are
    further choices (they become part of a record's configuration).
    """

    benchmark: str
    method: str
    implementation: str
    baseline: str
    mode: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    seed: int
    status: str
    error: float | None = None
    seconds: float | None = None
    p20: float | None = None
    p80: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    traffic: int | None = None
    bandwidth: float | None = None
    roof: float | None = None
    fraction: float | None = None
    peak_memory: int | None = None
    held_memory: int | None = None
    resident_memory: int | None = None
    note: str = ""
    samples: tuple[float, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


def readable(row: Row) -> dict[str, Any]:
    """The row in microseconds, GB/s and MB (powers of ten), for people."""

    def scaled(value: float | None, factor: float) -> float | None:
        return None if value is None else value * factor

    return {
        "benchmark": row.benchmark,
        "mode": row.mode,
        "implementation": row.implementation,
        "shape": "x".join(map(str, row.shape)),
        "dtype": row.dtype,
        "device": row.device,
        "status": row.status,
        "µs": scaled(row.seconds, 1e6),
        "µs p20": scaled(row.p20, 1e6),
        "µs p80": scaled(row.p80, 1e6),
        "ratio": row.ratio,
        "ratio low": row.ratio_low,
        "ratio high": row.ratio_high,
        "ratio to": row.baseline,
        "GB/s": scaled(row.bandwidth, 1e-9),
        "of roof": row.fraction,
        "peak MB": scaled(row.peak_memory, 1e-6),
        "note": row.note,
    }


def table(rows: Iterable[Row]) -> pandas.DataFrame:
    """The rows as a table, readable.

    Raises:
        ModuleNotFoundError: pandas is not installed; the rows themselves do not need it.
    """
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a table needs pandas, which is not installed; install it with: "
            "pip install 'layernorm[book]' (or read the rows themselves)"
        ) from error
    return pandas.DataFrame([readable(row) for row in rows])


def to_records(rows: Iterable[Row], profile: str, depends_on: Iterable[Any]) -> list[Record]:
    """One record for each implementation that ran: what is measured goes into `timing`.

    The result holds what the same seed gives again: bytes of the byte model, and the error. The
    machine is part of the configuration, so that measurements of two machines stand side by side.

    Args:
        profile: lower-case name of the selection measured, such as `quick`.
        depends_on: the functions that measured, whose code makes these measurements stale.
    """
    from layernorm.lab import records

    here = records.environment()
    made = []
    for row in rows:
        if row.error is None:
            continue
        device = torch.device(row.device)
        machine = f"{here['cpu']}, {here['threads']} threads"
        if device.type == "cuda":
            machine = here["gpus"][device.index or 0]
        options = {
            "mode": row.mode,
            "shape": list(row.shape),
            "dtype": row.dtype,
            "device": row.device,
            "machine": machine,
            "baseline": row.baseline,
            "rounds": len(row.samples),
            **row.options,
        }
        config = {
            "experiment": f"bench_{row.benchmark}",
            "profile": profile,
            "arm": row.implementation,
            "method": row.method,
            "seed": row.seed,
            "options": options,
        }
        final = {"error": row.error} | ({} if row.traffic is None else {"bytes": row.traffic})
        names = ("seconds", "p20", "p80", "ratio", "ratio_low", "ratio_high", "bandwidth", "roof")
        timing = {name: value for name in names if (value := getattr(row, name)) is not None}
        timing |= {f"sample_{i:03}": sample for i, sample in enumerate(row.samples)}
        for name in MEMORY:
            if getattr(row, name) is not None:
                timing[name] = getattr(row, name)
        made.append(records.new(config, {"final": final}, timing, depends_on))
    return made


def from_record(record: Record) -> Row:
    """The row that `to_records` wrote down, as far as it did: no status but "measured"."""
    config, options = record.config, dict(record.config["options"])
    options.pop("machine")
    fields = {name: options.pop(name) for name in ("mode", "dtype", "device", "baseline")}
    measured = dict(record.timing)
    samples = tuple(measured.pop(name) for name in sorted(measured) if name.startswith("sample_"))
    return Row(
        benchmark=config["experiment"].removeprefix("bench_"),
        method=config["method"],
        implementation=config["arm"],
        shape=tuple(options.pop("shape")),
        seed=config["seed"],
        status=MEASURED,
        error=record.result["final"]["error"],
        traffic=record.result["final"].get("bytes"),
        samples=samples,
        options=options,
        **fields,
        **measured,
    )
