"""Element-wise curves in the place of a normalization layer: modules without statistics."""

import torch
from torch import Tensor, nn

from layernorm import _validation_modules, functional
from layernorm._validation import checked


class DynamicTanh(nn.Module):
    """`functional.dynamic_tanh` with its alpha (0.5 at first), gain (1) and bias (0).

    Stands where a `torch.nn.LayerNorm` of this shape stood. It normalizes nothing: unlike a norm's,
    its output depends on the scale of its input, so embeddings need one of about 1. Inside of a
    `torch.nn.TransformerEncoderLayer` call `torch.backends.mha.set_fastpath_enabled(False)`, for
    its path in evaluation computes a layer norm from the module's attributes.

    Args:
        normalized_shape: the shape of gain and bias, that of the input's last dimensions.
        alpha: where alpha starts.
        elementwise_affine: with gain and bias. bias: with the bias, if there is a gain.

    Keys: alpha (), weight, bias. Source: Zhu et al. 2025, arXiv:2503.10622.

    >>> DynamicTanh(2)(torch.tensor([[0.0, 100.0]]))
    tensor([[0., 1.]], grad_fn=<AddBackward0>)
    """

    __prepare_scriptable__ = _validation_modules.not_scriptable

    @checked(_validation_modules.dynamic_settings)
    def __init__(
        self,
        normalized_shape: int | list[int] | tuple[int, ...] | torch.Size,
        alpha: float = 0.5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape, self.alpha_at_first = tuple(shape), float(alpha)
        options = {"device": device, "dtype": dtype}
        self.alpha = nn.Parameter(torch.empty((), **options))
        for name, wanted in (("weight", True), ("bias", bias)):
            made = nn.Parameter(torch.empty(self.normalized_shape, **options))
            self.register_parameter(name, made if elementwise_affine and wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset alpha to its initial value, the gain to 1 and the bias to 0."""
        nn.init.constant_(self.alpha, self.alpha_at_first)
        for p, value in ((self.weight, 1.0), (self.bias, 0.0)):
            if p is not None:
                nn.init.constant_(p, value)

    def forward(self, x: Tensor) -> Tensor:
        return functional.dynamic_tanh(x, self.alpha, self.weight, self.bias)

    def extra_repr(self) -> str:
        affine = self.weight is not None
        return f"{self.normalized_shape}, alpha={self.alpha_at_first}, elementwise_affine={affine}"


class DynamicErf(DynamicTanh):
    """`functional.dynamic_erf` with its alpha (0.5 at first), shift (0), gain (1) and bias (0).

    As `DynamicTanh`, with erf for tanh and a shift s of its argument, which starts at `shift`.

    Keys: alpha (), shift (), weight, bias. Source: Chen et al. 2025, arXiv:2512.10938.

    >>> DynamicErf(2)(torch.tensor([[0.0, 100.0]]))
    tensor([[0., 1.]], grad_fn=<AddBackward0>)
    """

    __prepare_scriptable__ = _validation_modules.not_scriptable

    @checked(_validation_modules.dynamic_settings)
    def __init__(
        self,
        normalized_shape: int | list[int] | tuple[int, ...] | torch.Size,
        alpha: float = 0.5,
        shift: float = 0.0,
        elementwise_affine: bool = True,
        bias: bool = True,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__(normalized_shape, alpha, elementwise_affine, bias, device, dtype)
        self.shift_at_first = float(shift)
        self.shift = nn.Parameter(torch.full_like(self.alpha, self.shift_at_first))

    def reset_parameters(self) -> None:
        """Reset alpha and shift to their initial values, the gain to 1 and the bias to 0."""
        super().reset_parameters()
        if hasattr(self, "shift"):  # made after the rest
            nn.init.constant_(self.shift, self.shift_at_first)

    def forward(self, x: Tensor) -> Tensor:
        return functional.dynamic_erf(x, self.alpha, self.shift, self.weight, self.bias)
