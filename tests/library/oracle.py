"""Independent sources of truth: exact arithmetic, seeded numbers, one measure of closeness."""

from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

import torch
from torch import Tensor

from layernorm.lab.analysis import rounding


def draw(*shape: int, seed: int = 0, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Seeded normal float64 numbers."""
    generator = torch.Generator().manual_seed(seed)
    return mean + std * torch.randn(*shape, generator=generator, dtype=torch.float64)


def condition(rows: Tensor, eps: float = 1e-5) -> float:
    """max(1, |mu| / sigma) over the rows: how much subtracting the mean magnifies rounding.

    Rows that do not vary are divided by sqrt(eps) instead of sigma.
    """
    rows = rows.double()
    if rows.numel() == 0:
        return 1.0
    sigma = rows.std(1, correction=0)
    ratio = rows.mean(1).abs() / torch.where(sigma > 0, sigma, eps**0.5)
    return max(1.0, float(ratio.max()))


def assert_close(got: Tensor, expected: Tensor, tolerance: float) -> None:
    """The error's norm is at most `tolerance` times the norm of what is expected."""
    assert got.shape == expected.shape, f"shape {tuple(got.shape)}, not {tuple(expected.shape)}"
    got, expected = got.detach().double(), expected.detach().double()
    error = float((got - expected).norm())
    limit = tolerance * float(expected.norm())
    assert error <= limit, f"error {error:.3g} above {limit:.3g}"


def assert_rounded(
    got: Sequence[Tensor],
    compute: Callable[[], Sequence[Tensor]],
    dtype: torch.dtype | None = None,
    products: torch.dtype | None = None,
    expected: Sequence[Tensor] | None = None,
) -> None:
    """Every result is off by no more than rounding to `dtype` (None: its own) allows anywhere.

    Args:
        got: what is judged.
        compute: the definition of it, in float64; see `layernorm.lab.analysis.rounding`.
        dtype, products: of the operations, and of the products' factors and results.
        expected: what `got` must be, if another source than the definition says so.
    """
    dtype = dtype or got[0].dtype
    allowed = rounding.allowance(compute, dtype, products)
    for number, (mine, right, limit) in enumerate(
        zip(got, expected or compute(), allowed, strict=True)
    ):
        assert mine.shape == right.shape, f"shape {tuple(mine.shape)}, not {tuple(right.shape)}"
        right = right.detach()
        error = float((mine.detach().to(right) - right).norm())
        limit += rounding.unit_roundoff(mine.dtype) * float(right.norm())  # of the result itself
        assert error <= limit, f"result {number}: error {error:.3g} above {limit:.3g}"


def exact(values: list[float], eps: float, centered: bool = True) -> list[float]:
    """(x - mu) / sqrt(var + eps) in rational arithmetic; 50 digits for the root."""
    x = [Fraction(v) for v in values]
    mu = sum(x) / len(x) if centered else Fraction(0)
    var = sum((v - mu) ** 2 for v in x) / len(x) + Fraction(eps)
    with localcontext() as context:
        context.prec = 50
        root = (Decimal(var.numerator) / Decimal(var.denominator)).sqrt()
        return [
            float(Decimal((v - mu).numerator) / Decimal((v - mu).denominator) / root) for v in x
        ]
