"""When must a chapter be executed again? When its code, a module of the package that it imports
(directly or through other modules), or a published record that it names is no longer what it was.

The answer of the last execution is stored in the notebook's metadata (`layernorm`), so that a fresh
clone knows that its outputs are current. Modules count as syntax trees without docstrings:
comments, formatting and documentation change no output. Prose counts in `text` only, which asks
for no execution."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode
from pairs import ROOT, code_cells, digest, key

from layernorm.lab.records.staleness import shape

PACKAGE = "layernorm"
DISCOVERY = {"iter_modules", "walk_packages"}


@cache
def source_file(module: str, root: Path) -> Path | None:
    base = root.joinpath(*module.split("."))
    return next((f for f in (base.with_suffix(".py"), base / "__init__.py") if f.is_file()), None)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def mentioned(tree: ast.Module, package: str) -> Iterator[str]:
    """Every dotted name in a tree that could be a module: imports, `package.module` used as an
    attribute, strings given to `import_module`. Names that are no module are dropped later."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name
                bound[name.asname or name.name.split(".")[0]] = (
                    name.name if name.asname else name.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            yield base
            for name in node.names:
                yield f"{base}.{name.name}"
                bound[name.asname or name.name] = f"{base}.{name.name}"
        elif isinstance(node, ast.Constant) and re.fullmatch(r"\w+(\.\w+)+", str(node.value)):
            yield str(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            head, *rest = ast.unparse(node).split(".")
            if head in bound:
                yield ".".join([bound[head], *rest])


def discovered(module: str, tree: ast.Module, root: Path, chapter: str) -> Iterator[str]:
    """A package that looks for its own modules imports them all. Of files that belong to one
    chapter each (`chapter_NN…`), a chapter that has its own depends on those alone."""
    used = {getattr(node, "attr", getattr(node, "id", None)) for node in ast.walk(tree)}
    if not used & DISCOVERY:
        return
    names = sorted(path.stem for path in root.joinpath(*module.split(".")).glob("*.py"))
    of_chapters = {name for name in names if name.startswith("chapter_")}
    own = {name for name in of_chapters if re.match(rf"chapter_{chapter}(_|$)", name)}
    for name in names:
        if name not in of_chapters or name in (own or of_chapters):
            yield f"{module}.{name}"


def closure(tree: ast.Module, root: Path, chapter: str) -> dict[str, ast.Module]:
    """The modules of the package that running `tree` may import, with their syntax trees."""
    found: dict[str, ast.Module] = {}
    waiting = list(mentioned(tree, ""))
    while waiting:
        parts = waiting.pop().split(".")
        if parts[0] != PACKAGE:
            continue
        for module in (".".join(parts[:n]) for n in range(1, len(parts) + 1)):
            path = source_file(module, root)
            if path is None or module in found:
                continue
            found[module] = parse(path)
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            waiting += mentioned(found[module], package)
            waiting += discovered(module, found[module], root, chapter)
    return found


def records_named(trees: list[ast.Module], root: Path) -> list[Path]:
    """The published records whose experiment one of the trees names in a string."""
    strings = {n.value for t in trees for n in ast.walk(t) if isinstance(n, ast.Constant)}
    published = sorted((root / PACKAGE / "records" / "published").glob("*.json"))
    return [path for path in published if path.stem.partition("-")[0] in strings]


def statements(cell: NotebookNode) -> list[ast.stmt]:
    """What Python makes of a cell; nothing where that fails, which executing it will report."""
    try:
        return ast.parse(TransformerManager().transform_cell(cell.source)).body
    except SyntaxError:
        return []


def fingerprint(notebook: NotebookNode, name: str, root: Path = ROOT) -> dict[str, str]:
    """`text` covers all cells, the other three entries what the outputs depend on."""
    tree = ast.Module([statement for c in code_cells(notebook) for statement in statements(c)], [])
    modules = closure(tree, root, re.match(r"\d*", name)[0])
    reads = f"{PACKAGE}.records" in modules
    records = records_named([tree, *modules.values()], root) if reads else []
    return {
        "text": digest([key(cell) for cell in notebook.cells]),
        "code": digest([key(cell) for cell in code_cells(notebook)]),
        "modules": digest(sorted((name, shape(tree)) for name, tree in modules.items())),
        "records": digest([(path.name, path.read_bytes()) for path in records]),
    }
