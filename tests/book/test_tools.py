"""The tools that judge a pair of files, move the repository's address and check links."""

import json
import shutil
import subprocess

import address
import links
import nbformat
import pairs
import pytest
from book.test_execute import HEAD, cell

CHAPTER = HEAD + cell("1 + 1")

# What keeps a pair from being published

LONG = "\n".join(f"x{n} = {n}" for n in range(pairs.MOST_LINES + 1))
OUTPUT = nbformat.v4.new_output
WIDGET = {"application/vnd.jupyter.widget-view+json": {}}


def store(*outputs: nbformat.NotebookNode, tags: tuple[str, ...] = ()):
    """A change of the last cell: these outputs, and tags in the text and the notebook."""

    def change(text: nbformat.NotebookNode, notebook: nbformat.NotebookNode) -> None:
        notebook.cells[-1].outputs = list(outputs)
        for cells in (text.cells, notebook.cells):
            cells[-1].metadata["tags"] = list(tags)

    return change


def lengthen(text: nbformat.NotebookNode, notebook: nbformat.NotebookNode) -> None:
    text.cells[-1].source = notebook.cells[-1].source = LONG


def widen(text: nbformat.NotebookNode, _: nbformat.NotebookNode) -> None:
    text.cells[-1].source = f"{'x' * 75} = 1"


def import_seven(*cells: int):
    """A change of the text: seven names imported before the chapter begins, so many a cell."""

    def change(text: nbformat.NotebookNode, _: nbformat.NotebookNode) -> None:
        lines = [f"from math import {name}" for name in ("pi", "e", "tau", "sin", "cos", "tan")]
        lines.append("import numpy as np")
        for count in cells:
            source, lines = "\n".join(lines[:count]), lines[count:]
            text.cells.insert(-1, nbformat.v4.new_code_cell(source))

    return change


SPOILED = {
    "cells differ": lambda _, nb: nb.cells[-1].update(source="1 + 2"),
    "the notebook's cells differ": lambda _, nb: nb.cells[-1].metadata.update(tags=["other"]),
    "first code cell must be": lambda text, _: text.cells[1].update(source="import sys"),
    "not executed once, in order": lambda _, nb: nb.cells[-1].update(execution_count=7),
    "wrote to stderr": store(OUTPUT("stream", name="stderr", text="a warning")),
    "path of the machine": store(OUTPUT("stream", name="stdout", text=f"in /{'home'}/reader/x.py")),
    "stores a widget": store(OUTPUT("display_data", data=WIDGET)),
    "raises-exception go together": store(OUTPUT("error", ename="E", evalue="", traceback=[])),
    "here is one without the other": store(tags=("raises-exception",)),
    "more than a third": store(tags=("nbval-ignore-output",)),
    "16 lines; at most 15": lengthen,
    "median length": lengthen,
    "cell 2: 79 columns; at most 78: xxx": widen,
    "46 code cells; at most 45": lambda text, _: text.cells.extend(
        nbformat.v4.new_code_cell("1") for _ in range(46 - len(pairs.code_cells(text)))
    ),
    "2,501 words of text; at most 2,500": lambda text, _: text.cells.append(
        nbformat.v4.new_markdown_cell(
            f"$$\na + b\n$$\n[a](b.md) $c + d$ {'e ' * (2499 - pairs.words(text))}"
        )
    ),
    "importing pi, e, tau, sin, cos, tan, np: at most 6": import_seven(7),
    "and the others where they are first used": import_seven(3, 4),
}


@pytest.mark.parametrize("problem", SPOILED)
def test_problems_of_a_pair_are_found(tmp_path, problem):
    (tmp_path / "01-a.md").write_text(CHAPTER)
    text, notebook = (pairs.read_text(tmp_path / "01-a.md") for _ in range(2))
    for count, code in enumerate(pairs.code_cells(notebook), 1):
        code.execution_count = count
    assert pairs.problems(text, notebook, pairs.MOST_BYTES) == []
    assert len(pairs.problems(text, notebook, pairs.MOST_BYTES + 1)) == 1
    SPOILED[problem](text, notebook)
    assert [found for found in pairs.problems(text, notebook, 0) if problem in found]


@pytest.mark.parametrize("tag", ["hide-input", "hide-cell"])
def test_the_median_is_that_of_cells_not_folded(tag, tmp_path):
    (tmp_path / "01-a.md").write_text(CHAPTER)
    text, notebook = (pairs.read_text(tmp_path / "01-a.md") for _ in range(2))
    lengthen(text, notebook)
    of_median = [found for found in pairs.problems(text, notebook, 0) if "median" in found]
    text.cells[-1].metadata["tags"] = [tag]
    of_folded = [found for found in pairs.problems(text, notebook, 0) if "median" in found]
    assert (len(of_median), len(of_folded)) == (1, 0)


def test_a_program_that_is_written_anew_can_still_be_started(tmp_path):
    file = tmp_path / "run"
    file.write_text("exit 0\n")
    file.chmod(0o755)
    pairs.replace(file, "exit 1\n")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("exit 1\n", 0o755)


# The repository's address


def test_one_command_moves_the_repository_and_moves_it_back(tmp_path):
    files = list(address.texts(pairs.ROOT))
    for path in files:
        copy = tmp_path / path.relative_to(pairs.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "-A", "-f"], cwd=tmp_path, check=True)
    owner, name = "someone", "another-name"
    old, new = address.address(), f"https://github.com/{owner}/{name}"
    changed = {p.relative_to(tmp_path).as_posix() for p in address.change(tmp_path, old, new)}
    assert {"pyproject.toml", "_config.yml", "README.md", "CITATION.cff"} <= changed
    chapters = [p for p in files if p.parent.name == "notebooks" and p.suffix in (".md", ".ipynb")]
    assert chapters
    assert {f"notebooks/{p.name}" for p in chapters} <= changed
    for path, text in address.texts(tmp_path).items():
        assert address.strays(text, (owner, name)) == [], path
    for path in tmp_path.glob("notebooks/*.ipynb"):
        json.loads(path.read_text())
    address.change(tmp_path, new, old)
    for path in files:
        assert (tmp_path / path.relative_to(pairs.ROOT)).read_bytes() == path.read_bytes(), path


def test_other_repositories_stay_and_strays_are_found():
    text = (
        "github.com/{0} github.com/{0}-more github.com/{0}.js git+https://github.com/{0}.git {0}."
    )
    moved = address.moved(text.format("a/b"), ("a", "b"), ("c", "d"))
    assert moved == text.format("c/d").replace("c/d-more", "a/b-more").replace("c/d.js", "a/b.js")
    assert address.strays(moved, ("c", "d")) == []
    for start in (
        "git+https://github.com/",
        "git clone https://github.com/",
        "https://colab.research.google.com/github/",
        "https://mybinder.org/v2/gh/",
    ):
        assert address.strays(f"see {start}{'a/b'}/more", ("c", "d"))
    assert address.strays(f"see https://{'a.github.io'}/b/", ("c", "d"))
    with pytest.raises(ValueError, match="OWNER/NAME, got 'somewhere'"):
        address.owner_and_name("somewhere")


# Internal links


def test_broken_links_and_anchors_are_found(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.html").write_text('<p id="here"><a href="../a.html#top">up</a>')
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="sub/b.html#here"></a><a href="#top"></a><a href="#"></a>'
        '<a href="https://example.org/x"></a><img src="data:image/png;base64,AA">'
        '<a href="sub/b.html#gone"></a><img src="gone.png"><a href="mailto:a@b"></a>'
        '<script src="/etc/hostname"></script>'
    )
    assert links.broken(tmp_path) == [
        "a.html: no file for /etc/hostname",
        "a.html: no file for gone.png",
        "a.html: no anchor for sub/b.html#gone",
    ]
