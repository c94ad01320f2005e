"""The parts that the conversions share: the source's tensors, and the new layer's state."""

import re
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from layernorm.recurrent.layers import Layer


def state_of(source) -> dict[str, Tensor]:
    if not isinstance(source, nn.Module | Mapping):
        raise TypeError(f"source must be a module or its state dict, got {type(source).__name__}")
    return dict(source.state_dict() if isinstance(source, nn.Module) else source)


def checked(source: Mapping[str, np.ndarray | Tensor], shapes: Mapping[str, str]) -> dict:
    """The arrays that `shapes` names as tensors, of the first one's type and device.

    In a shape such as "H+I 4H" a letter, or sum, is the same size everywhere; "2" is a size.

    Raises: ValueError for other shapes, and types without floating point; TypeError for no array.
    """
    sizes: dict[str, int] = {}
    tensors: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        try:
            tensor = torch.as_tensor(source[name])
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{name} must be an array of numbers: {error}") from error
        if not tensor.is_floating_point():
            raise ValueError(f"{name} must hold floating-point numbers, got {tensor.dtype}")
        terms = [re.fullmatch(r"(\d*)([A-Z+]*)", term).groups() for term in shape.split()]
        known = ", ".join(f"{letter} = {sizes[letter]}" for _, letter in terms if letter in sizes)
        fits = tensor.dim() == len(terms)
        for (times, letter), size in zip(terms, tensor.shape, strict=False):
            factor = int(times or 1)
            expected = factor * (sizes.setdefault(letter, size // factor) if letter else 1)
            fits = fits and 0 < size == expected
        if not fits:
            raise ValueError(
                f"{name} must have shape ({', '.join(shape.split())})"
                f"{f' with {known}' if known else ''}, got {tuple(tensor.shape)}"
            )
        tensors[name] = tensor.to(next(iter(tensors.values()), tensor))
    return tensors


def like(weight: Tensor) -> dict:
    return {"device": weight.device, "dtype": weight.dtype}


def taken(options: dict, *names: str) -> None:
    """Everything else is the source's own."""
    if others := sorted(set(options) - set(names)):
        raise TypeError(f"options must be among {', '.join(names)}, got {', '.join(others)}")


def load(new: Layer, state: dict[str, Tensor]) -> Layer:
    """Load the state; parameters that it lacks keep their start, gains 1 and all others 0."""
    own = new.state_dict()
    for name, value in state.items():
        if name not in own or value.shape != own[name].shape:
            expected = f"shape {tuple(own[name].shape)}" if name in own else "no such parameter"
            raise ValueError(f"{name} from source: expected {expected}, got {tuple(value.shape)}")
    new.load_state_dict(own | state)
    return new
