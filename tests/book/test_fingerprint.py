"""What makes a chapter stale: the code it runs, the modules it imports, the records it names."""

import nbformat
import pytest
from fingerprint import fingerprint, parse


@pytest.fixture
def package(tmp_path):
    """A package with the shapes of imports that ours has."""
    files = {
        "__init__": "from layernorm import functional",
        "functional": "def f(x):\n    '''Doc.'''\n    return x",
        "lazy": "def g():\n    from .deep import helper\n    return helper.h",
        "deep/__init__": "",
        "deep/helper": "h = 1",
        "attribute": "a = 1",
        "by_name": "b = 1",
        "unused": "u = 1",
        "claims/__init__": "import pkgutil\n\ndef all(): return list(pkgutil.iter_modules())",
        "claims/chapter_01": "one = 1",
        "claims/chapter_01_more": "more = 1",
        "claims/chapter_02": "two = 2",
        "records/__init__": "",
        "records/published/first-book": "{}",
        "records/published/second-book": "{}",
    }
    for name, text in files.items():
        suffix = ".json" if "published" in name else ".py"
        path = tmp_path / "layernorm" / f"{name}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "layernorm"


CODE = (
    "%matplotlib inline\nimport layernorm as ln\nimport layernorm.lazy\n",
    "import importlib\nln.attribute.a\nimportlib.import_module('layernorm.by_name')",
    "from layernorm import claims, records\nrecords.load('first')",
)


@pytest.mark.parametrize(
    ("file", "text", "changed"),
    [
        ("functional.py", "def f(x):\n    return -x", {"modules"}),
        ("functional.py", "# A comment\ndef f(x):\n    '''Other words.'''\n    return  x", set()),
        ("lazy.py", "g = 2", {"modules"}),
        ("deep/helper.py", "h = 2", {"modules"}),
        ("attribute.py", "a = 2", {"modules"}),
        ("by_name.py", "b = 2", {"modules"}),
        ("unused.py", "u = 2", set()),
        ("claims/chapter_01.py", "one = 2", {"modules"}),
        ("claims/chapter_01_more.py", "more = 2", {"modules"}),
        ("claims/chapter_02.py", "two = 3", set()),
        ("records/published/first-book.json", "{1}", {"records"}),
        ("records/published/second-book.json", "{1}", set()),
    ],
)
def test_a_chapter_depends_on_what_it_uses(package, file, text, changed):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in CODE])
    before = fingerprint(notebook, "01-a", package.parent)
    (package / file).write_text(text)
    parse.cache_clear()
    after = fingerprint(notebook, "01-a", package.parent)
    assert {key for key in before if before[key] != after[key]} == changed


def test_a_chapter_without_claims_of_its_own_depends_on_all(package):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE[-1])])
    before = fingerprint(notebook, "the-ledger", package.parent)
    (package / "claims" / "chapter_02.py").write_text("two = 3")
    parse.cache_clear()
    assert fingerprint(notebook, "the-ledger", package.parent) != before
