"""Sphinx extension: the directive `{try-it}` shows a cell of Python and its output. In the built
page the reader can change and run it, in Pyodide (`book/_static/try-it.js`).

The cells of a page share one namespace. They are run while the page is read, by this Python, and on
a click by the browser's; both do it by `book/_static/run_cells.py`.

Pyodide is not in the repository. A build takes it from the folder that $LAYERNORM_PYODIDE names, or
with `LAYERNORM_PYODIDE=fetch` from the network, or from `_build/pyodide`, where such a build kept
it, and copies it into the pages if every file has its hash. Otherwise the page has its text and
outputs, and no Run button.
"""

import hashlib
import json
import os
import runpy
import shutil
import sys
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

VERSION = "314.0.3"
NUMPY = "numpy-2.4.3-cp314-cp314-pyemscripten_2026_0_wasm32.whl"
FILES = {  # SHA-256; those of npm's package pyodide, and NumPy's of Pyodide's own lock file
    "pyodide.mjs": "5cfc46f5dcbaf2a16f26e2363f441873eb424762609cc03db00d6a2ace4d00e5",
    "pyodide.asm.mjs": "1a9775427ef6e8abaa7db88ece0515422d1886915ae5c9093776410c865dfd8d",
    "pyodide.asm.wasm": "e7f8fac36f8bf11085309cbc5c829b3ec3057c18bf1d73b05a6741612d63cdbf",
    "python_stdlib.zip": "444c770dfd75a32097fc0a7d5c1413fd3140601f49c3a1f2e9af0376fcd124b4",
    NUMPY: "0cad9c1b91f0082e4f959bc0e0bf5835a2efbba6ab3b1e9d1fe6e7e564cca98e",
}
ADDRESS = f"https://cdn.jsdelivr.net/pyodide/v{VERSION}/full/"
STATIC = Path(__file__).parents[1] / "_static"
PATIENCE = 10  # seconds without an answer
Files = dict[str, bytes]
UNUSABLE = OSError, HTTPException, ValueError
run = runpy.run_path(str(STATIC / "run_cells.py"))["run"]


def lock() -> bytes:
    """Pyodide's list of packages, with NumPy alone."""
    info = {"abi_version": "2026_0", "arch": "wasm32", "platform": "emscripten_5_0_3"}
    numpy = {"name": "numpy", "version": NUMPY.split("-")[1], "file_name": NUMPY, "depends": []}
    numpy |= {"sha256": FILES[NUMPY], "imports": ["numpy"], "install_dir": "site"}
    numpy |= {"package_type": "package", "unvendored_tests": False}
    lock = {"info": info | {"python": "3.14.0"}, "packages": {"numpy": numpy}}
    return json.dumps(lock).encode()


def in_folder(folder: Path) -> Files:
    return {name: (folder / name).read_bytes() for name in FILES}


def from_address() -> Files:
    files = {}
    for name in FILES:
        with urlopen(ADDRESS + name, timeout=PATIENCE) as answer:
            files[name] = answer.read()
    return files


def obtained(sources: dict[str, Callable[[], Files]]) -> tuple[Files, list[str]]:
    """Return Pyodide's files from the first source that has them all with their hashes, and what
    was wrong with the sources before it. If there is none, there are no files.
    """
    wrong = []
    for place, read in sources.items():
        try:
            files = read()
            for name, expected in FILES.items():
                if (found := hashlib.sha256(files[name]).hexdigest()) != expected:
                    raise ValueError(f"{name} has the SHA-256 {found}, not {expected}")
            return files, wrong
        except UNUSABLE as error:
            wrong.append(f"{place}: {error}")
    return {}, wrong


def prepare(app, config):
    """Find Pyodide; what is fetched is kept for the next build."""
    kept = Path(app.outdir).parent / "pyodide" / VERSION
    named = os.environ.get("LAYERNORM_PYODIDE", str(kept))
    fetch = named == "fetch"
    sources = {named: lambda: in_folder(Path(named))}
    if fetch:
        sources = {str(kept): lambda: in_folder(kept), ADDRESS: from_address}
    app.pyodide, wrong = obtained(sources)
    config.try_it_live = bool(app.pyodide)
    if not app.pyodide:  # no warning, which would fail the build
        print(f"No Run buttons, for want of Pyodide: {'; '.join(wrong)}", file=sys.stderr)
    elif fetch and wrong:
        kept.mkdir(parents=True, exist_ok=True)
        for name, content in app.pyodide.items():
            (kept / name).write_bytes(content)


class TryIt(SphinxDirective):
    has_content = True

    def run(self):
        self.assert_has_content()
        cells = self.env.temp_data.setdefault("try_it", [])
        cells.append("\n".join(self.content))
        outputs, failed = run(cells)
        if failed:
            raise self.error(f"cell {len(cells)} raised an error:\n{outputs[-1]}")
        code = nodes.literal_block(cells[-1], cells[-1], language="python")
        output = nodes.literal_block(outputs[-1], outputs[-1], language="text", classes=["output"])
        parts = [
            nodes.container("", code, classes=["cell_input"]),
            nodes.container("", output, classes=["cell_output"]),
        ]
        return [nodes.container("", *parts, classes=["cell", "try-it"])]


def add_files(app, pagename, templatename, context, doctree):
    """Load the script and its style on pages with such cells, and on no other."""
    cells = doctree.findall(nodes.container) if doctree else ()
    if any("try-it" in cell["classes"] for cell in cells):
        app.add_css_file("try-it.css")
        if app.config.try_it_live:
            size = sum(map(len, app.pyodide.values())) / 1e6
            app.add_js_file("try-it.js", **{"data-size": f"{size:.0f} MB"})


def copy(app, exception):
    if exception is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "_static" / "pyodide"
    shutil.rmtree(folder, ignore_errors=True)
    if app.pyodide:
        folder.mkdir(parents=True)
        for name, content in {**app.pyodide, "pyodide-lock.json": lock()}.items():
            (folder / name).write_bytes(content)


def setup(app):
    app.add_config_value("try_it_live", None, "html")  # where it changes, pages are written again
    app.add_directive("try-it", TryIt)
    app.connect("config-inited", prepare)
    app.connect("html-page-context", add_files)
    app.connect("build-finished", copy)
    return {"version": "1", "parallel_read_safe": True}
