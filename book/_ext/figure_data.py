"""Sphinx extension: the runs behind the figures of a chapter, as CSV files beside the pages.

For each published sweep that a chapter's code names, runs and tuning, the book has one file,
`data/<experiment>-<profile>.csv`: a row for each run and reading, a column for each metric, the
final metrics in rows whose update is "final"; of benchmarks a row for each measurement. It covers
every figure, table and verdict that is made from published runs; what a cell computes while it runs
is not in it. The links stand below the box that opens an experiment's chapter, in other chapters at
the end, and in the ledger.
"""

from pathlib import Path

import pandas

from layernorm.lab import records
from layernorm.lab.records.published import names, published
from notebooks import called, on_read

RUN = ["arm", "seed", "learning_rate", "update"]


def sweeps() -> list[str]:
    """The published sweeps, but for the runs on a few examples."""
    return [name for name in names() if not name.endswith("_overfit")]


def named(notebook: dict) -> list[str]:
    """The sweeps of the experiments that the notebook's code names."""
    experiments = called(notebook)
    return [sweep for sweep in sweeps() if sweep.partition("-")[0] in experiments]


def csv(sweep: str) -> str:
    """The runs of a sweep as the text of a CSV file."""
    found = published(*sweep.split("-", 1))
    if sweep.startswith("bench_"):
        return pandas.DataFrame(
            {"arm": run.config["arm"], **run.config["options"], **run.result["final"], **run.timing}
            for run in found
        ).to_csv(index=False)
    frame = records.tidy(found)
    frame["update"] = ["final" if step != step else f"{step:g}" for step in frame.step]
    frame["learning_rate"] = [options.get("learning_rate", "") for options in frame.options]
    table = frame.set_index([*RUN, "metric"]).value.unstack("metric")
    return table.loc[frame.set_index(RUN).index.unique()].to_csv()


def linked(notebook: dict) -> dict:
    """The notebook with links to its sweeps' files, as a cell after its box or at its end."""
    if not (found := named(notebook)):
        return notebook
    links = ", ".join(f'<a href="../data/{name}.csv">{name}</a>' for name in found)
    text = f"Data of the figures made from published runs (CSV): {links}"
    cell = {"cell_type": "markdown", "id": "figure-data", "metadata": {}, "source": text}
    cells = notebook["cells"]
    boxes = (i + 1 for i, one in enumerate(cells) if "report.box(" in "".join(one["source"]))
    at = next(boxes, len(cells))
    return {**notebook, "cells": [*cells[:at], cell, *cells[at:]]}


def write(app, exception):
    if exception is None and app.builder.name == "html":
        folder = Path(app.outdir) / "data"
        folder.mkdir(exist_ok=True)
        for sweep in sweeps():
            (folder / f"{sweep}.csv").write_text(csv(sweep), encoding="utf-8")


def setup(app):
    on_read(app, lambda app, name, notebook: linked(notebook))
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True}
