"""A chapter is a pair: the text `NN-name.md` that people edit, and the notebook `NN-name.ipynb`
that is executed. Here they are read, compared, joined and written."""

import ast
import hashlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
STYLE = ROOT / "notebooks" / "ruff.toml"
MOST_BYTES = 1_000_000
MEDIAN_LINES, MOST_LINES = 5, 15
MOST_CELLS, MOST_WORDS = 45, 2500  # of code; of text, without formulas
MOST_COLUMNS = tomllib.loads(STYLE.read_text())["line-length"]
MOST_NAMES = 6  # that a chapter imports before it begins
LANGUAGE = {"name": "python", "pygments_lexer": "ipython3"}


def address() -> str:
    """The repository's address; pyproject.toml is the one place where it stands."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]


def colab_cell() -> str:
    """The first code cell of every chapter: on Colab it installs the package, elsewhere nothing."""
    return (
        "import sys\n\n"
        'if "google.colab" in sys.modules:\n'
        f'    %pip install -q "layernorm[chapters] @ git+{address()}"'
    )


def digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def key(cell: NotebookNode) -> tuple:
    """Return what is compared of a cell; the repository may move without changing a chapter."""
    shown = {k: cell.metadata[k] for k in ("tags", "mystnb") if cell.metadata.get(k)}
    source = cell.source.replace(address(), "ADDRESS")
    return cell.cell_type, source, repr(sorted(shown.items()))


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell: NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags", []))


def read_text(path: Path) -> NotebookNode:
    """The notebook that the text describes: without outputs, with cell ids made from the cells."""
    notebook = jupytext.read(path, fmt="md:myst")
    kept = {k: notebook.metadata[k] for k in ("kernelspec", "run_alone") if k in notebook.metadata}
    if "kernelspec" not in kept:
        raise ValueError(f"{path}: the front matter must name a kernelspec (see CONTRIBUTING.md)")
    notebook.metadata = nbformat.from_dict({**kept, "language_info": LANGUAGE})
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        name = digest(key(cell))[:8]
        seen[name] = seen.get(name, 0) + 1
        cell.id = name if seen[name] == 1 else f"{name}-{seen[name]}"
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def read_notebook(path: Path) -> NotebookNode | None:
    return nbformat.read(path, as_version=4) if path.exists() else None


def as_text(notebook: NotebookNode) -> str:
    """The text as JupyterLab would save it, by the rules of pyproject.toml."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["jupytext"]
    shown = nbformat.from_dict(notebook)
    shown.metadata["jupytext"] = {k: v for k, v in rules.items() if k.endswith("_filter")}
    return jupytext.writes(shown, fmt="md:myst")


def tidy(path: Path) -> None:
    """Rewrite a text as JupyterLab saves it, with its code formatted by ruff."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = Path(folder) / "text.ipynb"
        nbformat.write(read_text(path), notebook)
        command = [sys.executable, "-m", "ruff", "format", "-q", "--config", STYLE, notebook]
        subprocess.run(command, check=True)
        replace(path, as_text(nbformat.read(notebook, as_version=4)))


def with_outputs(text: NotebookNode, executed: NotebookNode) -> NotebookNode:
    """The text's cells with the outputs of the executed notebook, whose code must be the same."""
    for new, old in zip(code_cells(text), code_cells(executed), strict=True):
        new.outputs, new.execution_count = old.outputs, old.execution_count
    return text


def chapters(beginnings: Iterable[str], folder: Path = ROOT / "notebooks") -> list[Path]:
    """The texts whose names start with these, in their order; all without any.

    Raises `SystemExit` for a beginning that no name has.
    """
    texts, found = sorted(folder.glob("*.md")), []
    for beginning in beginnings:
        mine = [path for path in texts if path.stem.startswith(beginning)]
        if not mine:
            known = ", ".join(path.stem for path in texts) or "none"
            sys.exit(f"no chapter's name starts with {beginning!r}; there are: {known}")
        found += mine
    return list(dict.fromkeys(found or texts))


def replace(path: Path, content: str) -> None:
    """Under a temporary name first: an interruption leaves the old file. An equal file stays, and
    another one's mode."""
    old, new = path.read_bytes() if path.exists() else None, content.encode()
    if old == new:
        return
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(new)
    if old is not None:
        shutil.copymode(path, temporary)
    os.replace(temporary, path)


def write(notebook: NotebookNode, path: Path) -> None:
    nbformat.validate(notebook)
    replace(path, nbformat.writes(notebook) + "\n")


def problems(text: NotebookNode, notebook: NotebookNode, size: int) -> list[str]:
    """Return the reasons not to publish a pair; empty when all is well."""
    found = []
    if [key(c) for c in text.cells] != [key(c) for c in notebook.cells]:
        found.append("the notebook's cells differ from the text's: run `make book`")
    if not code_cells(text) or code_cells(text)[0].source != colab_cell():
        found.append("the first code cell must be the one `python tools/execute.py --colab` prints")
    counts = [cell.execution_count for cell in code_cells(notebook) if cell.source.strip()]
    if counts != list(range(1, len(counts) + 1)):
        found.append(f"not executed once, in order: the execution counts are {counts}")
    for number, cell in enumerate(code_cells(notebook), 1):
        found += [f"code cell {number}: {problem}" for problem in cell_problems(cell)]
    for number, cell in enumerate(code_cells(text), 1):
        found += [f"code cell {number}: {problem}" for problem in wide_lines(cell)]
    if size > MOST_BYTES:
        found.append(f"{size:,} bytes; at most {MOST_BYTES:,}: show fewer or smaller figures")
    for most, count, what in (
        (MOST_CELLS, len(code_cells(text)), "code cells"),
        (MOST_WORDS, words(text), "words of text"),
    ):
        if count > most:
            found.append(f"{count:,} {what}; at most {most:,}: a chapter is one walk")
    ignored = [
        cell for cell in code_cells(text) if {"nbval-ignore-output", "nbval-skip"} & tags(cell)
    ]
    if len(ignored) > len(code_cells(text)) / 3:
        found.append(f"{len(ignored)} cells are not compared, more than a third: assert and print")
    names = first_names(text)
    if len(names) > MOST_NAMES:
        found.append(
            f"the chapter begins by importing {', '.join(names)}: at most {MOST_NAMES}, and the "
            "others where they are first used"
        )
    shown = [cell for cell in code_cells(text) if not {"hide-input", "hide-cell"} & tags(cell)]
    lengths = [len(cell.source.splitlines()) for cell in shown] or [0]
    if statistics.median(lengths) > MEDIAN_LINES:
        found.append(f"the median length of the cells not folded is above {MEDIAN_LINES} lines")
    return found


def words(text: NotebookNode) -> int:
    """Count the words of a chapter's text; a formula within a line is one, a displayed one none."""
    prose = "\n".join(cell.source for cell in text.cells if cell.cell_type == "markdown")
    for pattern, instead in (
        (r"(?s)\$\$.*?\$\$", ""),
        (r"\$[^$]*\$", "x"),
        (r"(?m)^(:\w+:|[:`]{3}).*$", ""),  # directives
        (r"\]\([^)]*\)", "]"),
    ):
        prose = re.sub(pattern, instead, prose)
    return sum(any(map(str.isalnum, word)) for word in prose.split())


def wide_lines(cell: NotebookNode) -> list[str]:
    """Return the lines that a page would cut off; nobody sees the cell that installs on Colab."""
    if cell.source == colab_cell():
        return []
    lines = [line for line in cell.source.splitlines() if len(line) > MOST_COLUMNS]
    return [f"{len(line)} columns; at most {MOST_COLUMNS}: {line.strip()}" for line in lines]


def first_names(text: NotebookNode) -> list[str]:
    """The names that the first code cell after Colab's imports, and cells of imports after it."""
    names: list[str] = []
    for number, cell in enumerate(code_cells(text)[1:]):
        lines = [line for line in cell.source.splitlines() if line.lstrip()[:1] not in ("%", "!")]
        statements = ast.parse("\n".join(lines)).body
        imports = [node for node in statements if isinstance(node, ast.Import | ast.ImportFrom)]
        if number and (not imports or len(imports) < len(statements)):
            break
        names += [alias.asname or alias.name for node in imports for alias in node.names]
    return names


def cell_problems(cell: NotebookNode) -> list[str]:
    found = []
    data = [output.get("data", {}) for output in cell.outputs]
    streams = {output.name for output in cell.outputs if output.output_type == "stream"}
    if (length := len(cell.source.splitlines())) > MOST_LINES:
        found.append(f"{length} lines; at most {MOST_LINES}: move plumbing into the package")
    if any(out.output_type == "error" for out in cell.outputs) != (
        "raises-exception" in tags(cell)
    ):
        found.append(
            "an error and the tag raises-exception go together; here is one without the other"
        )
    if "stderr" in streams:
        found.append("wrote to stderr (a warning or a progress bar), which no two runs repeat")
    if any("application/vnd.jupyter.widget-view+json" in bundle for bundle in data):
        found.append("stores a widget, which a page would fetch from another machine")
    if re.search(r"/(home|root|Users|tmp)/", repr(cell.outputs)) or str(ROOT) in repr(cell.outputs):
        found.append("shows a path of the machine it ran on")
    return found
