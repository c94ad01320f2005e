"""Is the printed book whole? `python tools/check_pdf.py book.pdf _build/html`

Every font must be embedded, no page empty, no TeX left outside code. Links lead to a page of the
book or to another site, none to a file. The contents name every page and section with the number
that stands at the foot of the page to which they lead. The pictures are those of the built pages.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from unicodedata import normalize
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup
from check_epub import RAW
from pairs import ROOT
from print_book import chapters
from pypdf import PageObject, PdfReader
from pypdf.generic import DictionaryObject, StreamObject

FONT_FILES = ("/FontFile", "/FontFile2", "/FontFile3")
STANDS_IN = "�"
DRAWS = re.compile(rb"/(\S+)\s+Do\b")
ENTRY = re.compile(r"^(.*\S)\s+(\d+)$")


@dataclass
class Page:
    """A printed page: its text, the part of it that is not code, its fonts, pictures and links."""

    text: str
    prose: str
    fonts: dict[str, DictionaryObject]
    pictures: set[str]
    links: list[DictionaryObject]

    @property
    def number(self) -> str:
        """The last line, which `print_book.py` writes at the foot."""
        return (self.text.split() or [""])[-1]


def drawn(page: PageObject) -> Iterator[tuple[DictionaryObject, list[StreamObject]]]:
    """Yield the resources and pictures that a page draws with, then those of forms on it."""
    contents = page.get_contents()
    waiting = [(page, b"" if contents is None else contents.get_data())]
    while waiting:
        place, commands = waiting.pop()
        found = place.get("/Resources", DictionaryObject()).get_object()
        named = found.get("/XObject", DictionaryObject())
        things = [named[f"/{name.decode()}"] for name in set(DRAWS.findall(commands))]
        yield found, [thing for thing in things if thing["/Subtype"] == "/Image"]
        waiting += [(thing, thing.get_data()) for thing in things if thing["/Subtype"] == "/Form"]


def read(page: PageObject) -> Page:
    prose, fonts, pictures = [], {}, set()

    def note(text, _matrix, _position, font, _size) -> None:
        if "Mono" not in str((font or {}).get("/BaseFont", "")):
            prose.append(text)

    for found, images in drawn(page):
        pictures |= {sha256(image.get_data()).hexdigest() for image in images}
        for font in found.get("/Font", DictionaryObject()).values():
            font = font.get_object()
            fonts[str(font.get("/BaseFont", font.get("/Name", "a font")))] = font
    text = page.extract_text(visitor_text=note)
    links = [link.get_object() for link in page.get("/Annots", [])]
    return Page(text, "".join(prose), fonts, pictures, links)


def embedded(font: DictionaryObject) -> bool:
    """Does the file contain the font's letters?"""
    if font.get("/Subtype") == "/Type3":  # drawn in the file itself
        return True
    inner = font.get("/DescendantFonts")
    font = inner.get_object()[0].get_object() if inner else font
    descriptor = font.get("/FontDescriptor")
    return descriptor is not None and any(name in descriptor.get_object() for name in FONT_FILES)


def check_page(number: int, page: Page) -> Iterator[str]:
    if len(page.text.strip().splitlines()) < 2 and not page.pictures:  # its foot is one line
        yield "empty"
    if number > 1 and page.number != str(number):
        yield f"the number at its foot is {page.number!r}"
    for name, font in page.fonts.items():
        if not embedded(font):
            yield f"font {name} is not embedded"
    if raw := RAW.search(page.prose):
        yield f"raw TeX: {page.prose[raw.start() :][:60]!r}"
    if STANDS_IN in page.text:
        yield "a letter that no font has"


def goal(link: DictionaryObject, places: dict[int, int]) -> int | None:
    """Return the number of the page to which a link leads."""
    destination = link.get("/Dest")
    if not isinstance(destination, list) or not hasattr(destination[0], "idnum"):
        return None
    return places.get(destination[0].idnum)


def check_link(link: DictionaryObject, places: dict[int, int]) -> Iterator[str]:
    address = str(link.get("/A", {}).get("/URI", ""))
    if "/Dest" in link or not address:
        if goal(link, places) is None:
            yield "a link leads nowhere"
    elif urlsplit(address).scheme not in ("http", "https", "mailto"):
        yield f"a link leads to {address}"


def check_contents(pages: list[Page], places: dict[int, int], titles: list[str]) -> Iterator[str]:
    """Compare the numbers in the contents with the pages to which they lead."""
    own = range(2, min([goal(link, places) or 2 for link in pages[1].links], default=2))
    lines = [line for n in own for line in pages[n - 1].text.splitlines()[:-1]]
    entries = [found for line in lines if (found := ENTRY.match(line.strip()))]
    listed = [(entry[1], int(entry[2])) for entry in entries]
    led = [goal(link, places) for n in own for link in pages[n - 1].links]
    numbers = [number for _, number in listed]
    if [n for n, _ in groupby(led)] != [n for n, _ in groupby(numbers)]:
        yield "the contents' numbers are not those of the pages to which they lead"
    names = {_squeezed(name) for name, _ in listed}
    missing = (title for title in titles if _squeezed(title) not in names)
    yield from (f"the contents lack {title!r}" for title in missing)
    for name, number in listed:
        if _squeezed(name) not in _squeezed(pages[number - 1].text):
            yield f"{name!r} is not on page {number}, where the contents have it"


def _squeezed(text: str) -> str:
    """Return a text without ligatures, with single spaces."""
    return " ".join(normalize("NFKC", text).split())


def pictures(folder: Path) -> set[str]:
    """Return the pictures of the built pages that are no drawings, each once."""
    found = set()
    for file in sorted(folder.glob("*/*.html")):
        article = BeautifulSoup(file.read_bytes(), "html.parser").find("article")
        for image in article.find_all("img") if article else []:
            source = image["src"]
            if not source.startswith("data:"):
                path = (file.parent / unquote(source)).resolve()
                source = "" if path.suffix == ".svg" else sha256(path.read_bytes()).hexdigest()
            found.add(source)
    return found - {""}


def problems(file: Path, shown: int, titles: Iterable[str]) -> list[str]:
    """Return a line for everything that is wrong with a printed book of so many pictures."""
    reader = PdfReader(file)
    pages = [read(page) for page in reader.pages]
    places = {page.indirect_reference.idnum: n for n, page in enumerate(reader.pages, 1)}
    found = []
    for number, page in enumerate(pages, 1):
        wrong = [*check_page(number, page)]
        wrong += [text for link in page.links for text in check_link(link, places)]
        found += [f"page {number}: {text}" for text in wrong]
    found += check_contents(pages, places, list(titles))
    count = len(set().union(*(page.pictures for page in pages)))
    if count != shown:
        found.append(f"{count} pictures, of {shown} in the built pages")
    if len(reader.outline) == 0:
        found.append("no outline")
    return found


def main(file: Path, folder: Path) -> None:
    if not file.is_file():
        sys.exit(f"{file}: no such book; print it first: make download")
    toc = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text(encoding="utf-8"))
    titles = [t for one in chapters(folder, toc) for t in (one.title, *dict(one.sections).values())]
    shown = len(pictures(folder))
    if found := problems(file, shown, titles):
        sys.exit("\n".join([*found, f"{file}: {len(found)} problems"]))
    count = len(PdfReader(file).pages)
    print(
        f"{file}: {count} pages, {len(titles)} entries in the contents, {shown} pictures, "
        f"{file.stat().st_size / 1e6:.1f} MB: whole."
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]).resolve())
