"""The common part of the fused paths for CPUs (`cpu`) and for GPUs (`gpu`).

Each of the two has the same names: `unsupported` and `missing` say why it cannot compute, `faster`
whether it should, `lstm` and `gru` are the functions of `layernorm.recurrent.definition` without
projections. Their gradients are the fused ones; who differentiates those again, or asks for many at
once, gets the definition's. Transforms and traces, which look into the computation, are given the
definition from the start. Only inside a compiled graph is a second derivative refused.
"""

import functools
import warnings

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

KINDS = ("lstm", "gru")
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def constant_in_graphs(function):
    """As `torch.compiler.assume_constant_result`, which takes a second to import."""
    function._dynamo_marked_constant = True
    return function


def unsupported(kind: str, dtype: torch.dtype, projection: bool) -> str | None:
    """Why neither path computes this kind of layer; None if both do."""
    if kind not in KINDS:
        return f"there is no fused {kind}; the definition computes it"
    if dtype not in TYPES:
        return f"it computes floating-point numbers, not {dtype}"
    if projection:
        return "it has no projections (proj_size)"
    return None


class SlowPathWarning(RuntimeWarning):
    """The recurrent layers run their definition although a fused path covers the case."""


@functools.cache
def warn_once(reason: str) -> None:
    """Say that the definition stands in because the library could not be had; once."""
    warnings.warn(
        f"layernorm's recurrent layers run their definition, several times slower: {reason}",
        SlowPathWarning,
        stacklevel=2,
    )


def watched(inputs) -> bool:
    """Tell whether someone looks at operators: graph capture, transforms, modes, special tensors.

    Then the operator that is registered with torch must be called; for everyone else its
    computation is, since torch's bookkeeping takes a tenth of a millisecond.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or any(isinstance(t, Tensor) and type(t) not in (Tensor, Parameter) for t in inputs)
    )


def recorded(inputs) -> bool:
    """Tell whether a gradient may be asked for, so that a forward pass keeps what that takes. In
    inference mode none is, also in grad mode within it; a graph that is captured is asked for its
    gradient outside."""
    wanted = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
    return wanted and (torch.compiler.is_compiling() or not torch.is_inference_mode_enabled())


def seen_through() -> str | None:
    """The reason why only the definition will do, since its steps are looked into; None if none.

    A trace would keep addresses of tensors that are gone; a transform finds no rule for the fused
    computation, or takes its derivative for zero.
    """
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return "torch.func's transforms and forward-mode derivatives differentiate its steps"
    if torch.compiler.is_compiling():
        return None
    if torch.jit.is_tracing():
        return "torch.jit.trace records its steps"
    return None


def registered(name: str, compute, device_types):
    """`compute` as torch's operator `layernorm::name`; in a graph that was captured before, it may
    meet a forward derivative, for which torch would take zeros."""

    @functools.wraps(compute)
    def operator(*inputs):
        if forward_ad._current_level >= 0:
            raise NotImplementedError(
                "the fused recurrent layers have no forward derivative in a captured graph; "
                'capture the layer with backend="reference"'
            )
        return compute(*inputs)

    return torch.library.custom_op(
        f"layernorm::{name}", operator, mutates_args=(), device_types=device_types
    )


def one_type(kind: torch.dtype, tensors) -> None:
    """Refuse states and weights of several types, as the definition does."""
    others = {t.dtype for t in tensors if t is not None} - {kind}
    if others and not torch.is_autocast_enabled(tensors[0].device.type):
        raise TypeError(
            f"weights and states must have one type, got {kind} and "
            f"{', '.join(sorted(map(str, others)))}; convert the layer with module.to({kind})"
        )


def again(gradients) -> bool:
    """Tell whether a backward pass is differentiated itself, or done for many gradients at once."""
    functorch = torch._C._functorch
    return (
        torch.is_grad_enabled()
        or torch._C._are_functorch_transforms_active()
        or any(functorch.is_legacy_batchedtensor(g) for g in gradients if g is not None)
    )


def gradients(function, inputs, outputs_gradients, wanted) -> list[Tensor | None]:
    """The gradients of `function(*inputs)`, which can be differentiated again.

    Args:
        inputs: tensors or None; wanted: of which to take the gradient.
    """
    with torch.enable_grad():  # of a tensor that stands in two places, each has its own gradient
        inputs = [t if t is None else t.view_as(t) for t in inputs]
        outputs = function(*inputs)
    pairs = [
        (y, g)
        for y, g in zip(outputs, outputs_gradients, strict=True)
        if g is not None and y.requires_grad
    ]
    of = [t for t, w in zip(inputs, wanted, strict=True) if w]
    found = iter(
        torch.autograd.grad(
            [y for y, _ in pairs],
            of,
            [g for _, g in pairs],
            create_graph=torch.is_grad_enabled(),
            allow_unused=True,
        )
    )
    return [next(found) if w else None for w in wanted]


def no_second_derivative(ctx, *_):
    raise NotImplementedError(
        "the fused recurrent layers have no second derivative in a compiled graph; make the layer "
        'with backend="reference" for create_graph=True'
    )
