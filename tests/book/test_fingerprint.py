"""What makes a chapter stale: its code, the definitions it reaches, the records it names."""

import nbformat
import pytest
from fingerprint import fingerprint
from fingerprint import package as package_in

CLAIMS = """import pkgutil

NAMES = ("levels",)

def all():
    return [m for m in pkgutil.iter_modules() if m.name.startswith("chapter_") or m.name in NAMES]
"""
RUN = (
    '{"shared":{"e":{}},"runs":[{"config":{},"environment":"e","digest":"abc","result":0.5}],'
    '"sha256":"abc"}'
)


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
        "lab/claims/__init__": CLAIMS,
        "lab/claims/levels": "three = 3",
        "lab/claims/tools": "four = 4",
        "lab/claims/chapter_01": "one = 1",
        "lab/claims/chapter_01_more": "more = 1",
        "lab/claims/chapter_02": "two = 2",
        "lab/__init__": "",
        "lab/records/__init__": "from layernorm.lab.records.published import load",
        "lab/records/published": "def load(name): return name",
        "lab/records/published/first-book": RUN,
        "lab/records/published/second-book": RUN,
    }
    for name, text in files.items():
        suffix = ".json" if "published/" in name else ".py"
        path = tmp_path / "layernorm" / f"{name}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "layernorm"


CODE = (
    "%matplotlib inline\nimport layernorm as ln, layernorm.lazy\nln.lazy.g(ln.functional.f(1))",
    "import importlib\nln.attribute.a\nimportlib.import_module('layernorm.by_name')",
    "from layernorm.lab import claims, records\nclaims.all()\nrecords.load('first')",
)


@pytest.mark.parametrize(
    ("file", "text", "changed"),
    [
        ("functional.py", "def f(x):\n    return -x", {"definitions"}),
        ("functional.py", "# A comment\ndef f(x):\n    '''Other words.'''\n    return  x", set()),
        ("lazy.py", "def g(): return 2", {"definitions"}),
        ("deep/helper.py", "h = 2", {"definitions"}),
        ("attribute.py", "a = 1\nother = 3", set()),
        ("attribute.py", "a = 2", {"definitions"}),
        ("by_name.py", "b = 2", {"definitions"}),
        ("unused.py", "u = 2", set()),
        ("lab/claims/chapter_01.py", "one = 2", {"definitions"}),
        ("lab/claims/chapter_01_more.py", "more = 2", {"definitions"}),
        ("lab/claims/chapter_02.py", "two = 3", set()),
        ("lab/claims/levels.py", "three = 4", {"definitions"}),
        ("lab/claims/tools.py", "four = 5", set()),
        ("lab/records/published/first-book.json", RUN.replace("0.5", "0.6"), {"records"}),
        ("lab/records/published/first-book.json", RUN.replace("abc", "abd"), set()),
        ("lab/records/published/second-book.json", RUN.replace("0.5", "0.6"), set()),
    ],
)
def test_a_chapter_depends_on_what_it_uses(package, file, text, changed):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in CODE])
    before = fingerprint(notebook, "01-a", package.parent)
    (package / file).write_text(text)
    package_in.cache_clear()
    after = fingerprint(notebook, "01-a", package.parent)
    assert {key for key in before if before[key] != after[key]} == changed


def test_a_chapter_without_claims_of_its_own_depends_on_all(package):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE[-1])])
    before = fingerprint(notebook, "the-ledger", package.parent)
    (package / "lab" / "claims" / "chapter_02.py").write_text("two = 3")
    package_in.cache_clear()
    assert fingerprint(notebook, "the-ledger", package.parent) != before
