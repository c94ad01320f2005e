"""A chapter's exercises as an assignment: its cells, and nbgrader's grades of them."""

import os
import shutil
import sys
from pathlib import Path

import assignment
import nbformat
import pairs
import pytest
from apart import python

CHAPTER = """---
kernelspec:
  display_name: Python 3 (ipykernel)
  language: python
  name: python3
---

# A chapter

```{code-cell} ipython3
total = 0
```

## Exercises

**Exercise 1: a sum.** Add one and two. *Hint:* count. *Solution:* It is three.

```{code-cell} ipython3
# The first is one.
total = 1 + 2
# Checked twice.
assert total == 3
print(total)
```

**Exercise 2: a product.** Write `twice`. *Solution:*

```{code-cell} ipython3
def twice(x):
    return 2 * x


for n in range(3):
    assert twice(n) == n + n
```

**Exercise 3 (open).** Go on.

## Further reading

None.
"""


@pytest.fixture
def made(tmp_path) -> nbformat.NotebookNode:
    path = tmp_path / "chapter.md"
    path.write_text(CHAPTER)
    return assignment.assignment(pairs.read_text(path))


def graded(notebook: nbformat.NotebookNode) -> dict[str, nbformat.NotebookNode]:
    cells = [cell for cell in notebook.cells if "nbgrader" in cell.metadata]
    return {cell.metadata.nbgrader.grade_id: cell for cell in cells}


def test_a_solution_is_parted_from_its_checks(made):
    cells = graded(made)
    code, checks = cells["exercise-1-3-code"], cells["exercise-1-3-test"]
    assert code.source == (
        "# Define: total\n### BEGIN SOLUTION\n# The first is one.\ntotal = 1 + 2\n### END SOLUTION"
    )
    assert checks.source == "# Checked twice.\nassert total == 3\nprint(total)"
    assert code.metadata.nbgrader.solution
    assert not code.metadata.nbgrader.grade
    assert checks.metadata.nbgrader.locked
    assert checks.metadata.nbgrader.points == 1
    assert cells["exercise-2-5-test"].source.startswith("for n in range(3):")


def test_words_are_graded_by_the_teacher(made):
    cells = graded(made)
    assert "It is three." in cells["exercise-1"].source
    assert cells["exercise-1"].metadata.nbgrader.points == 1
    assert cells["exercise-3"].metadata.nbgrader.points == 3
    shown = [cell.source for cell in made.cells if "nbgrader" not in cell.metadata]
    assert any(text.endswith("*Hint:* count.") for text in shown)
    assert not any("Solution" in text for text in shown)


def test_a_name_from_before_does_not_answer(made):
    """`total` is 0 when the exercises begin: without deleting it a check of it could pass."""
    cells = graded(made)
    assert "['total']" in cells["exercise-1-3-fresh"].source
    assert "exercise-2-5-fresh" not in cells


def test_all_else_is_locked(made):
    assert graded(made)["cell-1"].metadata.nbgrader.locked


CHAPTERS = sorted((pairs.ROOT / "notebooks").glob("*.md"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_chapter(path):
    chapter = pairs.read_text(path)
    if not any("## Exercises" in cell.source for cell in chapter.cells):
        with pytest.raises(ValueError, match="no exercises"):
            assignment.assignment(chapter)
        return
    made = assignment.assignment(chapter)
    cells = graded(made)
    assert len(cells) == sum("nbgrader" in cell.metadata for cell in made.cells)
    assert not any(
        "*Solution" in cell.source for cell in made.cells if "nbgrader" not in cell.metadata
    )
    for name, cell in cells.items():
        if cell.metadata.nbgrader.grade and cell.cell_type == "code":
            task = cells[name.removesuffix("-test").removesuffix("-code") + "-code"]
            assert task is cell or task.source.startswith("# Define: ")
    kept = "\n".join(cell.source for cell in made.cells)
    for cell in pairs.code_cells(chapter):
        for line in filter(str.strip, cell.source.splitlines()):
            assert line in kept


def test_command(tmp_path, capsys):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (folder / "01-chapter.md").write_text(CHAPTER)
    course = tmp_path / "course"
    assignment.main(["01"], course, folder)
    file = course / "source" / "01-chapter" / "01-chapter.ipynb"
    assert f"{file}: 6 points" in capsys.readouterr().out
    nbformat.validate(nbformat.read(file, 4))
    with pytest.raises(SystemExit, match="is there already; delete it"):
        assignment.main(["01"], course, folder)
    with pytest.raises(SystemExit, match="no chapter's name starts with '99'; there are: 01-ch"):
        assignment.main(["99"], course, folder)


def test_nbgrader(tmp_path):
    """Released, handed in with the solutions, empty and with one mistake, and graded."""
    pytest.importorskip("nbgrader", reason="nbgrader is not installed: pip install -e '.[teach]'")
    from nbgrader.api import Gradebook

    name = "01-chapter"
    folder, course = tmp_path / "notebooks", tmp_path / "course"
    folder.mkdir()
    (folder / f"{name}.md").write_text(CHAPTER)
    assignment.main(["01"], course, folder)

    def run(command: str) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = python("-m", "nbgrader", command, name, cwd=course, env=os.environ | {"PATH": path})
        assert done.returncode == 0, done.stderr

    run("generate_assignment")
    file = f"{name}/{name}.ipynb"
    released = (course / "release" / file).read_text()
    assert "1 + 2" not in released
    assert "It is three." not in released
    for student, source in {"all": "source", "none": "release", "half": "source"}.items():
        to = course / "submitted" / student / file
        to.parent.mkdir(parents=True)
        shutil.copy(course / source / file, to)
    to = course / "submitted" / "half" / file
    to.write_text(to.read_text().replace("1 + 2", "1 + 1"))
    run("autograde")
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        scores = {s.student.id: s.score for s in book.assignment_submissions(name)}
    assert scores == {"all": 2, "none": 0, "half": 1}
