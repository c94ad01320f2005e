"""Do the built pages' own links lead somewhere? `python tools/links.py _build/html`

Every relative `href` and `src` must be a file, and every fragment an element of its page. Links to
other machines are a weekly job of their own (.github/workflows/links.yml): no test needs a network.
"""

import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup


def pages(folder: Path) -> list[Path]:
    """The book's pages; the themes' templates lie among the static files."""
    static = folder / "_static"
    return sorted(page for page in folder.rglob("*.html") if not page.is_relative_to(static))


@cache
def parse(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_bytes(), "html.parser")


@cache
def anchors(page: Path) -> set[str]:
    elements = parse(page).find_all(lambda tag: tag.has_attr("id") or tag.has_attr("name"))
    return {element.get(name) for element in elements for name in ("id", "name")} | {""}


def broken(folder: Path) -> list[str]:
    """One line for every link of a page that leads nowhere."""
    found = []
    for page in pages(folder):
        targets = {
            tag[name] for name in ("href", "src") for tag in parse(page).find_all(**{name: True})
        }
        for link in sorted(targets):
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (page.parent / unquote(url.path)).resolve() if url.path else page
            if target.is_dir():
                target /= "index.html"
            if not target.is_relative_to(folder.resolve()) or not target.is_file():
                found.append(f"{page.relative_to(folder)}: no file for {link}")
            elif target.suffix == ".html" and unquote(url.fragment) not in anchors(target):
                found.append(f"{page.relative_to(folder)}: no anchor for {link}")
    return found


def main(folder: Path) -> None:
    if not pages(folder):
        sys.exit(f"{folder}: no pages; build the book first: make book")
    if found := broken(folder):
        sys.exit("\n".join([*found, f"{len(found)} broken links"]))
    print(f"{len(pages(folder))} pages: every internal link leads somewhere.")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
