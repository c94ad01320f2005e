r"""Bounds on the effect of rounding: an error analysis that float64 evaluates.

In a type of unit roundoff u an operation returns what is exact, plus an error: at most u |v| for a
value v, and for a sum of n terms, in whatever order they are added,

    |error| <= sqrt(n) u sum |terms|

up to a factor that makes exceptions as rare as wanted (Higham and Mary 2019,
doi:10.1137/18M1226312: rounding errors behave like independent ones of mean 0; the bound without
exceptions has n instead of the root). To first order the error of a result is the sum of these
errors, each times the derivative of the result by that value. Variances add. So no program,
processor or order of summation enters.

`spread` evaluates this sum without a derivative written down: it repeats the computation in
float64, gives every operation, those of the backward pass too, an error of exactly that size and of
random sign, and returns the root mean square of the error of each result.

Real rounding errors are smaller than their bounds, at most u / sqrt(3) on average: over six draws
of nets the definition's and the kernels' errors were 0.2 spreads in the median and 0.6 at most;
those of programs whose every operation is off by one more unit, 1.0 and 2.1. `ALLOWED` is above
both; statistics in half precision or a forgotten term are off by hundreds.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from layernorm import functional

ALLOWED = 3.0  # spreads
DRAWS = 4

# The name of an operator -> (number of terms, sum of the terms' sizes), from its arguments.
_Terms = Callable[..., tuple[float, Tensor]]


def _product(a: Tensor, b: Tensor) -> tuple[float, Tensor]:
    return a.shape[-1], a.abs() @ b.abs()


def _product_and_sum(c: Tensor, a: Tensor, b: Tensor, **_: object) -> tuple[float, Tensor]:
    return a.shape[-1] + 1, c.abs() + a.abs() @ b.abs()


def _sum(a: Tensor, *dims: object, **options: object) -> tuple[float, Tensor]:
    total = torch.sum(a.abs(), *dims, **options)
    return a.numel() / max(1, total.numel()), total


def _mean(a: Tensor, *dims: object, **options: object) -> tuple[float, Tensor]:
    average = torch.mean(a.abs(), *dims, **options)
    return a.numel() / max(1, average.numel()), average


SUMS: dict[str, _Terms] = {
    "mm": _product, "bmm": _product, "addmm": _product_and_sum, "sum": _sum, "mean": _mean,
}  # fmt: skip
# These only move numbers, or make and compare them.
EXACT = re.compile(
    "(new_)?(empty|full|ones|zeros)(_like|_strided)?|(select|slice|threshold|expand)(_backward)?|"
    "(alias|arange|as_strided|cat|clone|copy|detach|fill|index|index_select|lift_fresh|masked_fill|"
    "permute|relu|scalar_tensor|sort|split|split_with_sizes|squeeze|stack|t|transpose|unbind|"
    "unsqueeze|view|where|zero|_to_copy|_unsafe_view|abs|clamp|eq|ge|gt|le|lt|maximum|minimum|ne|"
    "neg|rand|randn|sign)_?"
)


@cache
def _is_exact(name: str) -> bool:
    return EXACT.fullmatch(name) is not None


class _Rounding(TorchDispatchMode):
    """Errors of random sign in all that is computed; products may have a coarser unit, for their
    factors as well as for their results."""

    def __init__(self, unit: float, products: float, seed: int):
        super().__init__()
        self.unit, self.products, self.seed = unit, products, seed
        self.generators: dict[torch.device, torch.Generator] = {}

    def add_error(self, to: Tensor, size: Tensor, unit: float) -> Tensor:
        if to.device not in self.generators:
            self.generators[to.device] = torch.Generator(to.device).manual_seed(self.seed)
        signs = torch.empty(to.shape, dtype=to.dtype, device=to.device)
        signs.uniform_(-1, 1, generator=self.generators[to.device])
        return to.addcmul_(signs.sign_(), size, value=unit)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        product = name.endswith("mm") and self.products > self.unit
        if product:
            args = [self.add_error(a.clone(), a, self.products) for a in args]
        result = func(*args, **kwargs)
        if _is_exact(name):
            return result
        for value in result if isinstance(result, tuple | list) else [result]:
            if not isinstance(value, Tensor) or not value.is_floating_point():
                continue
            count, size = SUMS[name](*args, **kwargs) if name in SUMS else (1, value)
            self.add_error(value, size, max(count, 1) ** 0.5 * self.unit)
            if product:
                self.add_error(value, value, self.products)
        return result


def unit_roundoff(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next number."""
    return torch.finfo(dtype).eps / 2


def largest_errors(
    norm: Callable[[Tensor, Sequence[int]], Tensor],
    dtype: torch.dtype,
    means: Sequence[float],
    noise: Float[Tensor, "n units"],
) -> list[float]:
    """The largest error of the outputs of a layer normalization without gain and bias, for each
    mean of its input `mean + noise` in this type, against the definition in float64 on the same
    input. It is NaN if an output is."""
    errors = []
    for mean in means:
        a = (mean + noise).to(dtype)
        shape = a.shape[-1:]
        error = norm(a, shape).double() - functional.layer_norm(a.double(), shape)
        errors.append(error.abs().max().item())
    return errors


def spread(
    compute: Callable[[], Sequence[Tensor]],
    dtype: torch.dtype = torch.float32,
    products: torch.dtype | None = None,
    draws: int = DRAWS,
) -> list[float]:
    """The root mean square of the norm of the error of each result that `compute` returns.

    Args:
        compute: returns tensors of float64, gradients among them; draws nothing at random.
        dtype: the type whose rounding is meant.
        products: the type of the factors and results of matrix products, if it is another; their
            sums have `dtype` all the same, as on processors that multiply half precision.
        draws: repetitions.
    """
    unit, coarse = unit_roundoff(dtype), unit_roundoff(products or dtype)
    exact = [value.detach() for value in compute()]
    squares = [0.0] * len(exact)
    for seed in range(draws):
        with _Rounding(unit, coarse, seed):
            noisy = compute()
        for k, (value, right) in enumerate(zip(noisy, exact, strict=True)):
            squares[k] += float((value.detach() - right).square().sum())
    return [(total / draws) ** 0.5 for total in squares]


def allowance(
    compute: Callable[[], Sequence[Tensor]],
    dtype: torch.dtype = torch.float32,
    products: torch.dtype | None = None,
    draws: int = DRAWS,
) -> list[float]:
    """The largest norm of the error of each result: `ALLOWED` spreads."""
    return [ALLOWED * s for s in spread(compute, dtype, products, draws)]
