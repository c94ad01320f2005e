"""Are two builds the same book? `python tools/same_pages.py _build/html _build/plain/html`

Both must have the same pages, and the article of each page the same headings, figures, links and
text. Menus, scripts and styles around the article may differ.
"""

import sys
from collections.abc import Iterable
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup, Tag
from links import pages

MOST = 10  # differing lines that are shown for each page


def names(folder: Path) -> set[str]:
    """Return the addresses of the pages in a folder."""
    return {page.relative_to(folder).as_posix() for page in pages(folder)}


def figure(image: Tag, page: Path) -> str:
    """Return a picture as the digest of its bytes, wherever they lie, and its words."""
    source = image.get("src", "")
    file = page.parent / unquote(urlsplit(source).path)
    content = source.encode() if source.startswith("data:") else file.read_bytes()
    return f"figure {sha256(content).hexdigest()[:12]} {image.get('alt', 'without words')}"


def content(page: Path) -> dict[str, list[str]]:
    """Return headings, figures, links and text of a page's article, in order."""
    soup = BeautifulSoup(page.read_bytes(), "html.parser")
    article = soup.find("article") or soup
    headings = article.find_all([f"h{level}" for level in range(1, 7)])
    return {
        "headings": [f"{h.name} {' '.join(h.get_text().split())}" for h in headings],
        "figures": [figure(image, page) for image in article.find_all("img")],
        "links": [link["href"] for link in article.find_all("a", href=True)],
        "text": [" ".join(text.split()) for text in article.stripped_strings],
    }


def different(page: str, one: Path, other: Path) -> Iterable[str]:
    """Yield for each kind of content that differs its name and the first lines that do."""
    before, after = content(one / page), content(other / page)
    for kind in before:
        if before[kind] != after[kind]:
            lines = list(unified_diff(before[kind], after[kind], n=0, lineterm=""))[2:]
            yield f"{page}: {kind} differ"
            yield from (f"    {line}" for line in lines[:MOST])


def differences(one: Path, other: Path) -> list[str]:
    """Return a line for everything that only one of the builds has."""
    ours, theirs = names(one), names(other)
    found = [f"{page}: only in {one}" for page in sorted(ours - theirs)]
    found += [f"{page}: only in {other}" for page in sorted(theirs - ours)]
    for page in sorted(ours & theirs):
        found += different(page, one, other)
    return found


def main(one: Path, other: Path) -> None:
    for folder in (one, other):
        if not pages(folder):
            sys.exit(f"{folder}: no pages; build them first: make book plain")
    if found := differences(one, other):
        sys.exit("\n".join([*found, f"{one} and {other} differ"]))
    print(f"{len(names(one))} pages: same headings, figures, links and text in both builds.")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
