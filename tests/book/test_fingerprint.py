"""A chapter is stale if its code, a definition that it reaches, a record that it names or a verdict
that it shows has changed."""

from dataclasses import replace

import nbformat
import pytest
from fingerprint import fingerprint
from fingerprint import package as package_in

from layernorm.lab.claims import Claim, Finding

REGISTRY = """import pkgutil

NAMES = ("levels",)

def all():
    return [m for m in pkgutil.iter_modules() if m.name.startswith("chapter_") or m.name in NAMES]
"""
EXPERIMENTS = """from importlib import import_module

NAMES = ("first", "second", "third")

def get(name):
    assert name in NAMES
    return import_module(f"layernorm.lab.experiments.{name}.plan").EXPERIMENT
"""
MEASURED = """from layernorm.lab import records

def recorded(benchmark):
    return records.load(f"bench_{benchmark}")
"""
RUN = (
    '{"shared":{"e":{}},"runs":[{"config":{"data":"e","options":"e"},"environment":"e",'
    '"digest":"abc","result":0.5}],'
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
        "lab/claims/__init__": "from layernorm.lab.claims.registry import all",
        "lab/claims/registry": REGISTRY,
        "lab/claims/levels": "three = 3",
        "lab/claims/chapter_01": "one = 1",
        "lab/experiments/__init__": EXPERIMENTS,
        "lab/experiments/first/plan": "from .model import m\nEXPERIMENT = m",
        "lab/experiments/first/model": "m = 1",
        "lab/experiments/second/plan": "EXPERIMENT = 2",
        "lab/experiments/studies/third": "EXPERIMENT = 3",
        "lab/__init__": "",
        "lab/records/__init__": "from layernorm.lab.records.published import load",
        "lab/records/published": "def load(name): return name",
        "lab/benchmarks/__init__": "",
        "lab/benchmarks/measure/__init__": "",
        "lab/benchmarks/measure/resume": MEASURED,
        "lab/records/published/first-book": RUN,
        "lab/records/published/bench_rows-cpu": RUN,
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
    "from layernorm.lab import claims, experiments, records\nclaims.all()",
    "experiments.get('first'), experiments.get('third')\nrecords.load('first')\nid = 'named'",
    "from layernorm.lab.benchmarks.measure import resume\nresume.recorded('rows')",
)
KNOWN = [
    (Claim(id, "It holds.", ("others",), "property", chapter), Finding("held", "By 400 draws."))
    for id, chapter in (("own", "01"), ("other", "02"), ("named/first", "03"))
]


def of(package, name="01-a", code=CODE, known=KNOWN):
    package_in.cache_clear()
    cells = [nbformat.v4.new_code_cell(source) for source in code]
    notebook = nbformat.v4.new_notebook(cells=cells)
    return fingerprint(notebook, name, package.parent, known)


def changed(before, after):
    return {key for key in before if before[key] != after[key]}


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("functional.py", "def f(x):\n    return -x", {"definitions"}),
        ("functional.py", "# A comment\ndef f(x):\n    '''Other words.'''\n    return  x", set()),
        ("lazy.py", "def g(): return 2", {"definitions"}),
        ("deep/helper.py", "h = 2", {"definitions"}),
        ("attribute.py", "a = 1\nother = 3", set()),
        ("attribute.py", "a = 2", {"definitions"}),
        ("by_name.py", "b = 2", {"definitions"}),
        ("unused.py", "u = 2", set()),
        ("lab/claims/chapter_01.py", "one = 2", set()),
        ("lab/claims/levels.py", "three = 4", set()),
        (
            "lab/claims/registry.py",
            REGISTRY.replace("def all():", "def all(x=1):"),
            {"definitions"},
        ),
        ("lab/experiments/first/plan.py", "EXPERIMENT = 2", {"definitions"}),
        ("lab/experiments/first/model.py", "m = 2", {"definitions"}),
        ("lab/experiments/second/plan.py", "EXPERIMENT = 1", set()),
        ("lab/experiments/studies/third.py", "EXPERIMENT = 4", {"definitions"}),
        ("lab/records/published/first-book.json", RUN.replace("0.5", "0.6"), {"records"}),
        ("lab/records/published/first-book.json", RUN.replace("abc", "abd"), set()),
        ("lab/records/published/bench_rows-cpu.json", RUN.replace("0.5", "0.6"), {"records"}),
        ("lab/records/published/second-book.json", RUN.replace("0.5", "0.6"), set()),
    ],
)
def test_a_chapter_depends_on_what_it_uses(package, file, text, found):
    before = of(package)
    (package / file).write_text(text)
    assert changed(before, of(package)) == found


OTHERWISE = [
    *({"statement": "It does not."}, {"said_by": ("this book",)}, {"rule": "A new one."}),
    *({"verdict": "refuted"}, {"evidence": "By 401 draws."}, {"table": ({"n": "3"},)}),
]


@pytest.mark.parametrize("fields", OTHERWISE, ids=lambda fields: next(iter(fields)))
def test_a_chapter_depends_on_the_claims_and_verdicts_that_it_shows(package, fields):
    before = {name: of(package, name) for name in ("01-a", "02-b", "13-c", "the-ledger")}
    for number, old in {0: {"01-a"}, 1: {"02-b"}, 2: set(before)}.items():
        known = [*KNOWN]
        claim, finding = known[number]
        of_claim = next(iter(fields)) in ("statement", "said_by", "rule")
        known[number] = (
            (replace(claim, **fields), finding) if of_claim else (claim, replace(finding, **fields))
        )
        for name, then in before.items():
            now = of(package, name, known=known)
            expected = {"verdicts"} if name in {*old, "the-ledger"} else set()
            assert changed(then, now) == expected, (name, number)


def test_a_chapter_that_reaches_no_claims_depends_on_none(package):
    assert of(package, "the-ledger", CODE[:2]) == of(package, "the-ledger", CODE[:2], KNOWN[:1])
