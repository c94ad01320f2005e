"""Staleness: has the code that decided a record changed since the run?

A record's digest is text: the names of the definitions that the run started from, and a hash of all
that they reach for a run of its configuration (`closure`). A name is looked up in the whole
package, so that what it names may move. A stale record is told, never an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from itertools import islice, product
from pathlib import Path
from types import ModuleType
from typing import Any

from layernorm.lab.records.closure import Code
from layernorm.lab.records.environment import environment as where
from layernorm.lab.records.names import PACKAGE, Name
from layernorm.lab.records.record import Record, RecordError

Root = str | ModuleType | Callable[..., Any]
FOLDER = Path(__file__).parents[2]
MOST = 64  # ways to read names that several modules define


@cache
def code() -> Code:
    """The package's code as it is when this is first called: a process runs the code that it has
    imported, whatever is edited meanwhile. Called where a run or a sweep begins."""
    return Code(FOLDER)


def digest(
    roots: Iterable[Root], config: Mapping[str, Any], environment: Mapping[str, Any] | None = None
) -> str:
    """The digest of a run: "" without roots.

    Args:
        roots: the functions and classes that the run starts from, modules (all that they define),
            or either by its full name.
        environment: where it runs; default: here.

    Raises:
        RecordError: there is no such definition, or its source cannot be read.
    """
    try:
        here, named = code(), {}
        for root in roots:
            named |= dict([_named(here, root)])
        names = [name for group in named.values() for name in group]
        environment = where() if environment is None else environment
        return " ".join([*sorted(named), _of(here, names, config, environment)]) if named else ""
    except (OSError, SyntaxError) as error:
        raise RecordError(f"the source of what a run depends on cannot be read: {error}") from error


def stale(record: Record) -> str:
    """The roots of a run, if code that it reaches has changed since, and what it is now is
    not confirmed to give the same; else ""."""
    of_run = record.config, record.environment
    since = changed(record.digest, *of_run)
    known = record.confirmed.get("digests", ()) if since else ()
    return "" if any(not changed(code, *of_run) for code in known) else since


def changed(digest: str, config: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    """As `stale`, for what a checkpoint keeps."""
    *labels, then = digest.split() or [""]
    if not labels:
        return "code that is not known" if then else ""
    try:
        here = code()
        ways = product(*(list(_labelled(here, label)) for label in labels))
        now = (
            _of(here, [name for group in way for name in group], config, environment)
            for way in islice(ways, MOST)
        )
        return "" if then in now else ", ".join(labels)
    except (RecordError, OSError, SyntaxError):
        return ", ".join(labels)


def _of(here: Code, names: list[Name], config: Mapping[str, Any], environment: Mapping) -> str:
    given = {name: config[name] for name in ("arm", "method") if name in config}
    values = {**given, **config["options"]}
    return here.of_run(names, values, bool(environment.get("gpus")))


def _named(here: Code, root: Root) -> tuple[str, list[Name]]:
    """A root's label, and what it stands for."""
    while isinstance(root, partial):
        root = root.func
    if isinstance(root, ModuleType):
        root = root.__name__
    elif not isinstance(root, str):
        top = getattr(root, "__qualname__", "").partition(".")[0]
        root = f"{getattr(root, '__module__', '')}.{top}"
    here.admit(root)
    module, name = (root, "") if here.module(root) else root.rpartition(".")[::2]
    if not name and here.module(module):
        return module, [each for below in here.below(module) for each in here.whole(below)]
    if not here.has(module, name):
        raise RecordError(
            f"there is no definition {root!r} to depend on: give functions and classes at the top "
            "level of a module with source code, or modules"
        )
    return name if module.startswith(PACKAGE) else f"{module}:{name}", [(module, name)]


def _labelled(here: Code, label: str) -> Iterable[list[Name]]:
    """The definitions that a label may name now."""
    if ":" in label or "." in label:
        return [_named(here, label.replace(":", "."))[1]]
    there = [module for module in here.defining.get(label, ()) if here.has(module, label)]
    return [[(module, label)] for module in there]
