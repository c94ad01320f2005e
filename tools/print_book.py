"""The built pages as one PDF: `python tools/print_book.py _build/html book.pdf`

Chromium prints each page in its light colors, with everything unfolded and without what needs a
script. The parts are joined behind a cover and a table of contents; links between pages, which
Chromium can only point at files, lead to the place in the book, and each page gets its number.
"""

import html
import io
import sys
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup
from chromium import chromium
from pairs import ROOT
from playwright.sync_api import Browser
from pypdf import PageObject, PdfReader, PdfWriter
from pypdf.generic import (
    ArrayObject,
    DictionaryObject,
    Fit,
    FloatObject,
    NameObject,
    NullObject,
    TextStringObject,
)
from tqdm import tqdm

CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
ADDRESS = CONFIG["sphinx"]["config"]["epub_identifier"]  # where the pages are published
SCALE, WIDTH = 0.8, 820  # of the print; pixels of the page's text at that scale
PAPER = {"format": "A4", "scale": SCALE, "print_background": True}
MARGIN = {"top": "16mm", "bottom": "20mm", "left": "18mm", "right": "18mm"}
INTERACTIVE = ("invariance.js", "ledger.js", "togglebutton.js", "copybutton.js")
STYLE = (Path(__file__).parent / "print.css").read_text(encoding="utf-8")
PREPARE = (Path(__file__).parent / "print.js").read_text(encoding="utf-8")


@dataclass
class Chapter:
    """A page of the book: its printed pages, and where its anchors are."""

    name: str
    title: str
    part: str
    sections: list[tuple[str, str]]  # anchor and heading
    reader: PdfReader | None = None
    first: int = 0  # its first page in the book, from 0
    anchors: dict[str, tuple[int, float]] = field(default_factory=dict)  # page here, height

    def place(self, anchor: str) -> tuple[int, float] | None:
        """Return the page of the book and the height on it of an anchor, "" for the start."""
        if not anchor:
            return self.first, 842.0
        if anchor not in self.anchors:
            return None
        page, height = self.anchors[anchor]
        return self.first + page, height


def chapters(folder: Path, toc: dict) -> list[Chapter]:
    """Return the book's pages in the order of its contents."""
    entries = [("", {"file": toc["root"]})]
    entries += [(part["caption"], entry) for part in toc["parts"] for entry in part["chapters"]]
    return [chapter(folder, part, **entry) for part, entry in entries]


def chapter(folder: Path, part: str, file: str, title: str | None = None) -> Chapter:
    soup = BeautifulSoup((folder / f"{file}.html").read_bytes(), "html.parser").find("article")
    for link in soup.find_all("a", class_="headerlink"):
        link.decompose()
    sections = [
        (section["id"], " ".join(section.find("h2", recursive=False).get_text().split()))
        for section in soup.find_all("section", id=True)
        if section.find("h2", recursive=False)
    ]
    return Chapter(file, title or soup.find("h1").get_text().strip(), part, sections)


def targets(folder: Path, every: list[Chapter]) -> dict[str, list[str]]:
    """Return for each page the anchors that other pages or the contents lead to."""
    found = {one.name: {anchor for anchor, _ in one.sections} for one in every}
    for one in every:
        file = folder / f"{one.name}.html"
        for link in BeautifulSoup(file.read_bytes(), "html.parser").find_all("a", href=True):
            url = urlsplit(link["href"])
            if url.fragment and not url.scheme:
                path = (file.parent / unquote(url.path)).resolve() if url.path else file
                name = path.relative_to(folder).with_suffix("").as_posix()
                found.get(name, set()).add(unquote(url.fragment))
    return {name: sorted(anchors) for name, anchors in found.items()}


def printed(browser: Browser, folder: Path, one: Chapter, anchors: list[str]) -> PdfReader:
    """Print a page of the book."""
    context = browser.new_context(
        viewport={"width": WIDTH, "height": 1100}, color_scheme="light", reduced_motion="reduce"
    )
    page = context.new_page()
    page.set_default_timeout(300_000)  # ms, on a busy machine
    for name in INTERACTIVE:
        page.route(f"**/{name}*", lambda route: route.abort())
    page.emulate_media(media="print", color_scheme="light")
    page.goto((folder / f"{one.name}.html").as_uri())
    page.add_style_tag(content=STYLE)
    page.evaluate(PREPARE, anchors)
    reader = PdfReader(io.BytesIO(page.pdf(**PAPER, margin=MARGIN)))
    context.close()
    return reader


def locate(one: Chapter) -> None:
    """Note where the anchors of a printed page are."""
    for name, destination in one.reader.named_destinations.items():
        page = one.reader.get_destination_page_number(destination)
        if page is not None:
            one.anchors[unquote(name.lstrip("/"))] = page, float(destination.top or 842)


def from_html(browser: Browser, text: str, **margin: str) -> PdfReader:
    """Print a page that is not among the built ones: cover, contents, page numbers."""
    page = browser.new_page()
    page.set_content(f'<!DOCTYPE html><meta charset="utf-8"><style>{STYLE}</style>{text}')
    reader = PdfReader(io.BytesIO(page.pdf(**PAPER, margin=MARGIN | margin)))
    page.close()
    return reader


def cover() -> str:
    picture = (ROOT / "book" / "_static" / "one-picture.svg").read_text(encoding="utf-8")
    return (
        f'<div class="cover"><h1>{CONFIG["title"]}</h1><p class="subtitle">The executable book</p>'
        f"{picture}<p>{CONFIG['author']}</p><p>{CONFIG['html']['extra_footer']}</p>"
        f'<p>With what moves and folds: <a href="{ADDRESS}">{ADDRESS}</a></p></div>'
    )


def contents(every: list[Chapter]) -> str:
    """The table of contents; a link's address names page and anchor, as in the built pages."""
    rows, part = [], ""
    for one in every:
        if one.part != part:
            part = one.part
            rows.append(f'<p class="part">{html.escape(part)}</p>')
        rows.append(_row("chapter", one, "", one.title))
        rows += [_row("section", one, anchor, title) for anchor, title in one.sections]
    return f'<div class="contents"><h1>Contents</h1>{"".join(rows)}</div>'


def _row(kind: str, one: Chapter, anchor: str, title: str) -> str:
    place = one.place(anchor)
    if place is None:
        raise ValueError(f"{one.name}: the section {title!r} was not printed")
    address = html.escape(f"{ADDRESS}/{one.name}.html#{anchor}")
    return (
        f'<p class="{kind}"><a href="{address}"><span>{html.escape(title)}</span>'
        f"<span>{place[0] + 1}</span></a></p>"
    )


def numbers(every: list[Chapter], before: int, count: int) -> str:
    """The foot of every page, as pages with nothing else on them."""
    titles = ["Contents"] * before
    for one in every:
        titles += [one.title] * len(one.reader.pages)
    rows = (
        f'<div class="foot"><span>{html.escape(title)}</span><span>{place}</span></div>'
        for place, title in enumerate(titles, 1)
    )
    assert len(titles) == count
    return "".join(rows)


def arranged(browser: Browser, every: list[Chapter]) -> tuple[PdfReader, PdfReader]:
    """Return cover and contents; give each chapter its first page."""
    front, pages = from_html(browser, cover()), 0
    while True:  # the contents' length decides the numbers that it shows
        first = len(front.pages) + pages
        for one in every:
            one.first = first
            first += len(one.reader.pages)
        table = from_html(browser, contents(every))
        if len(table.pages) == pages:
            return front, table
        pages = len(table.pages)


def lead(
    page: PageObject, every: dict[str, Chapter], one: Chapter | None, book: PdfWriter, base: str
):
    """Lead the links of a page into the book, or to where the pages are published."""
    for link in page.get("/Annots", ArrayObject()):
        link = link.get_object()
        action = link.get("/A", DictionaryObject())
        if "/URI" in action:
            address = str(action["/URI"])
            inside = next((s for s in (base, ADDRESS + "/") if address.startswith(s)), None)
            if inside is None:
                continue
            url = urlsplit(address.removeprefix(inside))
            goal = every.get(unquote(url.path).removesuffix(".html"))
            place = goal and goal.place(unquote(url.fragment))
            if place is None:
                action[NameObject("/URI")] = TextStringObject(f"{ADDRESS}/{url.geturl()}")
                continue
        else:
            name = unquote(str(link.get("/Dest", action.get("/D", ""))).lstrip("/"))
            place = one.place(name)
            if place is None:
                raise ValueError(f"{one.name}: a link leads to {name!r}, which was not printed")
        for key in ("/A", "/Dest"):
            link.pop(key, None)
        number, height = place
        fit = [NameObject("/XYZ"), FloatObject(0), FloatObject(height), NullObject()]
        link[NameObject("/Dest")] = ArrayObject([book.pages[number].indirect_reference, *fit])


def join(browser: Browser, every: list[Chapter], base: str) -> PdfWriter:
    """Join cover, contents and chapters, with numbers, links and an outline."""
    front, table = arranged(browser, every)
    book = PdfWriter()
    for reader in (front, table, *(one.reader for one in every)):
        for page in reader.pages:
            book.add_page(page)
    before = len(front.pages) + len(table.pages)
    feet = from_html(browser, numbers(every, before, len(book.pages)), bottom="9mm")
    for page, foot in list(zip(book.pages, feet.pages, strict=True))[1:]:
        page.merge_page(foot)
    named = {one.name: one for one in every}
    owner = [None] * before + [one for one in every for _ in one.reader.pages]
    for page, one in zip(book.pages, owner, strict=True):
        lead(page, named, one, book, base)
    outline(book, every, len(front.pages))
    book.compress_identical_objects()
    book.add_metadata({"/Title": CONFIG["title"], "/Author": CONFIG["author"]})
    book.root_object[NameObject("/Lang")] = TextStringObject("en")
    book.root_object[NameObject("/PageMode")] = NameObject("/UseOutlines")
    return book


def outline(book: PdfWriter, every: list[Chapter], contents_at: int) -> None:
    book.add_outline_item(title="Contents", page_number=contents_at)
    part, parent = "", None
    for one in every:
        if one.part != part:
            part = one.part
            parent = book.add_outline_item(title=part, page_number=one.first)
        entry = book.add_outline_item(title=one.title, page_number=one.first, parent=parent)
        for anchor, title in one.sections:
            page, height = one.place(anchor)
            fit = Fit.xyz(left=0, top=height)
            book.add_outline_item(title=title, page_number=page, parent=entry, fit=fit)


def main(folder: Path, file: Path) -> None:
    if not (folder / "book" / "index.html").is_file():
        sys.exit(f"{folder}: no built book; build it first: make book")
    toc = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text(encoding="utf-8"))
    every = chapters(folder, toc)
    wanted = targets(folder, every)
    with chromium() as browser:
        for one in tqdm(every, unit="page", disable=None):
            one.reader = printed(browser, folder, one, wanted[one.name])
            locate(one)
        book = join(browser, every, f"{folder.as_uri()}/")
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")  # an interruption leaves an earlier book
    book.write(part)
    part.replace(file)
    print(f"{file}: {len(book.pages)} pages, {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
