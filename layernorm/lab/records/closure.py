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
of `import_module(f"package.{name}")` those whose name stands there as a string; all where there is
none. Statements of a module that bind nothing count with all of it, functions that are registered
at a definition (`@operator.register_fake`) with that one. Not seen are a module that changes
another one, and what is found by other means, such as entry points.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from layernorm.lab.records.shape import (
    GIVEN,
    Alias,
    Found,
    Guard,
    Link,
    Shape,
    Shaper,
    bound,
    decided,
    run_option,
)

Name = tuple[str, str]  # a module, and what it defines there
UNBOUND = ""  # the name of a module's statements that bind nothing
CELLS = ("", "cells")
PACKAGE = __name__.partition(".")[0]
SOURCES = {".c", ".cc", ".cpp", ".cu", ".h", ".hpp"}
RECORDS = __name__.rpartition(".")[0]  # reads and writes results, decides none
ROWS = ("method", "variant", "task", "dataset", "data", "arm", "baseline", "kind", "model")
DEFINED = re.compile(r"^(?:async def|def|class)\s+(\w+)|^(\w+)\s*(?::[^=\n]*)?=(?!=)", re.MULTILINE)
ROUNDS = 3  # in which a definition's hash takes up those of what it uses


class Reached(NamedTuple):
    """The code that roots reach: the definitions, their digest, and the strings in them."""

    definitions: frozenset[Name]
    digest: str
    strings: frozenset[str]


class Module:
    """A file's top-level definitions and imports."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        self.package = name if path.stem == "__init__" else name.rpartition(".")[0]
        self.aliases: dict[str, Alias] = {}
        self.definitions: dict[str, list[ast.stmt]] = {}
        for node in ast.parse(path.read_bytes(), str(path)).body:
            self._take(node)

    def _take(self, node: ast.stmt) -> None:
        test = ast.unparse(node.test) if isinstance(node, ast.If) else ""
        names = bound([node], self.package)
        self.aliases |= {name: alias for name, alias in names.items() if alias}
        if isinstance(node, ast.Import | ast.ImportFrom) or test.endswith("TYPE_CHECKING"):
            return
        if "__name__" in test or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            return
        owners = {name for name, alias in names.items() if not alias} | self._changed(node)
        for name in sorted(owners) or [UNBOUND]:
            self.definitions.setdefault(name, []).append(node)

    def _changed(self, node: ast.stmt) -> set[str]:
        """The earlier definitions that a statement changes or registers something at."""
        targets: list[ast.AST] = [*getattr(node, "targets", []), getattr(node, "target", None)]
        for decorator in getattr(node, "decorator_list", []):
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            targets += [called] if isinstance(called, ast.Attribute) else []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            targets += [node.value.func] if isinstance(node.value.func, ast.Attribute) else []
        names = set()
        for target in targets:
            while isinstance(target, ast.Attribute | ast.Subscript):
                target = target.value
            names |= {target.id} if isinstance(target, ast.Name) else set()
        return names & self.definitions.keys()


class Code:
    """The package's code in a folder, read as far as it is asked for.

    Args:
        folder: of the package; another one is a copy.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._modules: dict[str, Module | None] = {}
        self._shapes: dict[Name, tuple[Shape, str]] = {}
        self._gpu: dict[str, bool] = {}
        self._choices: dict[object, tuple[set[str], set[object], list[Guard]]] = {}
        self._digests: dict[object, str] = {}
        self._read: dict[str, int] = {}  # when the files that were read were last changed
        self.outside: set[str] = set()  # top-level names of other modules that hold roots

    def path(self, module: str) -> Path | None:
        head, *rest = module.split(".")
        if not all(module.split(".")):
            return None
        if head in self.outside:
            try:
                spec = find_spec(module)
            except (ImportError, ValueError):
                spec = None
            return Path(spec.origin) if spec and spec.has_location and spec.origin else None
        base = self.folder.joinpath(*rest)
        tried = (base / "__init__.py", *([base.with_suffix(".py")] if rest else []))
        return next((f for f in tried if head == PACKAGE and f.is_file()), None)

    def module(self, name: str) -> Module | None:
        if name not in self._modules:
            path = self.path(name)
            if path:
                self._read[str(path)] = path.stat().st_mtime_ns
            self._modules[name] = Module(name, path) if path else None
        return self._modules[name]

    def admit(self, module: str) -> None:
        """Count a module from elsewhere, and those beside it, as code too."""
        top = module.partition(".")[0]
        if top != PACKAGE and top not in self.outside:
            self.outside.add(top)
            self._modules = {name: found for name, found in self._modules.items() if found}

    @cached_property
    def defining(self) -> dict[str, list[str]]:
        """The package's modules by the names that they define."""
        found: dict[str, list[str]] = {}
        for module in self.below(PACKAGE):
            text = self.path(module).read_text()
            for name in {m[1] or m[2] for m in DEFINED.finditer(text)}:
                found.setdefault(name, []).append(module)
        return found

    def current(self) -> bool:
        """Tell whether the files that were read are as they were then."""
        try:
            return all(os.stat(path).st_mtime_ns == then for path, then in self._read.items())
        except OSError:
            return False

    # -- what a name stands for

    def find(self, module: Module) -> Callable[[str | Alias, list[str]], Found | None]:
        def found(name: str | Alias, attributes: list[str]) -> Found | None:
            if isinstance(name, Alias):
                return self._followed(name, attributes)
            if name in module.aliases or name in module.definitions:
                return self._attribute(module, [name, *attributes])
            return None

        return found

    def _followed(self, alias: Alias, rest: list[str], seen: tuple[Name, ...] = ()) -> Found:
        module = self.module(alias.module)
        parts = [*([alias.name] if alias.name else []), *rest]
        if module is None:
            return Found("external", ".".join([alias.module, *parts]))
        return self._attribute(module, parts, seen)

    def _attribute(self, module: Module, parts: list[str], seen: tuple[Name, ...] = ()) -> Found:
        if not parts:
            return Found("module", module.name)
        head, *rest = parts
        if head in module.definitions:
            return Found("definition", module.name, head, tuple(rest))
        if head in module.aliases and (module.name, head) not in seen:
            return self._followed(module.aliases[head], rest, (*seen, (module.name, head)))
        below = self.module(f"{module.name}.{head}")
        if below is None:
            return Found("missing", module.name, head, tuple(rest))
        return self._attribute(below, rest, seen)

    def constant(self, found: Found) -> object:
        """The value of `NAME = "text"`, also among several: `ONE, TWO = "one", "two"`."""
        nodes = self.module(found.module).definitions[found.name] if found.name else []
        for node in nodes if found.kind == "definition" else ():
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name | ast.Tuple):
                targets = getattr(node.targets[0], "elts", [node.targets[0]])
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                for target, value in zip(targets, values, strict=False):
                    if isinstance(target, ast.Name) and target.id == found.name:
                        return getattr(value, "value", None)
        return None

    # -- single definitions

    def shape(self, name: Name) -> tuple[Shape, str]:
        """The form of a definition, and its hash."""
        if name not in self._shapes:
            module = self.module(name[0])
            nodes = module.definitions[name[1]]
            made = Shaper(module.package, name[1], self.find(module), self.constant).shape(nodes)
            named = any(isinstance(n, ast.Name) and n.id == "__file__" for node in nodes
                        for n in ast.walk(node))  # fmt: skip
            files = _sources(module.path.parent, made.strings) if named else []
            self._read |= {str(file): file.stat().st_mtime_ns for file in files}
            code = sorted(_without_words(file.read_text()) for file in files)
            self._shapes[name] = made, _hash(made.tree, code)
        return self._shapes[name]

    def has(self, module: str, name: str) -> bool:
        found = self.module(module)
        return found is not None and name in found.definitions

    def whole(self, module: str) -> Iterator[Name]:
        """All definitions of a module, and what a package takes from its modules."""
        found = self.module(module)
        if found is None:
            return
        yield from ((module, name) for name in found.definitions if not name.startswith("__"))
        for name in found.aliases if found.package == module else ():
            aim = self._attribute(found, [name])
            if aim.kind == "definition":
                yield aim.module, aim.name

    def below(self, package: str) -> list[str]:
        """A package's modules, and theirs; a module itself."""
        path = self.path(package)
        if path is None or path.stem != "__init__":
            return [package] if path else []
        parts = (file.relative_to(path.parent).with_suffix("").parts
                 for file in sorted(path.parent.rglob("*.py")))  # fmt: skip
        return [".".join([package, *(p for p in each if p != "__init__")]) for each in parts]

    def needs_gpu(self, module: str) -> bool:
        """Tell whether importing the module imports Triton."""
        if module not in self._gpu:
            self._gpu[module] = False  # while it is looked up, for modules that import each other
            found = self.module(module)
            aims = {module.partition(".")[0]} if found is None else set()
            for alias in found.aliases.values() if found else ():
                of_module = f"{alias.module}.{alias.name}"
                aims.add(of_module if alias.name and self.path(of_module) else alias.module)
            self._gpu[module] = "triton" in aims or any(map(self.needs_gpu, aims - {module}))
        return self._gpu[module]

    # -- all that roots reach

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
        while waiting or open_links:
            if not waiting:
                waiting = self._chosen(open_links, arguments, strings, keep)
                if not waiting:
                    break
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
                chosen = self._of_modules(f"{link.module}.", None, keep)
            elif link.kind == "import":
                chosen = self._of_modules(link.module, strings, keep)
            else:
                chosen = []
            fresh = [name for name in chosen if name not in aims]
            aims += fresh
            new += fresh
        return new

    def _of_modules(self, beginning: str, strings: Collection[str] | None, keep) -> list[Name]:
        package, _, rest = beginning.rpartition(".")
        if self.path(beginning):
            return list(self.whole(beginning))
        folder = self.path(package) if package else None
        if folder is None or folder.stem != "__init__":
            return []
        names = sorted(p.stem for p in folder.parent.glob(f"{rest}*") if p.suffix in (".py", ""))
        named = [name for name in names if strings is not None and name in strings]
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
        options, names, guards = self._choices[roots, gpu]
        values = {
            name: value
            for name, value in values.items()
            if name in options or (isinstance(value, str) and value in names)
        }
        asked = roots, gpu, repr(sorted(values.items()))
        if asked not in self._digests:
            taken = tuple(decided(guard, values, rows_wanted(values)) for guard in guards)
            key = roots, gpu, taken, frozenset(v for v in values.values() if v in names)
            if key not in self._digests:
                self._digests[key] = self.reach(roots, values, gpu, RECORDS).digest
            self._digests[asked] = self._digests[key]
        return self._digests[asked]

    def _choices_in(self, every: Reached) -> tuple[set[str], set[object], list[Guard]]:
        """The options that decide something there, the names that are looked up, the tests."""
        links = [link for name in sorted(every.definitions) for link in self.shape(name)[0].links]
        guards = list(dict.fromkeys(guard for link in links for guard in link.guards))
        tests = [node for guard in guards if guard.test for node in ast.walk(guard.test)]
        options = {*GIVEN, *filter(None, map(run_option, tests))}
        names: set[object] = set().union(*(guard.keys for guard in guards))
        for link in links:
            if link.kind == "attribute":
                names |= {name for _, name in self.whole(link.module)}
        return options, names, guards

    def cells(self, nodes: list[ast.stmt]) -> Shape:
        """The statements of a notebook, which `reach([CELLS])` then starts from."""
        module = Module.__new__(Module)
        module.aliases, module.definitions = {}, {}
        shape = Shaper("", CELLS[1], self.find(module), self.constant).shape(nodes, local=True)
        self._shapes[CELLS] = shape, _hash(shape.tree)
        return shape


def rows_wanted(values: Mapping[str, Any]) -> frozenset[str]:
    """The rows that a run with these values looks up in tables."""
    return frozenset(str(values[name]) for name in ROWS if name in values)


def _hash(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def _sources(folder: Path, names: Iterable[str]) -> list[Path]:
    """The files of C++ that strings name."""
    found: list[Path] = []
    for name in sorted(n for n in names if re.fullmatch(r"[\w./-]*\w[\w./-]*", n)):
        path = folder / name
        found += path.rglob("*") if path.is_dir() else [path]
    return [file for file in found if file.suffix in SOURCES and file.is_file()]


def _without_words(text: str) -> str:
    """C++ without comments and layout."""
    words = r'"(?:\\.|[^"\\\n])*"' + r"|'(?:\\.|[^'\\\n])+'"
    plain = re.sub(rf"//[^\n]*|/\*.*?\*/|({words})", lambda m: m[1] or " ", text, flags=re.DOTALL)
    lines = (" ".join(line.split()) for line in plain.splitlines())
    return "\n".join(line for line in lines if line)
