"""Options of an experiment's runs: typed and checked; an error names the allowed values."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from layernorm.lab.nearest import hint

Count = Annotated[int, Field(ge=1, le=10**9)]  # more takes years, or terabytes
MOST_READINGS = 100_000
Positive = Annotated[float, Field(gt=0)]


class CommonOptions(BaseModel):
    """The choices that decide a run's outcome, besides its seed; every experiment adds its own.

    `updates` with Adam at `learning_rate`, on batches of `batch_size` cases. `evaluations`:
    how many times the curves are read, evenly over the updates, besides the start. `rescaled`: the
    control, no normalization, but weights scaled so that summed inputs start with unit variance.
    `examples`: train on that many first examples alone, None for all. Not an option of a run but
    the same for all of an experiment: `fused`, whether Adam is torch's fused one (None: torch's
    default), whose last bits are others.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    fused: ClassVar[bool | None] = True

    method: str = "none"
    learning_rate: Positive = 1e-3
    batch_size: Count = 128
    updates: Count = 1000
    evaluations: Count = 20
    rescaled: bool = False
    examples: Count | None = None

    def check(self) -> None:
        """Raise `ValueError` for options that do not fit together. Experiments extend it."""
        if self.evaluations > self.updates:
            raise ValueError(
                f"evaluations must be at most updates ({self.updates}), got {self.evaluations}"
            )
        if self.evaluations > MOST_READINGS:
            raise ValueError(
                f"evaluations must be at most {MOST_READINGS}, as all are kept in memory, "
                f"got {self.evaluations}"
            )
        if self.rescaled and self.method != "none":
            raise ValueError(
                f"rescaled is the control of method 'none', got method {self.method!r}; "
                "leave one of the two out"
            )
        if self.examples is not None and self.batch_size > self.examples:
            raise ValueError(
                f"batch_size {self.batch_size} exceeds the {self.examples} training examples; use "
                "a smaller batch_size or more examples"
            )


class Options(CommonOptions):
    """Options with `clip`: the gradient's norm is cut there, None: not; and `precision`: `bfloat16`
    computes under autocast."""

    clip: Positive | None = None
    precision: Literal["float32", "bfloat16"] = "float32"


AnyOptions = TypeVar("AnyOptions", bound=CommonOptions)


def make(kind: type[AnyOptions], values: Mapping[str, Any]) -> AnyOptions:
    """Options of that kind with these values, the rest as they are by default.

    Raises `ValueError` naming each option that is unknown (and the nearest one that there is) or
    whose value does not fit.
    """
    for name in values:
        if name not in kind.model_fields:
            raise ValueError(f"unknown option {name!r}; {hint(name, kind.model_fields)}")
    try:
        text = json.dumps(values)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"options must be numbers, strings, lists or None: {error}") from None
    try:
        made = kind.model_validate_json(text, strict=True)  # JSON, as a list there may be a tuple
    except ValidationError as error:
        raise ValueError("; ".join(_sentence(problem) for problem in error.errors())) from None
    made.check()
    return made


def _sentence(problem: Mapping[str, Any]) -> str:
    name = ".".join(str(part) for part in problem["loc"]) or "options"
    said = problem["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return f"{name}: the value {said}, got {reprlib.repr(problem['input'])}"


def assigned(texts: list[str]) -> dict[str, Any]:
    """`key=value` texts as options: a value is JSON (`0.01`, `true`, `[100, 100]`), else a string.

    >>> assigned(["learning_rate=0.01", "hidden=[64, 64]", "method=layer"])
    {'learning_rate': 0.01, 'hidden': [64, 64], 'method': 'layer'}

    Raises `ValueError` for a text without `=`, an option given twice, and JSON that is too deep or
    a number that is too long to be read.
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"expected key=value, for instance learning_rate=0.01, got {text!r}")
        if name in values:
            raise ValueError(f"option {name!r} is given twice")
        try:
            values[name] = json.loads(value)
        except json.JSONDecodeError:
            values[name] = value
        except (ValueError, RecursionError) as error:
            raise ValueError(f"option {name!r} cannot be read: {error}") from None
    return values
