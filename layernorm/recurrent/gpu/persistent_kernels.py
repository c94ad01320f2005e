"""The kernels of `persistent`: all steps of a layer in one launch; programs wait for each other.

A program keeps some columns of the product's weights on chip (`weights_of`). In a step it computes
its part of the product, waits, takes its share of the rows through the kernels of one step, and
waits again; backward the rows come first.
"""

from typing import no_type_check

import triton
import triton.language as tl

from layernorm.kernels.rows import multiple
from layernorm.recurrent.gpu import gru_kernels, lstm_kernels


@triton.jit
@no_type_check
def wait(arrived, count):
    """Until all programs have come here so often that `arrived` is `count`. What they stored
    before, is seen after."""
    tl.debug_barrier()
    tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu")
    while tl.atomic_add(arrived, 0, sem="acquire", scope="gpu") < count:
        pass
    tl.debug_barrier()


@triton.jit
@no_type_check
def weights_of(
    w, depth, width, program, across, from_depth, from_column, PIECE: tl.constexpr,
    PARTS: tl.constexpr, DEEP: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A program's columns of the factor that all steps have in common, (PARTS, DEEP, COLUMNS) of
    one piece of the depth."""
    k = (PIECE * PARTS + tl.arange(0, PARTS)[:, None, None]) * DEEP
    k += tl.arange(0, DEEP)[None, :, None]
    column = (program % across) * COLUMNS + tl.arange(0, COLUMNS)[None, None, :]
    inside = (k < depth) & (column < width)
    return tl.load(w + k * from_depth + column * from_column, mask=inside, other=0.0)


@triton.jit
@no_type_check
def times(
    x, held, row, rows, depth, ACC: tl.constexpr, PIECE: tl.constexpr, PARTS: tl.constexpr,
    DEEP: tl.constexpr,
):  # fmt: skip
    """Rows of x (rows, depth) times a piece of the weights; each warp has a part of the depth."""
    k = (PIECE * PARTS + tl.arange(0, PARTS)[:, None, None]) * DEEP
    k += tl.arange(0, DEEP)[None, None, :]
    inside = (row[None, :, None] < rows) & (k < depth)
    # others have written it: not from the multiprocessor's own cache
    factor = tl.load(
        x + row[None, :, None] * depth + k, mask=inside, other=0.0, cache_modifier=".cg"
    )
    return tl.sum(tl.dot(factor, held, out_dtype=ACC, input_precision="ieee"), 0)


@triton.jit
@no_type_check
def product(
    x, held, rest, y, rows, depth, width, program, across, tile, ADD: tl.constexpr,
    ACC: tl.constexpr, PIECES: tl.constexpr, PARTS: tl.constexpr, DEEP: tl.constexpr,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One tile of y (rows, width): x (rows, depth) times the weights, or that added to y."""
    row = tile * ROWS + tl.arange(0, ROWS)
    total = times(x, held, row, rows, depth, ACC, 0, PARTS, DEEP)
    if PIECES == 2:
        total += times(x, rest, row, rows, depth, ACC, 1, PARTS, DEEP)
    column = (program % across) * COLUMNS + tl.arange(0, COLUMNS)
    to = y + row[:, None] * width + column[None, :]
    inside = (row < rows)[:, None] & (column < width)[None, :]
    if ADD:
        total += tl.load(to, mask=inside, other=0.0).to(ACC)
    tl.store(to, total, mask=inside)


@triton.jit(do_not_specialize=["begin", "end", "steps"])
@no_type_check
def forward_steps(
    w, arrived, a, z, z_new, gain, shift, gain_c, shift_c, cells, before, y, h_n, c_n, stats, begin,
    end, steps, batch, units, EPS: tl.constexpr, ACC: tl.constexpr, GATES: tl.constexpr,
    GROUPS: tl.constexpr, CARRY: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr,
    REVERSE: tl.constexpr, ADD: tl.constexpr, PRODUCT: tl.constexpr, GATED: tl.constexpr,
    PARTS: tl.constexpr, DEEP: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    PIECES: tl.constexpr,
):  # fmt: skip
    """Steps begin..end-1: the product, the gates, or both with waits between them."""
    units = multiple(units, UNIT)
    program, programs, width = tl.program_id(0), tl.num_programs(0), GATES * units
    across = tl.cdiv(width, COLUMNS)
    if PRODUCT:
        held = weights_of(w, units, width, program, across, 1, units, 0, PARTS, DEEP, COLUMNS)
        rest = None
        if PIECES == 2:
            rest = weights_of(w, units, width, program, across, 1, units, 1, PARTS, DEEP, COLUMNS)
    count = 0
    for t in range(begin, end):
        here, later = t, t + 1
        if REVERSE:
            here, later = steps - 1 - t, steps - 2 - t
        at = here * tl.full((), batch, tl.int64)
        following = later * tl.full((), batch, tl.int64)
        if PRODUCT:
            for tile in range(program // across, tl.cdiv(batch, ROWS), programs // across):
                product(
                    before + at * units, held, rest, a + at * width, batch, units, width, program,
                    across, tile, ADD, ACC, PIECES, PARTS, DEEP, COLUMNS, ROWS,
                )  # fmt: skip
        if PRODUCT and GATED:
            count += programs
            wait(arrived, count)
        if GATED:
            going = tl.where(t + 1 < steps, batch, 0)
            for number in range(program, batch, programs):
                row = tl.full((), number, tl.int64)
                if GATES == 4:
                    lstm_kernels.forward(
                        a, z, gain, shift, gain_c, shift_c, cells, before, y, h_n, c_n, stats, at,
                        following, going, units, EPS, ACC, GROUPS, CARRY, BLOCK, UNIT, row,
                    )  # fmt: skip
                else:
                    gru_kernels.forward(
                        a, z, z_new, gain, shift, cells, before, y, h_n, stats, at, following,
                        going, units, EPS, ACC, BLOCK, UNIT, row,
                    )  # fmt: skip
        if PRODUCT and GATED:
            count += programs
            wait(arrived, count)


@triton.jit(do_not_specialize=["begin", "end", "steps"])
@no_type_check
def backward_steps(
    w, arrived, a, z, z_new, gain, shift, gain_c, shift_c, cells, stats, dy, dh, around, dc, p,
    dsums, dcell, begin, end, steps, batch, units, ACC: tl.constexpr, GATES: tl.constexpr,
    GROUPS: tl.constexpr, CARRY: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr,
    REVERSE: tl.constexpr, PRODUCT: tl.constexpr, GATED: tl.constexpr, PARTS: tl.constexpr,
    DEEP: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Back through steps begin..end-1, counted from the last: first the gates, then the product."""
    units = multiple(units, UNIT)
    program, programs, width = tl.program_id(0), tl.num_programs(0), GATES * units
    across = tl.cdiv(units, COLUMNS)
    if PRODUCT:
        held = weights_of(w, width, units, program, across, units, 1, 0, PARTS, DEEP, COLUMNS)
        rest = None
        if PIECES == 2:
            rest = weights_of(w, width, units, program, across, units, 1, 1, PARTS, DEEP, COLUMNS)
    count = 0
    for t in range(begin, end):
        here = steps - 1 - t
        if REVERSE:
            here = t
        at = here * tl.full((), batch, tl.int64)
        if GATED:
            for number in range(program, batch, programs):
                row = tl.full((), number, tl.int64)
                if GATES == 4:
                    lstm_kernels.backward(
                        a, z, gain, shift, gain_c, shift_c, cells, stats, dy, dh, around, dc, p,
                        dsums, dcell, at, units, ACC, GROUPS, CARRY, BLOCK, UNIT, row,
                    )  # fmt: skip
                else:
                    gru_kernels.backward(
                        a, z, z_new, gain, shift, cells, stats, dy, dh, around, p, dsums, at, units,
                        ACC, BLOCK, UNIT, row,
                    )  # fmt: skip
        if PRODUCT and GATED:
            count += programs
            wait(arrived, count)
        if PRODUCT:
            for tile in range(program // across, tl.cdiv(batch, ROWS), programs // across):
                product(
                    dsums + at * width, held, rest, dh, batch, width, units, program, across, tile,
                    False, ACC, PIECES, PARTS, DEEP, COLUMNS, ROWS,
                )  # fmt: skip
        if PRODUCT and GATED:
            count += programs
            wait(arrived, count)
