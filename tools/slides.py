"""Slides from the executed chapters: `python tools/slides.py` makes a reveal.js deck of each part
of the book, `tools/slides.py 03 06` one of these chapters, in _build/slides (CONTRIBUTING.md, "A
course"). The decks need no network, and their folder can be carried away.

No text is written for the slides and no cell is marked: a chapter's structure decides. Of the
opening and of each section a deck shows the first paragraph, the first equation with the words
before it and the first figure; where there is neither, the first cell that defines something; then
each paragraph that answers a prediction. The predictions, the verdicts and what was learned are
shown whole, the exercises without their hints and solutions.
"""

import argparse
import math
import re
import shutil
import sys
from collections.abc import Iterator
from html import escape
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin

import nbformat
import yaml
from address import owner_and_name
from assignment import EXERCISE
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbconvert import SlidesExporter
from nbformat import NotebookNode
from pairs import ROOT, address, chapters, read_notebook

LINES, COLUMNS = 16, 70  # of text on a slide, by the sizes in slides.html.j2
FIGURE = 8  # lines that a figure takes at least; it is drawn as high as there is room
EQUATION = re.compile(r"\$\$[^$]*\$\$")
ANSWER = re.compile(r"\b(prediction|question|answer)s?\s+\d|\*\*\w+ question\*\*", re.I)
WORKED = re.compile(r"\*(?:Hint|Solution|First try)[:.]")
QUESTION = re.compile(r"(?m)^\| \[.*?\]\(\.\./notebooks/(.*?)\.ipynb\) \| (.*?) \|")
VERDICTS = re.compile(r"(The )?[Vv]erdicts|Claims of this chapter")
REVEAL = ("reveal", "sphinx_revealjs", "_static/revealjs/dist")
MATHJAX = ("mathjax", "sphinx-mathjax-offline", "static/mathjax")


class Block(NamedTuple):  # markdown that stays together, and about how many lines it takes
    text: str
    lines: float


def measured(text: str) -> Block:
    shown = re.sub(r"\]\([^)]*\)", "", EQUATION.sub("", text))
    lines = sum(math.ceil(len(line) / COLUMNS) for line in shown.splitlines())
    tall = sum(2.5 + equation.count(r"\\") for equation in EQUATION.findall(text))
    return Block(text, lines + tall + 0.5)


def blocks(markdown: str) -> Iterator[str]:
    """Yield headings, paragraphs, equations, quotes, tables and the single items of lists."""
    lines, taken = markdown.splitlines(), 0
    parser = MarkdownIt("commonmark").use(dollarmath_plugin).enable("table")
    for token in parser.parse(markdown):
        if token.map and token.map[0] >= taken and not token.type.endswith("list_open"):
            taken = token.map[1]
            yield "\n".join(lines[slice(*token.map)]).strip()


def linked(text: str, chapter: str) -> str:
    """Return a chapter's text with its relative links leading to the published pages."""
    owner, name = owner_and_name(address())
    base = f"https://{owner}.github.io/{name}/notebooks/{chapter}.html"

    def page(link: re.Match) -> str:
        return f"]({re.sub(r'[.](ipynb|md)(?=$|#)', '.html', urljoin(base, link[1]))})"

    return re.sub(r"\]\(([^)\s]+)\)", page, text)


def sections(path: Path) -> list[tuple[str, list[str | NotebookNode]]]:
    """Return headings, each with the blocks and code cells below it; the first is the title."""
    found = []
    for cell in read_notebook(path).cells:
        text = cell.cell_type == "markdown"
        for part in blocks(linked(cell.source, path.stem)) if text else [cell]:
            if isinstance(part, str) and part.startswith("#"):
                found.append((part.lstrip("# "), []))
            else:
                found[-1][1].append(part)
    return found


def figure(cell: NotebookNode) -> list[Block]:
    """Return the picture that a cell drew, if it has alt text and a caption."""
    about = cell.metadata.get("mystnb", {})
    images = [out.data["image/png"] for out in cell.outputs if "image/png" in out.get("data", {})]
    if not images or not {"figure", "image"} <= set(about):
        return []
    alt, source = escape(about["image"]["alt"]), "".join(images[0].split())
    caption = measured(about["figure"]["caption"])
    image = f'<img alt="{alt}" src="data:image/png;base64,{source}">'
    return [Block(f"{image}\n\n<small>{caption.text}</small>", FIGURE + 0.7 * caption.lines)]


def definition(cell: NotebookNode) -> list[Block]:
    """Return what a cell in the open defines, if it does."""
    tags = " ".join(cell.metadata.get("tags", ()))
    if re.search("hide-|remove-", tags) or not re.search(r"(?m)^(def|class|@)", cell.source):
        return []
    return [Block(f"```python\n{cell.source}\n```", 1 + 0.7 * len(cell.source.splitlines()))]


def verdicts(cell: NotebookNode) -> list[Block]:
    """Return the rows of a table of claims without what is folded under them."""
    html = "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)
    table = re.sub(r"(?s)<details>.*?</details>", "", html)
    rows = re.findall(r"(?s)<tr>.*?</tr>", table) if "dataframe claims" in table else []
    text = [f'<table class="claims">{" ".join(row.split())}</table>' for row in rows]
    return [Block(t, 1.5 + 0.65 * len(re.sub(r"<[^>]*>", "", t)) / COLUMNS) for t in text]


def chosen(title: str, parts: list[str | NotebookNode], opening: bool) -> Iterator[list[Block]]:
    """Yield what a section shows; each group begins a new slide."""
    texts = [part for part in parts if isinstance(part, str)]
    cells = [part for part in parts if not isinstance(part, str)]
    if title.startswith("Before you ") or title == "What we learned":
        yield [measured(t) for t in takewhile(lambda part: isinstance(part, str), parts)]
    elif VERDICTS.fullmatch(title):
        yield [row for cell in cells for row in verdicts(cell)]
    elif title == "Exercises":
        whole = re.split(r"(?m)^(?=\*\*)", "\n\n".join(texts))
        yield [measured(WORKED.split(part)[0].strip()) for part in whole if EXERCISE.match(part)]
    elif title != "Further reading":
        own = [t for t in texts if t.startswith("> ") or (ANSWER.search(t) and not opening)]
        equation = next((n for n, t in enumerate(texts) if EQUATION.search(t) and t not in own), 0)
        picked = sorted({0, max(equation - 1, 0), equation})
        shown = [measured(texts[n]) for n in picked if n < len(texts) and texts[n] not in own]
        drawn = [block for cell in cells for block in figure(cell)][:1]
        if not drawn and not any(map(EQUATION.search, texts)):
            drawn = [block for cell in cells for block in definition(cell)][:1]
        if shown and not drawn:  # nothing follows that a last "So we compute:" would lead to
            shown[-1] = measured(re.sub(r"(?<=[.?!])\s+[A-Z][^.?!]*:$", "", shown[-1].text))
        yield shown + drawn
        yield from ([measured(text)] for text in own)


def of_chapter(path: Path, question: str) -> list[str]:
    """Return the chapter's slides in markdown."""
    found = sections(path.with_suffix(".ipynb"))
    slides = [f"# {found[0][0]}\n\n{question}"]
    for section in found:
        for group in chosen(*section, opening=section is found[0]):
            taken = math.inf
            for block in group:
                if taken + block.lines > LINES:
                    slides.append(f"## {section[0]}")
                    taken = 0
                slides[-1] += f"\n\n{block.text}"
                taken += block.lines
    return slides


def deck(title: str, paths: list[Path], file: Path) -> None:
    """Write a first slide and, to the right of it, a column of slides for each chapter."""
    questions = dict(QUESTION.findall((ROOT / "book" / "index.md").read_text()))
    columns = [of_chapter(path, questions.get(path.stem, "")) for path in paths]
    links = [f"- [{c[0].splitlines()[0][2:]}](#/{number})" for number, c in enumerate(columns, 1)]
    notebook = nbformat.v4.new_notebook()
    for column in ["\n".join([f"# {title}", "", *links])], *columns:
        for number, slide in enumerate(column):
            about = {"slideshow": {"slide_type": "subslide" if number else "slide"}}
            notebook.cells.append(nbformat.v4.new_markdown_cell(slide, metadata=about))
    options = {"exclude_anchor_links": True, "extra_template_paths": [str(Path(__file__).parent)]}
    exporter = SlidesExporter(template_file="slides.html.j2", **options)
    body, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": title}})
    file.write_text(body, encoding="utf-8")
    print(f"{file}: {len(notebook.cells)} slides")


def main(beginnings: list[str], folder: Path) -> None:
    for name, package, inside in (REVEAL, MATHJAX):
        if (spec := find_spec(package)) is None:
            sys.exit(f"slides need {package}: pip install -c constraints.txt -e '.[teach]'")
        shutil.copytree(Path(spec.origin).parent / inside, folder / name, dirs_exist_ok=True)
    if beginnings:
        paths = chapters(beginnings)
        name = "-".join(path.stem.split("-")[0] for path in paths)
        return deck("Layer Normalization", paths, folder / f"{name}.html")
    for part in yaml.safe_load((ROOT / "book" / "_toc.yml").read_text())["parts"]:
        files = [ROOT / f"{chapter['file']}.md" for chapter in part["chapters"]]
        if paths := [path for path in files if path.parent.name == "notebooks"]:
            name = part["caption"].split(":")[0].lower().replace(" ", "-")
            deck(part["caption"], paths, folder / f"{name}.html")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make slides from executed chapters.")
    parser.add_argument("names", nargs="*", help="beginnings of chapters' names; all parts without")
    parser.add_argument("--to", type=Path, default=Path("_build/slides"), help="the decks' folder")
    arguments = parser.parse_args()
    main(arguments.names, arguments.to)
