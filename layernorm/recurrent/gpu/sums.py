"""Gradients of gains and biases from all steps' rows at once, in two stages: the sums of every
program, then the sum of these, always in the same order."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from layernorm.kernels import launch

ROWS, COLUMNS = 16, 64  # of a tile
AT_ONCE = 8  # programs of a multiprocessor


@triton.jit(do_not_specialize=["count"])
@no_type_check
def partial_sums(
    dy, a, mean, rstd, plain, along, count, width, from_dy, from_a, from_mean, to_error,
    ACC: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum the columns of dy and of dy (a - mean) rstd, over every so many-th tile of rows."""
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    sum_plain = tl.zeros((ROWS, BLOCK), ACC)
    sum_along = tl.zeros((ROWS, BLOCK), ACC)
    for tile in range(tl.program_id(0), tl.cdiv(count, ROWS), tl.num_programs(0)):
        row = tile * tl.full((ROWS,), ROWS, tl.int64) + tl.arange(0, ROWS)
        mask = (row < count)[:, None] & inside[None, :]
        d = tl.load(dy + row[:, None] * from_dy + column[None, :], mask=mask, other=0.0).to(ACC)
        sum_plain += d
        if a is not None:
            hat = tl.load(a + row[:, None] * from_a + column[None, :], mask=mask, other=0.0).to(ACC)
            mu = tl.load(mean + row * from_mean, mask=row < count, other=0.0)
            error = tl.load(mean + row * from_mean + to_error, mask=row < count, other=0.0)
            scale = tl.load(rstd + row * from_mean, mask=row < count, other=0.0)
            sum_along += d * (hat - mu[:, None] - error[:, None]) * scale[:, None]
    to = tl.program_id(0).to(tl.int64) * width + column
    tl.store(plain + to, tl.sum(sum_plain, 0), mask=inside)
    if a is not None:
        tl.store(along + to, tl.sum(sum_along, 0), mask=inside)


def column_sums(
    dy: Tensor, a: Tensor | None = None, mean: Tensor | None = None, rstd: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """The sums over the rows of dy (N, M), and of dy times a's normalized values.

    Args:
        a: (N, M), normalized by mean, with its error (N, 2), and rstd, (N,), whose rows have one
            stride. Neither they nor dy need be contiguous, but for a row's elements.
    """
    count, width = dy.shape
    acc = launch._accumulator(dy)[1]
    blocks = triton.cdiv(width, COLUMNS)
    at_once = max(1, AT_ONCE * launch._chip(dy.device).multiprocessors // blocks)
    programs = min(triton.cdiv(count, ROWS), at_once)
    partial = dy.new_empty(1 if a is None else 2, programs, width)
    partial_sums[(programs, blocks)](
        dy, a, mean, rstd, partial[0], None if a is None else partial[1], count, width,
        dy.stride(0), 0 if a is None else a.stride(0), *((0, 0) if a is None else mean.stride()),
        ACC=acc, ROWS=ROWS, BLOCK=COLUMNS,
    )  # fmt: skip
    totals = list(torch.empty_like(partial[:, 0]))
    launch.add_up(partial, totals)
    return totals[0], totals[1] if a is not None else None
