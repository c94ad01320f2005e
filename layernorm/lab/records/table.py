"""Own and published runs together, as records and as one tidy table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from layernorm.lab.nearest import hint
from layernorm.lab.records.files import path, read, runs_folder
from layernorm.lab.records.published import published
from layernorm.lab.records.record import Record, RecordError
from layernorm.lab.records.staleness import stale

if TYPE_CHECKING:
    import pandas

COLUMNS = (
    "experiment",
    "profile",
    "arm",
    "method",
    "seed",
    "step",
    "seconds",
    "metric",
    "value",
    "options",
)

_scope: ContextVar[str | Path] = ContextVar("_scope", default="own and published")


@contextmanager
def published_only() -> Iterator[None]:
    """Within it, own runs are as if they were not there: what is read is the same for everyone."""
    with _reading("published"):
        yield


@contextmanager
def only_own(root: Path) -> Iterator[None]:
    """Within it, the runs under this folder are all there are."""
    with _reading(root):
        yield


@contextmanager
def _reading(scope: str | Path) -> Iterator[None]:
    token = _scope.set(scope)
    try:
        yield
    finally:
        _scope.reset(token)


def own(
    experiment: str | None = None, profile: str | None = None, root: str | Path | None = None
) -> list[Record]:
    """The runs saved under `root` (default `$LAYERNORM_RUNS`, else `./runs`).

    Raises:
        RecordError: a file is damaged, of another version, or not where its run belongs.
    """
    files = runs_folder(root).glob(f"{experiment or '*'}/{profile or '*'}/*.json")
    found = []
    for file in sorted(file for file in files if not file.name.startswith(".")):
        found.append(read(file))
        belongs = path(found[-1].config, root)
        if file != belongs:
            raise RecordError(f"{file} holds the run of {belongs}: move it there, or delete it")
    return found


def runs(
    experiment: str | None = None, profile: str | None = None, root: str | Path | None = None
) -> list[Record]:
    """Published and own runs, by experiment, profile, arm and seed; none is an empty list.

    An own run takes the place of the published one of the same configuration.

    Raises:
        RecordError: a file is damaged or of another version.
    """
    scope = _scope.get()
    if isinstance(scope, Path):
        found = own(experiment, profile, scope)
    else:
        found = published(experiment, profile)
        found += own(experiment, profile, root) if scope != "published" else []
    by_key = {record.key: record for record in found}

    def order(record: Record) -> tuple:
        config = record.config
        return config["experiment"], config["profile"], config["arm"], config["seed"], record.key

    return sorted(by_key.values(), key=order)


def load(name: str, profile: str | None = None, root: str | Path | None = None) -> pandas.DataFrame:
    """The runs of an experiment as a tidy table, one row per metric, step and run.

    Columns: experiment, profile, arm, method, seed, step (updates done, as a float; NaN for a final
    metric), seconds (step × the run's `seconds_per_update`; NaN where that is not known), metric,
    value, options (a dict).

    Raises:
        RecordError: there is no run, or a file is damaged or of another version.
    """
    found = runs(name, profile, root)
    if not found:
        known = sorted({record.config["experiment"] for record in runs(root=root)})
        of = name if profile is None else f"{name} in profile {profile!r}"
        raise RecordError(f"there is no record of {of}; {hint(name, known)}")
    return tidy(found)


def tidy(found: Iterable[Record]) -> pandas.DataFrame:
    """These runs as `load` gives them."""
    import pandas

    columns: dict[str, list] = {column: [] for column in COLUMNS}
    for record in found:
        second = record.timing.get("seconds_per_update", math.nan)
        rows = [
            (step, step * second, metric, value)
            for metric, curve in sorted(record.result["curves"].items())
            for step, value in zip(curve["step"], curve["value"], strict=True)
        ]
        final = sorted(record.result["final"].items())
        rows += [(math.nan, math.nan, metric, value) for metric, value in final]
        measured = zip(("step", "seconds", "metric", "value"), zip(*rows, strict=True), strict=True)
        for column, values in measured:
            columns[column] += values
        for column in ("experiment", "profile", "arm", "method", "seed", "options"):
            columns[column] += [record.config[column]] * len(rows)
    return pandas.DataFrame(columns).astype({"step": float, "seconds": float, "value": float})


def staleness_banner(source: str | pandas.DataFrame, profile: str | None = None) -> str:
    """One sentence if runs of an experiment (its name, or a table from `load`) are stale, else "".

    Never raises: a book is built from stale, missing and damaged records too, and says so.
    """
    try:
        if isinstance(source, str):
            found = runs(source, profile)
        else:
            pairs = source[["experiment", "profile"]].drop_duplicates().to_numpy()
            found = [record for pair in pairs for record in runs(*pair)]
        changed = [roots for record in found if (roots := stale(record))]
    except Exception as error:  # RecordError, OSError, and what nobody thought of
        return f"Records cannot be read: {error}."
    if not changed:
        return ""
    names = sorted({name for roots in changed for name in roots.split(", ")})
    return (
        f"{len(changed)} of {len(found)} runs were made before the code they depend on changed "
        f"(from {', '.join(names)})."
    )
