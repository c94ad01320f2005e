"""Notebooks as the book's extensions read them; the files stay as they were executed."""

import json
import re


def on_read(app, change):
    """Have each notebook shown as `change(app, name, notebook)` returns it."""

    def read(app, name, source):
        if app.env.doc2path(name).endswith(".ipynb"):
            source[0] = json.dumps(change(app, name, json.loads(source[0])))

    app.connect("source-read", read)


def called(notebook: dict) -> set[str]:
    """The first arguments of the calls in a notebook's code, by which it names its experiments.

    An option or a metric may have the name of an experiment: `{"batch_size": 4}`, `("drift", x)`.
    """
    return set(re.findall(r'\w\(\s*"(\w+)"', code_of(notebook)))


def code_of(notebook: dict) -> str:
    """The code of all cells."""
    return "\n".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code")
