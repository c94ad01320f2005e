"""The loop over time steps on the GPU: in each a product with the state and one kernel.

Everything that a step needs lies in arrays over all steps, in the order of the sequences' rows
(`layernorm.recurrent.definition`): a kernel puts the new state where the next step's product reads
it, so that nothing is moved between the two.
"""

from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from layernorm.kernels import launch
from layernorm.recurrent.gpu import gru_kernels, lstm_kernels
from layernorm.recurrent.variants import Form

LONGEST = 4096  # units that one program holds


def spans(form: Form, units: int) -> list[slice]:
    """The columns of each norm of the summed inputs.

    >>> spans(Form(3, (2, 1), terms=2), 5)
    [slice(0, 10, None), slice(10, 15, None)]
    """
    ends = list(accumulate(n * units for n in form.norms))
    return [slice(end - n * units, end) for n, end in zip(form.norms, ends, strict=True)]


class Step(NamedTuple):
    """Rows at..at+rows-1. The first `known` have their state from the step before, the others from
    the initial state; the first `going` go on to the step that begins at `following`."""

    at: int
    rows: int
    known: int
    following: int
    going: int


@lru_cache(maxsize=128)
def plan(sizes: tuple[int, ...], reverse: bool) -> list[Step]:
    """The steps in the order in which they are computed.

    >>> plan((2, 1), reverse=False)
    [Step(at=0, rows=2, known=0, following=2, going=1), Step(at=2, rows=1, known=1, following=0, going=0)]
    """  # noqa: E501
    begins = [0, *accumulate(sizes)]
    order = range(len(sizes))
    steps = [(begins[t], sizes[t]) for t in (reversed(order) if reverse else order)]
    around = [(0, 0), *steps, (0, 0)]
    return [
        Step(at, n, min(n, before), following, min(n, after))
        for (_, before), (at, n), (following, after) in zip(
            around, around[1:], around[2:], strict=False
        )
    ]


class Weights(NamedTuple):
    """The kernels' parameters: `w` (G H, H) of the product, gain and shift of its norm (or of that
    of both terms' sum), and of the cell's. None: not there."""

    w: Tensor
    gain: Tensor | None
    shift: Tensor | None
    gain_c: Tensor | None
    shift_c: Tensor | None


class Arrays(NamedTuple):
    """Arrays over all steps: see `lstm_kernels` and `gru_kernels`. For the GRU `cells` are its
    states before they are rounded for the product."""

    a: Tensor
    before: Tensor
    cells: Tensor
    stats: Tensor | None
    z: tuple[Tensor, ...]  # one for each norm of the input term


def forward(
    form: Form, steps: list[Step], arrays: Arrays, weights: Weights, h0: Tensor, c0: Tensor | None,
    eps: float, y: Tensor, h_n: Tensor, c_n: Tensor | None,
) -> None:  # fmt: skip
    """Fill in y, the last states, and what `arrays` hold but z (and a, where there is none)."""
    units = h_n.shape[1]
    w, options = weights.w.t(), launch_options(form, units, launch._accumulator(arrays.cells)[1])
    states = c0 if form.cell else h0
    for step in steps:
        here = slice(step.at, step.at + step.rows)
        if step.known < step.rows:
            entering, to = slice(step.known, step.rows), slice(step.at + step.known, here.stop)
            arrays.before[to].copy_(h0[entering])
            arrays.cells[to].copy_(states[entering])
        if form.terms == 2:
            torch.mm(arrays.before[here], w, out=arrays.a[here])
        else:
            arrays.a[here].addmm_(arrays.before[here], w)
        where = arrays.stats, step.at, step.following, step.going, units
        if form.cell:
            lstm_kernels.forward[(step.rows,)](
                arrays.a, arrays.z[0] if arrays.z else None, *weights[1:], arrays.cells,
                arrays.before, y, h_n, c_n, *where, EPS=eps, **options,
            )  # fmt: skip
        else:
            gru_kernels.forward[(step.rows,)](
                arrays.a, *arrays.z, *weights[1:3], arrays.cells, arrays.before, y, h_n, *where,
                EPS=eps, **options,
            )  # fmt: skip


class Gradients(NamedTuple):
    """Gradients of all steps: p after the norms of the summed inputs, dsums before them, and dcell,
    the summands of the cell's gain and bias."""

    p: Tensor
    dsums: Tensor
    dcell: Tensor | None


def backward(
    form: Form, steps: list[Step], arrays: Arrays, weights: Weights, dy: Tensor,
    dh_n: Tensor | None, dc_n: Tensor | None, batch: int,
) -> tuple[Gradients, Tensor, Tensor | None]:  # fmt: skip
    """The gradients of all steps, of h0 and of c0."""
    options = launch_options(form, dy.shape[1], launch._accumulator(arrays.cells)[1])
    found, dh, around, dc = start(form, arrays, dy, dh_n, dc_n, batch)
    for step in reversed(steps):
        if form.cell:
            lstm_kernels.backward[(step.rows,)](
                arrays.a, arrays.z[0] if arrays.z else None, *weights[1:], arrays.cells,
                arrays.stats, dy, dh, around, dc, *found, step.at, dy.shape[1], **options,
            )  # fmt: skip
        else:
            gru_kernels.backward[(step.rows,)](
                arrays.a, *arrays.z, *weights[1:3], arrays.cells, arrays.stats, dy, dh, around,
                *found[:2], step.at, dy.shape[1], **options,
            )  # fmt: skip
        here = slice(step.at, step.at + step.rows)
        torch.mm(found.dsums[here], weights.w, out=dh[: step.rows])
    return found, around.add_(dh), dc


def start(
    form: Form, arrays: Arrays, dy: Tensor, dh_n: Tensor | None, dc_n: Tensor | None, batch: int
) -> tuple[Gradients, Tensor, Tensor, Tensor | None]:
    """Room for the gradients of all steps; of the state through the product, of the state around
    it, and of the cell, as they are after the last step."""
    (rows, units), like = dy.shape, arrays.cells
    found = Gradients(
        like.new_empty(rows, 4 * units),
        torch.empty_like(arrays.a),
        like.new_empty(rows, 2 * units) if form.cell else None,
    )
    around = _filled(like, batch, units, dh_n)
    dc = _filled(like, batch, units, dc_n) if form.cell else None
    return found, arrays.a.new_zeros(batch, units), around, dc


def _filled(like: Tensor, batch: int, units: int, gradient: Tensor | None) -> Tensor:
    filled = like.new_zeros(batch, units)
    return filled if gradient is None else filled.copy_(gradient)


def launch_options(form: Form, units: int, acc: tl.dtype) -> dict:
    """The constants of both kernels of a form; four values of a block are in a thread."""
    block = triton.next_power_of_2(units)
    options = {"ACC": acc, "BLOCK": block, "UNIT": launch.unit(units)}
    options["num_warps"] = min(16, max(1, block // 128))
    return options | ({"GROUPS": len(form.norms), "CARRY": form.carry} if form.cell else {})
