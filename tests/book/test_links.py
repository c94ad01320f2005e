"""A link to a section leads to a heading that is there, before any page is built."""

import functools
import re
from itertools import pairwise
from pathlib import Path

import pairs
import pytest
from markdown_it import MarkdownIt
from myst_parser.mdit_to_docutils.base import default_slugify

ROOT = pairs.ROOT
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("notebooks/*.md", "book/*.md", "*.md")
    for path in ROOT.glob(pattern)
)
LINK = re.compile(r"\]\(((?!https?:)[^()#\s]*)#([^()\s]+)\)")


@functools.cache
def sections(path: Path) -> set[str]:
    """The anchors that the book gives to a text's headings, and the labels that it declares."""
    text = path.read_text(encoding="utf-8")
    tokens = MarkdownIt().parse(text.partition("\n---\n")[2] if text.startswith("---") else text)
    headings = [
        "".join(part.content for part in inline.children if part.type in ("text", "code_inline"))
        for heading, inline in pairwise(tokens)
        if heading.type == "heading_open" and heading.tag in ("h1", "h2", "h3")
    ]
    labels = re.findall(r"^\(([\w-]+)\)=$|^:name: ([\w-]+)$", text, re.MULTILINE)
    return {default_slugify(heading) for heading in headings} | {a or b for a, b in labels}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_to_sections(page):
    path = ROOT / page
    missing = []
    for file, section in LINK.findall(path.read_text(encoding="utf-8")):
        target = path.parent / file if file else path
        if target.suffix == ".ipynb":
            target = target.with_suffix(".md")
        if section not in sections(target):
            missing.append(f"{file}#{section}")
    assert not missing, f"{page}: no section for {missing}"
