"""The kernels of the GPU: normalization of rows, forward and backward, in Triton.

A program works on a tile of ROWS rows at a time. A row that fits into a tile stays on chip: it is
read once, its moments are taken in two passes over the registers (not as E[x²] - E[x]²), and it is
written once. Longer rows pass in blocks, whose moments are merged (Chan, Golub, LeVeque 1979, eq.
2.1), and are read a second time. ACC, in which everything is computed, is float64 for float64
inputs and float32 for all others.

Every kernel takes tensors that may be missing as None. `CENTERED` tells layer normalization from
RMS normalization, for which the mean is taken to be zero. `no_type_check` keeps the test run's
import hook away from functions that are not Python's to call.
"""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def forward(
    x, residual, weight, bias, y, total, mean, rstd, rows, width, n1, n2,
    x0, x1, x2, r0, r1, r2,
    EPS: tl.constexpr, ACC: tl.constexpr, CENTERED: tl.constexpr, RESIDENT: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y = g (a - mean) rstd + b with a = x, or the sum of x and residual, stored in total."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    valid = row < rows
    from_x = x + _start(row, n1, n2, x0, x1, x2)[:, None]
    from_residual = residual
    if residual is not None:
        from_residual = residual + _start(row, n1, n2, r0, r1, r2)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    to = row[:, None] * width
    if RESIDENT:
        mask = valid[:, None] & (column < width)
        a = _load_sum(from_x, from_residual, column, mask, ACC)
        if residual is not None:
            tl.store(total + to + column, a, mask=mask)
        a = a.to(ACC)
        mu, deviations = _moments(a, mask, width, CENTERED)
        scale = tl.rsqrt(deviations / width + EPS)
        _store_normalized(y + to, a, mu, scale, weight, bias, column, width, mask)
    else:
        mu = tl.zeros((ROWS,), ACC)
        deviations = tl.zeros((ROWS,), ACC)
        for start in range(0, width, BLOCK):
            mask = valid[:, None] & (start + column < width)
            a = _load_sum(from_x, from_residual, start + column, mask, ACC)
            if residual is not None:
                tl.store(total + to + start + column, a, mask=mask)
            here = tl.minimum(width - start, BLOCK)
            block_mu, block_deviations = _moments(a.to(ACC), mask, here, CENTERED)
            off = block_mu - mu
            share = here.to(ACC) / (start + here)
            mu += off * share
            deviations += block_deviations + off * off * share * start
        scale = tl.rsqrt(deviations / width + EPS)
        for start in range(0, width, BLOCK):
            at = start + column
            mask = valid[:, None] & (at < width)
            a = _load_sum(from_x, from_residual, at, mask, ACC).to(ACC)
            _store_normalized(y + to, a, mu, scale, weight, bias, at, width, mask)
    if mean is not None:
        tl.store(mean + row, mu, mask=valid)
    if rstd is not None:
        tl.store(rstd + row, scale, mask=valid)


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def gradient_means(
    dy, x, weight, mean, rstd, along, plain, rows, width, n1, n2, d0, d1, d2, x0, x1, x2,
    ACC: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The means of g dy along x̂ and of g dy itself (centered), of rows longer than a block."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    valid = row < rows
    from_dy = dy + _start(row, n1, n2, d0, d1, d2)[:, None]
    from_x = x + _start(row, n1, n2, x0, x1, x2)[:, None]
    mu, scale = _statistics(mean, rstd, row, valid, ACC)
    sum_along = tl.zeros((ROWS,), ACC)
    sum_plain = tl.zeros((ROWS,), ACC)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        mask = valid[:, None] & (column < width)
        g = tl.load(from_dy + column, mask=mask, other=0.0).to(ACC)
        hat = (tl.load(from_x + column, mask=mask, other=0.0).to(ACC) - mu) * scale
        if weight is not None:
            g *= tl.load(weight + column, mask=column < width, other=0.0).to(ACC)
        sum_along += tl.sum(hat * g, 1)
        sum_plain += tl.sum(g, 1)
    tl.store(along + row, sum_along / width, mask=valid)
    if plain is not None:
        tl.store(plain + row, sum_plain / width, mask=valid)


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def backward(
    dy, dtotal, x, weight, mean, rstd, along, plain, dx, dweight, dbias, rows, width, n1, n2,
    d0, d1, d2, t0, t1, t2, x0, x1, x2,
    ACC: tl.constexpr, CENTERED: tl.constexpr, RESIDENT: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """dx = rstd (g dy - mean(g dy) - x̂ mean(g dy x̂)) + dtotal, for every so many-th tile of rows;
    dweight and dbias receive the program's own sums of dy x̂ and dy, to be added up by `add_up`."""
    program = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = column < width
    sum_dweight = tl.zeros((ROWS, BLOCK), ACC)
    sum_dbias = tl.zeros((ROWS, BLOCK), ACC)
    for tile in tl.range(program, tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = tile * tl.full((ROWS,), ROWS, tl.int64) + tl.arange(0, ROWS)
        valid = row < rows
        mask = valid[:, None] & inside
        from_x = x + _start(row, n1, n2, x0, x1, x2)[:, None]
        from_dy = dy + _start(row, n1, n2, d0, d1, d2)[:, None]
        hat = tl.load(from_x + column, mask=mask, other=0.0).to(ACC)
        g = tl.load(from_dy + column, mask=mask, other=0.0).to(ACC)
        mu, scale = _statistics(mean, rstd, row, valid, ACC)
        hat = (hat - mu) * scale
        if dweight is not None:
            sum_dweight += g * hat
        if dbias is not None:
            sum_dbias += g
        if weight is not None:
            g *= tl.load(weight + column, mask=inside, other=0.0).to(ACC)
        if RESIDENT:
            mean_along = tl.sum(hat * g, 1)[:, None] / width
        else:
            mean_along = tl.load(along + row, mask=valid, other=0.0)[:, None]
        gradient = g - hat * mean_along
        if CENTERED:
            if RESIDENT:
                gradient -= tl.sum(g, 1)[:, None] / width
            else:
                gradient -= tl.load(plain + row, mask=valid, other=0.0)[:, None]
        gradient *= scale
        if dtotal is not None:
            from_dtotal = dtotal + _start(row, n1, n2, t0, t1, t2)[:, None]
            gradient += tl.load(from_dtotal + column, mask=mask, other=0.0).to(ACC)
        tl.store(dx + row[:, None] * width + column, gradient, mask=mask)
    at = program.to(tl.int64) * width + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK) < width
    if dweight is not None:
        tl.store(dweight + at, tl.sum(sum_dweight, 0), mask=inside)
    if dbias is not None:
        tl.store(dbias + at, tl.sum(sum_dbias, 0), mask=inside)


@triton.jit(do_not_specialize=["count"])
@no_type_check
def add_up(
    partial, result, count, width, ACC: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """result = the sum of partial's rows, always in the same order."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((ROWS, BLOCK), ACC)
    for start in range(0, count, ROWS):
        row = start + tl.arange(0, ROWS).to(tl.int64)[:, None]
        mask = (row < count) & (column < width)[None, :]
        total += tl.load(partial + row * width + column[None, :], mask=mask, other=0.0)
    tl.store(result + column, tl.sum(total, 0), mask=column < width)


@triton.jit
@no_type_check
def _start(row, n1, n2, s0, s1, s2):
    """Where rows begin: number (i n1 + j) n2 + k at i s0 + j s1 + k s2."""
    outer = row // n2
    return (outer // n1) * s0 + (outer % n1) * s1 + (row % n2) * s2


@triton.jit
@no_type_check
def _load_sum(from_x, from_residual, column, mask, ACC: tl.constexpr):
    """x, or the sum with its residual, rounded to x's type as torch's `x + residual` is."""
    a = tl.load(from_x + column, mask=mask, other=0.0)
    if from_residual is not None:
        b = tl.load(from_residual + column, mask=mask, other=0.0)
        a = (a.to(ACC) + b.to(ACC)).to(a.dtype)
    return a


@triton.jit
@no_type_check
def _moments(a, mask, count, CENTERED: tl.constexpr):
    """The mean of each row's `count` values, and the sum of their squared deviations from it."""
    mu = tl.sum(a, 1) / count
    if CENTERED:
        a = tl.where(mask, a - mu[:, None], 0.0)
    else:
        mu = tl.zeros_like(mu)
    return mu, tl.sum(a * a, 1)


@triton.jit
@no_type_check
def _store_normalized(to, a, mu, scale, weight, bias, column, width, mask):
    a = (a - mu[:, None]) * scale[:, None]
    if weight is not None:
        a *= tl.load(weight + column, mask=column < width, other=0.0).to(a.dtype)
    if bias is not None:
        a += tl.load(bias + column, mask=column < width, other=0.0).to(a.dtype)
    tl.store(to + column, a, mask=mask)


@triton.jit
@no_type_check
def _statistics(mean, rstd, row, valid, ACC: tl.constexpr):
    """Means and scales of rows, each as a column; rows that do not exist have mean and scale 0."""
    scale = tl.load(rstd + row, mask=valid, other=0.0)[:, None]
    mu = tl.zeros_like(scale)
    if mean is not None:
        mu = tl.load(mean + row, mask=valid, other=0.0)[:, None]
    return mu, scale
