"""TeX as MathML, by the MathJax that the pages use, in Chromium.

MathJax knows all of MathML; many readers, all that are built on Chromium among them, know MathML
Core. So letters in bold, blackboard bold and the like become Unicode's letters of that kind, an
equation's number a column of its table, and columns are aligned by a style as well.
"""

import re
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from chromium import chromium

SPACE = "http://www.w3.org/1998/Math/MathML"
KINDS = {
    "bold": "MATHEMATICAL BOLD",
    "italic": "MATHEMATICAL ITALIC",
    "bold-italic": "MATHEMATICAL BOLD ITALIC",
    "double-struck": "MATHEMATICAL DOUBLE-STRUCK",
    "script": "MATHEMATICAL SCRIPT",
    "-tex-calligraphic": "MATHEMATICAL SCRIPT",
}
OLDER = {"MATHEMATICAL DOUBLE-STRUCK": "DOUBLE-STRUCK", "MATHEMATICAL SCRIPT": "SCRIPT"}
CONVERT = """formulas => Promise.all(formulas.map(
    ([tex, display]) => MathJax.tex2mmlPromise(tex, {display})))"""


class Converter:
    """Converts formulas in a page of Chromium that has MathJax."""

    def __init__(self, page) -> None:
        self.page = page

    def __call__(self, formulas: Sequence[tuple[str, bool]]) -> list[str]:
        """Return MathML for pairs of TeX and whether it stands by itself.

        Raises:
            ValueError: a formula that MathJax cannot read.
        """
        found = self.page.evaluate(CONVERT, [list(formula) for formula in formulas])
        return [simplified(text, tex) for text, (tex, _) in zip(found, formulas, strict=True)]


@contextmanager
def converter() -> Iterator[Converter]:
    """A converter, in a Chromium that is closed afterwards."""
    package = Path(find_spec("sphinx-mathjax-offline").origin).parent
    script = package / "static" / "mathjax" / "tex-chtml.js"
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        file = Path(folder) / "mathjax.html"
        file.write_text(
            '<!DOCTYPE html><meta charset="utf-8">'
            "<script>MathJax = {startup: {typeset: false}}</script>"
            f'<script src="{script.as_uri()}"></script>'
        )
        page = browser.new_page()
        page.goto(file.as_uri())
        page.evaluate("() => MathJax.startup.promise")
        yield Converter(page)


def simplified(text: str, tex: str) -> str:
    """Return MathJax's MathML in MathML Core, with the TeX as its words."""
    ElementTree.register_namespace("", SPACE)
    root = ElementTree.fromstring(text)
    red = root.findall(f".//{{{SPACE}}}*[@mathcolor='red']")  # an unknown macro
    if red or root.find(f".//{{{SPACE}}}merror") is not None:
        raise ValueError(f"MathJax cannot read the formula {tex}")
    for element in root.iter():
        for name in [name for name in element.attrib if name.startswith("data-")]:
            del element.attrib[name]
        element.attrib.pop("id", None)
        lettered(element)
        if element.tag == f"{{{SPACE}}}mtable":
            aligned(element)
        element.tail = None
        if len(element):
            element.text = None
    root.set("alttext", " ".join(tex.split()))
    return ElementTree.tostring(root, encoding="unicode")


def lettered(element: Element) -> None:
    """Replace a `mathvariant` by letters of that kind."""
    kind = KINDS.get(element.get("mathvariant", ""))
    if kind and element.text and len(element) == 0:
        letters = [_letter(character, kind) for character in element.text.strip()]
        if None not in letters:
            element.text = "".join(letters)
            del element.attrib["mathvariant"]
            if element.tag == f"{{{SPACE}}}mi" and len(letters) == 1:  # else it becomes italic
                element.set("mathvariant", "normal")


def _letter(character: str, kind: str) -> str | None:
    """Return the letter of this kind; None where Unicode has none."""
    name = re.sub("LATIN |GREEK |LETTER ", "", unicodedata.name(character, ""))
    for start in (kind, OLDER.get(kind, kind)):
        try:
            return unicodedata.lookup(f"{start} {name}")
        except KeyError:
            continue
    return None


def aligned(table: Element) -> None:
    """Move the numbers of equations behind their rows; align each cell by a style."""
    columns = table.get("columnalign", "").split()
    for row in table:
        numbered = row.tag == f"{{{SPACE}}}mlabeledtr"
        if numbered:
            row.tag = f"{{{SPACE}}}mtr"
            number = row[0]
            row.remove(number)
        for place, cell in enumerate(row):
            if columns:
                align = columns[min(place, len(columns) - 1)]
                cell.set("style", f"text-align: {align}")
        if numbered:
            number.set("style", "padding-left: 2em")
            row.append(number)
