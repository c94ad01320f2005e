"""Writes `_build/plain/conf.py`, the book's configuration for plain Sphinx.

With it `sphinx-build` makes the pages without Jupyter Book (`make plain`). Jupyter Book 1.x writes
the settings itself (`jupyter-book config sphinx`). It leaves out some things that `jupyter-book
build` does, which are added below them. Whoever leaves Jupyter Book commits the file as conf.py,
with ROOT as the folder that it lies in.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from pairs import ROOT

FOLDER = ROOT / "_build" / "plain"
ADDED = """
# Added by tools/export_config.py.
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))
# It only declares settings of Jupyter Book's own.
extensions.remove("jupyter_book")
# Sphinx takes these from the folder of conf.py, Jupyter Book from the book's.
bibtex_bibfiles = [str(ROOT / path) for path in bibtex_bibfiles]
html_logo, html_favicon = str(ROOT / html_logo), str(ROOT / html_favicon)
html_static_path = [str(ROOT / path) for path in html_static_path]
html_extra_path = [str(ROOT / path) for path in html_extra_path]
"""


def export(folder: Path) -> Path:
    """Write conf.py into `folder`; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = shutil.copy(ROOT / "_config.yml", folder)  # conf.py is written beside it
    toc = ROOT / "book" / "_toc.yml"
    program = Path(sys.executable).with_name("jupyter-book")
    command = [program, "config", "sphinx", ROOT, "--toc", toc, "--config", settings]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    Path(settings).unlink()
    conf = folder / "conf.py"
    conf.write_text(conf.read_text(encoding="utf-8") + ADDED, encoding="utf-8")
    return conf


if __name__ == "__main__":
    print(export(FOLDER))
