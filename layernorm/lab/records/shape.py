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

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
OF_THE_RUN = ("options", "config")  # names under which a run's options are passed on
GIVEN = ("method", "variant")  # parameters that carry a run's own choice of that name


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


class Guard(NamedTuple):
    """The condition of a link: `test` comes out as `holds`, or this is the row `key` of a table."""

    test: ast.expr | None = None
    holds: bool = True
    keys: frozenset[str] = frozenset()
    key: str = ""


class Link(NamedTuple):
    """From a definition to text of its own that is under guards ("text"), to another definition, to
    a whole module ("module"), to what a module calls by a
    name not known here ("attribute"), or to modules of a package ("import", "discovery")."""

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


class Shaper:
    """Shapes the statements of one definition.

    Args:
        package: of the module that they stand in, for relative imports.
        own: the name that they define there.
        find: what a module-level name, or an alias, followed by attributes stands for.
        constant: the value of a definition that is a constant, else None.
    """

    def __init__(
        self,
        package: str,
        own: str,
        find: Callable[[str | Alias, list[str]], Found | None],
        constant: Callable[[Found], object],
    ) -> None:
        self.package, self.own, self.find, self.constant = package, own, find, constant
        self.scopes: list[_Scope] = []
        self.cells: _Scope | None = None
        self.guards: list[Guard] = []
        self.links: list[Link] = []
        self.arguments: set[str] = set()
        self.strings: set[str] = set()

    def shape(self, nodes: list[ast.stmt], local: bool = False) -> Shape:
        """`local`: names that these statements bind are theirs (the cells of a notebook)."""
        if local:
            self.cells = _Scope(bound(nodes, self.package))
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
        fields = {name: value for name, value in ast.iter_fields(node) if value not in (None, [])}
        kept = {name: value if name in changed else self.visit(value)
                for name, value in fields.items() if name not in changed} | changed  # fmt: skip
        return (type(node).__name__, *sorted((n, v) for n, v in kept.items() if v is not None))

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
        return [Guard(test, holds)] if any(map(self.of_the_run, ast.walk(test))) else []

    def of_the_run(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name) and node.id in GIVEN:
            return any(node.id in scope.arguments for scope in self.scopes)
        return run_option(node) is not None

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
                return (self.find(alias, attributes), lazy) if alias else (None, False)
        return self.find(name, attributes), False

    def reference(self, name: str, attributes: list[str], whole: bool = True) -> object:
        found, lazy = self.look_up(name, attributes)
        if found is None:
            return ("Name", name, *attributes)
        if found.kind == "external":
            return ("external", found.module)
        if found.kind == "missing":
            if not (found.name.startswith("__") and found.name.endswith("__")):
                self.link("missing", found.module, found.name, lazy)
            return ("missing", found.name, *found.rest)
        if found.kind == "definition" or whole:
            self.link(found.kind, found.module, found.name, lazy)
        return ("link", *found.rest)

    def Name(self, node: ast.Name) -> object:
        if isinstance(node.ctx, ast.Load):
            return self.reference(node.id, [])
        if not self.scopes:  # at the module's level names do not count
            return ("Name", node.id == self.own)
        return ("Name", node.id)

    def Attribute(self, node: ast.Attribute) -> object:
        name, attributes = chain(node)
        if name is None or not isinstance(node.ctx, ast.Load):
            return self.plain(node)
        return self.reference(name, attributes)

    def Constant(self, node: ast.Constant) -> object:
        if isinstance(node.value, str):
            self.strings.add(node.value)
        return ("Constant", repr(node.value))

    def quietly(self, node: ast.AST) -> object:
        """As `visit`, but strings in it name nothing."""
        before = set(self.strings)
        shape = self.visit(node)
        self.strings = before
        return shape

    def Compare(self, node: ast.Compare) -> object:
        return self.quietly_plain(node)

    def quietly_plain(self, node: ast.AST) -> object:
        before = set(self.strings)
        shape = self.plain(node)
        self.strings = before
        return shape

    def Subscript(self, node: ast.Subscript) -> object:
        return self.plain(node, slice=self.quietly(node.slice))

    # -- what is reached under a condition

    def If(self, node: ast.If | ast.IfExp) -> object:
        test = self.visit(node.test)
        take = self.block if isinstance(node, ast.If) else self.visit
        body = self.under(self.guard(node.test, True), partial(take, node.body))
        orelse = self.under(self.guard(node.test, False), partial(take, node.orelse))
        return ("If", test, body, orelse)

    IfExp = If

    def Dict(self, node: ast.Dict) -> object:
        keys = [self.known(key) for key in node.keys]

        def row(key: ast.expr | None, value: ast.expr) -> object:
            return self.quietly(key) if key else None, self.visit(value)

        takes = [partial(row, *pair) for pair in zip(node.keys, node.values, strict=True)]
        if not rows_of(keys):
            return ("Dict", *(take() for take in takes))
        return self.table(dict(zip(keys, takes, strict=True)))

    def table(self, rows: dict[str, Callable[[], object]]) -> object:
        """Every row by itself, so that another row makes no difference to it."""
        for key, take in rows.items():
            self.under([Guard(keys=frozenset(rows), key=key)], take)
        return "table"

    def known(self, key: ast.expr | None) -> object:
        """A table's key: a string, or a name of one."""
        name, attributes = chain(key) if key is not None else (None, [])
        found = self.look_up(name, attributes)[0] if name else None
        return self.constant(found) if found else getattr(key, "value", None)

    def DictComp(self, node: ast.DictComp) -> object:
        rows = getattr(node.generators[0].iter, "elts", [])
        keys = [first_string(row) for row in rows]
        table = rows_of(keys) if ast.unparse(node.key).endswith(".name") else frozenset()
        if not table:
            return self._comprehension(node)
        return self.table(
            {key: partial(self.visit, row) for key, row in zip(keys, rows, strict=True)}
        )

    # -- scopes

    def _comprehension(self, node: ast.AST) -> object:
        names: dict[str, None] = {}
        for generator in node.generators:
            names |= {n.id: None for n in ast.walk(generator.target) if isinstance(n, ast.Name)}
        with self.scope(_Scope(names)):
            return self.plain(node)

    ListComp = SetComp = GeneratorExp = _comprehension

    def function(self, node: ast.FunctionDef | ast.Lambda) -> object:
        arguments = node.args
        defaults = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
        self.arguments |= {text for default in defaults if (text := string(default))}
        outside = tuple(self.visit(default) for default in defaults)
        outside += tuple(self.visit(each) for each in getattr(node, "decorator_list", []))
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        starred = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
        form = tuple(
            (a.arg, "constexpr" in ast.unparse(a.annotation) if a.annotation else False)
            for a in (*every, *starred)
        )
        counts = len(arguments.posonlyargs), len(arguments.args), bool(arguments.vararg)
        inside = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else undocumented(node)
        names = bound(inside, self.package) | {a.arg: None for a in (*every, *starred)}
        given = frozenset(a.arg for a in (*every, *starred))
        own = not self.scopes or isinstance(node, ast.Lambda)
        name = None if own else node.name
        with self.scope(_Scope(names, given)):
            return (type(node).__name__, name, form, counts, outside, self.block(inside))

    FunctionDef = AsyncFunctionDef = Lambda = function

    def ClassDef(self, node: ast.ClassDef) -> object:
        outside = tuple(self.visit(n) for n in (node.bases, node.keywords, node.decorator_list))
        name = node.name if self.scopes else None
        inside = undocumented(node)
        with self.scope(_Scope(bound(inside, self.package), of_class=True)):
            return ("ClassDef", name, outside, self.block(inside))

    def AnnAssign(self, node: ast.AnnAssign) -> object:
        """A class's annotations say what its fields are; elsewhere they are words."""
        said = None
        if self.scopes and self.scopes[-1].of_class:
            said = self.quietly(node.annotation)
        return ("AnnAssign", said, self.visit(node.target), self.visit(node.value))

    # -- calls that choose by name

    def Call(self, node: ast.Call) -> object:
        called = ast.unparse(node.func).rpartition(".")[2]
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        self.arguments |= {text for value in values if (text := string(value))}
        if called == "getattr" and len(node.args) > 1:
            name, attributes = chain(node.args[0])
            found, lazy = self.look_up(name, attributes) if name else (None, False)
            if found is not None and found.kind == "module":
                rest = tuple(map(self.quietly, node.args[2:]))
                if wanted := string(node.args[1]):
                    return ("getattr", self.reference(name, [*attributes, wanted]), rest)
                self.link("attribute", found.module, "", lazy)
                return ("getattr", "link", self.quietly(node.args[1]), rest)
        if called in ("iter_modules", "walk_packages"):
            self.link("discovery", self.package, "", lazy=True)
        if called in ("import_module", "__import__") and node.args:
            self.link("import", self.beginning(node.args[0]), "", lazy=True)
        return self.plain(node)

    def beginning(self, node: ast.expr) -> str:
        """The known beginning of a module's name, ending with a dot if more comes."""
        if text := string(node):
            return text
        if not isinstance(node, ast.JoinedStr):
            return ""
        known = ""
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                if ast.unparse(part.value) in ("__name__", "__package__"):
                    known += self.package
                    continue
                break
            known += str(part.value)
        return known


def undocumented(node: ast.FunctionDef | ast.ClassDef) -> list[ast.stmt]:
    documented = ast.get_docstring(node, clean=False) is not None
    return node.body[1:] if documented else node.body


def chain(node: ast.expr) -> tuple[str | None, list[str]]:
    """`a.b.c` as a name and its attributes; None where something else than a name begins it."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.insert(0, node.attr)
        node = node.value
    return (node.id, attributes) if isinstance(node, ast.Name) else (None, [])


def string(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def first_string(node: ast.AST) -> str | None:
    """The name of a table's row, `Row("name", ...)`."""
    return string(node.args[0]) if isinstance(node, ast.Call) and node.args else None


def rows_of(keys: list[Any]) -> frozenset[str]:
    """The keys of a table; none where they are not all strings."""
    table = len(keys) > 1 and all(isinstance(key, str) for key in keys)
    return frozenset(keys) if table else frozenset()


def run_option(node: ast.AST) -> str | None:
    """The option's name in `options.name` or `config.options.name`."""
    name, attributes = chain(node) if isinstance(node, ast.Attribute) else (None, [])
    parts = [part for part in (name, *attributes) if part not in (None, "self", *OF_THE_RUN)]
    return parts[0] if name and len(parts) == 1 and {name, *attributes} & {*OF_THE_RUN} else None


def decided(guard: Guard, values: Mapping[str, Any], rows: frozenset[str]) -> bool:
    """Tell whether a run with these values, which looks up these rows, can come there."""
    if guard.test is None:
        wanted = guard.keys & rows
        return not wanted or guard.key in wanted
    outcome = evaluated(guard.test, values)
    return outcome is UNKNOWN or bool(outcome) == guard.holds


UNKNOWN = object()


def evaluated(node: ast.expr, values: Mapping[str, Any]) -> Any:
    """The value of a test of a run's options, UNKNOWN where it is one of something else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        parts = [evaluated(each, values) for each in node.elts]
        return UNKNOWN if UNKNOWN in parts else parts
    if isinstance(node, ast.Name) and node.id in GIVEN:
        return values.get(node.id, UNKNOWN)
    if isinstance(node, ast.Attribute):
        return values.get(run_option(node), UNKNOWN)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        value = evaluated(node.operand, values)
        return UNKNOWN if value is UNKNOWN else not value
    if isinstance(node, ast.BoolOp):
        parts = [evaluated(each, values) for each in node.values]
        ends = isinstance(node.op, ast.Or)
        if any(part is not UNKNOWN and bool(part) == ends for part in parts):
            return ends
        return UNKNOWN if UNKNOWN in parts else not ends
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return compared(
            node.ops[0], *(evaluated(e, values) for e in (node.left, *node.comparators))
        )
    return UNKNOWN


def compared(kind: ast.cmpop, left: Any, right: Any) -> Any:
    if UNKNOWN in (left, right):
        return UNKNOWN
    if isinstance(kind, ast.Eq | ast.Is):
        return left == right
    if isinstance(kind, ast.NotEq | ast.IsNot):
        return left != right
    if isinstance(kind, ast.In | ast.NotIn) and isinstance(right, list):
        return (left in right) == isinstance(kind, ast.In)
    return UNKNOWN
