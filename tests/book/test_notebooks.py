"""Every chapter's two files agree, its outputs are current, and its cells keep to the style."""

import functools
import re

import pairs
import pytest
from execute import Chapter

FOLDER = pairs.ROOT / "notebooks"
NAMES = sorted({path.stem for path in FOLDER.iterdir() if path.suffix in (".md", ".ipynb")})
each_chapter = pytest.mark.parametrize(
    "chapter", sorted(FOLDER.glob("*.md")), ids=lambda path: path.stem, indirect=True
)
read = functools.cache(Chapter.read)  # takes a second for each chapter, which collecting need not


@pytest.fixture
def chapter(request):
    return read(request.param)


def test_every_chapter_is_a_pair():
    assert NAMES, "there are no notebooks"
    for name in NAMES:
        assert re.fullmatch(r"\d\d-[a-z0-9-]+|side-paths|the-ledger|ten-implementations", name), (
            name
        )
        for suffix in (".md", ".ipynb"):
            assert (FOLDER / name).with_suffix(suffix).exists(), f"{name}{suffix} is missing"


@each_chapter
def test_the_pair_can_be_published(chapter):
    size = chapter.path.stat().st_size
    assert pairs.problems(pairs.read_text(chapter.text_path), chapter.stored, size) == []


@each_chapter
def test_outputs_are_current(chapter):
    assert not chapter.reason, f"{chapter.reason}: run `make book` and commit the notebook"


@each_chapter
def test_jupyterlab_would_not_change_the_text(chapter):
    saved = pairs.as_text(pairs.read_text(chapter.text_path))
    assert saved == chapter.text_path.read_text(encoding="utf-8"), "run tools/execute.py --tidy"


def test_what_chapter_11_says_of_times_was_so_where_it_was_built():
    """No cell fails on a machine where it is not, or on one that does something else meanwhile."""
    chapter = read(next(FOLDER.glob("11-*.md")))
    (cell,) = (each for each in chapter.stored.cells if "pd.Series(said" in each.source)
    answers = re.findall(r"(True|False)$", cell.outputs[1]["data"]["text/plain"], re.MULTILINE)
    assert answers == ["True"] * 8
