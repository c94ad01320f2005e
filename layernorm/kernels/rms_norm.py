"""Root-mean-square normalization in one kernel forward and one backward (two for long rows)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from layernorm import _validation, functional
from layernorm._validation import checked
from layernorm.kernels import checks, operators

OPERATOR = operators.register(
    "rms_norm",
    centered=False,
    definition=lambda x, shape, weight, _, eps: functional.rms_norm(x, shape, weight, eps),
)


@checked(_validation.rms_norm)
def rms_norm(
    x: Float[Tensor, "*shape"],
    normalized_shape: Sequence[int],
    weight: Float[Tensor, "*normalized"] | None = None,
    eps: float | None = None,
) -> Float[Tensor, "*shape"]:
    r"""`layernorm.functional.rms_norm` as Triton computes it on a CUDA device.

        y = g x / sqrt(mean(x^2) + eps)

    Types, strides and derivatives are as of `layernorm.kernels.layer_norm.layer_norm`.

    Args, Raises: as the definition; ValueError, too, for tensors that are not on one CUDA device.

    Source: Zhang and Sennrich 2019, arXiv:1910.07467, eq. (4).
    """
    return _apply(x, None, normalized_shape, weight, eps)[0]


@checked(checks.add_rms_norm)
def add_rms_norm(
    x: Float[Tensor, "*shape"],
    residual: Float[Tensor, "*shape"],
    normalized_shape: Sequence[int],
    weight: Float[Tensor, "*normalized"] | None = None,
    eps: float | None = None,
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    r"""(rms_norm(s), s) with s = x + residual, in one pass over both.

    s has the type of x, and the norm is that of the rounded s.

    Args:
        residual: of the shape and type of x.
        others: as `rms_norm`.

    Raises: as `rms_norm`.
    """
    return _apply(x, residual, normalized_shape, weight, eps)


def _apply(x, residual, normalized_shape, weight, eps) -> tuple[Tensor, Tensor]:
    if eps is None:
        eps = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    return operators.apply(OPERATOR, x, residual, weight, None, len(normalized_shape), eps)
