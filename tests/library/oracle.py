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


def hard_rows(width: int) -> Tensor:
    """Float32 rows beside whose mean little varies: nothing, one number's last bit, 1, 30."""
    constant = torch.full((width,), 12345.678)
    nearly = constant.clone()
    nearly[0] = torch.nextafter(constant[0], torch.tensor(torch.inf))
    far = [draw(width, seed=s, mean=1e8, std=s).float() for s in (1, 30)]
    return torch.stack([constant, nearly, *far])


# Rows times a scale at which squares, or their sum, exceed the range of a type; of the last,
# neither does.
OVERFLOWING = torch.tensor([[1.0, 2, 3, 4], [4, -3, 2, 1], [-4, 4, -4, 4], [0, 0, 0, 1]]).double()
F32, F64 = torch.float32, torch.float64
SCALES = [(F32, 1e19), (torch.bfloat16, 1e19), (F32, 8e37), (F64, 1e154)]


def assert_no_zeros(got: Tensor, expected: Tensor) -> None:
    """Every number is right or NaN, and some row is lost."""
    lost = got.isnan()
    assert lost.any()
    torch.testing.assert_close(got[~lost].double(), expected[~lost], rtol=1e-2, atol=1e-6)


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
