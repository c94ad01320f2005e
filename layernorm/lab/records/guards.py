"""Conditions under which a run reaches a part of a definition: tests of options, rows of tables.

Tests of `options.name`, `config.name` and of a parameter `method` or `variant` are decided by the
run's own values; all others may come out either way. Of a table whose keys are strings a run takes
the rows that it is called after, all where there is none.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

OF_THE_RUN = ("options", "config")  # names under which a run's options are passed on
GIVEN = ("method", "variant")  # parameters that carry a run's own choice of that name
ROWS = ("method", "variant", "task", "dataset", "data", "arm", "baseline", "kind", "model")
UNKNOWN = object()
COMPARED: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.Is: operator.eq,
    ast.NotEq: operator.ne,
    ast.IsNot: operator.ne,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}


class Guard(NamedTuple):
    """The condition of a part: `test` comes out as `holds`, or this is the row `key` of a table."""

    test: ast.expr | None = None
    holds: bool = True
    keys: frozenset[str] = frozenset()
    key: str = ""


def chain(node: ast.expr | None) -> tuple[str | None, list[str]]:
    """`a.b.c` as a name and its attributes; None where something else than a name begins it."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.insert(0, node.attr)
        node = node.value
    return (node.id, attributes) if isinstance(node, ast.Name) else (None, [])


def run_option(node: ast.AST) -> str | None:
    """The option's name in `options.name` or `config.options.name`."""
    name, attributes = chain(node) if isinstance(node, ast.Attribute) else (None, [])
    parts = [part for part in (name, *attributes) if part not in (None, "self", *OF_THE_RUN)]
    return parts[0] if name and len(parts) == 1 and {name, *attributes} & {*OF_THE_RUN} else None


def rows_wanted(values: Mapping[str, Any]) -> frozenset[str]:
    """The rows that a run with these values looks up in tables."""
    return frozenset(str(values[name]) for name in ROWS if name in values)


def decided(guard: Guard, values: Mapping[str, Any], rows: frozenset[str]) -> bool:
    """Tell whether a run with these values, which looks up these rows, can come there."""
    if guard.test is None:
        wanted = guard.keys & rows
        return not wanted or guard.key in wanted
    outcome = evaluated(guard.test, values)
    return outcome is UNKNOWN or bool(outcome) == guard.holds


def evaluated(node: ast.expr, values: Mapping[str, Any]) -> Any:
    """The value of a test of a run's options, UNKNOWN where it is one of something else."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name() if node.id in GIVEN:
            return values.get(node.id, UNKNOWN)
        case ast.Attribute():
            return values.get(run_option(node), UNKNOWN)
        case ast.Tuple() | ast.List() | ast.Set():
            parts = [evaluated(each, values) for each in node.elts]
            return UNKNOWN if UNKNOWN in parts else parts
        case ast.UnaryOp(op=ast.Not()):
            value = evaluated(node.operand, values)
            return UNKNOWN if value is UNKNOWN else not value
        case ast.BoolOp():
            parts = [evaluated(each, values) for each in node.values]
            ends = isinstance(node.op, ast.Or)
            if any(part is not UNKNOWN and bool(part) == ends for part in parts):
                return ends
            return UNKNOWN if UNKNOWN in parts else not ends
        case ast.Compare(ops=[kind], comparators=[other]) if type(kind) in COMPARED:
            left, right = evaluated(node.left, values), evaluated(other, values)
            listed = isinstance(right, list) or not isinstance(kind, ast.In | ast.NotIn)
            return (
                COMPARED[type(kind)](left, right)
                if listed and UNKNOWN not in (left, right)
                else UNKNOWN
            )
    return UNKNOWN
