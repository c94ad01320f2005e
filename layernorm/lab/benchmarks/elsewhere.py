"""Speeds of GPU kernels that others published, beside the time that the bytes alone take.

Nothing here was measured by this book. `on_gpu` shows it as long as there is no record of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from layernorm.lab.benchmarks.measure.table import Table

FILE = Path(__file__).with_suffix(".yaml")
TRIPS = {"forward": 2, "backward": 3}  # over the matrix: x and y; x, dy and dx
SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}
ROWS = 4096  # for which times are given
HEAD = (
    *("operation", "device", "units", "by", "TB/s", "of roof", "bytes, µs", "µs"),
    "published, not measured here",
)
RECURRENT = (
    *("layer", "device", "T,B,I,H", "by", "ms", "µs a step", "µs in all by bytes alone"),
    "published, not measured here",
)


def recurrent() -> Table:
    """Return what others published of normalized recurrent layers, forward.

    By bytes alone: inputs, outputs and weights once each, at the speed of the device's memory.
    """
    content = _content()
    lines = []
    for row in content["recurrent"]:
        steps, batch, inputs, units = row["shape"]
        size = SIZES[row["dtype"]] * (steps * batch * (inputs + units) + row["weights"])
        lines.append(
            [
                f"{row['layer']}, {row['dtype']}",
                row["device"],
                ",".join(map(str, row["shape"])),
                row["by"],
                f"{row['ms']:.1f}",
                f"{1e3 * row['ms'] / steps:.0f}",
                f"{1e-6 * size / content['devices'][row['device']]:.1f}",
                f"{row['source']} ({row['year']})",
            ]
        )
    return Table(RECURRENT, lines, "published by others: normalized recurrent layers, forward")


def published() -> Table:
    """Return the rows that others published.

    `of roof`: the speed as a share of the memory's. In microseconds: the bytes alone at that speed,
    and at the published one.

    Raises:
        ValueError: the file names a device, mode or type that it does not describe.
    """
    return Table(HEAD, list(_lines()), f"published by others; times are for {ROWS} rows")


def _content() -> dict[str, Any]:
    import yaml

    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def _lines() -> Iterator[list[str]]:
    content = _content()
    for row in content["norms"]:
        mode, device, dtype = row["mode"], row["device"], row["dtype"]
        if mode not in TRIPS or device not in content["devices"] or dtype not in SIZES:
            raise ValueError(f"{FILE.name} does not describe {device}, {mode} or {dtype}")
        roof, speed = content["devices"][device], row["tb_per_s"]
        if not 0 < speed <= roof:
            raise ValueError(f"{FILE.name}: {speed} TB/s on {device}, whose memory has {roof}")
        size = TRIPS[mode] * ROWS * row["width"] * SIZES[dtype]
        yield [
            f"{row['method']}, {mode}, {dtype}",
            device,
            str(row["width"]),
            row["by"],
            f"{speed:.2f}",
            f"{speed / roof:.0%}",
            f"{1e-6 * size / roof:.0f}",
            f"{1e-6 * size / speed:.0f}",
            f"{row['source']} ({row['year']})",
        ]
