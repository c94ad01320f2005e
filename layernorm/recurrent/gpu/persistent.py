"""The loop over time steps on the GPU in one kernel, for sequences of one length.

As many programs as the GPU runs at once take all steps. Each keeps its part of the recurrent
weights on chip: some columns of the product, for some of the rows. In a step every program computes
its part of the product, waits for the others, takes its share of the rows through the norms, the
gates and the cell (the kernels of `lstm_kernels` and `gru_kernels`), and waits again. So nothing is
launched between steps, and no weight is read twice.

Programs can wait for each other only if all of them run: the launch is cooperative, which a GPU
refuses if they do not fit. Triton's interpreter runs one program after the other; there, what lies
between two waits is a launch of its own.

`step` computes the same by two launches a step. Which of them is used, a record decides (`chosen`).
"""

import functools
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from layernorm.kernels import launch, speeds
from layernorm.recurrent.gpu import persistent_kernels as kernels
from layernorm.recurrent.gpu.choice import asked_for
from layernorm.recurrent.gpu.step import Arrays, Gradients, Step, Weights, launch_options, start
from layernorm.recurrent.variants import Form

ROWS = 16  # of a tile of the product
PARTS = 8  # of its depth, one for each warp
UNITS = 1024
MOST = 2**31 - 1  # numbers of a step; its products count them in 32 bits
CHIP = launch.Chip(3, 2**17)  # the interpreter's


class Cut(NamedTuple):
    """How a product (rows, depth) x (depth, width) is divided: `across` programs have `columns`
    each, and each of `down` groups of them has every so many-th tile of `ROWS` rows. The depth is
    taken in `pieces`, each of them in `PARTS` of `deep` numbers."""

    columns: int
    across: int
    down: int
    pieces: int
    deep: int

    @property
    def programs(self) -> int:
        return self.across * self.down


def cut(rows: int, depth: int, width: int, itemsize: int, chip: launch.Chip) -> Cut | None:
    """The smallest tiles that are in one round on the GPU, or else the largest; None if the weights
    do not fit on it.

    >>> h100 = launch.Chip(132, 227 * 1024)
    >>> cut(64, 512, 2048, 2, h100)
    Cut(columns=64, across=32, down=4, pieces=1, deep=64)
    >>> cut(64, 4096, 1024, 2, h100)
    Cut(columns=16, across=64, down=2, pieces=2, deep=256)
    """
    found, tiles = None, triton.cdiv(rows, ROWS)
    deep = max(16, triton.next_power_of_2(depth) // PARTS)
    for columns in (16, 32, 64):
        across = triton.cdiv(width, columns)
        pieces = next((n for n in (1, 2) if _held(columns, deep, n, itemsize) < chip[1]), None)
        if pieces is None or deep // pieces < 16 or across > chip.multiprocessors:
            continue
        down = min(tiles, chip.multiprocessors // across)
        found = Cut(columns, across, down, pieces, deep // pieces)
        if down == tiles:
            break
    return found


def _held(columns: int, deep: int, pieces: int, itemsize: int) -> int:
    """Bytes of shared memory: the weights, and a tile of the other factor, or the parts' sums."""
    factor, sums = ROWS * PARTS * deep // pieces * itemsize, PARTS * ROWS * columns * 4
    return columns * PARTS * deep * itemsize + max(factor, sums) + 2048


def chosen(kind: str, w: Tensor, sizes: tuple[int, ...], keep: bool) -> bool:
    """Tell whether to use this loop: where a record says that it is as fast as `step`.

    Raises:
        ValueError: it was asked for, and is not possible; says why.
    """
    asked = asked_for()
    if asked and (why := unsupported(w, sizes)):
        raise ValueError(f"asked(persistent=True) is not possible here: {why}")
    if asked is not None:
        return asked
    if not w.is_cuda or unsupported(w, sizes):
        return False
    rows, units = sum(sizes), w.shape[1]
    return speeds.faster(f"{kind}_persistent", w.device, w.dtype, keep, rows, units)


def unsupported(w: Tensor, sizes: tuple[int, ...]) -> str | None:
    """Why this loop cannot be used with weights (G H, H) and these rows of the steps; else None."""
    width, units = w.shape
    if torch.version.hip is not None:
        return "its programs cannot wait for each other on AMD's GPUs"
    if len(set(sizes)) != 1:
        few, most = min(sizes, default=0), max(sizes, default=0)
        return f"it takes sequences of one length, got steps of {few} to {most} rows"
    if sizes[0] * width > MOST:
        return f"a step of {sizes[0]} rows of {width} numbers has more than {MOST}"
    if units > UNITS or not all(
        _cut(w, sizes[0], *shape) for shape in ((units, width), (width, units))
    ):
        kind = str(w.dtype).removeprefix("torch.")
        return f"this GPU cannot hold the recurrent weights of {units} units in {kind}"
    return None


def _cut(w: Tensor, rows: int, depth: int, width: int) -> Cut | None:
    if launch.INTERPRETED:
        return cut(rows, depth, width, w.element_size(), CHIP)
    itemsize = max(w.element_size(), _least(w.device))
    return cut(rows, depth, width, itemsize, launch._chip(w.device))


@functools.cache
def _least(device: torch.device) -> int:
    """Bytes that a factor's number takes on chip at least: before compute capability 8.0 Triton
    multiplies half precision in float32, without tensor cores."""
    return 2 if torch.cuda.get_device_capability(device) >= (8, 0) else 4


def forward(
    form: Form, steps: list[Step], arrays: Arrays, weights: Weights, h0: Tensor, c0: Tensor | None,
    eps: float, y: Tensor, h_n: Tensor, c_n: Tensor | None,
) -> None:  # fmt: skip
    """As `step.forward`."""
    first = slice(steps[0].at, steps[0].at + steps[0].rows)
    arrays.before[first].copy_(h0)
    arrays.cells[first].copy_(c0 if form.cell else h0)
    tensors = (arrays.cells, arrays.before, y, h_n, c_n if form.cell else None, arrays.stats)
    options = {"EPS": eps, "ADD": form.terms < 2}
    order = ("PRODUCT", "GATED")
    _launch(kernels.forward_steps, order, form, steps, arrays, weights, tensors, options)


def backward(
    form: Form, steps: list[Step], arrays: Arrays, weights: Weights, dy: Tensor,
    dh_n: Tensor | None, dc_n: Tensor | None, batch: int,
) -> tuple[Gradients, Tensor, Tensor | None]:  # fmt: skip
    """As `step.backward`."""
    found, dh, around, dc = start(form, arrays, dy, dh_n, dc_n, batch)
    tensors = (arrays.cells, arrays.stats, dy, dh, around, dc, *found)
    order = ("GATED", "PRODUCT")
    _launch(kernels.backward_steps, order, form, steps, arrays, weights, tensors, {})
    return found, around.add_(dh), dc


def constants(cut: Cut, form: Form) -> dict:
    """How a kernel is compiled, but for `launch_options`."""
    return {
        "GROUPS": len(form.norms), "CARRY": form.carry, "GATES": form.gates, "PARTS": PARTS,
        "DEEP": cut.deep, "COLUMNS": cut.columns, "ROWS": ROWS, "PIECES": cut.pieces,
        "num_warps": PARTS, "num_stages": 1,
    }  # fmt: skip


def _launch(kernel, order, form, steps, arrays, weights, tensors, options) -> None:
    """All steps at once; where programs cannot wait, one part of one step after the other."""
    count, batch, (width, units) = len(steps), steps[0].rows, weights.w.shape
    shape = (units, width) if kernel is kernels.forward_steps else (width, units)
    cut = _cut(weights.w, batch, *shape)
    options = options | launch_options(form, units, launch._accumulator(arrays.cells)[1])
    options |= constants(cut, form) | {"REVERSE": count > 1 and steps[0].at > 0}
    z, z_new, *_ = *arrays.z, None, None
    arrived = torch.zeros((), dtype=torch.int32, device=weights.w.device)
    given = (weights.w.contiguous(), arrived, arrays.a, z, z_new, *weights[1:], *tensors)

    def run(begin: int, end: int, **which) -> None:
        kernel[(cut.programs,)](*given, begin, end, count, batch, units, **options, **which)

    if not launch.INTERPRETED:
        run(0, count, PRODUCT=True, GATED=True, launch_cooperative_grid=True)
        return
    for t in range(count):
        for part in order:
            run(t, t + 1, **{name: name == part for name in order})
