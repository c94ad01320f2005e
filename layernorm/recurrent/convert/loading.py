"""The parts that the conversions share: the source's tensors, and the new layer's state."""

import re
from collections.abc import Collection, Mapping

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


def epsilons(source, *norms: str) -> set[float | None]:
    """The eps of a module's norms that are called so, None of those without; none of a state
    dict."""
    inside = source.named_modules() if isinstance(source, nn.Module) else ()
    found = [module for path, module in inside if path.rpartition(".")[2] in norms]
    return {getattr(norm, "eps", None) for norm in found}


def constant(name: str, given: float | None, usual: float, own: Collection[float | None]) -> float:
    """A number of the source's equations that its arrays do not hold.

    Args:
        given: by the caller; None: nothing.
        usual: what holds where neither the caller nor the source says it.
        own: what the source's modules have, None of those without; empty for a state dict.

    Raises: ValueError where they have several numbers, another one than is given, or none and none
    is given.
    """
    if not own:
        return usual if given is None else given
    there = set(own) - {None}
    known = set(own) if given is None else there | {given}
    if len(known) != 1 or None in known:
        raise ValueError(
            f"{name} must be one number: source's modules have "
            f"{' and '.join(map(str, sorted(there))) or 'none'}, got {given}; give it where they "
            "have none, else leave it out, or give another beside source.state_dict()"
        )
    return float(known.pop())


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


def as_in(source, new: Layer, origins: Mapping[str, Collection[str]]) -> Layer:
    """The layer in a module's mode, and frozen what is frozen there; of a state dict as it is.

    Args:
        origins: the source's names for each parameter; it is frozen where all of them are.
    """
    if not isinstance(source, nn.Module):
        return new
    theirs = source.named_parameters(remove_duplicate=False)
    frozen = {name for name, parameter in theirs if not parameter.requires_grad}
    for name, names in origins.items():
        new.get_parameter(name).requires_grad_(not frozen.issuperset(names))
    return new.train(source.training)
