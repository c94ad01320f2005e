"""Known speeds on GPUs: our own records, and until there are any, what others published.

A table says in its title which of the two it is. A sentence about GPUs in a page asks `devices`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from layernorm.lab.benchmarks import elsewhere
from layernorm.lab.benchmarks.measure import resume
from layernorm.lab.benchmarks.measure.byte_model import MODES
from layernorm.lab.benchmarks.measure.row import Row
from layernorm.lab.benchmarks.measure.table import Table, microseconds, ratio, shape
from layernorm.lab.benchmarks.norms.implementations import OURS
from layernorm.lab.benchmarks.recurrent.subjects import BASELINE

OPERATIONS = ("layer", "layer_graph", "rms", "residual")  # a graph: without launches
SHARED = ("device", "dtype", "T,B,I,H")  # columns that are told once if they have one value
NORMS = ("device", "operation", "mode", "dtype", "by", "shapes", "of a copy's speed", "µs, host")
LAYERS = ("device", "layer", "mode", "dtype", "T,B,I,H", "by", "ms", "ratio to cuDNN [95%]")


def _own(benchmark: str) -> list[Row]:
    """Our rows of a benchmark on GPUs; a time that includes launches says nothing of a kernel."""
    return [row for row in resume.recorded(benchmark) if row.device.startswith("cuda")]


def _told(head: Sequence[str], lines: Sequence[Sequence[str]], what: str = "") -> Table:
    """A table of our measurements; in its title stands the value that all lines share."""
    values = {name: {line[k] for line in lines} for k, name in enumerate(head)}
    shared = {name: values[name].pop() for name in SHARED if len(values.get(name, ())) == 1}
    kept = [k for k, name in enumerate(head) if name not in shared]
    said = (
        f"{name if name == 'T,B,I,H' else ''} {value}".strip() for name, value in shared.items()
    )
    measured = "; ".join(filter(None, ("measured by us", ", ".join(said))))
    title = "\n".join(filter(None, (measured, what)))
    return Table([head[k] for k in kept], [[line[k] for k in kept] for line in lines], title)


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
    for row in sorted(rows, key=lambda row: (*_place(row), row.seconds)):
        key = row.machine, row.benchmark, row.mode, row.dtype, row.implementation
        groups.setdefault(key, []).append(row)
    lines = []
    for key, found in groups.items():
        low, middle, high = np.quantile([row.fraction for row in found], [0.2, 0.5, 0.8])
        host = [1e6 * row.host for row in found if row.host is not None]
        told = f"{np.median(host):.0f}" if host else ""
        lines.append([*key, str(len(found)), f"{low:.0%} {middle:.0%} {high:.0%}", told])
    return _told(NORMS, lines, "quantiles over shapes: 20%, 50%, 80%")


def _place(row: Row) -> tuple:
    return row.machine, row.benchmark, MODES.index(row.mode), row.dtype


def by_shape() -> Table:
    """Layer normalization at each shape: every implementation's µs on the GPU, and of this
    package's kernels the share of a copy's speed, and the ratio to the time of torch's own; without
    records no lines."""
    cases: dict[tuple, dict[str, Row]] = {}
    for row in _own("layer"):
        cases.setdefault((*_place(row), row.shape), {})[row.implementation] = row
    others = sorted({name for by in cases.values() for name in by} - {OURS})
    head = ("device", "mode", "dtype", "rows × units", f"µs: {OURS}", *others)
    lines = [
        [
            by[OURS].machine,
            by[OURS].mode,
            by[OURS].dtype,
            shape(by[OURS], "\u2009×\u2009"),  # which nothing breaks
            *(microseconds(by[name]) if name in by else "" for name in (OURS, *others)),
            f"{by[OURS].fraction:.0%}",
            ratio(by[OURS]),
        ]
        for _, by in sorted(cases.items(), key=lambda case: case[0])
        if OURS in by and by[OURS].fraction
    ]
    return _told((*head, "of a copy's speed", "ratio to torch"), lines)


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
        for row in sorted(rows, key=_layer)
    ]
    return _told(LAYERS, lines, "cuDNN's layers have no norms")


def _layer(row: Row) -> tuple:
    numbers = row.dtype, bool(row.options.get("tf32")), row.shape
    return row.machine, row.options["kind"] != "lstm", row.mode, *numbers, row.seconds
