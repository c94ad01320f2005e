"""Sphinx extension: the book as an EPUB, `sphinx-build -b epub`, for readers without scripts.

An e-reader has no sliders, buttons or network, and many cannot open a folded part. So

- an interactive figure or animation is its still picture: no output of theirs is taken that needs
  a script (`book/_ext` and the package ask for it in the builder "html" only);
- folded cells, solutions and rules are unfolded;
- mathematics is MathML, which EPUB 3 asks every reader to show: it grows with the text, follows a
  dark page and can be read aloud, which pictures do not and cannot;
- links to what is not in the book, as the runs behind a figure, lead to the book's address.
"""

import json
import sys
import tomllib
from contextlib import ExitStack
from html import escape
from pathlib import Path
from posixpath import join, normpath
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup
from docutils import nodes
from sphinx import addnodes
from sphinx.builders.epub3 import Epub3Builder
from sphinx.util.fileutil import copy_asset

ROOT = Path(__file__).parents[2]
STYLES = ["_static/pygments.css", "_static/ebook.css"]


class Ebook(Epub3Builder):
    """Sphinx's builder, for a first page that lies in a folder, with no files but the pages'."""

    def init(self):
        self.config.html_theme_options = {}  # the pages' theme would prepare buttons
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        self.config.version = project["version"]
        super().init()

    def get_toc(self):
        """Collect parts and pages. Sphinx's own takes the first page to lie at the top."""
        self.refnodes = []
        for part in self.env.get_doctree(self.config.root_doc).findall(addnodes.toctree):
            pages = [self.entry(title, name) for title, name in part["entries"]]
            first = self.env.get_doctree(part["entries"][0][1]).next_node(nodes.section)
            at = f"{pages[0]['refuri']}#{first['ids'][0]}"
            caption = {"level": 1, "refuri": at, "text": escape(part["caption"])}
            self.refnodes += [caption, *pages]
        self.toc_add_files(self.refnodes)

    def entry(self, title, name):
        text = title or self.env.titles[name].astext()
        return {"level": 2, "refuri": name + self.out_suffix, "text": escape(text)}

    def copy_static_files(self):
        folder = Path(self.outdir) / "_static"
        folder.mkdir(exist_ok=True)
        self.create_pygments_style_file()
        copy_asset(str(ROOT / "book" / "_static" / "ebook.css"), str(folder))

    def copy_extra_files(self):
        """Pages that have moved are not in the book."""


def stills(app, docname, source):
    """Give the pictures of interactive figures the words that their outputs hold."""
    if app.builder.name != "epub" or not app.env.doc2path(docname).endswith(".ipynb"):
        return
    notebook = json.loads(source[0])
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            if alt := output.get("metadata", {}).get("image/png", {}).get("alt"):
                cell["metadata"].setdefault("mystnb", {}).setdefault("image", {})["alt"] = alt
    source[0] = json.dumps(notebook)


def unfold(soup):
    """Replace what opens and closes by its content, under its title."""
    for details in soup.find_all("details"):
        summary = details.find("summary", recursive=False)
        if "hide" in details.get("class", []):  # of a cell: "Show code cell source"
            summary.decompose()
            details.unwrap()
        else:
            details.name, details["class"] = "div", "details"
            if summary is not None:
                summary.name, summary["class"] = "div", "summary"


def bare(text):
    """Return the TeX that stands between Sphinx's delimiters, and whether it stands by itself."""
    text = text.strip()
    for start, end, display in ((r"\(", r"\)", False), (r"\[", r"\]", True)):
        if text.startswith(start) and text.endswith(end):
            return text[2:-2].strip(), display
    return text, True  # an environment


def mathematics(soup, convert):
    """Replace TeX by MathML."""
    found = soup.select(".math")
    formulas = [bare("".join(element.find_all(string=True, recursive=False))) for element in found]
    for element, text in zip(found, convert(formulas), strict=True):
        for string in element.find_all(string=True, recursive=False):
            string.extract()
        element.append(BeautifulSoup(text, "html.parser"))


def links(soup, pagename, pages, address):
    """Lead links to the pages' names in the e-book, and to `address` for what is not in it."""
    for link in soup.find_all("a", href=True):
        url = urlsplit(link["href"])
        if url.scheme or not url.path:
            continue
        name = normpath(join(pagename, "..", unquote(url.path)))
        fragment = f"#{url.fragment}" if url.fragment else ""
        page = name.removesuffix(".html")
        if page in pages:  # written in HTML; Sphinx's own links have the suffix already
            link["href"] = f"{url.path.removesuffix('.html')}.xhtml{fragment}"
        elif page.removesuffix(".xhtml") not in pages:
            link["href"] = f"{address}/{name}{fragment}"


def convert(app, formulas):
    """Return the formulas as MathML; Chromium is started for the first page that has some."""
    if not formulas:
        return []
    if not hasattr(app, "mathml"):
        sys.path.append(str(ROOT / "tools"))
        from mathml import converter

        app.ebook = ExitStack()
        app.mathml = app.ebook.enter_context(converter())
    return app.mathml(formulas)


def page(app, pagename, templatename, context, doctree):
    if app.builder.name != "epub":
        return
    context["css_files"] = STYLES
    if "body" in context:
        soup = BeautifulSoup(context["body"], "html.parser")
        unfold(soup)
        mathematics(soup, lambda formulas: convert(app, formulas))
        links(soup, pagename, app.env.found_docs, app.config.epub_identifier)
        context["body"] = soup.decode(formatter="minimal")


def close(app, exception):
    if hasattr(app, "ebook"):
        app.ebook.close()


def setup(app):
    app.add_builder(Ebook, override=True)
    app.connect("source-read", stills)
    app.connect("html-page-context", page, priority=900)  # after all that add styles
    app.connect("build-finished", close)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
