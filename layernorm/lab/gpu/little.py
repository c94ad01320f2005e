"""What stands in for pydantic on a machine that is had for half an hour and lacks it.

Experiments' options are classes of pydantic. Here is as much of it as they use: fields with
defaults, types and bounds, checked strictly; `model_validate_json`, `model_dump`, `model_fields`.
What comes of a plan's options is the same to the last digit, which a test compares for every arm of
every profile. Wherever pydantic is installed, nothing of this is used.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints


def install() -> bool:
    """Put it where pydantic is imported from, if that is absent; returns whether it was."""
    if sys.modules.get("pydantic") or find_spec("pydantic") is not None:
        return False
    made = ModuleType("pydantic", __doc__)
    vars(made).update(
        BaseModel=BaseModel, ConfigDict=dict, Field=Bounds, ValidationError=ValidationError
    )
    sys.modules["pydantic"] = made
    return True


class ValidationError(ValueError):
    """Values that do not fit, as `errors` lists them."""

    def __init__(self, found: list[dict[str, Any]]) -> None:
        super().__init__(found)
        self.found = found

    def errors(self) -> list[dict[str, Any]]:
        return self.found


class Bounds:
    """Bounds of a number: `ge`, `gt`, `le`, `lt`."""

    WORDS: ClassVar[dict[str, tuple[str, Callable[[Any, float], bool]]]] = {
        "ge": ("greater than or equal to", lambda value, bound: value >= bound),
        "gt": ("greater than", lambda value, bound: value > bound),
        "le": ("less than or equal to", lambda value, bound: value <= bound),
        "lt": ("less than", lambda value, bound: value < bound),
    }

    def __init__(self, **bounds: float) -> None:
        if unknown := bounds.keys() - self.WORDS.keys():
            raise TypeError(f"bounds are {', '.join(self.WORDS)}; got {', '.join(sorted(unknown))}")
        self.bounds = bounds

    def check(self, value: Any) -> None:
        for name, bound in self.bounds.items():
            words, fits = self.WORDS[name]
            if value is not None and not fits(value, bound):
                raise ValueError(f"should be {words} {bound}")


class BaseModel:
    """Fields are a class's annotations and those of the classes that it extends."""

    model_config: ClassVar[dict[str, Any]] = {}
    model_fields: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        hints = get_type_hints(cls, include_extras=True)
        fields = {name: kind for name, kind in hints.items() if get_origin(kind) is not ClassVar}
        order = [*cls.model_fields, *(name for name in fields if name not in cls.model_fields)]
        cls.model_fields = {name: fields[name] for name in order if name in fields}

    def __init__(self, **values: Any) -> None:
        found, problems = {}, []
        for name, value in values.items():
            try:
                if name not in self.model_fields:
                    raise ValueError("is not permitted")
                found[name] = fitting(value, self.model_fields[name])
            except ValueError as error:
                problems.append({"loc": (name,), "msg": str(error), "input": value})
        if problems:
            raise ValidationError(problems)
        for name in self.model_fields:
            value = found[name] if name in found else getattr(type(self), name)
            object.__setattr__(self, name, value)

    @classmethod
    def model_validate_json(cls, text: str, strict: bool = True) -> Any:
        return cls(**json.loads(text))

    def model_dump(self, **how: Any) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.model_fields}

    def __setattr__(self, name: str, value: Any) -> None:
        raise ValidationError([{"loc": (name,), "msg": "is frozen", "input": value}])

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), tuple(vars(self).values())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in vars(self).items())})"


def fitting(value: Any, kind: Any) -> Any:
    """A value of JSON as one of that type: lists become tuples, integers floats.

    Raises:
        ValueError: it is of another type, or out of bounds.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        value = fitting(value, parts[0])
        for bounds in parts[1:]:
            bounds.check(value)
        return value
    if origin in (Union, UnionType):
        return _first(value, parts)
    if origin is Literal:
        if not any(value == one and type(value) is type(one) for one in parts):
            raise ValueError(f"should be {' or '.join(map(repr, parts))}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError("should be a valid tuple")
        kinds = [parts[0]] * len(value) if parts[1:] == (...,) else list(parts)
        if len(kinds) != len(value):
            raise ValueError(f"should have {len(kinds)} items")
        return tuple(fitting(one, of) for one, of in zip(value, kinds, strict=True))
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind and not (kind is NoneType and value is None):
        raise ValueError(f"should be a valid {getattr(kind, '__name__', kind)}")
    if kind is float and not math.isfinite(value):
        raise ValueError("should be a finite number")
    return value


def _first(value: Any, kinds: tuple[Any, ...]) -> Any:
    """The value as the first of these types that it fits."""
    problems = []
    for kind in kinds:
        try:
            return fitting(value, kind)
        except ValueError as error:
            problems.append(str(error))
    raise ValueError(" or ".join(problems))
