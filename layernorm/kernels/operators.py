"""The kernels as torch operators with gradients: `layernorm::layer_norm`, `layernorm::rms_norm`.

Registered, they pass through `torch.compile` and `torch.export` as they are. A forward operator
also returns what its gradient needs, the rows' statistics.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from layernorm.kernels import launch


class Operator(NamedTuple):
    """A computation and its gradient, each by itself and as it is registered with torch."""

    compute: Callable
    registered: Callable
    compute_gradient: Callable
    registered_gradient: Callable
    definition: Callable  # (x, normalized_shape, weight, bias, eps) -> y


def register(name: str, centered: bool, definition: Callable) -> Operator:
    """Register `layernorm::name` and its gradient."""

    def compute(
        x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, dims: int,
        eps: float, dtype: torch.dtype, keep: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        return launch.forward(x, residual, weight, bias, dims, eps, dtype, keep, centered)

    def compute_gradient(
        dy: Tensor, dtotal: Tensor | None, x: Tensor, weight: Tensor | None, bias: Tensor | None,
        mean: Tensor, rstd: Tensor, dims: int, wants_weight: bool, wants_bias: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        return launch.backward(
            dy, dtotal, x, weight, bias, mean, rstd, dims, wants_weight, wants_bias, centered
        )

    registered = _registered(name, compute)
    registered_gradient = _registered(f"{name}_backward", compute_gradient)
    operator = Operator(compute, registered, compute_gradient, registered_gradient, definition)

    @registered.register_fake
    def _(x, residual, weight, bias, dims, eps, dtype, keep):
        return launch.allocate(x, residual, dims, dtype, keep, centered)

    @registered_gradient.register_fake
    def _(dy, dtotal, x, weight, bias, mean, rstd, dims, wants_weight, wants_bias):
        return launch.allocate_gradients(x, weight, bias, wants_weight, wants_bias)

    def gradient(ctx, dy, dtotal, *_):
        return _gradient(ctx, registered_gradient, ctx.needs_input_grad, dy, dtotal)

    def setup(ctx, inputs, output):
        ctx.operator = operator
        _setup(ctx, inputs, output)

    registered.register_autograd(gradient, setup_context=setup)
    registered_gradient.register_autograd(partial(_no_second_derivative, name))
    return operator


def _registered(name: str, compute: Callable):
    return torch.library.custom_op(f"layernorm::{name}", compute, mutates_args=())


def apply(
    operator: Operator, x: Tensor, residual: Tensor | None, weight: Tensor | None,
    bias: Tensor | None, dims: int, eps: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y, and x + residual (empty without a residual). As torch's own under autocast, y is float32
    there: x is not copied for that, it is written so."""
    tensors = (x, residual, weight, bias)
    dtype = x.dtype
    castable = not x.is_meta and x.dtype != torch.float64
    if castable and torch.is_autocast_enabled(x.device.type):
        dtype = torch.float32
    seen_through = torch._C._are_functorch_transforms_active() or torch.jit.is_tracing()
    if seen_through or forward_ad._current_level >= 0:  # custom operators support none of these
        total = x if residual is None else x + residual
        return _by_definition(operator, total, weight, bias, dims, eps).to(dtype), total
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    if not torch.compiler.is_compiling():  # which cannot ask; enable_grad() within inference mode
        keep = keep and not torch.is_inference_mode_enabled()
    inputs = (*tensors, dims, eps, dtype, keep)
    if _watched(tensors):
        return operator.registered(*inputs)[:2]
    return (_Direct.apply(operator, *inputs) if keep else operator.compute(*inputs))[:2]


def _watched(tensors: tuple[Tensor | None, ...]) -> bool:
    """Tell whether someone looks at operators: graph capture, modes, special tensors."""
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or any(t is not None and (type(t) not in (Tensor, Parameter) or t.is_meta) for t in tensors)
    )


def _by_definition(operator, x, weight, bias, dims, eps) -> Tensor:
    """In the type in which the kernels compute."""
    acc = torch.float64 if x.dtype == torch.float64 else torch.float32
    weight, bias = (None if t is None else t.to(acc) for t in (weight, bias))
    return operator.definition(x.to(acc), x.shape[x.dim() - dims :], weight, bias, eps)


class _Direct(torch.autograd.Function):
    """An operator without torch's dispatcher, whose bookkeeping in Python takes longer than a small
    kernel; and differentiable again, through the definition."""

    @staticmethod
    def forward(ctx, operator, *inputs):
        output = operator.compute(*inputs)
        _setup(ctx, inputs, output)
        ctx.operator = operator
        ctx.mark_non_differentiable(*output[1 if inputs[1] is None else 2 :])
        return output

    @staticmethod
    def backward(ctx, dy, dtotal, *_):
        wanted = ctx.needs_input_grad[1:]
        batched = torch._C._functorch.is_legacy_batchedtensor  # is_grads_batched=True
        if torch.is_grad_enabled() or any(g is not None and batched(g) for g in (dy, dtotal)):
            return None, *_differentiable_gradient(ctx, wanted, dy, dtotal)
        return None, *_gradient(ctx, ctx.operator.compute_gradient, wanted, dy, dtotal)


def _setup(ctx, inputs, output) -> None:
    x, residual, weight, bias, ctx.dims, ctx.eps, *_ = inputs
    _, total, mean, rstd = output
    ctx.save_for_backward(x if residual is None else total, weight, bias, mean, rstd)
    ctx.set_materialize_grads(False)


def _gradient(ctx, compute, wanted, dy, dtotal):
    x, weight, bias, mean, rstd = ctx.saved_tensors
    if not rstd.numel() and x.numel():  # captured where nothing needed a gradient
        return _differentiable_gradient(ctx, wanted, dy, dtotal)
    dy = x.new_zeros(x.shape) if dy is None else dy
    dx, dweight, dbias = compute(
        dy, dtotal, x, weight, bias, mean, rstd, ctx.dims, wanted[2], wanted[3]
    )
    return _as_inputs(wanted, dx, dweight, dbias)


def _as_inputs(wanted, dx, dweight, dbias):
    """The sum's gradient is that of both its terms."""
    found = (dx, dx, dweight, dbias)
    return *(g if wants else None for g, wants in zip(found, wanted, strict=False)), *[None] * 4


def _differentiable_gradient(ctx, wanted, dy, dtotal):
    """By the definition.

    Of views: a saved sum is an output of this very node, beyond which nothing is to be derived.
    """
    again = torch.is_grad_enabled()  # create_graph=True
    with torch.enable_grad():
        x, weight, bias = (None if t is None else t.view_as(t) for t in ctx.saved_tensors[:3])
        y = _by_definition(ctx.operator, x, weight, bias, ctx.dims, ctx.eps)
        dy = torch.zeros_like(y) if dy is None else dy
        y = y.to(dy.dtype)
    sources = {i: t for i, t in enumerate((x, weight, bias)) if t is not None and t.requires_grad}
    found = torch.autograd.grad(y, list(sources.values()), dy, create_graph=again)
    dx, dweight, dbias = map(dict(zip(sources, found, strict=True)).get, range(3))
    return _as_inputs(wanted, dx if dtotal is None else dx + dtotal, dweight, dbias)


def _no_second_derivative(name: str, *_):
    raise NotImplementedError(
        f"the gradient of {name}'s Triton kernel cannot be differentiated inside torch.compile; "
        'use backend="reference" there'
    )
