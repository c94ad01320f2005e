"""The exercises of a chapter as an nbgrader assignment: `python tools/assignment.py 03`, then
`nbgrader generate_assignment` in the course's folder (CONTRIBUTING.md, "A course").

Each solution cell of a chapter ends with asserts about the names that it binds. The statements
before them become a solution that nbgrader takes out, the asserts a locked cell that it grades, the
words after *Solution:* an answer that the teacher grades by hand. All other cells are locked.
"""

import argparse
import ast
import re
import symtable
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from pairs import ROOT, chapters, read_text, write

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
EXERCISE = re.compile(r"\*\*(Exercise )?\d+[ .:(]")
ANSWER = re.compile(r"\s*\*Solution[:.]\*\s*(.*)", re.S)
CONFIG = """c = get_config()
c.CourseDirectory.course_id = "layernorm"
c.ExecutePreprocessor.timeout = 900  # seconds a cell; some train networks
"""


def bound(source: str) -> set[str]:
    """Return the names that a cell binds for those after it."""
    symbols = symtable.symtable(source, "cell", "exec").get_symbols()
    return {s.get_name() for s in symbols if s.is_assigned() or s.is_imported()}


def used(source: str) -> set[str]:
    """Return the names that a cell reads, in functions too."""
    names = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Load)}


def checks(statement: ast.stmt) -> bool:
    """Is it an assert, a call of one (`torch.testing.assert_close`), or a loop over these?"""
    match statement:
        case ast.Assert():
            return True
        case ast.Expr(ast.Call(function)):
            return "assert" in ast.unparse(function)
        case ast.For(body=body) | ast.With(body=body):
            return all(checks(inner) for inner in body)
    return False


def shows(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr)


def split(source: str) -> tuple[str, str]:
    """Return a solution cell's statements, and the checks at its end with what they print."""
    body = ast.parse(source).body
    first = len(body)
    while first and (checks(body[first - 1]) or shows(body[first - 1])):
        first -= 1
    if not any(checks(statement) for statement in body[first:]):
        return source, ""
    line, lines = body[first].lineno - 1, source.splitlines()
    while line and lines[line - 1].startswith("#"):
        line -= 1
    return "\n".join(lines[:line]).strip(), "\n".join(lines[line:]).strip()


def marked(cell: NotebookNode, name: str, *, points: int = 0, answer: bool = False) -> NotebookNode:
    """Return the cell with what nbgrader reads; with neither points nor an answer it is locked."""
    about = {"schema_version": 3, "grade_id": name, "task": False, "grade": points > 0}
    about |= {"solution": answer, "locked": not answer, "cell_type": cell.cell_type}
    cell.metadata["nbgrader"] = about | ({"points": points} if points else {})
    return cell


def _answer(name: str, text: str, points: int) -> NotebookNode:
    """Return a cell for words, which the teacher grades."""
    cell = nbformat.v4.new_markdown_cell(f"{BEGIN}\n{text}\n{END}", id=name)
    return marked(cell, name, points=points, answer=True)


def _code(name: str, source: str, before: set[str]) -> list[NotebookNode]:
    """Return the cells of a solution cell: what is to be written, and what checks it. If the
    chapter has bound all names before, they are deleted, lest an empty answer pass the checks."""
    solution, test = split(source)
    cells = []
    needed = sorted(bound(solution) & used(test))
    if solution:
        head = f"# Define: {', '.join(needed)}\n" if needed else ""
        cell = nbformat.v4.new_code_cell(f"{head}{BEGIN}\n{solution}\n{END}", id=f"{name}-code")
        cells.append(marked(cell, f"{name}-code", points=0 if needed else 1, answer=True))
    if needed and before.issuperset(needed):
        source = f"for name in {needed}:\n    globals().pop(name)"
        cell = nbformat.v4.new_code_cell(source, id=f"{name}-fresh")
        cells.insert(0, marked(cell, f"{name}-fresh"))
    if test:
        cell = nbformat.v4.new_code_cell(test, id=f"{name}-test")
        cells.append(marked(cell, f"{name}-test", points=1 if needed else 0))
    return cells


def assignment(chapter: NotebookNode) -> NotebookNode:
    """Return the notebook that nbgrader's `generate_assignment` reads.

    Raises:
        ValueError: the chapter has no exercises.
    """
    cells, names, number, inside = [], set(), 0, False
    for n, cell in enumerate(chapter.cells):
        if cell.cell_type == "markdown":
            for part in re.split(r"(?m)^(?=\*\*|## )", cell.source):
                inside = (inside or part.startswith("## Exercises")) and not (
                    part.startswith("## ") and not part.startswith("## Exercises")
                )
                exercise = inside and EXERCISE.match(part) is not None
                number += exercise
                text, *answer = ANSWER.split(part)[:2] if exercise else [part]
                if text.strip():
                    new = nbformat.v4.new_markdown_cell(text.strip(), id=f"text-{len(cells)}")
                    cells.append(new)
                words = "".join(answer).strip()
                if exercise and (words or "(open)" in text):
                    cells.append(_answer(f"exercise-{number}", words, 1 if words else 3))
        elif inside and number:
            cells += _code(f"exercise-{number}-{n}", cell.source, names)
        else:
            cells.append(marked(cell, f"cell-{n}"))
        if cell.cell_type == "code":
            names |= _bound_by(cell.source)
    if not number:
        raise ValueError("the chapter has no exercises")
    return nbformat.from_dict({**chapter, "cells": cells})


def _bound_by(source: str) -> set[str]:
    try:
        return bound(source)
    except SyntaxError:  # a cell with a line for IPython
        return set()


def main(beginnings: list[str], course: Path, folder: Path = ROOT / "notebooks") -> None:
    config = course / "nbgrader_config.py"
    texts = chapters(beginnings, folder)
    for path in texts:
        file = course / "source" / path.stem / f"{path.stem}.ipynb"
        if file.exists():
            sys.exit(f"{file} is there already; delete it to have it made again")
        notebook = assignment(read_text(path))
        file.parent.mkdir(parents=True, exist_ok=True)
        write(notebook, file)
        points = sum(c.metadata.get("nbgrader", {}).get("points", 0) for c in notebook.cells)
        print(f"{file}: {points} points")
    if not config.exists():
        config.write_text(CONFIG)
    print(f"next: cd {course} && nbgrader generate_assignment {texts[0].stem}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make chapters' exercises into assignments.")
    parser.add_argument("names", nargs="+", help="beginnings of chapters' names")
    parser.add_argument("--course", type=Path, default=Path("course"), help="its folder")
    arguments = parser.parse_args()
    main(arguments.names, arguments.course)
