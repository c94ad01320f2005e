"""The book as PDF: its check finds the fault planted for it, and a small book is printed whole."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from PIL import Image
from playwright.sync_api import sync_playwright

pypdf = pytest.importorskip("pypdf", reason="needs the extra `download`")

import check_pdf  # noqa: E402
import chromium  # noqa: E402
import print_book  # noqa: E402
from pypdf.generic import (  # noqa: E402
    ArrayObject,
    DictionaryObject,
    NameObject,
    NumberObject,
    TextStringObject,
)

# A cover, the contents, two chapters; each line with the height at which it stands.
TEXTS = [["Cover"], ["One 3", "Two 4"], ["One", "Words."], ["Two", "More words."]]


SITE = "https://example.org"


def link(**what):
    box = ArrayObject([NumberObject(0)] * 4)
    kind = {NameObject("/Subtype"): NameObject("/Link"), NameObject("/Rect"): box}
    return DictionaryObject(kind | {NameObject(f"/{key}"): value for key, value in what.items()})


def to(writer, number):
    return ArrayObject([writer.pages[number - 1].indirect_reference, NameObject("/Fit")])


def away(address):
    action = {NameObject("/S"): NameObject("/URI"), NameObject("/URI"): TextStringObject(address)}
    return DictionaryObject(action)


def book(file, texts=TEXTS, goals=(3, 4), feet=(1, 2, 3, 4), address=SITE, core=False, outline=1):
    """Write a book; the last page has a picture and a link to another site."""
    rows = {"pdf.fonttype": 42, "pdf.use14corefonts": core}
    with mpl.rc_context(rows), PdfPages(file) as pages:
        for number, (text, foot) in enumerate(zip(texts, feet, strict=True), 1):
            page = Figure()
            for line, words in enumerate([*text, str(foot)]):
                page.text(0.1, 0.9 - 0.1 * line, words, parse_math=False)
            if number == len(texts):
                page.figimage(np.random.default_rng(0).random((9, 9)))
            pages.savefig(page)
    writer = pypdf.PdfWriter(clone_from=file)
    links = [link(Dest=to(writer, goal) if goal else TextStringObject("gone")) for goal in goals]
    writer.pages[1][NameObject("/Annots")] = ArrayObject(links)
    writer.pages[3][NameObject("/Annots")] = ArrayObject([link(A=away(address))])
    if outline:
        writer.add_outline_item(title="One", page_number=2)
    writer.write(file)
    return file


def changed(page, line, words):
    texts = [list(text) for text in TEXTS]
    texts[page - 1][line] = words
    return {"texts": texts}


def test_a_whole_book_has_no_problems(tmp_path):
    assert check_pdf.problems(book(tmp_path / "book.pdf"), 1, ["One", "Two"]) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"core": True}, "is not embedded"),
        ({"texts": [*TEXTS[:2], [], TEXTS[3]]}, "page 3: empty"),
        ({"feet": (1, 2, 3, 5)}, "page 4: the number at its foot is '5'"),
        (changed(3, 1, r"The mean $\mu$."), "page 3: raw TeX"),
        (changed(3, 1, "\N{REPLACEMENT CHARACTER}"), "page 3: a letter that no font has"),
        (changed(2, 1, "Two 3"), "the contents' numbers are not those"),
        (changed(2, 1, "Two 3"), "'Two' is not on page 3"),
        (changed(2, 1, "Three 4"), "the contents lack 'Two'"),
        ({"goals": (3, 3)}, "the contents' numbers are not those"),
        ({"goals": (3, None)}, "page 2: a link leads nowhere"),
        ({"address": "file:///tmp/two.html"}, "page 4: a link leads to file:///tmp/two.html"),
        ({"outline": 0}, "no outline"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_is_found(tmp_path, change, found):
    problems = check_pdf.problems(book(tmp_path / "book.pdf", **change), 1, ["One", "Two"])
    assert any(found in problem for problem in problems), problems


def test_a_missing_picture_is_found(tmp_path):
    problems = check_pdf.problems(book(tmp_path / "book.pdf"), 2, ["One", "Two"])
    assert problems == ["1 pictures, of 2 in the built pages"]


# A small built book

TOC = {
    "root": "book/index",
    "parts": [{"caption": "Part I", "chapters": [{"file": "notebooks/one", "title": "1 One"}]}],
}
INDEX = """<article><section id="book"><h1>The book</h1><p>To
<a href="../notebooks/one.html#b">b</a>, <a href="../notebooks/one.html">one</a>,
<a href="../data/x.csv">data</a>.</p>
</section></article>"""
ONE = """<nav class="bd-sidebar-primary">Menu</nav><article><section id="one"><h1>One</h1>
<p><img src="../a.png" alt="A square."> <a href="#b">b</a></p>
<section id="a"><h2>Section a</h2><details><summary>Hint</summary>Unfolded.</details>
<details class="hide"><summary>Show code</summary>Its code.</details></section>
<section id="b" style="break-before: page"><h2>Section b</h2><p>Words of b.</p>
<table><tr><td style="min-width: 3000px">wide</td><td>right</td></tr></table>
</section></section></article>"""


@pytest.fixture
def built(tmp_path):
    with sync_playwright() as playwright:
        if chromium.find(playwright) is None:
            pytest.skip(chromium.MISSING)
    for name, text in (("book/index", INDEX), ("notebooks/one", ONE)):
        file = tmp_path / f"{name}.html"
        file.parent.mkdir()
        file.write_text(f"<!DOCTYPE html><meta charset='utf-8'>{text}")
    Image.effect_noise((20, 20), 50).save(tmp_path / "a.png")
    return tmp_path


def test_a_small_book_is_printed_whole(built, monkeypatch):
    file = built / "out" / "book.pdf"
    monkeypatch.setattr(print_book.yaml, "safe_load", lambda text: TOC)
    print_book.main(built, file)
    titles = ["The book", "1 One", "Section a", "Section b"]
    assert check_pdf.problems(file, len(check_pdf.pictures(built)), titles) == []
    assert file.stat().st_mode == (built / "a.png").stat().st_mode  # readable by all
    assert list(file.parent.iterdir()) == [file]
    reader = pypdf.PdfReader(file)
    text = [page.extract_text() for page in reader.pages]
    assert len(text) == 5  # cover, contents, the book, one with two pages
    assert "Section b 5" in text[1]
    assert all(words in text[3] for words in ("Hint", "Unfolded.", "Its code."))
    assert not any(words in text[3] for words in ("Show code", "Details"))
    assert "right" in text[4]
    assert "Menu" not in "".join(text)
    links = [link.get_object() for link in reader.pages[2]["/Annots"]]
    pages = [reader.get_page_number(link["/Dest"][0].get_object()) for link in links[:2]]
    assert pages == [4, 3]
    assert links[2]["/A"]["/URI"] == f"{print_book.ADDRESS}/data/x.csv"
    contents, first, part, [chapter, sections] = reader.outline
    assert [entry.title for entry in (contents, first, part)] == ["Contents", "The book", "Part I"]
    assert chapter.title == "1 One"
    assert [entry.title for entry in sections] == ["Section a", "Section b"]


def test_a_link_to_what_was_not_printed_is_refused():
    writer = pypdf.PdfWriter()
    page = writer.add_blank_page(100, 100)
    page[NameObject("/Annots")] = ArrayObject([link(Dest=NameObject("/gone"))])
    one = print_book.Chapter("notebooks/one", "One", "", [])
    with pytest.raises(ValueError, match="one: a link leads to 'gone', which was not printed"):
        print_book.lead(page, {one.name: one}, one, writer, "file:///book/")
