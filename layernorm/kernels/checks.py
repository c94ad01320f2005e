"""Checks of what the kernels are given: the definitions' own, and where the tensors are."""

from torch import Tensor

from layernorm import _validation


def layer_norm(x, normalized_shape, weight, bias, eps) -> None:
    _validation.layer_norm(x, normalized_shape, weight, bias, eps)
    _together(x, weight=weight, bias=bias)


def rms_norm(x, normalized_shape, weight, eps) -> None:
    _validation.rms_norm(x, normalized_shape, weight, eps)
    _together(x, weight=weight)


def add_layer_norm(x, residual, normalized_shape, weight, bias, eps) -> None:
    layer_norm(x, normalized_shape, weight, bias, eps)
    _residual(x, residual)


def add_rms_norm(x, residual, normalized_shape, weight, eps) -> None:
    rms_norm(x, normalized_shape, weight, eps)
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
    _together(x, residual=residual)


def _together(x: Tensor, **others: Tensor | None) -> None:
    for name, t in others.items():
        if t is not None and t.device != x.device:
            raise ValueError(
                f"{name} must be on the device of x, {x.device}, got {t.device}; move one of them "
                "with .to(...)"
            )
