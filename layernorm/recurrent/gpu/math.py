"""Pieces that the recurrent kernels share, in Triton: a row of one gate is a block on chip.

Columns beyond the row's end read as zero. `no_type_check` keeps the test run's import hook away
from functions that are not Python's to call.
"""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
@no_type_check
def tanh(x):
    """tanh by the exponential of -|x|, so that nothing overflows."""
    t = tl.exp(-2.0 * tl.abs(x))
    y = (1.0 - t) / (1.0 + t)
    return tl.where(x < 0, -y, y)


@triton.jit
@no_type_check
def block(start, K: tl.constexpr, units, ACC: tl.constexpr, BLOCK: tl.constexpr):
    """Number K of the blocks of `units` values that begin at `start`."""
    column = tl.arange(0, BLOCK)
    return tl.load(start + K * units + column, mask=column < units, other=0.0).to(ACC)


@triton.jit
@no_type_check
def put(start, K: tl.constexpr, units, values, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    tl.store(start + K * units + column, values, mask=column < units)


@triton.jit
@no_type_check
def centered(a, mean, units, BLOCK: tl.constexpr):
    return tl.where(tl.arange(0, BLOCK) < units, a - mean, 0.0)


@triton.jit
@no_type_check
def scale(variance, EPS: tl.constexpr):
    """1 / sqrt(variance + eps); NaN, so that the row is, where the squares have overflowed."""
    return tl.where(variance == float("inf"), float("nan"), tl.rsqrt(variance + EPS))


@triton.jit
@no_type_check
def normalize(a, units, EPS: tl.constexpr, BLOCK: tl.constexpr):
    """(a - mean) / sqrt(variance + eps) of one block, its mean and the mean's rounding error, which
    is subtracted too (`layernorm.functional`), and what it was multiplied by."""
    mean = tl.sum(a, 0) / units
    a = centered(a, mean, units, BLOCK)
    error = tl.sum(a, 0) / units
    a = centered(a, error, units, BLOCK)
    rstd = scale(tl.sum(a * a, 0) / units, EPS)
    return a * rstd, mean, error, rstd


@triton.jit
@no_type_check
def through(d, hat, rstd, units):
    """The gradient before a norm over one block, from that of the normalized values."""
    plain, along = means(d, d * hat, units)
    return rstd * (d - plain - hat * along)


@triton.jit
@no_type_check
def means(a, b, count):
    """The sums of two blocks over `count`, in one reduction: its threads wait half as often."""
    return tl.split(tl.sum(tl.join(a, b), 0) / count)
