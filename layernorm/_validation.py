"""Checks of what users pass in: one function per definition, named like it.

A check raises TypeError (wrong kind of thing) or ValueError (wrong shape, type of number, range)
with a message that names the argument, what was expected, what came and what to do.

Why the checks are a decorator: the test run lets jaxtyping and beartype check the annotated
shapes, and their import hook wraps the function innermost, below every written decorator. So
`checked` runs first and bad input meets our message, with the hook as without it; the annotations
are then checked against the body, and the body is the equation alone.
"""

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real

import torch
from torch import Tensor

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def checked(check: Callable) -> Callable:
    """Run `check` on the arguments (defaults filled in) before the decorated definition."""

    def decorate(definition: Callable) -> Callable:
        parameters = inspect.signature(definition).parameters
        defaults = {n: p.default for n, p in parameters.items() if p.default is not p.empty}

        @functools.wraps(definition)
        def checked_definition(*args, **kwargs):
            if not torch.jit.is_tracing():  # sizes are tensors there
                check(**(defaults | dict(zip(parameters, args, strict=False)) | kwargs))
            return definition(*args, **kwargs)

        return checked_definition

    return decorate


def layer_norm(x, normalized_shape, weight, bias, eps):
    _floating("x", x)
    _normalized_shape(normalized_shape, x)
    for name, p in (("weight", weight), ("bias", bias)):
        _optional(name, p, x, tuple(normalized_shape), "normalized_shape")
    _eps(eps)


def rms_norm(x, normalized_shape, weight, eps):
    layer_norm(x, normalized_shape, weight, None, 0.0 if eps is None else eps)


def group_norm(x, num_groups, weight, bias, eps):
    _channeled("x", x, least=2)
    _groups(num_groups, x.shape[1])
    _per_channel(x, weight=weight, bias=bias)
    _eps(eps)


def instance_norm(x, running_mean, running_var, weight, bias, use_input_stats, momentum, eps):
    _channeled("x", x, least=3)
    _running(x, running_mean, running_var, needed="" if use_input_stats else "use_input_stats")
    _per_channel(x, weight=weight, bias=bias)
    _finite("momentum", momentum)
    _eps(eps)
    if use_input_stats and math.prod(x.shape[2:]) == 1:
        raise ValueError(
            "instance_norm: expected more than one position per channel and case, "
            f"got x of shape {_shape(x)}; one value has no variance: give larger spatial "
            "dimensions or normalize with layer_norm or group_norm"
        )


def batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps, mask=None):
    _channeled("x", x, least=2)
    _running(x, running_mean, running_var, needed="" if training else "training")
    _per_channel(x, weight=weight, bias=bias)
    _finite("momentum", momentum)
    _eps(eps)
    values = math.prod(x.shape[:1] + x.shape[2:])
    if mask is not None:
        _mask(mask, x)
        if training and values and _readable(mask):
            values = int(mask.sum())
            if values == 0:
                raise ValueError(
                    "batch_norm: expected a mask with valid positions (True), got none in a mask "
                    f"of shape {_shape(mask)}; skip batches that are all padding, and check that "
                    "True marks valid positions, not padding"
                )
    if training and values == 1:
        raise ValueError(
            "batch_norm: expected more than one value per channel in training, got one (x of "
            f"shape {_shape(x)}{'' if mask is None else ', one valid position in the mask'}); one "
            "value has no variance: use a larger batch, evaluation mode or layer_norm"
        )


def weight_norm(v, g, dim):
    _floating("v", v)
    if dim is not None and (isinstance(dim, bool) or not isinstance(dim, Integral)):
        raise TypeError(f"dim must be an int or None, got {dim!r}")
    if dim is None or dim == -1:
        expected, meaning = (), "one norm for the whole of v"
    else:
        if v.dim() < 2 or not -v.dim() <= dim < v.dim():
            raise ValueError(
                f"dim must be a dimension of v, which must have at least two, or None for one "
                f"norm of the whole tensor; got dim={dim} and v of shape {_shape(v)}"
            )
        kept = dim % v.dim()
        expected = tuple(n if d == kept else 1 for d, n in enumerate(v.shape))
        meaning = f"one norm per index of dimension {dim}, for v of shape {_shape(v)}"
    _parameter("g", g, v, expected, meaning)


def dynamic_tanh(x, alpha, weight, bias):
    _floating("x", x)
    _one_number("alpha", alpha, x)
    for name, p in (("weight", weight), ("bias", bias)):
        if p is not None:
            _tensor(name, p)
            end = tuple(x.shape[x.dim() - min(p.dim(), x.dim()) :])
            _parameter(name, p, x, end, "the end of x's shape")


def dynamic_erf(x, alpha, shift, weight, bias):
    dynamic_tanh(x, alpha, weight, bias)
    _one_number("shift", shift, x)


def _groups(num_groups, num_channels: int) -> None:
    if isinstance(num_groups, bool) or not isinstance(num_groups, Integral):
        raise TypeError(f"num_groups must be an int, got {num_groups!r}")
    if num_groups < 1 or num_channels % num_groups:
        raise ValueError(
            f"num_groups must be positive and divide the number of channels, {num_channels}; "
            f"got {num_groups}"
        )


def on_device(name: str, t: Tensor, other: Tensor, whose: str) -> None:
    if t.device != other.device:
        raise ValueError(
            f"{name} must be on {whose} device {other.device}, got {t.device}; move one of them "
            "with .to(...)"
        )


def _readable(t: Tensor) -> bool:
    """Tell whether the values can be read: graph capture, transforms, fake and meta tensors have
    none yet."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or t.is_meta
        or hasattr(t, "fake_mode")
        or (t.is_cuda and torch.cuda.is_current_stream_capturing())
    )


def _shape(t: Tensor) -> tuple[int, ...]:
    return tuple(t.shape)


def _tensor(name: str, t) -> None:
    if not isinstance(t, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(t).__name__}")
    if t.is_nested or t.layout != torch.strided:
        kind, way = ("nested", "to_padded_tensor(0.0)") if t.is_nested else (t.layout, "to_dense()")
        raise ValueError(f"{name} must be a dense tensor, got a {kind} one; use {name}.{way}")


def _floating(name: str, t) -> None:
    _tensor(name, t)
    if t.dtype not in FLOATING:
        raise TypeError(
            f"{name} must be float16, bfloat16, float32 or float64, got {t.dtype}; convert it, "
            f"for instance with {name}.float()"
        )


def _channeled(name: str, x, least: int) -> None:
    _floating(name, x)
    if x.dim() < least:
        form = "(N, C, *spatial)" if least == 2 else "(N, C, *spatial) with a spatial dimension"
        raise ValueError(f"{name} must have shape {form}, got {_shape(x)}")


def _normalized_shape(shape, x: Tensor) -> None:
    if (
        not isinstance(shape, Sequence)
        or isinstance(shape, str)
        or not all(isinstance(n, Integral | torch.SymInt) for n in shape)
    ):
        raise TypeError(f"normalized_shape must be a sequence of ints such as (5,), got {shape!r}")
    if not shape or tuple(x.shape[-len(shape) :]) != tuple(shape):
        raise ValueError(
            f"normalized_shape must be the last dimension or dimensions of x, got "
            f"{tuple(shape)} for x of shape {_shape(x)}"
        )


def _per_channel(x: Tensor, **parameters) -> None:
    for name, p in parameters.items():
        _optional(name, p, x, (x.shape[1],), "the channels of x, dimension 1")


def _optional(name: str, p, x: Tensor, shape: tuple, meaning: str) -> None:
    if p is not None:
        _parameter(name, p, x, shape, meaning)


def _parameter(name: str, p, x: Tensor, shape: tuple, meaning: str, mixed: bool = True) -> None:
    _floating(name, p)
    if _shape(p) != shape:
        raise ValueError(f"{name} must have shape {shape} ({meaning}), got {_shape(p)}")
    _matching(name, p, x, mixed)


def _matching(name: str, p: Tensor, x: Tensor, mixed: bool) -> None:
    """The input's device, and its type or, where `mixed`, float32 beside a half-precision input,
    as in torch."""
    on_device(name, p, x, "the input's")
    mixed = mixed and x.dtype in (torch.float16, torch.bfloat16)
    if p.dtype == x.dtype or (mixed and p.dtype == torch.float32):
        return
    if torch.is_autocast_enabled(x.device.type):
        return  # autocast chooses the types itself
    raise TypeError(
        f"{name} must have the input's type {x.dtype}{' or float32' if mixed else ''}, got "
        f"{p.dtype}; convert one of them with .to(...)"
    )


def _running(x: Tensor, mean, var, needed: str) -> None:
    if (mean is None) != (var is None):
        raise ValueError(
            "running_mean and running_var must both be tensors or both be None, got "
            f"{'None' if mean is None else 'a tensor'} and "
            f"{'None' if var is None else 'a tensor'}"
        )
    if mean is None and needed:
        raise ValueError(
            f"running_mean and running_var must be tensors when {needed}=False, got None; pass "
            f"them or normalize by the input's own statistics with {needed}=True"
        )
    _per_channel(x, running_mean=mean, running_var=var)


def _mask(mask, x: Tensor) -> None:
    _tensor("mask", mask)
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask must be torch.bool (True = valid), got {mask.dtype}; convert it with .bool()"
        )
    expected = (x.shape[0], *x.shape[2:])
    if _shape(mask) != expected:
        raise ValueError(
            f"mask must have shape {expected}, x without its channels, for x of shape "
            f"{_shape(x)}; got {_shape(mask)}"
        )


def _one_number(name: str, value, x: Tensor) -> None:
    """A number, or a tensor that holds one, which may learn."""
    if isinstance(value, Tensor):
        _parameter(name, value, x, (), "one number for all units")
    else:
        _finite(name, value)


def _finite(name: str, value) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")


def _eps(eps) -> None:
    _finite("eps", eps)
    if eps < 0:
        raise ValueError(f"eps must be non-negative, for instance 1e-5, got {eps}")
