"""The package's modules: what each defines and imports, and what a name in it stands for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

Name = tuple[str, str]  # a module, and what it defines there
SOURCES = {".c", ".cc", ".cpp", ".cu", ".h", ".hpp"}
UNBOUND = ""  # the name of a module's statements that bind nothing
PACKAGE = __name__.partition(".")[0]
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
DEFINED = re.compile(r"^(?:async def|def|class)\s+(\w+)|^(\w+)\s*(?::[^=\n]*)?=(?!=)", re.MULTILINE)


class Alias(NamedTuple):
    """The aim of an import: a module, or its definition `name`."""

    module: str
    name: str | None = None


class Found(NamedTuple):
    """The meaning of a name: `kind` is "definition", "module", "external" or "missing"."""

    kind: str
    module: str
    name: str = ""
    rest: tuple[str, ...] = ()


def imported(node: ast.stmt, package: str) -> Iterator[tuple[str, Alias]]:
    """The names that an import statement in a module of the package binds."""
    if isinstance(node, ast.Import):
        for name in node.names:
            head = name.name.split(".")[0]
            yield name.asname or head, Alias(name.name if name.asname else head)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
        for name in node.names:
            yield name.asname or name.name, Alias(base, name.name)


def bound(nodes: list[ast.stmt], package: str) -> dict[str, Alias | None]:
    """The names that statements bind in their own scope; those that imports bind with their aim."""
    names: dict[str, Alias | None] = {}
    elsewhere: set[str] = set()
    waiting: list[ast.AST] = [*reversed(nodes)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= dict(imported(node, package))
        elif isinstance(node, ast.Global | ast.Nonlocal):
            elsewhere |= set(node.names)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.setdefault(node.id, None)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names[node.name] = None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names[node.name] = None
        elif not isinstance(node, (ast.Lambda, *COMPREHENSIONS)):
            waiting += reversed(list(ast.iter_child_nodes(node)))
    return {name: alias for name, alias in names.items() if name not in elsewhere}


class Module:
    """A file's top-level definitions and imports."""

    def __init__(self, name: str, path: Path, text: bytes) -> None:
        self.name, self.path = name, path
        self.package = name if path.stem == "__init__" else name.rpartition(".")[0]
        self.aliases: dict[str, Alias] = {}
        self.definitions: dict[str, list[ast.stmt]] = {}
        for node in ast.parse(text, str(path)).body:
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


class Names:
    """The package's modules in a folder, as they are when this is made: its files are read at once,
    and never again. They are parsed as far as they are asked for.

    Args:
        folder: of the package; another one is a copy.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outside: set[str] = set()  # top-level names of other modules that hold roots
        self._modules: dict[str, Module | None] = {}
        self._gpu: dict[str, bool] = {}
        self._texts = {file: file.read_bytes() for file in _code_below(folder)}

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
        return next((f for f in tried if head == PACKAGE and f in self._texts), None)

    def module(self, name: str) -> Module | None:
        if name not in self._modules:
            path = self.path(name)
            self._modules[name] = Module(name, path, self.text(path)) if path else None
        return self._modules[name]

    def text(self, path: Path) -> bytes:
        """A file's content; of one outside the package, when it is first asked for."""
        if path not in self._texts:
            self._texts[path] = path.read_bytes()
        return self._texts[path]

    def files(self, folder: Path) -> list[Path]:
        """The files of code below a folder: in the package's, those that were there at first."""
        if folder.is_relative_to(self.folder):
            return [file for file in self._texts if file.is_relative_to(folder)]
        return _code_below(folder)

    def admit(self, module: str) -> None:
        """Count a module from elsewhere, and those beside it, as code too."""
        top = module.partition(".")[0]
        if top != PACKAGE and top not in self.outside:
            self.outside.add(top)
            self._modules = {name: found for name, found in self._modules.items() if found}

    def below(self, package: str) -> list[str]:
        """A package's modules, and theirs; a module itself."""
        path = self.path(package)
        if path is None or path.stem != "__init__":
            return [package] if path else []
        parts = (file.relative_to(path.parent).with_suffix("").parts
                 for file in self.files(path.parent) if file.suffix == ".py")  # fmt: skip
        return [".".join([package, *(p for p in each if p != "__init__")]) for each in parts]

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

    # -- what a name stands for

    @cached_property
    def defining(self) -> dict[str, list[str]]:
        """The package's modules by the names that they define."""
        found: dict[str, list[str]] = {}
        for module in self.below(PACKAGE):
            text = self.text(self.path(module)).decode()
            for name in {m[1] or m[2] for m in DEFINED.finditer(text)}:
                found.setdefault(name, []).append(module)
        return found

    def find(self, module: Module | None, name: str, attributes: list[str]) -> Found | None:
        """The meaning of a name at the module's level, followed by attributes, if it is there."""
        if module and (name in module.aliases or name in module.definitions):
            return self._attribute(module, [name, *attributes])
        return None

    def followed(self, alias: Alias, rest: list[str], seen: tuple[Name, ...] = ()) -> Found:
        """The meaning of an import, followed by attributes."""
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
            return self.followed(module.aliases[head], rest, (*seen, (module.name, head)))
        below = self.module(f"{module.name}.{head}")
        if below is None:
            return Found("missing", module.name, head, tuple(rest))
        return self._attribute(below, rest, seen)

    def constant(self, found: Found) -> object:
        """The value of `NAME = "text"`, also among several: `ONE, TWO = "one", "two"`."""
        defined = found.kind == "definition"
        for node in self.module(found.module).definitions[found.name] if defined else ():
            if isinstance(node, ast.Assign):
                sides = node.targets[0], node.value
                several = all(isinstance(side, ast.Tuple) for side in sides)
                pairs = zip(*(side.elts for side in sides), strict=False) if several else [sides]
                for target, value in pairs:
                    if isinstance(target, ast.Name) and target.id == found.name:
                        return getattr(value, "value", None)
        return None


def _code_below(folder: Path) -> list[Path]:
    return sorted(
        f for f in (folder, *folder.rglob("*")) if f.suffix in {".py", *SOURCES} and f.is_file()
    )
