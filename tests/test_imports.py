"""Imports in the package, inside functions as well: one direction, no circles."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import layernorm

ROOT = Path(layernorm.__file__).parent
DOWNSTREAM = ("layernorm.lab", "layernorm.cli", "layernorm.__main__")


def name_of(path: Path) -> str:
    """The module's name; a package's `__init__` is a module beside those it holds."""
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)


MODULES = {name_of(path): ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}


def module(name: str) -> str | None:
    """The module of the package that is meant by a dotted name, its attributes left out."""
    while name:
        for found in (name, f"{name}.__init__"):
            if found in MODULES:
                return found
        name = name.rpartition(".")[0]
    return None


def imported(tree: ast.AST) -> Iterator[str]:
    """The dotted names that a module's import statements mention, of this package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: the package imports by full names"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] == "layernorm")


EDGES = {name: {module(other) for other in imported(tree)} for name, tree in MODULES.items()}


def downstream(name: str) -> bool:
    return any(name == place or name.startswith(place + ".") for place in DOWNSTREAM)


LIBRARY = sorted(name for name in MODULES if not downstream(name))


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_knows_nothing_of_the_laboratory_and_the_commands(name):
    assert not [other for other in EDGES[name] if downstream(other)]
    # nor by a name in a string, as `importlib.import_module` takes it
    strings = {node.value for node in ast.walk(MODULES[name]) if isinstance(node, ast.Constant)}
    assert not [s for s in strings if isinstance(s, str) and " " not in s and downstream(s)]


def siblings(package: str) -> dict[str, set[str]]:
    """The imports among a package's files and folders; a folder imports all that its files do."""

    def child(name: str) -> str:
        return name.removeprefix(package + ".").partition(".")[0]

    inside = [name for name in MODULES if name.startswith(package + ".")]
    graph: dict[str, set[str]] = {child(name): set() for name in inside}
    for name in inside:
        graph[child(name)] |= {child(o) for o in EDGES[name] if o.startswith(package + ".")}
    return {name: others - {name} for name, others in graph.items()}


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The largest sets of names that reach each other.

    >>> circles({"a": {"b"}, "b": {"a", "c"}, "c": set()}) == [{"a", "b"}]
    True
    """
    reached = {}
    for start in graph:
        found, ahead = set(), [start]
        while ahead:
            new = graph[ahead.pop()] - found
            found |= new
            ahead += new
        reached[start] = found
    groups = {frozenset(b for b in graph if b in reached[a] and a in reached[b]) for a in graph}
    return sorted((set(group) for group in groups if len(group) > 1), key=sorted)


PACKAGES = sorted(name.removesuffix(".__init__") for name in MODULES if "__init__" in name)


@pytest.mark.parametrize("package", PACKAGES)
def test_neither_files_nor_folders_import_each_other_in_a_circle(package):
    assert circles(siblings(package)) == []


def test_a_circle_would_be_seen():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]
