"""Known speeds on GPUs: our own records, and until there are any, what others published.

A table says in its title which of the two it is. A sentence about GPUs in a page asks `devices`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from layernorm.lab.benchmarks import elsewhere
from layernorm.lab.benchmarks.measure import resume
from layernorm.lab.benchmarks.measure.row import Row
from layernorm.lab.benchmarks.measure.table import Table, microseconds, ratio, shape
from layernorm.lab.benchmarks.norms.implementations import OURS
from layernorm.lab.benchmarks.recurrent.subjects import BASELINE

OPERATIONS = ("layer", "rms", "residual")
NORMS = ("device", "operation", "mode", "dtype", "by", "shapes", "of a copy's speed", "µs, host")
LAYERS = ("device", "layer", "mode", "dtype", "T,B,I,H", "by", "ms", "ratio to cuDNN [95%]")


def _own(benchmark: str) -> list[Row]:
    """Our rows of a benchmark on GPUs; a time that includes launches says nothing of a kernel."""
    return [row for row in resume.recorded(benchmark) if row.device.startswith("cuda")]


def devices() -> list[str]:
    """The GPUs on which our norms are measured, by own and published records."""
    return sorted({row.machine for name in OPERATIONS for row in _own(name)})


def norms(operations: Iterable[str] = OPERATIONS) -> Table:
    """Layer normalization, RMS normalization and the norm of a sum: each implementation's share of
    the speed of a copy (20%, 50% and 80% quantile over the shapes), and how long the CPU takes to
    queue a call; or what others published."""
    rows = [row for name in operations for row in _own(name) if row.fraction]
    if not rows:
        return elsewhere.published()
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key = row.machine, row.benchmark, row.mode, row.dtype, row.implementation
        groups.setdefault(key, []).append(row)
    lines = []
    for key, found in groups.items():
        low, middle, high = np.quantile([row.fraction for row in found], [0.2, 0.5, 0.8])
        host = [1e6 * row.host for row in found if row.host is not None]
        told = f"{np.median(host):.0f}" if host else ""
        lines.append([*key, str(len(found)), f"{low:.0%} {middle:.0%} {high:.0%}", told])
    return Table(NORMS, lines, "measured by us; quantiles over shapes: 20%, 50%, 80%")


def by_shape(operation: str = "layer") -> Table:
    """A norm at each shape: every implementation's µs on the GPU, and of this package's kernels the
    share of a copy's speed, and the ratio to the time of torch's own; without records no lines."""
    cases: dict[tuple, dict[str, Row]] = {}
    for row in _own(operation):
        key = row.machine, row.mode, row.dtype, row.shape
        cases.setdefault(key, {})[row.implementation] = row
    others = sorted({name for by in cases.values() for name in by} - {OURS})
    head = ("device", "mode", "dtype", "rows x units", f"µs: {OURS}", *others)
    lines = [
        [
            *key[:3],
            shape(by[OURS], " x "),
            *(microseconds(by[name]) if name in by else "" for name in (OURS, *others)),
            f"{by[OURS].fraction:.0%}",
            ratio(by[OURS]),
        ]
        for key, by in sorted(cases.items(), key=lambda case: case[0])
        if OURS in by and by[OURS].fraction
    ]
    return Table((*head, "of a copy's speed", "ratio to torch [95%]"), lines, "measured by us")


def layers() -> Table:
    """The layer-normalized LSTM and GRU beside cuDNN's layers without norms; or what others
    published of normalized recurrent layers."""
    rows = [row for row in _own("recurrent") if row.seconds is not None]
    if not rows:
        return elsewhere.recurrent()
    lines = [
        [
            row.machine,
            row.options["kind"].upper(),
            row.mode,
            "tf32" if row.options.get("tf32") else row.dtype,
            shape(row),
            "cuDNN" if row.implementation == BASELINE else row.implementation,
            f"{1e3 * row.seconds:.2f}",
            ratio(row) if row.baseline == BASELINE else "",
        ]
        for row in rows
    ]
    return Table(LAYERS, lines, "measured by us; cuDNN's layers have no norms")
