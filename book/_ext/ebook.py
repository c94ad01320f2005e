"""Sphinx extension: the book as an EPUB, `sphinx-build -b epub`, for readers without scripts.

An e-reader has no sliders, buttons or network, and many cannot open a folded part. So

- an interactive figure or animation is its still picture: no output of theirs is taken that needs
  a script (`book/_ext` and the package ask for it in the builder "html" only);
- folded cells, solutions and rules are unfolded;
- mathematics is MathML, which EPUB 3 asks every reader to show: it grows with the text, follows a
  dark page and can be read aloud, which pictures do not and cannot;
- no markup is left that browsers forgive and EPUB's rules (as epubcheck reads them) do not;
- links to what is not in the book, as the runs behind a figure, lead to the book's address.
"""

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

from notebooks import on_read

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
            caption = {**pages[0], "level": 1, "text": escape(part["caption"])}
            pages[0]["refuri"] += f"#{first['ids'][0]}"  # behind its part, in reading order
            self.refnodes += [caption, *pages]
        self.toc_add_files(self.refnodes)

    def entry(self, title, name):
        text = title or self.env.titles[name].astext()
        return {"level": 2, "refuri": name + self.out_suffix, "text": escape(text)}

    def toc_metadata(self, level, navpoints):
        """Sphinx gives the older contents another identifier than the book's."""
        return super().toc_metadata(level, navpoints) | {"uid": self.config.epub_identifier}

    def build_content(self):
        """Say in the list of files which pages hold formulas, as EPUB 3 demands."""
        super().build_content()
        file = Path(self.outdir) / "content.opf"
        listed = file.read_text(encoding="utf-8")
        for page in sorted(Path(self.outdir).rglob(f"*{self.out_suffix}")):
            if "<math" in page.read_text(encoding="utf-8"):
                item = f'href="{page.relative_to(self.outdir).as_posix()}"'
                listed = listed.replace(item, f'{item} properties="mathml"', 1)
        file.write_text(listed, encoding="utf-8")

    def copy_static_files(self):
        folder = Path(self.outdir) / "_static"
        folder.mkdir(exist_ok=True)
        self.create_pygments_style_file()
        copy_asset(str(ROOT / "book" / "_static" / "ebook.css"), str(folder))

    def copy_extra_files(self):
        """Pages that have moved are not in the book."""


def stills(app, docname, notebook):
    """Give the pictures of interactive figures the words that their outputs hold."""
    for cell in notebook["cells"] if app.builder.name == "epub" else ():
        for output in cell.get("outputs", []):
            if alt := output.get("metadata", {}).get("image/png", {}).get("alt"):
                cell["metadata"].setdefault("mystnb", {}).setdefault("image", {})["alt"] = alt
    return notebook


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


def strict(soup):
    """Replace what EPUB's rules do not allow in a page's body."""
    for style in soup.find_all("style"):  # of a data frame; ebook.css has the tables' style
        style.decompose()
    for attribute, rule in (("valign", "vertical-align"), ("halign", "text-align")):
        for cell in soup.find_all(attrs={attribute: True}):
            earlier = f"{cell['style'].rstrip(';')}; " if cell.get("style") else ""
            cell["style"] = f"{earlier}{rule}: {cell.attrs.pop(attribute)}"
    for parameters in soup.select("dt dl"):  # of a long signature: descriptions without terms
        for line in parameters.find_all("dd", recursive=False):
            line.name = "div"
        parameters.name, parameters["class"] = "div", "parameters"


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
        strict(soup)
        mathematics(soup, lambda formulas: convert(app, formulas))
        links(soup, pagename, app.env.found_docs, app.config.epub_identifier)
        context["body"] = soup.decode(formatter="minimal")


def close(app, exception):
    if hasattr(app, "ebook"):
        app.ebook.close()


def setup(app):
    app.add_builder(Ebook, override=True)
    on_read(app, stills)
    app.connect("html-page-context", page, priority=900)  # after all that add styles
    app.connect("build-finished", close)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
