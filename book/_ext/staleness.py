"""Sphinx extension: a chapter whose records are older than the code says so at its top.

The notebook itself stays as it was executed: staleness is a banner, never a cell output.
"""

import json
import re
import warnings

from layernorm.lab import records
from layernorm.lab.records.published import names
from notebooks import called, code_of, on_read

READ_BY = {  # the benchmarks whose records a name of `layernorm.lab.benchmarks` shows
    "tables": ("recurrent",),
    "packed": ("packed",),
    "compiling": ("compile",),
    "training": ("training",),
    "workers": ("workers", "sweeps"),
    "on_gpu.norms": ("layer",),
    "on_gpu.by_shape": ("layer",),
}


def banner(notebook: dict) -> str:
    """Return a note on stale experiments that the notebook names, and on stale benchmarks whose
    tables it imports; "" where all is current.

    Own runs do not count: the page is of the published ones, and the same on every machine.
    """
    named = called(notebook) | {f"bench_{name}" for name in benchmarks(notebook)}
    named &= {sweep.partition("-")[0] for sweep in names()}
    with records.published_only():
        told = {name: records.staleness_banner(name) for name in sorted(named)}
    return "\n".join(f"- {name}: {text}" for name, text in told.items() if text)


def benchmarks(notebook: dict) -> set[str]:
    """The benchmarks whose records the notebook shows."""
    code = code_of(notebook)
    lines = re.findall(r"from layernorm\.lab\.benchmarks[.\w]* import (.+)", code)
    words = re.findall(r"\w+", " ".join(lines)) + re.findall(r"on_gpu\.\w+", code)
    return {name for word in words for name in READ_BY.get(word, ())}


def marked(notebook: dict, text: str) -> dict:
    """The notebook with the banner below its title."""
    warning = (
        ":::{admonition} Records older than the code\n:class: warning\n\n"
        "The code has changed since some of this chapter's runs were recorded. Their numbers stand "
        f"until they are measured again.\n\n{text}\n:::"
    )
    cell = {"cell_type": "markdown", "id": "staleness", "metadata": {}, "source": warning}
    return {**notebook, "cells": [*notebook["cells"][:1], cell, *notebook["cells"][1:]]}


def change(app, docname, notebook):
    text = app.env.staleness[docname] = banner(notebook)
    return marked(notebook, text) if text else notebook


def outdated(app, env, added, changed, removed):
    """Chapters to be read again although their files are the same: what is stale has changed."""
    if not hasattr(env, "staleness"):
        env.staleness = {}
    found = []
    for docname, told in env.staleness.items():
        path = env.doc2path(docname)
        if docname not in removed:
            with open(path, encoding="utf-8") as file:
                found += [docname] if banner(json.load(file)) != told else []
    return found


def setup(app):
    # sphinx_external_toc looks at every object in memory, torch's deprecated ones included.
    warnings.filterwarnings("ignore", ".*torch.distributed.reduce_op", FutureWarning)
    on_read(app, change)
    app.connect("env-get-outdated", outdated)
    return {"version": "1", "parallel_read_safe": False}
