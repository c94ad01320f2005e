"""One step of the layer-normalized GRU on the GPU, all but the product W_h h.

As `lstm_kernels`, a program for each row of the step, with two norms of a, over the gates and
over the candidate:

    a           (rows, 3H): W_h h;  gain, shift (3H,) of its norms
    z_gates     (rows, 2H): LN(W_x x) and the biases outside, of the gates r and z
    z_new       (rows, H): the same of the candidate n
    states      (rows, H): the state before the step in ACC;  before: the same, for the product
    stats       (rows, 6): of both norms the means, the means' errors, the scales
"""

from typing import no_type_check

import triton
import triton.language as tl

from layernorm.kernels.rows import multiple
from layernorm.recurrent.gpu.math import (
    block,
    centered,
    normalize,
    put,
    scale,
    sigmoid,
    tanh,
    through,
)


@triton.jit(do_not_specialize=["at", "following", "going"])
@no_type_check
def forward(
    a, z_gates, z_new, gain, shift, states, before, y, h_n, stats, at, following, going, units,
    EPS: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr, row=None,
):  # fmt: skip
    """The new state; where it goes is as in `lstm.forward`."""
    if row is None:
        row = tl.program_id(0).to(tl.int64)
    units = multiple(units, UNIT)
    place = at + row
    of_a, of_gates = a + place * 3 * units, z_gates + place * 2 * units
    r = block(of_a, 0, units, ACC, BLOCK)
    z = block(of_a, 1, units, ACC, BLOCK)
    n = block(of_a, 2, units, ACC, BLOCK)
    # all that is read, before the sums, at which a program's threads wait for each other
    gain_r, add_r = _affine(gain, shift, 0, units, ACC, BLOCK)
    gain_z, add_z = _affine(gain, shift, 1, units, ACC, BLOCK)
    gain_n, add_n = _affine(gain, shift, 2, units, ACC, BLOCK)
    x_r = block(of_gates, 0, units, ACC, BLOCK)
    x_z = block(of_gates, 1, units, ACC, BLOCK)
    x_n = block(z_new + place * units, 0, units, ACC, BLOCK)
    h = block(states + place * units, 0, units, ACC, BLOCK)
    mean = tl.sum(r + z, 0) / (2 * units)
    r = centered(r, mean, units, BLOCK)
    z = centered(z, mean, units, BLOCK)
    error = tl.sum(r + z, 0) / (2 * units)
    r = centered(r, error, units, BLOCK)
    z = centered(z, error, units, BLOCK)
    rstd = scale(tl.sum(r * r + z * z, 0) / (2 * units), EPS)
    n, mean_n, error_n, rstd_n = normalize(n, units, EPS, BLOCK)
    if stats is not None:
        keep = stats + place * 6
        tl.store(keep, mean)
        tl.store(keep + 1, mean_n)
        tl.store(keep + 2, error)
        tl.store(keep + 3, error_n)
        tl.store(keep + 4, rstd)
        tl.store(keep + 5, rstd_n)
    r = sigmoid(r * rstd * gain_r + add_r + x_r)
    z = sigmoid(z * rstd * gain_z + add_z + x_z)
    n = tanh(x_n + r * (n * gain_n + add_n))
    h = (1 - z) * n + z * h
    put(y + place * units, 0, units, h, BLOCK)
    if row < going:
        put(before + (following + row) * units, 0, units, h, BLOCK)
        put(states + (following + row) * units, 0, units, h, BLOCK)
    else:
        put(h_n + row * units, 0, units, h, BLOCK)


@triton.jit(do_not_specialize=["at"])
@no_type_check
def backward(
    a, z_gates, z_new, gain, shift, states, stats, dy, dh, around, p, dsums, at, units,
    ACC: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr, row=None,
):  # fmt: skip
    """As `lstm_kernels.backward`, with

    p       (rows, 4H): of the summed inputs after the norms, of r and z (the same for both
            terms), of the candidate's input term, of its recurrent term
    dsums   (rows, 3H): of a
    """
    if row is None:
        row = tl.program_id(0).to(tl.int64)
    units = multiple(units, UNIT)
    place = at + row
    of_a, kept, of_gates = a + place * 3 * units, stats + place * 6, z_gates + place * 2 * units
    mean, mean_n = tl.load(kept), tl.load(kept + 1)
    error, error_n = tl.load(kept + 2), tl.load(kept + 3)
    rstd, rstd_n = tl.load(kept + 4), tl.load(kept + 5)
    hat_r = (block(of_a, 0, units, ACC, BLOCK) - mean - error) * rstd
    hat_z = (block(of_a, 1, units, ACC, BLOCK) - mean - error) * rstd
    hat_n = (block(of_a, 2, units, ACC, BLOCK) - mean_n - error_n) * rstd_n
    gain_r, add_r = _affine(gain, shift, 0, units, ACC, BLOCK)
    gain_z, add_z = _affine(gain, shift, 1, units, ACC, BLOCK)
    gain_n, add_n = _affine(gain, shift, 2, units, ACC, BLOCK)
    r = sigmoid(hat_r * gain_r + add_r + block(of_gates, 0, units, ACC, BLOCK))
    z = sigmoid(hat_z * gain_z + add_z + block(of_gates, 1, units, ACC, BLOCK))
    term = hat_n * gain_n + add_n
    n = tanh(block(z_new + place * units, 0, units, ACC, BLOCK) + r * term)
    h = block(states + place * units, 0, units, ACC, BLOCK)

    grad = block(dy + place * units, 0, units, ACC, BLOCK)
    grad += block(dh + row * units, 0, units, ACC, BLOCK)
    grad += block(around + row * units, 0, units, ACC, BLOCK)
    put(around + row * units, 0, units, grad * z, BLOCK)
    p_n = grad * (1 - z) * (1 - n * n)
    p_z = grad * (h - n) * z * (1 - z)
    p_r = p_n * term * r * (1 - r)
    to = p + place * 4 * units
    put(to, 0, units, p_r, BLOCK)
    put(to, 1, units, p_z, BLOCK)
    put(to, 2, units, p_n, BLOCK)
    p_n *= r
    put(to, 3, units, p_n, BLOCK)
    p_r, p_z, p_n = p_r * gain_r, p_z * gain_z, p_n * gain_n
    plain = tl.sum(p_r + p_z, 0) / (2 * units)
    along = tl.sum(p_r * hat_r + p_z * hat_z, 0) / (2 * units)
    to = dsums + place * 3 * units
    put(to, 0, units, rstd * (p_r - plain - hat_r * along), BLOCK)
    put(to, 1, units, rstd * (p_z - plain - hat_z * along), BLOCK)
    put(to, 2, units, through(p_n, hat_n, rstd_n, units), BLOCK)


@triton.jit
@no_type_check
def _affine(gain, shift, K: tl.constexpr, units, ACC: tl.constexpr, BLOCK: tl.constexpr):
    return block(gain, K, units, ACC, BLOCK), block(shift, K, units, ACC, BLOCK)
