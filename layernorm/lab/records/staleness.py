"""Whether the code that a record depends on has changed since the run.

A module's hash is taken over its syntax tree without docstrings, so comments, layout and
documentation may change. A stale record is told, never an error.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from layernorm.lab.records.record import Record, RecordError


def module_hash(name: str) -> str:
    """Sixteen hexadecimal digits for a module's code; a package stands for all its modules.

    Raises:
        RecordError: there is no such module, or its source cannot be read.
    """
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.has_location:
        raise RecordError(f"there is no module {name!r} with source code to depend on")
    if spec.submodule_search_locations is None:
        files = {"": Path(spec.origin)}
    else:
        roots = [Path(root) for root in spec.submodule_search_locations]
        files = {
            file.relative_to(root).as_posix(): file for root in roots for file in root.rglob("*.py")
        }
    try:
        parts = [(name, _file_hash(file, file.stat().st_mtime_ns)) for name, file in files.items()]
    except (OSError, SyntaxError, ValueError) as error:
        raise RecordError(f"the source of module {name!r} cannot be read: {error}") from error
    return hashlib.sha256(repr(sorted(parts)).encode()).hexdigest()[:16]


@lru_cache(maxsize=1024)
def _file_hash(file: Path, changed: int) -> str:
    """Of the code in a file that was last changed at that time."""
    return hashlib.sha256(repr(shape(ast.parse(file.read_bytes()))).encode()).hexdigest()


def shape(node: object) -> object:
    """A tree as nested tuples. Empty fields are left out, as Python's versions differ in them
    (`ast.dump` of one file differs between 3.11, 3.12 and 3.13)."""
    if isinstance(node, list):
        return tuple(shape(item) for item in node)
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = fields["body"][1:]
    kept = {name: value for name, value in fields.items() if value not in (None, [])}
    if isinstance(node, ast.Constant):
        kept["value"] = node.value
    return (type(node).__name__, *((name, shape(value)) for name, value in sorted(kept.items())))


def hashes(modules: Iterable[str]) -> dict[str, str]:
    """`{module: hash}` as a record keeps it.

    Raises:
        RecordError: one of them does not exist.
    """
    return {name: module_hash(name) for name in sorted(set(modules))}


def stale(record: Record | Mapping[str, str]) -> list[str]:
    """The modules (of a record, or of its `depends`) that changed or are gone since the run."""
    depends = record.depends if isinstance(record, Record) else record
    return [name for name, old in sorted(depends.items()) if _hash_or_none(name) != old]


def _hash_or_none(name: str) -> str | None:
    try:
        return module_hash(name)
    except Exception:  # a package whose import fails makes a record stale, not unreadable
        return None
