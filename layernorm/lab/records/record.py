"""One run: a configuration in, a record out. What a record holds and how it is written down."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from reprlib import repr as brief
from typing import Any

SCHEMA = 2
LARGEST = 2**63  # of integers; tables have no larger ones
PARTS = ("config", "result", "timing", "environment", "digest")
_CONFIG = ("experiment", "profile", "arm", "method", "seed", "options", "data")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class RecordError(ValueError):
    """A record that cannot be built, written or read; the message names it and what to do."""


@dataclass(frozen=True)
class Record:
    """One run of one arm with one seed.

    Args:
        config: `experiment` and `profile` (lower-case names), `arm`, `method`, `seed`, `options`
            (every further choice; finite numbers, strings, booleans, None, lists and dicts of
            these) and `data` (hash of the data, or None).
        result: `curves`, `{metric: {"step": [...], "value": [...]}}` with strictly increasing
            update counts, `final`, `{metric: value}`, and `diverged_at`, the update at which the
            run diverged (None: it did not). A run that diverged is a result: values may be NaN or
            infinite. Same configuration, machine and threads: the same bits.
        timing: seconds by name; `seconds_per_update` gives a curve its seconds. Finite.
        environment: where it ran, see `layernorm.lab.records.environment`.
        digest: of the code that decided it, see `layernorm.lab.records.staleness`.
        confirmed: of a published record whose arm was confirmed, see `experiments.confirm`:
            `digests` of the code that gives the same, `seed`, `difference` and `commit`.

    Arrays, tensors and scalars of numpy and torch are turned into lists and numbers.

    Raises:
        RecordError: naming the entry, what was expected and what came.
    """

    config: Mapping[str, Any]
    result: Mapping[str, Any]
    timing: Mapping[str, float | int] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    confirmed: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = {
            "config": check_config(self.config),
            "result": _check_result(self.result),
            "timing": {
                name: _number(value, f"timing[{name!r}]", finite=True)
                for name, value in self.timing.items()
            },
            "environment": _plain(self.environment, "environment"),
            "digest": self.digest,
            "confirmed": _plain(self.confirmed, "confirmed"),
        }
        for name, kind in {"environment": dict, "digest": str, "confirmed": dict}.items():
            if not isinstance(parts[name], kind):
                raise RecordError(f"{name} must be a {kind.__name__}; got {brief(parts[name])}")
        for code in parts["confirmed"].get("digests", ()):
            if not isinstance(code, str):
                raise RecordError(f"confirmed['digests'] must be strings; got {code!r}")
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    @cached_property
    def key(self) -> str:
        """Hash of the configuration; a run's file is called after it."""
        return _key(self.config)


def key(config: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits of the SHA-256 of a configuration.

    The order of its entries and the type of a whole number (1 or 1.0) make no difference.

    Raises:
        RecordError: as `Record` does for its `config`.
    """
    return _key(check_config(config))


def _key(checked: Mapping[str, Any]) -> str:
    return digest(_whole(checked))[:16]


def digest(value: Any) -> str:
    """SHA-256 of a value's canonical JSON text."""
    return hashlib.sha256(dumps(value).encode()).hexdigest()


def dumps(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def check_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration in plain Python, with `options` and `data` filled in where left out."""
    config = {"options": {}, "data": None, **_plain(config, "config")}
    for name in _CONFIG:
        if name not in config:
            raise RecordError(f"config lacks {name!r}; it has {', '.join(config)}")
    for name in config:
        if name not in _CONFIG:
            raise RecordError(f"config has no entry {name!r}: put further choices into 'options'")
    for name in ("experiment", "profile"):
        if not isinstance(config[name], str) or not _NAME.fullmatch(config[name]):
            raise RecordError(
                f"config[{name!r}] must be lower-case letters, digits and underscores, since files "
                f"are named after it; got {config[name]!r}"
            )
    for name in ("arm", "method"):
        if not isinstance(config[name], str) or not config[name]:
            raise RecordError(f"config[{name!r}] must be a name; got {config[name]!r}")
    if isinstance(config["seed"], bool) or not isinstance(config["seed"], int):
        raise RecordError(f"config['seed'] must be an integer; got {config['seed']!r}")
    if not isinstance(config["options"], dict):
        raise RecordError(f"config['options'] must be a dict; got {config['options']!r}")
    if not isinstance(config["data"], str | None):
        raise RecordError(f"config['data'] must be a hash or None; got {config['data']!r}")
    return config


def _check_result(result: Mapping[str, Any]) -> dict[str, Any]:
    for name in result:
        if name not in ("curves", "final", "diverged_at"):
            raise RecordError(f"result has no entry {name!r}, only curves, final and diverged_at")
    curves = {}
    for metric, curve in result.get("curves", {}).items():
        where = f"result['curves'][{metric!r}]"
        if set(curve) != {"step", "value"}:
            raise RecordError(f"{where} must have 'step' and 'value'; got {sorted(curve)}")
        steps = _listed(curve["step"])
        values = _plain_values(curve["value"], f"{where}['value']")
        if not isinstance(steps, list | tuple) or len(steps) != len(values):
            raise RecordError(
                f"{where} needs as many steps as values, {len(values)}; got {brief(steps)}"
            )
        counts = all(type(step) is int and 0 <= step < LARGEST for step in steps)
        if not counts or any(a >= b for a, b in pairwise(steps)):
            raise RecordError(
                f"{where}['step'] must be increasing counts of updates; got {brief(steps)}"
            )
        curves[metric] = {"step": list(steps), "value": values}
    final = {
        metric: _number(value, f"result['final'][{metric!r}]")
        for metric, value in result.get("final", {}).items()
    }
    if not curves and not final:
        raise RecordError("result must have 'curves' or 'final'; both are empty")
    for metric in (*curves, *final):
        if not isinstance(metric, str):
            raise RecordError(f"a metric's name must be a string; got {metric!r}")
    diverged_at = _listed(result.get("diverged_at"))
    if diverged_at is not None and (type(diverged_at) is not int or diverged_at < 0):
        raise RecordError(f"result['diverged_at'] must be an update or None; got {diverged_at!r}")
    return {"curves": curves, "final": final, "diverged_at": diverged_at}


def _plain_values(values: Any, where: str) -> list[float | int]:
    values = _listed(values)
    if not isinstance(values, list | tuple):
        raise RecordError(f"{where} must be a list of numbers; got {brief(values)}")
    return [value if type(value) is float else _number(value, where) for value in values]


def _listed(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _number(value: Any, where: str, *, finite: bool = False) -> float | int:
    value = _listed(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecordError(f"{where} must be a number; got {value!r}")
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise RecordError(f"{where} must be below 2**63; got {brief(value)}")
    if finite and not math.isfinite(value):
        raise RecordError(f"{where} must be finite; got {value!r}")
    return value


def _plain(value: Any, where: str) -> Any:
    """Value as JSON knows it, with nothing that would come back as something else."""
    value = _listed(value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return _number(value, where, finite=True)
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise RecordError(f"{where} must have strings as keys; got {name!r}")
        return {name: _plain(item, f"{where}[{name!r}]") for name, item in value.items()}
    raise RecordError(
        f"{where} must be a number, string, boolean, None, list or dict; "
        f"got {value!r} of type {type(value).__name__}"
    )


def _whole(value: Any) -> Any:
    """Whole floats as integers, where floats can tell neighbors apart."""
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def encode(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result for strict JSON: NaN and infinite values as "NaN", "Infinity" and "-Infinity"."""
    return _on_values(result, lambda v: v if math.isfinite(v) else json.dumps(v))


def decode(result: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `encode`."""
    return _on_values(result, lambda v: _SPECIAL.get(v, v) if isinstance(v, str) else v)


def _on_values(result: Mapping[str, Any], change: Any) -> dict[str, Any]:
    return {
        "curves": {
            metric: {"step": curve["step"], "value": [change(v) for v in curve["value"]]}
            for metric, curve in result["curves"].items()
        },
        "final": {metric: change(v) for metric, v in result["final"].items()},
        "diverged_at": result["diverged_at"],
    }
