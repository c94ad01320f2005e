"""When must a chapter be executed again? When its code, a definition of the package that it
reaches, or a published record that it names is no longer what it was.

The answer of the last execution is stored in the notebook's metadata (`layernorm`), so that a fresh
clone knows that its outputs are current. Definitions are followed and compared as for records
(`layernorm.lab.records.closure`): words, formatting, names and places of files change no output,
and an import of something that was only moved is the same import. Prose counts in `text` only,
which asks for no execution."""

import ast
import re
from functools import cache
from pathlib import Path

from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode
from pairs import ROOT, code_cells, digest, key

from layernorm.lab.records.closure import CELLS, Code, Reached
from layernorm.lab.records.names import PACKAGE
from layernorm.lab.records.published import values


def statements(cell: NotebookNode) -> list[ast.stmt]:
    """Return a cell's syntax tree; nothing where it has none, which executing it will report."""
    try:
        return ast.parse(TransformerManager().transform_cell(cell.source)).body
    except SyntaxError:
        return []


@cache
def package(root: Path) -> Code:
    return Code(root / PACKAGE)


def reached(notebook: NotebookNode, name: str, root: Path = ROOT) -> Reached:
    """Return the code that a chapter's cells reach. Where a package looks for files that belong to
    one chapter each (`chapter_NN…`), a chapter that has its own reaches those alone."""
    code, chapter = package(root), re.match(r"\d*", name)[0]
    mine = re.compile(rf"chapter_{chapter}(_|$)")
    own = any(mine.match(path.stem) for path in (root / PACKAGE).rglob("chapter_*.py"))

    def keep(module: str) -> bool:
        file = module.rpartition(".")[2]
        return not file.startswith("chapter_") or not own or bool(mine.match(file))

    code.cells([statement for cell in code_cells(notebook) for statement in statements(cell)])
    return code.reach([CELLS], keep=keep)


def records_named(strings: frozenset[str], root: Path) -> list[Path]:
    """The published records whose experiment one of the strings names."""
    published = sorted((root / PACKAGE).rglob("records/published/*.json"))
    return [path for path in published if path.stem.partition("-")[0] in strings]


def fingerprint(notebook: NotebookNode, name: str, root: Path = ROOT) -> dict[str, str]:
    """`text` covers all cells, the other three entries what the outputs depend on."""
    found = reached(notebook, name, root)
    reads = any(module.endswith(".records.published") for module, _ in found.definitions)
    records = records_named(found.strings, root) if reads else []
    shape = [
        (key(cell)[2], *package(root).cells(statements(cell))) for cell in code_cells(notebook)
    ]
    return {
        "text": digest([key(cell) for cell in notebook.cells]),
        "code": digest([(tags, tree) for tags, tree, *_ in shape]),
        "definitions": found.digest,
        "records": digest([(path.name, digest(values(path.read_bytes()))) for path in records]),
    }
