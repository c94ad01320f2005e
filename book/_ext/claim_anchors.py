"""Sphinx extension: every claim shown by a page's `claims.show` or `pages.show` gets an anchor in
the built page, so that the ledger can link to the cell that decides it. The notebook itself stays
as it was.
"""

import re

from layernorm.lab.claims.page import anchor
from notebooks import on_read

SHOWN = "claims.show(", "pages.show("
ROW = re.compile(r"<tr>(?P<row>.*?<code>(?P<id>[^<]+)</code>.*?</tr>)", re.DOTALL)


def tables(notebook: dict):
    """The outputs of the cells that decide claims."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code" and any(how in "".join(cell["source"]) for how in SHOWN):
            for output in cell["outputs"]:
                if "text/html" in output.get("data", {}):
                    yield output["data"]


def anchored(notebook: dict) -> dict:
    """The notebook with an anchor for every claim in them."""
    for table in tables(notebook):
        table["text/html"] = ROW.sub(
            lambda found: f'<tr id="{anchor(found["id"])}">{found["row"]}',
            "".join(table["text/html"]),
        )
    return notebook


def setup(app):
    on_read(app, lambda app, name, notebook: anchored(notebook))
    return {"version": "1", "parallel_read_safe": True}
