"""The common part of the fused paths for CPUs (`cpu`) and for GPUs (`gpu`).

Each of the two has the same names: `unsupported` and `missing` say why it cannot compute, `faster`
whether it should, `lstm` and `gru` are the functions of `layernorm.recurrent.definition` without
projections. There is no second derivative; asking for one is an error.
"""

import functools
import warnings

import torch
from torch import Tensor
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


def no_second_derivative(ctx, *_):
    raise NotImplementedError(
        "the fused recurrent layers have no second derivative; make the layer with "
        'backend="reference" for create_graph=True'
    )
