"""Where the kernels of this package are known to be as fast as what they replace.

`speeds.json` has an entry for each measured case: the operation ("layer_norm", "rms_norm", "lstm"
or "gru"; "lstm_persistent", "gru_persistent"), the GPU's name, the type of number, whether a
gradient is computed as well, the shape ([rows, width], for the recurrent layers [T, B, I, H]), and
`ratio_high`, the upper end of the interval of the kernel's time over that of PyTorch's own norm, of
a recurrent layer's definition, or, of its loop in one kernel, of its loop of steps. It is made from
published records of `layernorm bench`. Between shapes that were measured the neighbors decide;
beyond them the kernels are not used.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import torch

FILE = Path(__file__).with_name("speeds.json")
MARGIN = 1.05  # the slowest that is accepted, relative to what would be used otherwise

Ratios = dict[int, dict[int, float]]  # width, or units -> rows -> ratio of times


def faster(
    operation: str,
    device: torch.device,
    dtype: torch.dtype,
    gradient: bool,
    rows: int | None,
    width: int,
) -> bool:
    """Tell whether to use the kernel for so many rows, of a recurrent layer those of all its steps.

    `rows=None` stands for any number: then the kernel must be chosen for every number of rows that
    was measured at some width. So one that the neighbors of this width lack decides against it.
    """
    kind = str(dtype).removeprefix("torch.")
    found = ratios(operation, torch.cuda.get_device_name(device), kind, gradient)
    counts = [rows]
    if rows is None:
        counts = {count for of_width in found.values() for count in of_width}
    return bool(counts) and all(decide(found, n, width, dtype.itemsize) for n in counts)


@cache
def ratios(operation: str, device: str, dtype: str, gradient: bool) -> Ratios:
    """The ratios of one operation; of a case that was measured twice, the slower one."""
    kept: Ratios = {}
    for entry in entries():
        asked = (entry[name] for name in ("operation", "device", "dtype", "gradient"))
        if tuple(asked) != (operation, device, dtype, gradient):
            continue
        shape, ratio = entry["shape"], entry["ratio_high"]
        rows = shape[0] if len(shape) == 2 else shape[0] * shape[1]
        of_width = kept.setdefault(shape[-1], {})
        of_width[rows] = max(ratio, of_width.get(rows, 0.0))
    return kept


@cache
def entries() -> list[dict]:
    """All measured cases."""
    return json.loads(FILE.read_text())["entries"]


def decide(measured: Ratios, count: int, width: int, itemsize: int) -> bool:
    """Tell whether the kernel is within the margin at every measured neighbor of (count, width).

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
