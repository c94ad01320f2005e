"""The gate: an implementation must agree with its definition before it is timed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Tolerance = Callable[[torch.dtype, int], float]


def tolerance(dtype: torch.dtype, length: int) -> float:
    r"""The relative error allowed to sums of `length` terms whose result has this dtype.

        2 eps(dtype) + 2 eps(accumulator) sqrt(length)

    The first term is four roundings of the result; the second lets the rounding errors of a sum
    grow like a random walk. Half precision accumulates in float32, other types in themselves.
    """
    accumulator = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    return 2 * torch.finfo(dtype).eps + 2 * torch.finfo(accumulator).eps * math.sqrt(length)


def relative_error(got: Tensor, expected: Tensor) -> float:
    """Largest |got - expected| / max(|expected|, rms(expected)) of all elements.

    The rms keeps elements near zero, which are sums that cancel, from being judged by
    themselves. Equal infinities and NaN on both sides agree; NaN or infinity on one side is
    an infinite error.
    """
    expected = expected.detach().double()
    rms = expected[expected.isfinite()].square().mean().sqrt()
    return _largest(got, expected, expected.abs().clamp(min=rms))


def _largest(got: Tensor, expected: Tensor, scale: Tensor) -> float:
    got, expected = got.detach().double(), expected.detach().double()
    agree = (got == expected) | (got.isnan() & expected.isnan())
    error = ((got - expected).abs() / scale).nan_to_num(nan=math.inf, posinf=math.inf)
    return float(error.masked_fill(agree, 0).max()) if error.numel() else 0.0


def error_of_sum(terms: Tensor) -> Callable[[Tensor, Tensor], float]:
    """The measure |got - expected| / sum |terms| of a single number that is the sum of these terms.

    Rounding errors of a sum grow with its terms, which may cancel to any small number. A tensor of
    many sums has some that do not, and its rms tells their size; one sum alone tells nothing.
    """
    size = terms.double().abs().sum()
    return lambda got, expected: _largest(got, expected, size)


def relative_distance(got: Tensor, expected: Tensor) -> float:
    """|got - expected| / |expected| of the whole tensors; NaN is an infinite error."""
    error = (got.detach().double() - expected).norm() / expected.norm().clamp(min=1e-300)
    return float(error.nan_to_num(nan=math.inf, posinf=math.inf))


@dataclass(frozen=True)
class Expected:
    """The oracle's value in float64, and what an implementation owes: its dtype, how close, and by
    which measure."""

    name: str
    value: Tensor
    dtype: torch.dtype
    allowed: float
    measure: Callable[[Tensor, Tensor], float] = relative_error


@dataclass(frozen=True)
class Verdict:
    """The largest error as a fraction of what is allowed, and what is wrong ("": nothing)."""

    error: float = 0.0
    wrong: str = ""


def check(got: Sequence[Tensor], expected: Sequence[Expected]) -> Verdict:
    """Compare outputs and gradients with the oracle's: number, shape, dtype and value."""
    if len(got) != len(expected):
        return Verdict(math.inf, f"{len(got)} tensors, the oracle gives {len(expected)}")
    worst = Verdict()
    for mine, oracle in zip(got, expected, strict=True):
        if mine.shape != oracle.value.shape:
            shapes = f"{tuple(mine.shape)}, the oracle's {tuple(oracle.value.shape)}"
            return Verdict(math.inf, f"{oracle.name} has shape {shapes}")
        if mine.dtype != oracle.dtype:
            return Verdict(math.inf, f"{oracle.name} is {mine.dtype}, expected {oracle.dtype}")
        error = oracle.measure(mine, oracle.value)
        if error / oracle.allowed > worst.error:
            wrong = f"{oracle.name} is off by {error:.2g} of its size, allowed {oracle.allowed:.2g}"
            worst = Verdict(error / oracle.allowed, wrong if error > oracle.allowed else "")
    return worst
