"""Write the file of speeds by which `backend="auto"` chooses, from records of benchmarks.

    python -m layernorm.lab.benchmarks.speeds [FILE] [--drop]

An entry tells, for an operation on a GPU at one shape, the upper end of the 95% interval of the
time of this package's kernel: over that of torch's own norm, or over that of the definition of a
recurrent layer; and of its loop in one kernel ("lstm_persistent"), over that of its loop of steps.
Of a norm it is the ratio of what a user waits for, if that is higher: a kernel of ten microseconds
that takes Python a hundred to queue saves nothing. What is stale, wrong or measured from a captured
graph is left out. What the file has and no current record gives stays: then nothing is written,
unless `--drop` says that it may go.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from layernorm.lab import records
from layernorm.lab.benchmarks.measure.case import MEASURED, Row
from layernorm.lab.benchmarks.measure.recording import from_record
from layernorm.lab.benchmarks.norms.implementations import OURS
from layernorm.lab.benchmarks.recurrent.subjects import ON_GPU, PERSISTENT
from layernorm.lab.records import Record
from layernorm.lab.records.files import write

FILE = Path(__file__).parents[2] / "kernels" / "speeds.json"
NORMS = {"layer": "layer_norm", "rms": "rms_norm"}
PLACE = ("operation", "device", "dtype", "gradient", "shape")


def entries(found: Iterable[Record]) -> list[dict[str, Any]]:
    """The entries of these records, sorted; of several at one place the slowest."""
    timed = [record for record in found if record.config["experiment"].startswith("bench_")]
    rows = [from_record(record) for record in timed if not records.stale(record)]
    rows = [r for r in rows if r.status == MEASURED and r.device.startswith("cuda")]
    slowest: dict[tuple, float] = {}
    for place, ratio in (*_of_norms(rows), *_of_layers(rows)):
        slowest[place] = max(ratio, slowest.get(place, 0.0))
    return [
        {**dict(zip(PLACE, place, strict=True)), "ratio_high": float(f"{ratio:.4g}")}
        for place, ratio in sorted(slowest.items())
    ]


def _of_norms(rows: Iterable[Row]) -> Iterator[tuple[tuple, float]]:
    cases: dict[tuple, dict[str, Row]] = {}
    for row in rows:
        if row.benchmark in NORMS and row.mode != "backward":
            gradient, size = row.mode != "forward", (row.shape[0], math.prod(row.shape[1:]))
            place = NORMS[row.benchmark], row.machine, row.dtype, gradient, size
            cases.setdefault(place, {})[row.implementation] = row
    for place, by in cases.items():
        ours, torchs = by.get(OURS), by.get("torch")
        if ours and torchs and ours.baseline == "torch" and ours.ratio_high is not None:
            yield place, max(ours.ratio_high, _waited(ours) / _waited(torchs))


def _waited(row: Row) -> float:
    """Seconds until a call is done, one after another: of the GPU, or of the CPU that queues it."""
    return max(row.seconds, row.host or 0.0)


def _of_layers(rows: Iterable[Row]) -> Iterator[tuple[tuple, float]]:
    times: dict[tuple, dict[str, Row]] = {}
    for row in rows:
        if row.benchmark == "recurrent" and not row.options.get("tf32", True):
            kind, gradient = row.options["kind"], row.mode == "training"
            place = (kind, row.machine, row.dtype, gradient, row.shape)
            times.setdefault(place, {})[row.implementation] = row
    for place, by in times.items():
        for name, other, ending in (
            (ON_GPU, "definition", ""),
            (PERSISTENT, ON_GPU, "_persistent"),
        ):
            if name in by and other in by:
                yield (place[0] + ending, *place[1:]), _slowest(by[name], by[other])


def _slowest(ours: Row, theirs: Row) -> float:
    """The upper end of the ratio of two times that are known relative to a third."""
    both = ours.ratio_high is not None and theirs.ratio_low is not None
    return ours.ratio_high / theirs.ratio_low if both else ours.p80 / theirs.p20


def text(entries: Iterable[dict[str, Any]]) -> str:
    """The file's text, an entry a line."""
    lines = ",".join(f"\n{json.dumps(entry)}" for entry in entries)
    return '{"schema": 1, "entries": [' + (f"{lines}\n" if lines else "") + "]}\n"


def without(before: Iterable[dict[str, Any]], made: Iterable[dict[str, Any]]) -> Counter[str]:
    """How many entries of each device are not made again."""
    again = {_place(entry) for entry in made}
    return Counter(entry["device"] for entry in before if _place(entry) not in again)


def _place(entry: dict[str, Any]) -> tuple:
    return tuple(tuple(v) if isinstance(v := entry[name], list) else v for name in PLACE)


def main(arguments: list[str]) -> None:
    """Write the file, from own and published records."""
    parser = argparse.ArgumentParser("layernorm.lab.benchmarks.speeds")
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    parser.add_argument("--drop", action="store_true", help="also where entries are lost by it")
    given = parser.parse_args(arguments)
    made = entries(records.runs())
    before = json.loads(given.file.read_text())["entries"] if given.file.exists() else []
    lost = without(before, made)
    if lost and not given.drop:
        told = ", ".join(f"{count} of {device}" for device, count in lost.items())
        sys.exit(
            f"{given.file}: left as it is. Of its {len(before)} entries no current record gives "
            f"{told}: their records are stale or gone. Measure them again (make bench-gpu), or "
            "write the file without them: --drop"
        )
    write(given.file, text(made))
    print(f"{len(made)} entries: {given.file}")


if __name__ == "__main__":
    main(sys.argv[1:])
