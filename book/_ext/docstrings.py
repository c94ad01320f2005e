"""Sphinx extension: docstrings are written as plain text; this marks them up for the API page.

Indented blocks are shown as they stand, `single backticks` are code, $dollars$ are math (a
paragraph in $$ stands by itself), and a stray * | _ means itself. Google-style sections (Args,
Returns, Raises) are left to napoleon. In signatures `Annotated[float, Gt(gt=0)]` is a float: what
is allowed is said by the error, and by the text.
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


ANNOTATED = re.compile(r"~?(?:typing\.)?Annotated\[")


def unannotated(signature: str) -> str:
    """The signature with the type alone in place of each `Annotated[type, ...]`."""
    while found := ANNOTATED.search(signature):
        depth, comma = 1, 0
        for at in range(found.end(), len(signature)):
            depth += (signature[at] in "[(") - (signature[at] in "])")
            comma = comma or (at if signature[at] == "," and depth == 1 else 0)
            if depth == 0:
                break
        kept = signature[found.end() : comma or at]
        signature = signature[: found.start()] + kept + signature[at + 1 :]
    return signature


def process_signature(app, what, name, object_, options, signature, returned):
    return unannotated(signature or "") or None, returned


def process(app, what, name, object_, options, lines):
    lines[:] = marked_up(lines)


def setup(app):
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", process, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", process_signature)
    return {"version": "1", "parallel_read_safe": True}
