"""A chapter's slides: what the structure of its cells selects, and what stays out."""

import re

import nbformat
import pairs
import pytest
import slides

PICTURE = {"image/png": "iVBORw0KGgo="}
DRAWN = {"mystnb": {"figure": {"caption": "A caption."}, "image": {"alt": 'Two "curves".'}}}
VERDICT = (
    '<table class="dataframe claims"><tbody><tr><td>held: a claim.<details><summary>source'
    "</summary>the rule</details></td></tr></tbody></table>"
)


def code(source: str, data: dict | None = None, **metadata: object) -> nbformat.NotebookNode:
    outputs = [nbformat.v4.new_output("display_data", data=data)] if data else []
    return nbformat.v4.new_code_cell(source, outputs=outputs, metadata=metadata)


def text(source: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_markdown_cell(source)


CELLS = [
    text("# A chapter"),
    code("import sys", tags=["remove-cell"]),
    text("It asks why.\n\nMore words."),
    text("## Before you measure\n\nWrite:\n\n1. Which?\n2. How many?"),
    code("import torch"),
    text(
        "## An equation\n\nIn [chapter 2](02-b.ipynb#a), as said.\n\nThen it reads\n\n$$\na = b\n$$"
    ),
    code("plot()", PICTURE, **DRAWN),
    code("plot()", PICTURE, **DRAWN),
    text("Prose.\n\n**Prediction 1.** It was more.\n\nNothing answers here."),
    text("## A program\n\nIt is short."),
    code("def hidden(): ...", tags=["hide-input"]),
    code("x = f(2)[1](y)"),
    code("def shown(x):\n    return f(2)[1](x)"),
    text("### Nothing to show\n\nWords stand alone. The next cell computes it:"),
    text("## The verdicts\n\nBy rules."),
    code("claims.show()", {"text/html": VERDICT}),
    text("## What we learned\n\nThis.\n\n## Exercises\n\n**Exercise 1.** Do. *Solution:* done so."),
    code("answer = 42"),
    text("**Exercise 2 (open).** Try. *Hint:* think.\n\n## Further reading\n\nNone."),
]


@pytest.fixture
def made(tmp_path) -> list[str]:
    nbformat.write(nbformat.v4.new_notebook(cells=CELLS), tmp_path / "03-a.ipynb")
    return slides.of_chapter(tmp_path / "03-a.md", "Why?")


def test_the_structure_selects(made):
    assert [re.match("#+ (.*)", slide)[1] for slide in made] == [
        "A chapter", "A chapter", "Before you measure", "An equation", "An equation", "A program",
        "Nothing to show", "The verdicts", "What we learned", "Exercises",
    ]  # fmt: skip
    assert made[0].endswith("\n\nWhy?")
    assert made[1] == "## A chapter\n\nIt asks why."
    assert made[2].endswith("2. How many?")
    equation, answer, program, words = made[3:7]
    assert equation.startswith("## An equation\n\nIn [chapter 2]")
    assert "Then it reads\n\n$$\na = b\n$$" in equation
    assert equation.count("<img") == equation.count("A caption.") == 1
    assert 'alt="Two &quot;curves&quot;."' in equation
    assert answer == "## An equation\n\n**Prediction 1.** It was more."
    assert program.endswith("```python\ndef shown(x):\n    return f(2)[1](x)\n```")
    assert words.endswith("Words stand alone."), "a colon that leads to nothing"


def test_what_is_folded_and_what_is_solved_stay_out(made):
    everything = "\n".join(made)
    assert "held: a claim." in everything
    for left_out in ("the rule", "hidden", "done so", "42", "think", "None.", "Nothing answers"):
        assert left_out not in everything


def test_links_lead_to_the_published_pages(made):
    owner, name = slides.owner_and_name(pairs.address())
    assert f"(https://{owner}.github.io/{name}/notebooks/02-b.html#a)" in made[3]


def test_a_slide_holds_so_many_lines(tmp_path):
    items = "\n".join(f"{n}. {'word ' * 60}" for n in range(9))
    cells = [text("# A\n\nB."), text(f"## What we learned\n\n{items}")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "03-a.ipynb")
    _, _, *learned = slides.of_chapter(tmp_path / "03-a.md", "")
    parts = [list(slides.blocks(slide)) for slide in learned]
    assert len(parts) > 2
    assert [title for title, *_ in parts] == ["## What we learned"] * len(parts)
    assert [item[:2] for _, *items in parts for item in items] == [f"{n}." for n in range(9)]
    for _, *shown in parts:
        assert sum(slides.measured(item).lines for item in shown) <= slides.LINES


def test_every_chapter_asks_and_answers():
    """The rules find in each chapter what they look for."""
    for path in sorted((pairs.ROOT / "notebooks").glob("[0-9]*.md")):
        found = slides.of_chapter(path, "Which?")
        shown = "\n".join(found)
        assert re.search(r"(?m)^## Before you |^> \*\*Predict", shown), path
        assert slides.ANSWER.search(shown), path
        assert "## What we learned" in shown, path
        assert "## Exercises" in shown, path
        assert "Solution" not in shown, path
        assert "<img" in shown or "```python" in shown, path


def test_without_reveal_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(slides, "REVEAL", ("reveal", "no_such_package", "dist"))
    with pytest.raises(SystemExit, match=r"no_such_package: pip install .*\[teach\]"):
        slides.main(["03"], tmp_path)
