"""Fingerprints of chapters. A chapter is executed again when its code, a definition of the package
that it reaches, a published record that it names or a verdict that it shows is no longer what it
was.

The answer of the last execution is stored in the notebook's metadata (`layernorm`), so that a fresh
clone knows that its outputs are current. Definitions are followed and compared as for records
(`layernorm.lab.records.closure`): words, formatting, names and places of files change no output,
and an import of something that was only moved is the same import. Checks of claims are not
followed: a chapter shows what the stored verdicts say, and tests hold these to the checks. Prose
counts in `text` only, which asks for no execution."""

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode
from pairs import ROOT, code_cells, digest, key

from layernorm.lab import claims
from layernorm.lab.claims import Claim, Finding, pages
from layernorm.lab.claims.verdicts import FIELDS, Stored
from layernorm.lab.records.closure import CELLS, Code
from layernorm.lab.records.names import PACKAGE, Name
from layernorm.lab.records.published import values

CLAIMS, EXPERIMENTS = f"{PACKAGE}.lab.claims", f"{PACKAGE}.lab.experiments"
SAID = ("id", "statement", "said_by", "kind", "chapter", "rule", "runs")


def statements(cell: NotebookNode) -> list[ast.stmt]:
    """Return a cell's syntax tree; nothing where it has none, which executing it will report."""
    try:
        return ast.parse(TransformerManager().transform_cell(cell.source)).body
    except SyntaxError:
        return []


@cache
def package(root: Path) -> Code:
    return Code(root / PACKAGE)


class Used(NamedTuple):
    """The package's code that a chapter's cells reach."""

    digest: str
    definitions: frozenset[Name]
    named: frozenset[str]  # the strings in the cells
    strings: frozenset[str]  # these, and those that functions are called with in what they reach


def reached(notebook: NotebookNode, root: Path = ROOT) -> Used:
    """Follow the cells and the plans of the experiments that they name. What the package looks up
    by a name, all experiments and all files of claims, is followed from there alone."""
    code = package(root)
    cells = code.cells([each for cell in code_cells(notebook) for each in statements(cell)])
    plans = [
        (module, "EXPERIMENT")
        for module in code.defining.get("EXPERIMENT", ())
        if cells.strings.intersection(module.split(".")[3:])
    ]

    def keep(module: str) -> bool:
        return not module.startswith((f"{CLAIMS}.", f"{EXPERIMENTS}."))

    found = code.reach([CELLS, *plans], keep=keep)
    given = (code.shape(name)[0].arguments for name in found.definitions)
    return Used(found.digest, found.definitions, cells.strings, cells.strings.union(*given))


@cache
def stored() -> list[tuple[Claim, Finding]]:
    """Return all claims with what was found when they were decided last, in the order of the stored
    verdicts: that of `claims.all` depends on what a process has imported before."""
    found = Stored()
    at = {name: place for place, name in enumerate(found.verdicts)}
    known = sorted(claims.all(), key=lambda claim: (at.get(claim.id, len(at)), claim.id))
    return [(claim, found.finding(claim)) for claim in known]


def shown(
    name: str, strings: frozenset[str], known: Iterable[tuple[Claim, Finding]]
) -> list[tuple[Claim, Finding]]:
    """Return the claims that a chapter may show: those of its number, those that its strings name
    (by the part before the stroke, too); for a page that belongs to no chapter, all claims."""
    if name == pages.SIDE_PATHS:
        strings = strings.union(pages.IDS)
    elif not name[:2].isdigit():
        return [*known]
    return [
        (claim, found)
        for claim, found in known
        if claim.chapter == name[:2] or {claim.id, claim.id.partition("/")[0]} & strings
    ]


def records_named(used: Used, root: Path) -> list[Path]:
    """The published records whose experiment or benchmark one of the strings names."""
    names = used.strings
    if f"{PACKAGE}.lab.benchmarks.measure.resume" in {module for module, _ in used.definitions}:
        names = names.union(f"bench_{name}" for name in names)
    published = sorted((root / PACKAGE).rglob("records/published/*.json"))
    return [path for path in published if path.stem.partition("-")[0] in names]


def fingerprint(
    notebook: NotebookNode,
    name: str,
    root: Path = ROOT,
    known: Iterable[tuple[Claim, Finding]] | None = None,
) -> dict[str, str]:
    """`text` covers all cells, the other four entries what the outputs depend on.

    Args:
        name: the chapter's.
        root: the folder of the package.
        known: claims with their verdicts; default: all, as they are stored.
    """
    used = reached(notebook, root)
    modules = {module for module, _ in used.definitions}
    reads = f"{PACKAGE}.lab.records.published" in modules
    records = records_named(used, root) if reads else []
    shape = [
        (key(cell)[2], *package(root).cells(statements(cell))) for cell in code_cells(notebook)
    ]
    verdicts = []
    if f"{CLAIMS}.registry" in modules:
        verdicts = shown(name, used.named, stored() if known is None else known)
    return {
        "text": digest([key(cell) for cell in notebook.cells]),
        "code": digest([(tags, tree) for tags, tree, *_ in shape]),
        "definitions": used.digest,
        "records": digest([(path.name, digest(values(path.read_bytes()))) for path in records]),
        "verdicts": digest(
            [
                ([getattr(claim, f) for f in SAID], [getattr(finding, f) for f in FIELDS])
                for claim, finding in verdicts
            ]
        ),
    }
