# ruff: noqa: E501  (a table, one line per case)
"""Faults put into the kernels on purpose: each runs, and each must be noticed.

A mutant is the source of `layernorm.kernels.rows` with one fragment replaced. It is caught by the
comparisons that the real kernels pass; an error other than a failed comparison proves nothing.
"""

import inspect
from typing import NamedTuple

import pytest
import torch
from kernels.kernel_cases import (
    DEVICE,
    KERNELS,
    ON_GPU,
    agrees,
    arguments,
    case,
    hard,
    overflow,
    short_blocks,
    with_rows,
)
from library.oracle import assert_rounded, draw

from layernorm.kernels import launch, rows

pytestmark = ON_GPU
SOURCE = inspect.getsource(rows)
F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16


def plain(name: str) -> None:
    """Several tiles per program; rows and columns missing in the last; large eps."""
    case(name, (63, 131), F32, mean=3.0, eps=0.1)


def in_blocks(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        short_blocks(patch)
        case(name, (3, 71), F32, mean=3.0, eps=0.1)


def far_from_zero(name: str) -> None:
    case(name, (4, 53), F32, mean=1e4)


def hard_in_blocks(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        short_blocks(patch)
        hard(name)


def with_residual(name: str) -> None:
    case(name, (5, 37), BF16, residual=draw(5, 37, seed=3))


def rounded_sum(name: str) -> None:
    """The norm, unrounded under autocast, is that of the rounded sum."""
    x, residual = (draw(5, 37, seed=s).to(DEVICE, BF16) for s in (0, 3))
    with torch.autocast(DEVICE, dtype=BF16):
        y, total = KERNELS[name][1](x, residual, (37,), eps=0.1)
    assert_rounded([y], lambda: [KERNELS[name][2](total.double(), (37,), eps=0.1)])


def double(name: str) -> None:
    case(name, (5, 37), F64)


def steps(name: str) -> None:
    x = draw(4, 9, 20, 7)[::2, ::3, ::5]  # of 2, 3 and 4 rows
    agrees(name, x, arguments(name, tuple(x.shape))[1], F32, eps=0.1)


def steps_in_blocks(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        short_blocks(patch)
        x = draw(4, 9, 20, 67)[::2, ::3, ::5]
        agrees(name, x, arguments(name, tuple(x.shape))[1], F32, eps=0.1)


def bare_in_blocks(name: str) -> None:
    """Without parameters, whose zeros beyond a row would hide what is read there."""
    with pytest.MonkeyPatch.context() as patch:
        short_blocks(patch)
        x, parameters = arguments(name, (3, 71), mean=3.0)
        agrees(name, x, [None for _ in parameters], F32, eps=0.1)


def late_gains(name: str) -> None:
    """Gains that are too long to be loaded early, or held."""
    with pytest.MonkeyPatch.context() as patch:
        for limit in ("EARLY", "HELD"):
            patch.setattr(launch, limit, 0)
        case(name, (5, 37), F32, eps=0.1)


def many_programs(name: str) -> None:
    """More than one tile of partial sums."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "PARTIAL_ROWS", 1)
        plain(name)


class Mutant(NamedTuple):
    slip: str
    check: object
    old: str
    new: str
    name: str = "layer_norm"


LAYER = [
    Mutant("eps outside the root", plain, "tl.rsqrt(variance + EPS)", "1 / (tl.sqrt(variance) + EPS)"),
    Mutant("eps forgotten", plain, "variance + EPS", "variance"),
    Mutant("unbiased variance", plain, "_scale(deviations / width, EPS)", "_scale(deviations / (width - 1), EPS)"),
    Mutant("E[x^2] - E[x]^2", far_from_zero, "error, tl.sum(a * a, 1)", "error, squares - mu * mu * count"),
    Mutant("gain's and bias's gradients swapped", plain, "tl.sum(sum_dweight, 0)", "tl.sum(sum_dbias, 0)"),
    Mutant("bias's gradient is the gain's", plain, "tl.sum(sum_dbias, 0)", "tl.sum(sum_dweight, 0)"),
    Mutant("tail not masked in the variance", plain, "a = tl.where(mask, a, 0.0)", "a = a + 0.0"),
    Mutant("tail of dy read as ones", plain, "g = tl.load(from_dy + column, mask=mask, other=0.0).to(ACC)\n        mu,", "g = tl.load(from_dy + column, mask=mask, other=1.0).to(ACC)\n        mu,"),
    Mutant("rows that are not there counted", plain, "g = tl.load(from_dy + column, mask=mask, other=0.0).to(ACC)\n        mu,", "g = tl.where(mask, tl.load(from_dy + column, mask=mask, other=0.0), inside.to(ACC)).to(ACC)\n        mu,"),
    Mutant("the last program's sums dropped", plain, "mask = (row < count) &", "mask = (row < count - 1) &"),
    Mutant("only a program's last tile counts", plain, "sum_dweight += g * hat", "sum_dweight = g * hat"),
    Mutant("a program skips its second tile", plain, "tl.num_programs(0), num_stages", "2 * tl.num_programs(0), num_stages"),
    Mutant("gain's gradient times the gain", plain, "if dweight is not None:\n            sum_dweight += g * hat\n", "if dweight is not None:\n            sum_dweight += g * hat * tl.load(weight + column, mask=inside, other=0.0)\n"),
    Mutant("mean of the gradient not subtracted", plain, "if CENTERED:\n            gradient -=", "if False:\n            gradient -="),
    Mutant("part along x̂ not subtracted", plain, "gradient = g - hat * mean_along[:, None]", "gradient = g"),
    Mutant("mean over the block, not the row", plain, "tl.sum(a, 1) / count", "tl.sum(a, 1) / a.shape[1]"),
    Mutant("centered once", hard, "a = _deviations(a, error, mask, WHOLE)", "error = tl.zeros_like(mu)"),
    Mutant("the gradient forgets the mean's error", hard, "hat = (hat - mu - error) * scale", "hat = (hat - mu) * scale"),
    Mutant("overflow to zeros", overflow, 'tl.where(variance == float("inf"), float("nan"), tl.rsqrt(variance + EPS))', "tl.rsqrt(variance + EPS)"),
    Mutant("moments merged without their distance", in_blocks, " + off * off * share * start", ""),
    Mutant("the last block counts like the others", in_blocks, "here = tl.minimum(width - start, BLOCK)", "here = tl.minimum(width, BLOCK)"),
    Mutant("a block's mean along x̂ only", in_blocks, "sum_along += tl.sum(hat * g, 1)", "sum_along = tl.sum(hat * g, 1)"),
    Mutant("the two means swapped", plain, "mean_along, mean_plain = tl.split", "mean_plain, mean_along = tl.split"),
    Mutant("rows with a tail taken for whole", plain, "if not WHOLE:\n        a =", "if False:\n        a ="),
    Mutant("both sums from the first half", plain, "tl.program_id(1).to(tl.int64) * count * width", "0 * tl.program_id(1).to(tl.int64) * count * width"),
    Mutant("blocks share the first block's gain", in_blocks, "column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]\n    inside", "column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]\n    weight = weight if weight is None else weight - tl.program_id(1) * BLOCK\n    inside"),
    Mutant("the norm of the sum before rounding", rounded_sum, "a = (a.to(ACC) + b.to(ACC)).to(a.dtype)", "a = a.to(ACC) + b.to(ACC)"),
    Mutant("residual forgotten in the norm", with_residual, "a = (a.to(ACC) + b.to(ACC)).to(a.dtype)", "a = a"),
    Mutant("the sum's own gradient forgotten", with_residual, "gradient += tl.load(from_dtotal", "gradient += 0 * tl.load(from_dtotal"),
    Mutant("float64 in float32", double, "_moments(a.to(ACC), mask", "_moments(a.to(tl.float32), mask"),
    Mutant("late gain and bias swapped", late_gains, "        if not EARLY:\n            if weight is not None:\n                gain = _parameter(weight, every, width, WHOLE)\n            if bias is not None:\n                shift = _parameter(bias", "        if not EARLY:\n            if weight is not None:\n                gain = _parameter(bias, every, width, WHOLE)\n            if bias is not None:\n                shift = _parameter(weight"),
    Mutant("late gain is the first one's", late_gains, "                g *= _parameter(weight, every", "                g *= _parameter(weight, 0 * every"),
    Mutant("means of x at dy's strides", steps_in_blocks, "_start(row, n1, n2, x0, x1, x2)[:, None]\n    mu, error", "_start(row, n1, n2, d0, d1, d2)[:, None]\n    mu, error"),
    Mutant("means of dy at x's strides", steps_in_blocks, "_start(row, n1, n2, d0, d1, d2)[:, None]\n    from_x", "_start(row, n1, n2, x0, x1, x2)[:, None]\n    from_x"),
    Mutant("a column beyond the row counts in its means", bare_in_blocks, "mask = valid[:, None] & (column < width)\n        g = tl", "mask = valid[:, None] & (column < width + 1)\n        g = tl"),
    Mutant("the inner step as long as the middle one", steps, "(row % n2) * s2", "(row % n1) * s2"),
    Mutant("the sum's gradient at dy's strides", with_residual, "_start(row, n1, n2, t0, t1, t2)", "_start(row, n1, n2, d0, d1, d2)"),
    Mutant("partial sums: the last tile only", many_programs, "total += tl.load(partial", "total = tl.load(partial"),
    Mutant("partial sums: the first tile only", many_programs, "range(0, count, ROWS)", "range(0, 1, ROWS)"),
    Mutant("rows at multiples of twice the unit", steps, "number // UNIT * UNIT", "number // (2 * UNIT) * (2 * UNIT)"),
    Mutant("steps in the wrong order", steps, "(outer // n1) * s0 + (outer % n1) * s1", "(outer // n1) * s1 + (outer % n1) * s0"),
]  # fmt: skip
RMS = [
    Mutant("tail of x read as ones", plain, "a = tl.load(from_x + column, mask=mask, other=0.0,", "a = tl.load(from_x + column, mask=mask, other=1.0,", "rms_norm"),
    Mutant("eps outside the root", plain, "tl.rsqrt(variance + EPS)", "1 / (tl.sqrt(variance) + EPS)", "rms_norm"),
    Mutant("mean subtracted", plain, "mu = error", "a = _deviations(a, mu, mask, WHOLE)", "rms_norm"),
    Mutant("overflow to zeros", overflow, 'tl.where(variance == float("inf"), float("nan"), tl.rsqrt(variance + EPS))', "tl.rsqrt(variance + EPS)", "rms_norm"),
    Mutant("mean of the gradient subtracted", plain, "mean_along = tl.sum(hat * g, 1) / width\n", "mean_along = tl.sum(hat * g, 1) / width\n            g -= tl.sum(g, 1)[:, None] / width\n", "rms_norm"),
    Mutant("a program's sums dropped", plain, "mask = (row < count) &", "mask = (row < count - 1) &", "rms_norm"),
    Mutant("part along x̂ from the first block", in_blocks, "sum_along += tl.sum(hat * g, 1)", "sum_along += tl.where(start == 0, tl.sum(hat * g, 1), 0.0)", "rms_norm"),
]  # fmt: skip


@pytest.mark.parametrize("mutant", LAYER + RMS, ids=lambda m: f"{m.name}: {m.slip}")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of what mutants compute
def test_a_comparison_catches(mutant, monkeypatch, tmp_path):
    assert mutant.old in SOURCE, f"{mutant.old!r} no longer stands in the kernels"
    changed = SOURCE.replace(mutant.old, mutant.new)
    if "squares" in mutant.new:
        changed = changed.replace(
            "mu = tl.sum(a, 1) / count\n",
            "mu = tl.sum(a, 1) / count\n    squares = tl.sum(a * a, 1)\n",
        )
    monkeypatch.setattr(launch, "rows", with_rows(changed, tmp_path))
    with pytest.raises(AssertionError):
        mutant.check(mutant.name)


@pytest.mark.parametrize(
    "check",
    [
        plain,
        in_blocks,
        far_from_zero,
        hard,
        hard_in_blocks,
        overflow,
        with_residual,
        rounded_sum,
        double,
        steps,
        steps_in_blocks,
        bare_in_blocks,
        late_gains,
        many_programs,
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_unchanged_source_is_not_caught(check, monkeypatch, tmp_path):
    monkeypatch.setattr(launch, "rows", with_rows(SOURCE, tmp_path))
    for name in ("layer_norm", "rms_norm"):
        check(name)
