"""Checks of what users pass to modules: their constructors' arguments, and inputs."""

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor

from layernorm._validation import _channeled, _eps, _finite, _floating, _groups, _shape, on_device


def settings(eps, momentum=None, num_groups=1, num_channels=1, **others) -> None:
    """The arguments of a module's constructor."""
    _eps(eps)
    named = {n: others[n] for n in ("normalized_shape", "num_features") if n in others}
    sizes(num_channels=num_channels, **named)
    if momentum is not None:
        _finite("momentum", momentum)
    _groups(num_groups, num_channels)


def rms_settings(eps, **others) -> None:
    """None stands for torch's default here alone."""
    settings(0.0 if eps is None else eps, **others)


def dynamic_settings(normalized_shape, alpha, shift=0.0, **others) -> None:
    """The arguments of `DynamicTanh` and `DynamicErf`."""
    sizes(normalized_shape=normalized_shape)
    _finite("alpha", alpha)
    _finite("shift", shift)


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
