"""Where records say that a kernel of this package is as fast as PyTorch's own.

`layernorm bench norms` writes them, the package publishes some; one's own count like published
ones. Between shapes that were measured the neighbors decide, beyond them PyTorch's own is used.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import cache

import torch
from torch import Tensor

from layernorm.lab.records import Record

BENCHMARKS = {"layer_norm": "bench_layer", "rms_norm": "bench_rms"}
MARGIN = 1.05  # the slowest that is accepted, relative to PyTorch's own

Ratios = dict[int, dict[int, float]]  # elements of a row -> rows -> time relative to torch's own


def faster(operation: str, x: Tensor, dims: int, gradient: bool) -> bool:
    """Whether to use the kernel for x, normalized over its last `dims` dimensions."""
    width = math.prod(x.shape[x.dim() - dims :])
    if x.numel() == 0:
        return False
    name, kind = torch.cuda.get_device_name(x.device), str(x.dtype).removeprefix("torch.")
    return decide(_ratios(operation, name, kind, gradient), x.numel() // width, width, x.itemsize)


@cache
def _ratios(operation: str, device: str, dtype: str, gradient: bool) -> Ratios:
    from layernorm.lab import records

    try:
        found = records.runs(BENCHMARKS[operation])
    except (records.RecordError, OSError):  # `layernorm doctor` tells about damaged files
        return {}
    return ratios(found, device, dtype, gradient)


def ratios(found: Iterable[Record], device: str, dtype: str, gradient: bool) -> Ratios:
    """The upper end of the interval of the ratio to torch's time, from records that are not stale.

    Args:
        device: the GPU's name.
        gradient: forward and backward together, or forward alone.
    """
    from layernorm.lab import records

    mode = "forward+backward" if gradient else "forward"
    expected = {"machine": device, "dtype": dtype, "mode": mode, "baseline": "torch"}
    kept: Ratios = {}
    for record in found:
        options, ratio = record.config["options"], record.timing.get("ratio_high")
        if (
            record.config["arm"] != "triton"
            or ratio is None
            or any(options.get(name) != value for name, value in expected.items())
            or records.stale(record)
        ):
            continue
        count, *row = options["shape"]
        of_width = kept.setdefault(math.prod(row), {})
        of_width[count] = max(ratio, of_width.get(count, 0.0))
    return kept


def decide(measured: Ratios, count: int, width: int, itemsize: int) -> bool:
    """Whether the kernel is within the margin at every measured neighbor of (count, width).

    There must be neighbors on both sides, in both directions. Rows that do not begin at multiples
    of 16 bytes are read in another way: only rows of the same kind are neighbors.

    >>> measured = {1024: {16: 0.9, 4096: 0.5}, 4096: {16: 1.2, 4096: 0.5}}
    >>> decide(measured, 64, 1024, 4), decide(measured, 64, 2048, 4), decide(measured, 8, 1024, 4)
    (True, False, False)
    """
    aligned = width * itemsize % 16 == 0
    alike = {w: of_w for w, of_w in measured.items() if (w * itemsize % 16 == 0) == aligned}
    widths = _around(alike, width)
    neighbors = [_around(alike[w], count) for w in widths]
    return bool(widths) and all(
        near and max(alike[w][n] for n in near) <= MARGIN
        for w, near in zip(widths, neighbors, strict=True)
    )


def _around(known: Iterable[int], value: int) -> list[int]:
    """The largest up to the value and the smallest from the value on; none if one is missing."""
    known = sorted(known)
    below, above = bisect_right(known, value), bisect_left(known, value)
    return [known[below - 1], known[above]] if below > 0 and above < len(known) else []
