"""Keeps an interval in a table on one line: a narrow column breaks before it, never inside."""

import json
import re

CELL = re.compile(r"<td>[^<]*</td>")
INTERVAL = re.compile(r"\[([^][, ]+), ([^][, ]+)\]")


def whole(table):
    """Return the table's HTML with a space that does not break inside each interval."""
    return CELL.sub(lambda cell: INTERVAL.sub("[\\1,\N{NO-BREAK SPACE}\\2]", cell[0]), table)


def read(app, name, source):
    if not app.env.doc2path(name).endswith(".ipynb"):
        return
    notebook = json.loads(source[0])
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            if html := output.get("data", {}).get("text/html"):
                output["data"]["text/html"] = whole("".join(html))
    source[0] = json.dumps(notebook)


def setup(app):
    app.connect("source-read", read)
    return {"version": "1", "parallel_read_safe": True}
