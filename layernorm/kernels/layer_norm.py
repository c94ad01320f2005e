"""Layer normalization in one kernel forward and one backward (two where rows are very long)."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from layernorm import _validation, functional
from layernorm._validation import checked
from layernorm.kernels import checks, operators

OPERATOR = operators.register("layer_norm", centered=True, definition=functional.layer_norm)


@checked(_validation.layer_norm)
def layer_norm(
    x: Float[Tensor, "*shape"],
    normalized_shape: Sequence[int],
    weight: Float[Tensor, "*normalized"] | None = None,
    bias: Float[Tensor, "*normalized"] | None = None,
    eps: float = 1e-5,
) -> Float[Tensor, "*shape"]:
    r"""`layernorm.functional.layer_norm` as Triton computes it on a CUDA device.

        y = g (x - mu) / sqrt(sigma^2 + eps) + b,   mu = mean(x),   sigma^2 = mean((x - mu)^2)

    float16, bfloat16 and float32 are computed in float32, float64 in itself. The rows of x may lie
    anywhere; x is copied only if a row has gaps or if four or more nested strides lead to the rows.
    The result is contiguous, and float32 under autocast. Gradients have the same bits every time.
    Second derivatives are the definition's; inside `torch.compile` there are none.

    Args, Raises: as the definition; ValueError, too, for tensors that are not on one CUDA device
    (Triton's interpreter takes them on any).

    Source: eq. (3) of the paper, with the gain and bias of eq. (15).
    """
    return operators.apply(OPERATOR, x, None, weight, bias, len(normalized_shape), eps)[0]


@checked(checks.add_layer_norm)
def add_layer_norm(
    x: Float[Tensor, "*shape"],
    residual: Float[Tensor, "*shape"],
    normalized_shape: Sequence[int],
    weight: Float[Tensor, "*normalized"] | None = None,
    bias: Float[Tensor, "*normalized"] | None = None,
    eps: float = 1e-5,
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    r"""(layer_norm(s), s) with s = x + residual, in one pass over both.

    s has the type of x, and the norm is that of the rounded s.

    Args:
        residual: of the shape and type of x.
        others: as `layer_norm`.

    Raises: as `layer_norm`.
    """
    return operators.apply(OPERATOR, x, residual, weight, bias, len(normalized_shape), eps)
