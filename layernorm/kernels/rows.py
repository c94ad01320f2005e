"""The kernels of the GPU: normalization of rows, forward and backward, in Triton.

A program works on a tile of ROWS rows at a time. A row that fits into a tile stays on chip: it is
read once, centered twice in the registers as in `layernorm.functional`, and written once. Longer
rows pass in blocks, less the mean of the first one, whose moments are merged (Chan, Golub, LeVeque
1979, eq. 2.1), and are read a second time. ACC, in which everything is computed, is float64 for
float64 inputs and float32 for all others.

Beside each row's mean its rounding error is kept, which may exceed the deviations: `mean` has both,
(rows, 2).

Every kernel takes tensors that may be missing as None. `CENTERED` tells layer normalization from
RMS normalization, for which the mean is taken to be zero. `no_type_check` keeps the test run's
import hook away from functions that are not Python's to call.
"""

from typing import no_type_check

import triton
import triton.language as tl

LAST_READ = tl.constexpr("evict_first")  # makes room in the cache
READ_AGAIN = tl.constexpr("")  # stays there as long as others


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def forward(
    x, residual, weight, bias, y, total, mean, rstd, rows, width, n1, n2,
    x0, x1, x2, r0, r1, r2,
    EPS: tl.constexpr, ACC: tl.constexpr, CENTERED: tl.constexpr, RESIDENT: tl.constexpr,
    WHOLE: tl.constexpr, EARLY: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """y = g (a - mean) rstd + b with a = x, or the sum of x and residual, stored in total."""
    width = multiple(width, UNIT)
    x0, x1, x2 = multiple(x0, UNIT), multiple(x1, UNIT), multiple(x2, UNIT)
    r0, r1, r2 = multiple(r0, UNIT), multiple(r1, UNIT), multiple(r2, UNIT)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    valid = row < rows
    from_x = x + _start(row, n1, n2, x0, x1, x2)[:, None]
    from_residual = residual
    if residual is not None:
        from_residual = residual + _start(row, n1, n2, r0, r1, r2)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    to = row[:, None] * width
    if RESIDENT:
        mask = valid[:, None] & _inside(column, width, WHOLE)
        a = _load_sum(from_x, from_residual, column, mask, ACC, LAST_READ)
        every = column
        if BLOCK < 1024:  # than 16 bytes for each thread, so that gains would not lie as x does
            every = tl.broadcast_to(column, (ROWS, BLOCK))
        gain, shift = weight, bias
        if EARLY:
            if weight is not None:
                gain = _parameter(weight, every, width, WHOLE)
            if bias is not None:
                shift = _parameter(bias, every, width, WHOLE)
        if residual is not None:
            tl.store(total + to + column, a, mask=mask)
        a, mu, error, deviations = _moments(a.to(ACC), mask, width, CENTERED, WHOLE)
        scale = _scale(deviations / width, EPS)
        if not EARLY:
            if weight is not None:
                gain = _parameter(weight, every, width, WHOLE)
            if bias is not None:
                shift = _parameter(bias, every, width, WHOLE)
        _store_normalized(y + to, a, scale, gain, shift, column, mask)
    else:
        mu = tl.zeros((ROWS,), ACC)
        error = tl.zeros((ROWS,), ACC)  # the mean of what is left when mu is subtracted
        deviations = tl.zeros((ROWS,), ACC)
        for start in range(0, width, BLOCK):
            mask = valid[:, None] & _inside(start + column, width, WHOLE)
            a = _load_sum(from_x, from_residual, start + column, mask, ACC, READ_AGAIN)
            if residual is not None:
                tl.store(total + to + start + column, a, mask=mask)
            here = tl.minimum(width - start, BLOCK)
            a = a.to(ACC)
            if CENTERED:
                if start == 0:
                    mu = tl.sum(a, 1) / here
                a = tl.where(mask, a - mu[:, None], 0.0)
            _, block_mu, _, block_deviations = _moments(a, mask, here, CENTERED, WHOLE)
            off = block_mu - error
            share = here.to(ACC) / (start + here)
            error += off * share
            deviations += block_deviations + off * off * share * start
        scale = _scale(deviations / width, EPS)
        for start in range(0, width, BLOCK):
            at = start + column
            mask = valid[:, None] & _inside(at, width, WHOLE)
            a = _load_sum(from_x, from_residual, at, mask, ACC, LAST_READ).to(ACC)
            gain, shift = weight, bias
            if weight is not None:
                gain = _parameter(weight, at, width, WHOLE)
            if bias is not None:
                shift = _parameter(bias, at, width, WHOLE)
            a = a - mu[:, None] - error[:, None]
            _store_normalized(y + to, a, scale, gain, shift, at, mask)
    if mean is not None:
        tl.store(mean + 2 * row, mu, mask=valid)
        tl.store(mean + 2 * row + 1, error, mask=valid)
    if rstd is not None:
        tl.store(rstd + row, scale, mask=valid)


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def gradient_means(
    dy, x, weight, mean, rstd, along, plain, rows, width, n1, n2, d0, d1, d2, x0, x1, x2,
    ACC: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """The means of g dy along x̂ and of g dy itself (centered), of rows longer than a block."""
    width = multiple(width, UNIT)
    d0, d1, d2 = multiple(d0, UNIT), multiple(d1, UNIT), multiple(d2, UNIT)
    x0, x1, x2 = multiple(x0, UNIT), multiple(x1, UNIT), multiple(x2, UNIT)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    valid = row < rows
    from_dy = dy + _start(row, n1, n2, d0, d1, d2)[:, None]
    from_x = x + _start(row, n1, n2, x0, x1, x2)[:, None]
    mu, error, scale = _statistics(mean, rstd, row, valid)
    sum_along = tl.zeros((ROWS,), ACC)
    sum_plain = tl.zeros((ROWS,), ACC)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        mask = valid[:, None] & (column < width)
        g = tl.load(from_dy + column, mask=mask, other=0.0).to(ACC)
        hat = (tl.load(from_x + column, mask=mask, other=0.0).to(ACC) - mu - error) * scale
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
    ACC: tl.constexpr, CENTERED: tl.constexpr, RESIDENT: tl.constexpr, WHOLE: tl.constexpr,
    HELD: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """dx = rstd (g dy - mean(g dy) - x̂ mean(g dy x̂)) + dtotal, for every so many-th tile of rows;
    dweight and dbias receive the program's own sums of dy x̂ and dy, to be added up by `add_up`."""
    width = multiple(width, UNIT)
    d0, d1, d2 = multiple(d0, UNIT), multiple(d1, UNIT), multiple(d2, UNIT)
    t0, t1, t2 = multiple(t0, UNIT), multiple(t1, UNIT), multiple(t2, UNIT)
    x0, x1, x2 = multiple(x0, UNIT), multiple(x1, UNIT), multiple(x2, UNIT)
    program = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = _inside(column, width, WHOLE)
    every = tl.broadcast_to(column, (ROWS, BLOCK))  # so that gains lie as x does
    sum_dweight = tl.zeros((ROWS, BLOCK), ACC)
    sum_dbias = tl.zeros((ROWS, BLOCK), ACC)
    gain = weight
    if HELD and weight is not None:
        gain = _parameter(weight, every, width, WHOLE)
    for tile in tl.range(program, tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = tile * tl.full((ROWS,), ROWS, tl.int64) + tl.arange(0, ROWS)
        valid = row < rows
        mask = valid[:, None] & inside
        from_x = x + _start(row, n1, n2, x0, x1, x2)[:, None]
        from_dy = dy + _start(row, n1, n2, d0, d1, d2)[:, None]
        hat = tl.load(from_x + column, mask=mask, other=0.0).to(ACC)
        g = tl.load(from_dy + column, mask=mask, other=0.0).to(ACC)
        mu, error, scale = _statistics(mean, rstd, row, valid)
        hat = (hat - mu - error) * scale
        if dweight is not None:
            sum_dweight += g * hat
        if dbias is not None:
            sum_dbias += g
        if weight is not None:
            if HELD:
                g *= gain.to(ACC)
            else:
                g *= _parameter(weight, every, width, WHOLE).to(ACC)
        if not RESIDENT:
            mean_along = tl.load(along + row, mask=valid, other=0.0)
            if CENTERED:
                mean_plain = tl.load(plain + row, mask=valid, other=0.0)
        elif CENTERED:  # both in one reduction, whose barriers are the same for two as for one
            mean_along, mean_plain = tl.split(tl.sum(tl.join(hat * g, g), 1) / width)
        else:
            mean_along = tl.sum(hat * g, 1) / width
        gradient = g - hat * mean_along[:, None]
        if CENTERED:
            gradient -= mean_plain[:, None]
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
    partial, first, second, count, width,
    ACC: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """first = the sum of the first `count` rows of partial, second that of the next, always in the
    same order; the second dimension of the grid says which."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    partial += tl.program_id(1).to(tl.int64) * count * width
    total = tl.zeros((ROWS, BLOCK), ACC)
    for start in range(0, count, ROWS):
        row = start + tl.arange(0, ROWS).to(tl.int64)[:, None]
        mask = (row < count) & (column < width)[None, :]
        total += tl.load(partial + row * width + column[None, :], mask=mask, other=0.0)
    if tl.program_id(1) == 0:
        tl.store(first + column, tl.sum(total, 0), mask=column < width)
    elif second is not None:
        tl.store(second + column, tl.sum(total, 0), mask=column < width)


@triton.jit
@no_type_check
def multiple(number, UNIT: tl.constexpr):
    """The number, which UNIT divides, so that the compiler knows it and reads UNIT numbers at once;
    Triton itself tells it of 16 alone."""
    return number // UNIT * UNIT


@triton.jit
@no_type_check
def _start(row, n1, n2, s0, s1, s2):
    """Where rows begin: number (i n1 + j) n2 + k at i s0 + j s1 + k s2."""
    outer = row // n2
    return (outer // n1) * s0 + (outer % n1) * s1 + (row % n2) * s2


@triton.jit
@no_type_check
def _inside(column, width, WHOLE: tl.constexpr):
    """The columns that exist: all of them, if a row is made of WHOLE blocks."""
    inside = column < width
    if WHOLE:
        inside = tl.full(column.shape, True, tl.int1)
    return inside


@triton.jit
@no_type_check
def _load_sum(from_x, from_residual, column, mask, ACC: tl.constexpr, EVICTION: tl.constexpr):
    """x, or the sum with its residual, rounded to x's type as torch's `x + residual` is."""
    a = tl.load(from_x + column, mask=mask, other=0.0, eviction_policy=EVICTION)
    if from_residual is not None:
        b = tl.load(from_residual + column, mask=mask, other=0.0, eviction_policy=EVICTION)
        a = (a.to(ACC) + b.to(ACC)).to(a.dtype)
    return a


@triton.jit
@no_type_check
def _moments(a, mask, count, CENTERED: tl.constexpr, WHOLE: tl.constexpr):
    """The deviations of each row's `count` values, their mean in two parts, and the sum of the
    deviations' squares. Rows that do not exist may have any; columns that do not, have zeros."""
    mu = tl.sum(a, 1) / count
    error = tl.zeros_like(mu)
    if CENTERED:
        a = _deviations(a, mu, mask, WHOLE)
        error = tl.sum(a, 1) / count
        a = _deviations(a, error, mask, WHOLE)
    else:
        mu = error
    return a, mu, error, tl.sum(a * a, 1)


@triton.jit
@no_type_check
def _deviations(a, mu, mask, WHOLE: tl.constexpr):
    a = a - mu[:, None]
    if not WHOLE:
        a = tl.where(mask, a, 0.0)
    return a


@triton.jit
@no_type_check
def _scale(variance, EPS: tl.constexpr):
    """1 / sqrt(variance + eps); NaN, so that the row is, where the squares have overflowed."""
    return tl.where(variance == float("inf"), float("nan"), tl.rsqrt(variance + EPS))


@triton.jit
@no_type_check
def _parameter(parameter, column, width, WHOLE: tl.constexpr):
    """Gains or biases, which every program reads. Without any, callers keep None themselves: in
    Triton 3.6 a function cannot return it."""
    inside = _inside(column, width, WHOLE)
    return tl.load(parameter + column, mask=inside, other=0.0, eviction_policy="evict_last")


@triton.jit
@no_type_check
def _store_normalized(to, a, scale, gain, shift, column, mask):
    a *= scale[:, None]
    if gain is not None:
        a *= gain.to(a.dtype)
    if shift is not None:
        a += shift.to(a.dtype)
    tl.store(to + column, a, mask=mask)


@triton.jit
@no_type_check
def _statistics(mean, rstd, row, valid):
    """Means, their errors and scales of rows, each as a column; 0 for rows that do not exist."""
    scale = tl.load(rstd + row, mask=valid, other=0.0)[:, None]
    mu = tl.zeros_like(scale)
    error = mu
    if mean is not None:
        mu = tl.load(mean + 2 * row, mask=valid, other=0.0)[:, None]
        error = tl.load(mean + 2 * row + 1, mask=valid, other=0.0)[:, None]
    return mu, error, scale
