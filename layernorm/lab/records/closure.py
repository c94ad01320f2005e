"""The code that a result was computed by, as one digest.

From the roots that a run names (functions, classes, modules) every definition that they reach is
followed: functions, classes and module-level values of the package, each by its form (`shape`),
with the names that it uses resolved to what they stand for. Neither the names nor the places of
files and definitions count. C++ counts whole, without comments and layout, where a definition names
it beside `__file__`.

A run's own values leave out what it never reached. Of a table (a dictionary whose keys are strings,
or `{m.name: m for m in [...]}`) that has one of them as a key, such as `METHODS` and the run's
method, only that row is followed; tests of `options.name`, `config.name` and of a parameter
`method` are decided. Without a GPU, modules that import Triton are not followed from where they are
imported at first use.

What cannot be seen is taken as more than was used: a class counts whole, its methods with it; so do
a function's own lines, both sides of a test that the values do not decide, and a module that is
passed on. Of `getattr(module, name)` those are taken whose name is an argument in what is reached,
of `import_module(f"package.{name}")` and `iter_modules` those whose name, or its beginning with an
underscore at the end, stands there as a string; all where there is none. Statements of a module
that bind nothing count with all of it, functions that are registered at a definition
(`@operator.register_fake`) with that one. Not seen are a module that changes another one, and what
is found by other means, such as entry points.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from layernorm.lab.records.guards import GIVEN, decided, rows_wanted, run_option
from layernorm.lab.records.names import SOURCES, UNBOUND, Name, Names
from layernorm.lab.records.shape import Link, Shape, Shaper

CELLS = ("", "cells")
RECORDS = __name__.rpartition(".")[0]  # reads and writes results, decides none
ROUNDS = 3  # in which a definition's hash takes up those of what it uses


class Reached(NamedTuple):
    """The code that roots reach: the definitions, their digest, and the strings in them."""

    definitions: frozenset[Name]
    digest: str
    strings: frozenset[str]


class Code(Names):
    """The package's code in a folder, and what in it roots reach."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._shapes: dict[Name, tuple[Shape, str]] = {}
        self._choices: dict[object, tuple[set[str], set[object]]] = {}
        self._digests: dict[object, str] = {}

    def shape(self, name: Name) -> tuple[Shape, str]:
        """The form of a definition, and its hash."""
        if name not in self._shapes:
            module = self.module(name[0])
            nodes = module.definitions[name[1]]
            made = Shaper(self, module, name[1]).shape(nodes)
            named = any(isinstance(n, ast.Name) and n.id == "__file__" for node in nodes
                        for n in ast.walk(node))  # fmt: skip
            files = self._sources(module.path.parent, made.strings) if named else []
            code = sorted(_without_words(self.text(file).decode()) for file in files)
            self._shapes[name] = made, _hash(made.tree, code)
        return self._shapes[name]

    def reach(
        self,
        roots: Collection[Name],
        values: Mapping[str, Any] | None = None,
        gpu: bool = False,
        apart: str = "",
        keep: Callable[[str], bool] = lambda module: True,
    ) -> Reached:
        """Follow the roots.

        Args:
            values: the run's own, `method` and its options.
            gpu: a GPU was there.
            apart: a package whose modules do not count.
            keep: of modules that a package looks for, those that count.
        """
        values = values or {}
        rows = rows_wanted(values)
        links: dict[Name, list[tuple[Link, list[Name]]]] = {}
        strings: set[str] = set()
        arguments = {value for value in values.values() if isinstance(value, str)}
        roots, open_links = list(roots), []
        waiting = list(roots)
        while waiting or (waiting := self._chosen(open_links, arguments, strings, keep)):
            name = waiting.pop()
            if name in links:
                continue
            links[name] = []
            shape, _ = self.shape(name)
            strings |= shape.strings
            arguments |= shape.arguments
            for link in shape.links:
                if not all(decided(guard, values, rows) for guard in link.guards):
                    continue
                if link.lazy and not gpu and self.needs_gpu(link.module):
                    continue
                if apart and f"{link.module}.".startswith(f"{apart}."):
                    continue
                aims: list[Name] = []
                links[name].append((link, aims))
                if link.kind == "definition":
                    aims.append((link.module, link.name))
                elif link.kind == "module":
                    aims += self.whole(link.module)
                elif link.kind != "text":
                    open_links.append((link, aims))
                waiting += aims
            if name != CELLS and self.has(name[0], UNBOUND):
                waiting.append((name[0], UNBOUND))
        return Reached(frozenset(links), self._digest(roots, links), frozenset(strings))

    def _chosen(self, open_links, arguments, strings, keep) -> list[Name]:
        """The aims, now known, of links that choose by name; all where no name is known."""
        new: list[Name] = []
        for link, aims in open_links:
            known = [n for n in self.whole(link.module) if n[1] in arguments]
            if link.kind == "attribute":
                chosen = known or list(self.whole(link.module))
            elif link.kind == "discovery":
                chosen = self._of_modules(f"{link.module}.", strings, keep)
            elif link.kind == "import":
                chosen = self._of_modules(link.module, strings, keep)
            else:
                chosen = []
            fresh = [name for name in chosen if name not in aims]
            aims += fresh
            new += fresh
        return new

    def _of_modules(self, beginning: str, strings: Collection[str], keep) -> list[Name]:
        package, _, rest = beginning.rpartition(".")
        if self.path(beginning):
            return list(self.whole(beginning))
        folder = self.path(package) if package else None
        if folder is None or folder.stem != "__init__":
            return []
        files = (f.relative_to(folder.parent) for f in self.files(folder.parent))
        found = {Path(f.parts[0]).stem for f in files if f.suffix == ".py"}
        names = sorted(name for name in found if name.startswith(rest))
        starts = tuple(text for text in strings if text.endswith("_") and text.strip("_"))
        named = [name for name in names if name in strings or name.startswith(starts)]
        modules = [f"{package}.{name}" for name in named or names if not name.startswith("__")]
        return [name for module in modules if keep(module) for name in self.whole(module)]

    def _digest(self, roots: list[Name], links: Mapping[Name, list]) -> str:
        """Every definition's hash takes up those of what it uses, so that names do not matter."""
        own = {
            name: _hash(
                self.shape(name)[1], *(link.name for link, _ in followed if link.kind == "text")
            )
            for name, followed in links.items()
        }
        hashes = own
        for _ in range(ROUNDS - 1):
            hashes = {
                name: _hash(own[name], *(sorted({hashes[a] for a in aims}) for _, aims in followed))
                for name, followed in links.items()
            }
        return _hash(sorted({hashes[root] for root in roots}), sorted(set(hashes.values())))

    def of_run(self, roots: Iterable[Name], values: Mapping[str, Any], gpu: bool) -> str:
        """The digest of what a run with these values reaches; runs whose values make no difference
        to it share the work."""
        roots = tuple(sorted(set(roots)))
        if (roots, gpu) not in self._choices:
            self._choices[roots, gpu] = self._choices_in(self.reach(roots, {}, gpu, RECORDS))
        options, names = self._choices[roots, gpu]
        values = {
            name: value
            for name, value in values.items()
            if name in options or (isinstance(value, str) and value in names)
        }
        asked = roots, gpu, repr(sorted(values.items()))
        if asked not in self._digests:
            self._digests[asked] = self.reach(roots, values, gpu, RECORDS).digest
        return self._digests[asked]

    def _choices_in(self, every: Reached) -> tuple[set[str], set[object]]:
        """The options that decide something there, and the names that are looked up."""
        links = [link for name in every.definitions for link in self.shape(name)[0].links]
        guards = {guard for link in links for guard in link.guards}
        tests = [node for guard in guards if guard.test for node in ast.walk(guard.test)]
        names: set[object] = set().union(*(guard.keys for guard in guards))
        for link in links:
            if link.kind == "attribute":
                names |= {name for _, name in self.whole(link.module)}
        return {*GIVEN, *filter(None, map(run_option, tests))}, names

    def _sources(self, folder: Path, names: Iterable[str]) -> list[Path]:
        """The files of C++ that strings name."""
        found: list[Path] = []
        for name in sorted(n for n in names if re.fullmatch(r"[\w./-]*\w[\w./-]*", n)):
            found += self.files(Path(os.path.normpath(folder / name)))
        return [file for file in found if file.suffix in SOURCES]

    def cells(self, nodes: list[ast.stmt]) -> Shape:
        """The statements of a notebook, which `reach([CELLS])` then starts from."""
        shape = Shaper(self, None, CELLS[1]).shape(nodes)
        self._shapes[CELLS] = shape, _hash(shape.tree)
        return shape


def _hash(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def _without_words(text: str) -> str:
    """C++ without comments and layout."""
    words = r'"(?:\\.|[^"\\\n])*"' + r"|'(?:\\.|[^'\\\n])+'"
    plain = re.sub(rf"//[^\n]*|/\*.*?\*/|({words})", lambda m: m[1] or " ", text, flags=re.DOTALL)
    lines = (" ".join(line.split()) for line in plain.splitlines())
    return "\n".join(line for line in lines if line)
