"""Sphinx extension: docstrings are written as plain text; this marks them up for the API page.

Indented blocks are shown as they stand, `single backticks` are code, $dollars$ are math (a
paragraph in $$ stands by itself), and a stray * | _ means itself. Google-style sections (Args,
Returns, Raises) are left to napoleon.
"""

import re
from itertools import groupby

MARKED = re.compile(
    r"(?P<kept>``[^`]+``|:[\w:]+:`[^`]+`|\\.|\*\*[^\s*][^*]*\*\*|(?<!\w)\*[^\s*][^*,\n]*[^\s*]\*(?!\w))"
    r"|`(?P<code>[^`]+)`"
    r"|\$(?P<math>[^$]+)\$"
    r"|(?P<stray>[*|]|(?<=\w)_(?!\w))"
)


def prose(text: str) -> str:
    """Marks up one paragraph."""

    def replacement(found: re.Match) -> str:
        if found["code"]:
            return f"``{found['code']}``"
        if found["math"]:
            return f":math:`{found['math']}`"
        return f"\\{found['stray']}" if found["stray"] else found[0]

    return MARKED.sub(replacement, text)


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def marked_up(lines: list[str]) -> list[str]:
    """The docstring's lines in reStructuredText."""
    result: list[str] = []
    before = 0  # the indentation of the paragraph before
    for blank, group in groupby(lines, key=lambda line: not line.strip()):
        paragraph = list(group)
        if blank:
            result += paragraph
            continue
        starts = indent(paragraph[0])
        if starts >= before + 4:  # an example or equation; what follows it is measured as it was
            if "".join(result).endswith("::"):  # marked up already
                result += paragraph
                continue
            code = paragraph[0].lstrip().startswith(("from ", "import ", "@", "def "))
            result += [" " * before + f".. code-block:: {'python' if code else 'text'}", ""]
            result += [line.replace("\\*", "*") for line in paragraph]
            continue
        if paragraph[0].startswith("$$"):
            result += [
                ".. math::",
                "",
                *("   " + line for line in "\n".join(paragraph).strip("$ ").split("\n")),
            ]
            continue
        if not paragraph[0].lstrip().startswith(">>>"):
            paragraph = prose("\n".join(paragraph)).split("\n")
        result += paragraph
        before = starts
    return result


def process(app, what, name, object_, options, lines):
    lines[:] = marked_up(lines)


def setup(app):
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", process, priority=400)  # before napoleon
    return {"version": "1", "parallel_read_safe": True}
