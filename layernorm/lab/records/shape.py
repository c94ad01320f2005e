"""The form of a definition: its syntax tree without words, with links to what its names stand for.

Docstrings, annotations of arguments and variables, import statements and the definition's own name
are left out; a name from outside the package is written in full (`torch.nn.functional.softmax`), so
it makes no difference how it was imported.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from layernorm.lab.records.guards import GIVEN, Guard, chain, run_option
from layernorm.lab.records.names import Alias, Found, Module, Names, bound

ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Link(NamedTuple):
    """To the definition's own text under guards ("text"), a "definition", a "module" as a whole, of
    a module an "attribute" not known here, or modules of a package ("import", "discovery")."""

    kind: str
    module: str
    name: str = ""
    lazy: bool = False
    guards: tuple[Guard, ...] = ()


class Shape(NamedTuple):
    tree: object
    links: tuple[Link, ...]
    arguments: frozenset[str]  # strings that functions are called with
    strings: frozenset[str]  # all strings but keys and what is compared


class _Scope(NamedTuple):
    names: Mapping[str, Alias | None]
    arguments: frozenset[str] = frozenset()
    of_class: bool = False


class Shaper:
    """Shapes the statements of one definition.

    Args:
        names: what names stand for.
        module: that they stand in; None: the cells of a notebook, names that they bind are theirs.
        own: the name that they define there.
    """

    def __init__(self, names: Names, module: Module | None, own: str) -> None:
        self.names, self.module, self.own = names, module, own
        self.package = module.package if module else ""
        self.scopes: list[_Scope] = []
        self.cells: _Scope | None = None
        self.guards: list[Guard] = []
        self.links: list[Link] = []
        self.arguments: set[str] = set()
        self.strings: set[str] = set()

    def shape(self, nodes: list[ast.stmt]) -> Shape:
        if not self.module:
            self.cells = _Scope(bound(nodes, ""))
            self.scopes.append(self.cells)
        tree = self.block(nodes)
        return Shape(tree, tuple(self.links), frozenset(self.arguments), frozenset(self.strings))

    def visit(self, node: Any) -> object:
        if isinstance(node, list):
            return tuple(self.visit(item) for item in node)
        if not isinstance(node, ast.AST):
            return repr(node)
        special = getattr(self, type(node).__name__, None)
        return special(node) if special else self.plain(node)

    def plain(self, node: ast.AST, **changed: object) -> object:
        """Empty fields are left out, as Python's versions differ in them."""
        fields = {name: self.visit(value) for name, value in ast.iter_fields(node)
                  if name not in changed and value not in (None, [])}  # fmt: skip
        return (type(node).__name__, *sorted((fields | changed).items()))

    def block(self, nodes: list[ast.stmt]) -> tuple:
        """Statements; what follows `if test: return` is reached where the test fails."""
        shapes, guards = [], []
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                continue
            shapes.append(self.under(guards, partial(self.visit, node)))
            if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], ENDS):
                guards = [*guards, *self.guard(node.test, False)]
        return tuple(shapes)

    def guard(self, test: ast.expr, holds: bool) -> list[Guard]:
        """One, if the test is of the run's own choice."""
        given = {name for scope in self.scopes for name in scope.arguments.intersection(GIVEN)}
        for node in ast.walk(test):
            if run_option(node) or (isinstance(node, ast.Name) and node.id in given):
                return [Guard(test, holds)]
        return []

    def under(self, guards: list[Guard], take: Callable[[], object]) -> object:
        """Return the shape that `take` gives; under guards it becomes a link of its own."""
        before = len(self.guards)
        self.guards += guards
        shape = take()
        if guards:
            self.link("text", "", repr(shape))
        del self.guards[before:]
        return "guarded" if guards else shape

    @contextmanager
    def scope(self, scope: _Scope) -> Iterator[None]:
        self.scopes.append(scope)
        yield
        self.scopes.pop()

    # -- names

    def link(self, kind: str, module: str, name: str = "", lazy: bool = False) -> None:
        self.links.append(Link(kind, module, name, lazy, tuple(self.guards)))

    def look_up(self, name: str, attributes: list[str]) -> tuple[Found | None, bool]:
        """The meaning of a name, None for a local one; and whether a function imports it."""
        for depth, scope in enumerate(reversed(self.scopes)):
            if name in scope.names and (not scope.of_class or depth == 0):
                alias = scope.names[name]
                lazy = scope is not self.cells
                return (self.names.followed(alias, attributes), lazy) if alias else (None, False)
        return self.names.find(self.module, name, attributes), False

    def reference(self, name: str, attributes: list[str]) -> object:
        found, lazy = self.look_up(name, attributes)
        if found is None:
            return ("Name", name, *attributes)
        if found.kind == "external":
            return ("external", found.module)
        if found.kind == "missing":
            return ("missing", found.name, *found.rest)
        self.link(found.kind, found.module, found.name, lazy)
        return ("link", *found.rest)

    def Name(self, node: ast.Name) -> object:
        if isinstance(node.ctx, ast.Load):
            return self.reference(node.id, [])
        return ("Name", node.id if self.scopes else node.id == self.own)

    def Attribute(self, node: ast.Attribute) -> object:
        name, attributes = chain(node)
        read = name is not None and isinstance(node.ctx, ast.Load)
        return self.reference(name, attributes) if read else self.plain(node)

    def Constant(self, node: ast.Constant) -> object:
        if isinstance(node.value, str):
            self.strings.add(node.value)
        return ("Constant", repr(node.value))

    def JoinedStr(self, node: ast.JoinedStr) -> object:
        """Python 3.12 adds empty texts."""
        return self.plain(ast.JoinedStr([part for part in node.values if string(part) != ""]))

    def quietly(self, take: Callable[[Any], object], node: Any) -> object:
        """Return the shape that `take` gives; strings in it name nothing."""
        before = set(self.strings)
        shape, self.strings = take(node), before
        return shape

    def Compare(self, node: ast.Compare) -> object:
        return self.quietly(self.plain, node)

    def Subscript(self, node: ast.Subscript) -> object:
        return self.plain(node, slice=self.quietly(self.visit, node.slice))

    # -- what is reached under a condition

    def If(self, node: ast.If | ast.IfExp) -> object:
        test = self.visit(node.test)
        take = self.block if isinstance(node, ast.If) else self.visit
        body = self.under(self.guard(node.test, True), partial(take, node.body))
        orelse = self.under(self.guard(node.test, False), partial(take, node.orelse))
        return ("If", test, body, orelse)

    IfExp = If

    def Dict(self, node: ast.Dict) -> object:
        takes = [partial(self.row, *pair) for pair in zip(node.keys, node.values, strict=True)]
        table = self.table([self.known(key) for key in node.keys], takes)
        return table or ("Dict", *(take() for take in takes))

    def DictComp(self, node: ast.DictComp) -> object:
        """`{row.name: row for row in [Row("name", ...), ...]}` is a table, too."""
        rows = getattr(node.generators[0].iter, "elts", [])
        names = [string(row.args[0]) if isinstance(row, ast.Call) and row.args else None
                 for row in rows if ast.unparse(node.key).endswith(".name")]  # fmt: skip
        return self.table(names, [partial(self.visit, row) for row in rows]) or self.inner(node)

    def row(self, key: ast.expr | None, value: ast.expr) -> object:
        return self.quietly(self.visit, key) if key else None, self.visit(value)

    def table(self, keys: list[object], takes: list[Callable[[], object]]) -> object:
        """Every row by itself, so that another one makes no difference to it; None if this is no
        table."""
        if len(keys) < 2 or not all(isinstance(key, str) for key in keys):
            return None
        for key, take in dict(zip(keys, takes, strict=True)).items():
            self.under([Guard(keys=frozenset(keys), key=key)], take)
        return "table"

    def known(self, key: ast.expr | None) -> object:
        """A table's key: a string, or a name of one."""
        name, attributes = chain(key)
        found = self.look_up(name, attributes)[0] if name else None
        return self.names.constant(found) if found else getattr(key, "value", None)

    # -- scopes

    def inner(self, node: ast.AST) -> object:
        """A comprehension."""
        targets = [each for generator in node.generators for each in ast.walk(generator.target)]
        with self.scope(_Scope({n.id: None for n in targets if isinstance(n, ast.Name)})):
            return self.plain(node)

    ListComp = SetComp = GeneratorExp = inner

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> object:
        its = node.args
        defaults = [*its.defaults, *filter(None, its.kw_defaults)]
        self.arguments |= set(filter(None, map(string, defaults)))
        outside = tuple(map(self.visit, [*defaults, *getattr(node, "decorator_list", [])]))
        starred = filter(None, (its.vararg, its.kwarg))
        every = [*its.posonlyargs, *its.args, *its.kwonlyargs, *starred]
        form = tuple(
            (a.arg, "constexpr" in ast.unparse(a.annotation) if a.annotation else False)
            for a in every
        )
        counts = len(its.posonlyargs), len(its.args), bool(its.vararg)
        nameless = isinstance(node, ast.Lambda)
        inside = [ast.Return(node.body)]
        if not nameless:
            inside = node.body[ast.get_docstring(node, clean=False) is not None :]
        name = None if nameless or not self.scopes else node.name
        given = frozenset(a.arg for a in every)
        with self.scope(_Scope(bound(inside, self.package) | dict.fromkeys(given), given)):
            return (type(node).__name__, name, form, counts, outside, self.block(inside))

    FunctionDef = AsyncFunctionDef = Lambda = function

    def ClassDef(self, node: ast.ClassDef) -> object:
        outside = tuple(self.visit(n) for n in (node.bases, node.keywords, node.decorator_list))
        name = node.name if self.scopes else None
        inside = node.body[ast.get_docstring(node, clean=False) is not None :]
        with self.scope(_Scope(bound(inside, self.package), of_class=True)):
            return ("ClassDef", name, outside, self.block(inside))

    def AnnAssign(self, node: ast.AnnAssign) -> object:
        """A class's annotations say what its fields are; elsewhere they are words."""
        said = None
        if self.scopes and self.scopes[-1].of_class:
            said = self.quietly(self.visit, node.annotation)
        return ("AnnAssign", said, self.visit(node.target), self.visit(node.value))

    # -- calls that choose by name

    def Call(self, node: ast.Call) -> object:
        called = ast.unparse(node.func).rpartition(".")[2]
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        self.arguments |= set(filter(None, map(string, values)))
        if called == "getattr" and len(node.args) > 1:
            name, attributes = chain(node.args[0])
            found, lazy = self.look_up(name, attributes) if name else (None, False)
            if found is not None and found.kind == "module":
                rest = tuple(self.quietly(self.visit, each) for each in node.args[2:])
                if wanted := string(node.args[1]):
                    return ("getattr", self.reference(name, [*attributes, wanted]), rest)
                self.link("attribute", found.module, "", lazy)
                return ("getattr", "link", self.quietly(self.visit, node.args[1]), rest)
        if called in ("iter_modules", "walk_packages"):
            self.link("discovery", self.package, "", lazy=True)
        if called in ("import_module", "__import__") and node.args:
            self.link("import", self.beginning(node.args[0]), "", lazy=True)
        return self.plain(node)

    def beginning(self, node: ast.expr) -> str:
        """The known beginning of a module's name, ending with a dot if more comes."""
        known = ""
        for part in node.values if isinstance(node, ast.JoinedStr) else [node]:
            if not isinstance(part, ast.FormattedValue):
                known += string(part) or ""
            elif ast.unparse(part.value) in ("__name__", "__package__"):
                known += self.package
            else:
                break
        return known


def string(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
