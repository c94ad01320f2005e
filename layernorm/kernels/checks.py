"""Checks of what the kernels with a residual are given: the definitions' own, and the residual."""

from torch import Tensor

from layernorm import _validation


def add_layer_norm(x, residual, normalized_shape, weight, bias, eps) -> None:
    _validation.layer_norm(x, normalized_shape, weight, bias, eps)
    _residual(x, residual)


def add_rms_norm(x, residual, normalized_shape, weight, eps) -> None:
    _validation.rms_norm(x, normalized_shape, weight, eps)
    _residual(x, residual)


def _residual(x: Tensor, residual) -> None:
    if not isinstance(residual, Tensor):
        raise TypeError(f"residual must be a torch.Tensor, got {type(residual).__name__}")
    if residual.shape != x.shape:
        raise ValueError(
            f"residual must have the shape of x, {tuple(x.shape)}, got {tuple(residual.shape)}; "
            "use residual.expand_as(x) to repeat it"
        )
    if residual.dtype != x.dtype:
        raise TypeError(
            f"residual must have the type of x, {x.dtype}, got {residual.dtype}; convert one of "
            "them with .to(...)"
        )
    _validation.on_device("residual", residual, x, "the input's")
