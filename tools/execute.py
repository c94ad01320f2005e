"""Brings notebooks/*.ipynb up to date with their texts; `python tools/execute.py --help` says how.

Two notebooks run at a time, each on one thread; a chapter whose front matter says `run_alone: true`
(it times code) runs after them, by itself, on all threads. A notebook whose prose alone changed is
rewritten with the outputs it has. Files are replaced only when their chapter ran to its end."""

import argparse
import asyncio
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pairs
from fingerprint import fingerprint
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from tqdm import tqdm

SECONDS_PER_CELL = 900


class Failure(Exception):
    """A chapter that could not be brought up to date, with a message for people."""


@dataclass
class Chapter:
    """One pair of files, and what is to be done about it."""

    text_path: Path
    text: NotebookNode
    stored: NotebookNode | None
    now: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> "Chapter":
        text = pairs.read_text(path)
        stored = pairs.read_notebook(path.with_suffix(".ipynb"))
        return cls(path, text, stored, fingerprint(text, path.stem))

    @property
    def name(self) -> str:
        return self.text_path.stem

    @property
    def path(self) -> Path:
        return self.text_path.with_suffix(".ipynb")

    @property
    def alone(self) -> bool:
        return bool(self.text.metadata.get("run_alone"))

    @property
    def reason(self) -> str:
        """Why the chapter must be executed; empty when its outputs are current."""
        if self.stored is None:
            return "never executed"
        before = self.stored.metadata.get("layernorm", {})
        if not before:
            return "never executed by this tool"
        changed = [k for k in self.now if k != "text" and before.get(k) != self.now[k]]
        return f"{', '.join(changed)} changed" if changed else ""

    def refuse_lost_edits(self) -> None:
        """The notebook was edited, the text was not: executing would throw the edit away."""
        before = (self.stored or {"metadata": {}})["metadata"].get("layernorm", {})
        if before.get("text") != self.now["text"]:
            return
        cells = [pairs.key(cell) for cell in self.stored.cells]
        if pairs.digest(cells) != before["text"]:
            raise Failure(
                f"{self.path} was edited and its text was not. To keep the edit, run\n"
                f"    jupytext --to md:myst {self.path}\nTo drop it, restore the file from git."
            )

    def write(self, executed: NotebookNode) -> None:
        # The kernel's own language_info names Python's exact version.
        language = {"language_info": pairs.LANGUAGE}
        executed.metadata = {**self.text.metadata, **language, "layernorm": self.now}
        pairs.write(executed, self.path)


async def execute(chapter: Chapter, bar: tqdm, threads: dict[str, str]) -> None:
    """Run all cells in a fresh kernel, in the notebook's folder, and write the notebook."""
    at = {}

    def progress(cell: NotebookNode, **_: object) -> None:
        bar.update(cell.cell_type == "code")

    client = NotebookClient(
        chapter.text,
        kernel_name="python3",
        timeout=SECONDS_PER_CELL,
        resources={"metadata": {"path": str(chapter.path.parent)}},
        record_timing=False,
        coalesce_streams=True,
        store_widget_state=False,
        extra_arguments=["--log-level=ERROR"],
        on_cell_start=lambda cell, cell_index: at.update(cell=cell),
        on_cell_complete=lambda cell, cell_index: progress(cell),
    )
    # The book shows published records, not local runs.
    with tempfile.TemporaryDirectory() as no_runs:
        environment = os.environ | {"LAYERNORM_RUNS": no_runs} | threads
        try:
            executed = await client.async_execute(env=environment)
        except (CellControlSignal, CellExecutionError, DeadKernelError) as error:
            raise Failure(explain(chapter, at["cell"], error)) from error
    chapter.write(executed)


def explain(chapter: Chapter, cell: NotebookNode, error: Exception) -> str:
    """Name the notebook and the cell, its source, and what went wrong."""
    number = pairs.code_cells(chapter.text).index(cell) + 1
    source = "\n".join(f"    {line}" for line in cell.source.splitlines())
    raised = [out.traceback for out in cell.outputs if out.output_type == "error"]
    report = "\n".join(raised[-1]) if raised else str(error)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", report).strip()
    return f"{chapter.text_path}: code cell {number} failed\n\n{source}\n\n{plain}\n"


async def execute_all(chapters: list[Chapter], at_a_time: int) -> list[str]:
    """Returns the messages of those that failed; the others are written."""
    failures = []
    total = sum(len(pairs.code_cells(chapter.text)) for chapter in chapters)
    with tqdm(total=total, unit="cell", disable=None) as bar:

        async def one(chapter: Chapter, room: asyncio.Semaphore, threads: dict[str, str]) -> None:
            async with room:
                try:
                    await execute(chapter, bar, threads)
                    bar.write(f"{chapter.name}: executed ({chapter.reason or 'on request'})")
                except Failure as failure:
                    failures.append(str(failure))
                    bar.write(f"{chapter.name}: FAILED")

        room = asyncio.Semaphore(at_a_time)
        beside = [one(c, room, {"OMP_NUM_THREADS": "1"}) for c in chapters if not c.alone]
        await asyncio.gather(*beside)
        for chapter in (c for c in chapters if c.alone):
            await one(chapter, room, {})
    return failures


def run(options: argparse.Namespace) -> None:
    texts = pairs.chapters(options.names, options.folder)
    if options.tidy:
        for path in texts:
            pairs.tidy(path)
        return
    chapters = [Chapter.read(path) for path in texts]
    for chapter in chapters:
        chapter.refuse_lost_edits()
    if options.check:
        stale = [f"{c.name}: {c.reason}" for c in chapters if c.reason]
        if stale:
            raise Failure("\n".join([*stale, "run `make book` and commit the notebooks"]))
        return
    due = [c for c in chapters if options.force or c.reason]
    for chapter in chapters:
        if chapter not in due:
            chapter.write(pairs.with_outputs(chapter.text, chapter.stored))
    failures = asyncio.run(execute_all(due, options.at_a_time)) if due else []
    if failures:
        raise Failure("\n".join(failures))
    print(f"{len(due)} of {len(chapters)} notebooks executed; all outputs are current.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Execute the chapters that are not current.")
    parser.add_argument("names", nargs="*", help="beginnings of chapters' names; all without any")
    parser.add_argument("--force", action="store_true", help="execute current ones too")
    parser.add_argument("--check", action="store_true", help="only say which are not current")
    parser.add_argument("--tidy", action="store_true", help="tidy the texts, see CONTRIBUTING.md")
    parser.add_argument("--colab", action="store_true", help="print a chapter's first code cell")
    parser.add_argument("--at-a-time", type=int, default=2, help="notebooks run at a time")
    parser.add_argument("--folder", type=Path, default=pairs.ROOT / "notebooks")
    options = parser.parse_args()
    if options.colab:
        print(pairs.colab_cell())
        return
    try:
        run(options)
    except Failure as failure:
        sys.exit(str(failure))
    except KeyboardInterrupt:
        sys.exit("Interrupted: chapters that did not run to their end keep their old outputs.")


if __name__ == "__main__":
    main()
