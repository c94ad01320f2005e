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


def ln_rnn_step(x, h, w_ih, w_hh, ln, eps, nonlinearity):
    _step(x, h, w_ih, w_hh, gates=1)
    _pair("ln", ln, x, (h.shape[-1],))
    _eps(eps)
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f'nonlinearity must be "tanh" or "relu", got {nonlinearity!r}')


def ln_lstm_step(x, h, c, w_ih, w_hh, b, ln_ih, ln_hh, ln_c, eps, w_hr=None):
    hidden = _projected(c, w_hr)
    _step(x, h, w_ih, w_hh, gates=4, hidden=hidden)
    hidden = hidden or h.shape[-1]
    same = "the shape of h" if w_hr is None else "the batch of h, hidden size"
    _parameter("c", c, x, (*h.shape[:-1], hidden), same, mixed=False)
    if w_hr is not None:
        _parameter("w_hr", w_hr, x, (h.shape[-1], hidden), "projected, hidden", mixed=False)
    _parameter("b", b, x, (4 * hidden,), "4 * hidden size", mixed=False)
    _pair("ln_ih", ln_ih, x, (4 * hidden,))
    _pair("ln_hh", ln_hh, x, (4 * hidden,))
    _pair("ln_c", ln_c, x, (hidden,))
    _eps(eps)


def ln_gru_step(x, h, w_ih, w_hh, b, ln_ih, ln_hh, eps):
    _step(x, h, w_ih, w_hh, gates=3)
    _parameter("b", b, x, (3 * h.shape[-1],), "3 * hidden size", mixed=False)
    _pair("ln_ih", ln_ih, x, (3 * h.shape[-1],))
    _pair("ln_hh", ln_hh, x, (3 * h.shape[-1],))
    _eps(eps)


def settings(eps, momentum=None, num_groups=1, num_channels=1, **others) -> None:
    """The arguments of a module's constructor."""
    _eps(eps)
    named = {n: others[n] for n in ("normalized_shape", "num_features") if n in others}
    sizes(num_channels=num_channels, **named)
    if momentum is not None:
        _finite("momentum", momentum)
    _groups(num_groups, num_channels)


def dynamic_settings(normalized_shape, alpha, shift=0.0, **others) -> None:
    """The arguments of `DynamicTanh` and `DynamicErf`."""
    sizes(normalized_shape=normalized_shape)
    _finite("alpha", alpha)
    _finite("shift", shift)


def rms_settings(eps, **others) -> None:
    """None stands for torch's default here alone."""
    settings(0.0 if eps is None else eps, **others)


def sizes(**named) -> None:
    """Sizes of a module: ints that are not negative, or sequences of them."""
    for name, value in named.items():
        for n in value if isinstance(value, Sequence) else (value,):
            if isinstance(n, bool) or not isinstance(n, Integral):
                raise TypeError(
                    f"{name} must be an int, or ints where it is a shape, got {value!r}"
                )
            if n < 0:
                raise ValueError(f"{name} must not be negative, got {value}; give sizes, not axes")


def not_scriptable(module) -> None:
    """The refusal of torch.jit.script, raised by a module's `__prepare_scriptable__`."""
    raise TypeError(
        f"torch.jit.script cannot compile {type(module).__name__}; use torch.jit.trace, "
        "torch.compile or torch.export"
    )


def features(x, channels: int) -> None:
    """The channels of a module's input."""
    _channeled("input", x, least=2)
    if x.shape[1] != channels:
        raise ValueError(
            f"input must have {channels} channels in dimension 1, as the module was made for, got "
            f"shape {_shape(x)}; channels last? use x.movedim(-1, 1)"
        )


def linear(x, weight: Tensor) -> None:
    """The input of a linear layer."""
    _floating("input", x)
    if x.dim() < 1 or x.shape[-1] != weight.shape[1]:
        raise ValueError(f"input must have shape (*batch, {weight.shape[1]}), got {_shape(x)}")
    on_device("input", x, weight, "the weights'")
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(
            f"input must have the weights' type {weight.dtype}, got {x.dtype}; convert one of them "
            "with .to(...)"
        )


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


def _projected(c, w_hr) -> int | None:
    """The hidden size where a projection makes it another than that of h."""
    if w_hr is None:
        return None
    _floating("c", c)
    if c.dim() < 1:
        raise ValueError(f"c must have shape (*batch, hidden), got {_shape(c)}")
    return c.shape[-1]


def _step(x, h, w_ih, w_hh, gates: int, hidden: int | None = None) -> None:
    for name, t in (("x", x), ("h", h), ("w_ih", w_ih), ("w_hh", w_hh)):
        _floating(name, t)
    if x.dim() < 1 or h.dim() < 1 or x.shape[:-1] != h.shape[:-1]:
        raise ValueError(
            "x (*batch, inputs) and h (*batch, hidden) must agree in the batch, got "
            f"{_shape(x)} and {_shape(h)}"
        )
    _matching("h", h, x, mixed=False)
    rows = gates * (hidden or h.shape[-1])
    stacked = "hidden" if gates == 1 else f"{gates} * hidden"
    for name, w, source in (("w_ih", w_ih, x), ("w_hh", w_hh, h)):
        expected = (rows, source.shape[-1])
        recurrent = "hidden" if hidden is None else "projected"
        meaning = f"({stacked}, {'inputs' if source is x else recurrent})"
        _parameter(name, w, x, expected, meaning, mixed=False)


def _pair(name: str, ln, x: Tensor, shape: tuple) -> None:
    if not isinstance(ln, tuple | list) or len(ln) != 2:
        raise TypeError(f"{name} must be a pair (gain, bias) of tensors, got {type(ln).__name__}")
    for part, p in zip(("gain", "bias"), ln, strict=True):
        _parameter(f"{name}'s {part}", p, x, shape, "the size it normalizes", mixed=False)
