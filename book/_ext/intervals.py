"""Keeps an interval in a table on one line: a narrow column breaks before it, never inside."""

import re

from notebooks import on_read

CELL = re.compile(r"<td>[^<]*</td>")
INTERVAL = re.compile(r"\[([^][, ]+), ([^][, ]+)\]")


def whole(table):
    """Return the table's HTML with a space that does not break inside each interval."""
    return CELL.sub(lambda cell: INTERVAL.sub("[\\1,\N{NO-BREAK SPACE}\\2]", cell[0]), table)


def change(app, name, notebook):
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            if html := output.get("data", {}).get("text/html"):
                output["data"]["text/html"] = whole("".join(html))
    return notebook


def setup(app):
    on_read(app, change)
    return {"version": "1", "parallel_read_safe": True}
