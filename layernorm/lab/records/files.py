"""Run files: one JSON per run, complete or absent."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from layernorm.lab.records.environment import environment
from layernorm.lab.records.record import (
    PARTS,
    SCHEMA,
    Record,
    RecordError,
    decode,
    digest,
    dumps,
    encode,
    key,
)
from layernorm.lab.records.staleness import Root
from layernorm.lab.records.staleness import digest as code_digest

Built = TypeVar("Built")
UNFIT = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)


def new(
    config: Mapping[str, Any],
    result: Mapping[str, Any],
    timing: Mapping[str, float | int] | None = None,
    depends_on: Iterable[Root] = (),
) -> Record:
    """A record of a run that just took place here: fills in environment and digest.

    Args:
        depends_on: the functions and classes that the run started from, see `staleness.digest`.

    Raises:
        RecordError: a part breaks the rules of `Record`, or there is no such code.
    """
    made = Record(config, result, timing or {}, environment())
    return replace(made, digest=code_digest(depends_on, made.config, made.environment))


def path(config: Mapping[str, Any], root: str | Path | None = None) -> Path:
    """The file of the run of this configuration, `<root>/<experiment>/<profile>/<key>.json`.

    Args:
        root: default `$LAYERNORM_RUNS`, else `./runs`.
    """
    folder = runs_folder(root) / config["experiment"] / config["profile"]
    return folder / f"{key(config)}.json"


def runs_folder(root: str | Path | None = None) -> Path:
    """The folder of own runs."""
    return Path(root if root is not None else os.environ.get("LAYERNORM_RUNS") or "runs")


def save(record: Record, root: str | Path | None = None) -> Path:
    """Writes a record in place of an earlier one of the same configuration; returns its path. It
    stands before a published one, too: what was confirmed of that goes with it.

    Raises:
        OSError: the folder cannot be written to; nothing half-written stays.
    """
    document = {"schema": SCHEMA, **{part: getattr(record, part) for part in PARTS}}
    document["result"] = encode(record.result)
    if record.confirmed:
        document["confirmed"] = record.confirmed
    target = path(record.config, root)
    write(target, dumps({**document, "sha256": digest(document)}) + "\n")
    return target


def write(target: Path, text: str) -> None:
    """As `write_bytes`, in UTF-8."""
    write_bytes(target, text.encode())


def write_bytes(target: Path, *parts: bytes | memoryview) -> None:
    """Puts a whole file in place at once: temporary name, fsync, rename.

    Raises `OSError` (a full disk, no permission): an earlier file is then still there, whole.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: str | Path) -> Record:
    """The record in a run's file.

    Raises:
        RecordError: the file is missing, truncated, changed since it was written, of another
            version, or named after another run; the message names it and says what to do.
    """
    path = Path(path)
    if not path.is_file():
        raise RecordError(
            f"there is no record {path}" if not path.exists() else f"{path} is no file"
        )
    named = re.fullmatch(r"[0-9a-f]{16}\.json", path.name) is not None
    remedy = "delete it and run again" if named else "a run's file is called <key>.json"

    def build(document: dict[str, Any]) -> Record:
        parts = {**document, "result": decode(document["result"])}
        return Record(**{part: parts[part] for part in PARTS}, confirmed=parts.get("confirmed", {}))

    record = parse(path.read_bytes(), str(path), remedy, build)
    if named and record.key != path.stem:
        of = record.config
        raise RecordError(
            f"{path} holds the run of another name, {of['experiment']} {of['profile']} {of['arm']} "
            f"seed {of['seed']}, whose key is {record.key}: {remedy}"
        )
    return record


def parse(
    content: bytes, name: str, remedy: str, build: Callable[[dict[str, Any]], Built]
) -> Built:
    """Return `build` of the JSON object in a sealed file, its schema and its hash checked."""

    def refuse_constant(constant: str) -> None:
        raise ValueError(f"bare {constant}")

    try:
        document = json.loads(content.decode(), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{name} is truncated or no JSON ({error}): {remedy}") from error
    if not isinstance(document, dict) or "schema" not in document:
        raise RecordError(f"{name} is not a record, it lacks 'schema': {remedy}")
    if document["schema"] != SCHEMA:
        raise RecordError(
            f"{name} has schema {document['schema']!r}, this version of layernorm reads "
            f"{SCHEMA}: install the version that wrote it, or {remedy}"
        )
    try:
        expected, actual = document.pop("sha256", None), digest(document)
        if expected == actual:
            return build(document)
    except UNFIT as error:
        why = error if isinstance(error, ValueError) else repr(error)
        raise RecordError(f"{name} is not a record of a run ({why}): {remedy}") from error
    raise RecordError(
        f"{name} was changed after it was written (sha256 {actual}, expected {expected}): {remedy}"
    )
