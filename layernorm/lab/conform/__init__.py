"""Find the formula of a normalization, and its faults. ::

    layernorm conform torch.nn:LayerNorm
    layernorm conform my_package.layers:RMSNorm --set eps=1e-6

`identify` finds the formula from outputs alone (`form`): over which axes the statistics are taken,
whether the mean is subtracted, which variance divides, where ε stands and how large it is, what the
parameters do. `faults` then tries what formulas do not show: other cases, rounding, half precision,
gradients, of the parameters as well (`faults`). `conform` does both.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from torch import nn

from layernorm.lab.conform.faults import Fault, faults
from layernorm.lab.conform.form import Form, Unknown, identify
from layernorm.lab.conform.published import names

__all__ = ["Fault", "Form", "Report", "Unknown", "conform", "find", "identify"]


@dataclass(frozen=True)
class Report:
    """The findings of `conform`: the formula, or why there is none, and the faults."""

    form: Form | None
    why: str
    faults: tuple[Fault, ...]

    @property
    def conforms(self) -> bool:
        """Tell whether it is a formula of the family, without faults."""
        return self.form is not None and not self.faults

    def lines(self) -> list[str]:
        """The report as text, a line for each thing that was found."""
        if self.form is None:
            return [f"no formula of the family fits: {self.why}"]
        known = names(self.form)
        lines = [self.form.equation(), *self.form.notes()]
        lines += [f"as published: {'; '.join(known)}" if known else "published by nobody we know"]
        return lines + ([f"fault: {fault}" for fault in self.faults] or ["no fault found"])

    def as_json(self) -> dict[str, Any]:
        """The report as values of JSON."""
        return asdict(self) | {"conforms": self.conforms, "lines": self.lines()}


def conform(module: nn.Module, shape: tuple[int, ...] = (4, 5, 8)) -> Report:
    """Judge a copy of a normalization by its outputs on inputs of a shape, cases first.

    Raises:
        ValueError: the shape has fewer than two dimensions, cases or units, or none of an axis
            between; the module fails, or returns no tensor of the input's shape.
    """
    try:
        module = copy.deepcopy(module)
    except Exception as error:  # of any kind: it is somebody else's code
        raise ValueError(f"it cannot be copied: {type(error).__name__}: {error}") from error
    try:
        form = identify(module, shape)
    except Unknown as unknown:
        return Report(None, str(unknown), ())
    except ValueError:
        raise
    except Exception as error:  # of any kind: it is somebody else's code
        seen = f"{type(error).__name__}: {error}"
        raise ValueError(f"it fails on inputs of shape {shape} in float64: {seen}") from error
    return Report(form, "", tuple(faults(module, form, shape)))


def find(path: str, options: Mapping[str, Any], units: int) -> nn.Module:
    """The module that `package.module:Name` stands for: a class is called with the number of units,
    unless its only arguments are options; a module is taken as it is, another function is wrapped.

    Raises:
        ValueError: the path has another form, nothing of that name is there, or the class does not
            take these arguments.
    """
    place, _, name = path.partition(":")
    if not (place and name):
        raise ValueError(f"expected package.module:Class, got {path!r}")
    try:
        found = import_module(place)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"there is no {path}: {error}") from error
    except Exception as error:  # of any kind: it is somebody else's code
        seen = f"{type(error).__name__}: {error}"
        raise ValueError(f"{place} cannot be imported: {seen}") from error
    if isinstance(found, type) and issubclass(found, nn.Module):
        return _made(path, found, options, units)
    if isinstance(found, nn.Module):
        return found
    if not callable(found) or isinstance(found, type):
        raise ValueError(f"{path} is neither a torch.nn.Module nor a function of a tensor")
    return _Function(found, options)


def _made(path: str, found: type[nn.Module], options: Mapping[str, Any], units: int) -> nn.Module:
    try:
        return found(units, **options)
    except TypeError as error:
        try:
            return found(**options)
        except Exception:  # of any kind, too
            raise ValueError(f"{path}({units}, ...) failed: {error}; see --set") from error
    except Exception as error:  # of any kind, too
        seen = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path}({units}, ...) failed: {seen}; see --set") from error


class _Function(nn.Module):
    """A function of a tensor as a module."""

    def __init__(self, function: Any, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.function, self.options = function, dict(options)

    def forward(self, x: Any) -> Any:
        return self.function(x, **self.options)
