"""Sphinx extension: a chapter whose records are older than the code says so at its top.

The notebook itself stays as it was executed: staleness is a banner, never a cell output.
"""

import json
import warnings

from layernorm.lab import records
from layernorm.lab.records.published import published_folder


def experiments() -> set[str]:
    """The experiments that have published runs."""
    names = (file.name for file in published_folder().iterdir())
    return {name.partition("-")[0] for name in names if name.endswith(".json")}


def banner(notebook: dict) -> str:
    """Return a note on stale experiments that the notebook names; "" where all is current."""
    code = "\n".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code")
    named = [name for name in sorted(experiments()) if f'"{name}"' in code]
    told = {name: records.staleness_banner(name) for name in named}
    return "\n".join(f"- {name}: {text}" for name, text in told.items() if text)


def marked(notebook: dict, text: str) -> dict:
    """The notebook with the banner below its title."""
    warning = (
        ":::{admonition} Records older than the code\n:class: warning\n\n"
        "The code has changed since some of this chapter's runs were recorded. Their numbers stand "
        f"until they are measured again.\n\n{text}\n:::"
    )
    cell = {"cell_type": "markdown", "id": "staleness", "metadata": {}, "source": warning}
    return {**notebook, "cells": [*notebook["cells"][:1], cell, *notebook["cells"][1:]]}


def read(app, docname, source):
    if not app.env.doc2path(docname).endswith(".ipynb"):
        return
    notebook = json.loads(source[0])
    text = app.env.staleness[docname] = banner(notebook)
    if text:
        source[0] = json.dumps(marked(notebook, text))


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
    app.connect("source-read", read)
    app.connect("env-get-outdated", outdated)
    return {"version": "1", "parallel_read_safe": False}
