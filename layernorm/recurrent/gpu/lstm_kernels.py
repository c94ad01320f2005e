"""One step of the layer-normalized LSTM on the GPU, all but the product W_h h.

A program has one sequence's row of the step, all of it on chip: the norms' moments are taken in
passes over registers, in float32 (ACC; float64 for float64), the cell's state stays in it. The
programs of `persistent` call the kernels for one `row` after the other.

    a       (rows, 4H): W_h h, or with one term or none (z is None) W_h h + W_x x
    z       (rows, 4H): LN(W_x x) and all biases (two terms), else None
    gain    (4H,) of the norm of a, None if it has none; shift (4H,): what is added where z is None
    cells   (rows, H): the cell before the step;  before (rows, H): the state, for the next product
    stats   (rows, 3 GROUPS + 3): means, their errors and scales of a's norms, then of the cell's

All of them hold all steps; a step's rows begin at `at`. Gates stand in the order i, f, g, o.
"""

from typing import no_type_check

import triton
import triton.language as tl

from layernorm.kernels.rows import multiple
from layernorm.recurrent.gpu.math import (
    block,
    centered,
    means,
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
    a, z, gain, shift, gain_c, shift_c, cells, before, y, h_n, c_n, stats, at, following, going,
    units, EPS: tl.constexpr, ACC: tl.constexpr, GROUPS: tl.constexpr, CARRY: tl.constexpr,
    BLOCK: tl.constexpr, UNIT: tl.constexpr, row=None,
):  # fmt: skip
    """The gates, the cell and the state. The first `going` rows go on to the step that begins at
    `following`; those of the others are their sequences' last."""
    if row is None:
        row = tl.program_id(0).to(tl.int64)
    units = multiple(units, UNIT)
    place = at + row
    of_a = a + place * 4 * units
    i = block(of_a, 0, units, ACC, BLOCK)
    f = block(of_a, 1, units, ACC, BLOCK)
    g = block(of_a, 2, units, ACC, BLOCK)
    o = block(of_a, 3, units, ACC, BLOCK)
    # all that is read, before the sums, at which a program's threads wait for each other
    gain_i, add_i = _affine(z, gain, shift, place, 0, units, ACC, BLOCK)
    gain_f, add_f = _affine(z, gain, shift, place, 1, units, ACC, BLOCK)
    gain_g, add_g = _affine(z, gain, shift, place, 2, units, ACC, BLOCK)
    gain_o, add_o = _affine(z, gain, shift, place, 3, units, ACC, BLOCK)
    c = block(cells + place * units, 0, units, ACC, BLOCK)
    gain_of_c = block(gain_c, 0, units, ACC, BLOCK)
    add_c = block(shift_c, 0, units, ACC, BLOCK)
    keep = stats
    if stats is not None:
        keep = stats + place * (3 * GROUPS + 3)
    if GROUPS == 1:
        mean = tl.sum(i + f + g + o, 0) / (4 * units)
        i = centered(i, mean, units, BLOCK)
        f = centered(f, mean, units, BLOCK)
        g = centered(g, mean, units, BLOCK)
        o = centered(o, mean, units, BLOCK)
        error = tl.sum(i + f + g + o, 0) / (4 * units)
        i = centered(i, error, units, BLOCK)
        f = centered(f, error, units, BLOCK)
        g = centered(g, error, units, BLOCK)
        o = centered(o, error, units, BLOCK)
        rstd = scale(tl.sum(i * i + f * f + g * g + o * o, 0) / (4 * units), EPS)
        i, f, g, o = i * rstd, f * rstd, g * rstd, o * rstd
        if stats is not None:
            tl.store(keep, mean)
            tl.store(keep + 1, error)
            tl.store(keep + 2, rstd)
    if GROUPS == 4:
        i, mean_i, error_i, rstd_i = normalize(i, units, EPS, BLOCK)
        f, mean_f, error_f, rstd_f = normalize(f, units, EPS, BLOCK)
        g, mean_g, error_g, rstd_g = normalize(g, units, EPS, BLOCK)
        o, mean_o, error_o, rstd_o = normalize(o, units, EPS, BLOCK)
        if stats is not None:
            tl.store(keep, mean_i)
            tl.store(keep + 1, mean_f)
            tl.store(keep + 2, mean_g)
            tl.store(keep + 3, mean_o)
            tl.store(keep + 4, error_i)
            tl.store(keep + 5, error_f)
            tl.store(keep + 6, error_g)
            tl.store(keep + 7, error_o)
            tl.store(keep + 8, rstd_i)
            tl.store(keep + 9, rstd_f)
            tl.store(keep + 10, rstd_g)
            tl.store(keep + 11, rstd_o)
    i = sigmoid(i * gain_i + add_i)
    f = sigmoid(f * gain_f + add_f)
    g = tanh(g * gain_g + add_g)
    o = sigmoid(o * gain_o + add_o)
    c = f * c + i * g
    hat, mean_c, error_c, rstd_c = normalize(c, units, EPS, BLOCK)
    if stats is not None:
        tl.store(keep + 3 * GROUPS, mean_c)
        tl.store(keep + 3 * GROUPS + 1, error_c)
        tl.store(keep + 3 * GROUPS + 2, rstd_c)
    normalized = hat * gain_of_c + add_c
    h = o * tanh(normalized)
    if CARRY:
        c = normalized
    put(y + place * units, 0, units, h, BLOCK)
    if row < going:
        put(before + (following + row) * units, 0, units, h, BLOCK)
        put(cells + (following + row) * units, 0, units, c, BLOCK)
    else:
        put(h_n + row * units, 0, units, h, BLOCK)
        put(c_n + row * units, 0, units, c, BLOCK)


@triton.jit(do_not_specialize=["at"])
@no_type_check
def backward(
    a, z, gain, shift, gain_c, shift_c, cells, stats, dy, dh, around, dc, p, dsums, dcell, at,
    units, ACC: tl.constexpr, GROUPS: tl.constexpr, CARRY: tl.constexpr, BLOCK: tl.constexpr,
    UNIT: tl.constexpr, row=None,
):  # fmt: skip
    """From the gradients of the state (dy of this step, dh through the next product, `around` it)
    and of the cell (dc) to those before the step.

        p       (rows, 4H): of the gates' summed inputs, after the norms
        dsums   (rows, 4H): of a
        dcell   (rows, 2H): the row's part of the gradients of the cell's gain and bias

    dc and `around` are replaced, for the step before.
    """
    if row is None:
        row = tl.program_id(0).to(tl.int64)
    units = multiple(units, UNIT)
    place = at + row
    of_a, kept = a + place * 4 * units, stats + place * (3 * GROUPS + 3)
    hat_i, rstd_i = _hat(of_a, kept, 0, units, GROUPS, ACC, BLOCK)
    hat_f, rstd_f = _hat(of_a, kept, 1, units, GROUPS, ACC, BLOCK)
    hat_g, rstd_g = _hat(of_a, kept, 2, units, GROUPS, ACC, BLOCK)
    hat_o, rstd_o = _hat(of_a, kept, 3, units, GROUPS, ACC, BLOCK)
    gain_i, add_i = _affine(z, gain, shift, place, 0, units, ACC, BLOCK)
    gain_f, add_f = _affine(z, gain, shift, place, 1, units, ACC, BLOCK)
    gain_g, add_g = _affine(z, gain, shift, place, 2, units, ACC, BLOCK)
    gain_o, add_o = _affine(z, gain, shift, place, 3, units, ACC, BLOCK)
    i = sigmoid(hat_i * gain_i + add_i)
    f = sigmoid(hat_f * gain_f + add_f)
    g = tanh(hat_g * gain_g + add_g)
    o = sigmoid(hat_o * gain_o + add_o)
    c = block(cells + place * units, 0, units, ACC, BLOCK)
    mean_c, error_c = tl.load(kept + 3 * GROUPS), tl.load(kept + 3 * GROUPS + 1)
    rstd_c = tl.load(kept + 3 * GROUPS + 2)
    hat = (f * c + i * g - mean_c - error_c) * rstd_c
    gain_of_c = block(gain_c, 0, units, ACC, BLOCK)
    q = tanh(hat * gain_of_c + block(shift_c, 0, units, ACC, BLOCK))

    grad = block(dy + place * units, 0, units, ACC, BLOCK)
    grad += block(dh + row * units, 0, units, ACC, BLOCK)
    grad += block(around + row * units, 0, units, ACC, BLOCK)
    put(around + row * units, 0, units, tl.zeros_like(grad), BLOCK)
    d = grad * o * (1 - q * q)
    p_o = grad * q * o * (1 - o)
    if CARRY:
        d += block(dc + row * units, 0, units, ACC, BLOCK)
    put(dcell + place * 2 * units, 0, units, d * hat, BLOCK)
    put(dcell + place * 2 * units, 1, units, d, BLOCK)
    d = through(d * gain_of_c, hat, rstd_c, units)
    if not CARRY:
        d += block(dc + row * units, 0, units, ACC, BLOCK)
    put(dc + row * units, 0, units, d * f, BLOCK)

    p_i = d * g * i * (1 - i)
    p_f = d * c * f * (1 - f)
    p_g = d * i * (1 - g * g)
    to = p + place * 4 * units
    put(to, 0, units, p_i, BLOCK)
    put(to, 1, units, p_f, BLOCK)
    put(to, 2, units, p_g, BLOCK)
    put(to, 3, units, p_o, BLOCK)
    if BLOCK > 2048:  # of long rows these are read again, since the registers do not hold all
        hat_i, rstd_i = _hat(of_a, kept, 0, units, GROUPS, ACC, BLOCK)
        hat_f, rstd_f = _hat(of_a, kept, 1, units, GROUPS, ACC, BLOCK)
        hat_g, rstd_g = _hat(of_a, kept, 2, units, GROUPS, ACC, BLOCK)
        hat_o, rstd_o = _hat(of_a, kept, 3, units, GROUPS, ACC, BLOCK)
        gain_i, _ = _affine(z, gain, shift, place, 0, units, ACC, BLOCK)
        gain_f, _ = _affine(z, gain, shift, place, 1, units, ACC, BLOCK)
        gain_g, _ = _affine(z, gain, shift, place, 2, units, ACC, BLOCK)
        gain_o, _ = _affine(z, gain, shift, place, 3, units, ACC, BLOCK)
    p_i, p_f, p_g, p_o = p_i * gain_i, p_f * gain_f, p_g * gain_g, p_o * gain_o
    if GROUPS == 1:
        along = p_i * hat_i + p_f * hat_f + p_g * hat_g + p_o * hat_o
        plain, along = means(p_i + p_f + p_g + p_o, along, 4 * units)
        p_i = rstd_i * (p_i - plain - hat_i * along)
        p_f = rstd_f * (p_f - plain - hat_f * along)
        p_g = rstd_g * (p_g - plain - hat_g * along)
        p_o = rstd_o * (p_o - plain - hat_o * along)
    if GROUPS == 4:
        p_i = through(p_i, hat_i, rstd_i, units)
        p_f = through(p_f, hat_f, rstd_f, units)
        p_g = through(p_g, hat_g, rstd_g, units)
        p_o = through(p_o, hat_o, rstd_o, units)
    to = dsums + place * 4 * units
    put(to, 0, units, p_i, BLOCK)
    put(to, 1, units, p_f, BLOCK)
    put(to, 2, units, p_g, BLOCK)
    put(to, 3, units, p_o, BLOCK)


@triton.jit
@no_type_check
def _hat(of_a, kept, K: tl.constexpr, units, GROUPS: tl.constexpr, ACC: tl.constexpr,
         BLOCK: tl.constexpr):  # fmt: skip
    """Gate K's normalized values, and their scale; without a norm the values themselves."""
    hat = block(of_a, K, units, ACC, BLOCK)
    rstd = tl.full((), 1.0, ACC)
    if GROUPS > 0:
        group: tl.constexpr = K if GROUPS == 4 else 0
        rstd = tl.load(kept + 2 * GROUPS + group)
        hat = (hat - tl.load(kept + group) - tl.load(kept + GROUPS + group)) * rstd
    return hat, rstd


@triton.jit
@no_type_check
def _affine(z, gain, shift, place, K: tl.constexpr, units, ACC: tl.constexpr, BLOCK: tl.constexpr):
    """The factors and summands of gate K's normalized values."""
    times = tl.full((), 1.0, ACC)
    if gain is not None:
        times = block(gain, K, units, ACC, BLOCK)
    if z is not None:
        add = block(z + place * 4 * units, K, units, ACC, BLOCK)
    else:
        add = block(shift, K, units, ACC, BLOCK)
    return times, add
