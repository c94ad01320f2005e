"""Whether records are stale."""

import os

import pytest

from layernorm.lab import records
from layernorm.lab.records import RecordError
from layernorm.lab.records.staleness import module_hash

CONFIG = {"experiment": "digits", "profile": "book", "arm": "layer", "method": "layer", "seed": 0}
DEPENDS = ["layernorm.lab.records.record"]
SOURCE = '''"""A module."""
def double(x):
    """Twice x."""
    return 2 * x
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes the source of a module `subject`, importable while the test runs."""
    monkeypatch.syspath_prepend(tmp_path / "code")
    file = tmp_path / "code" / "subject.py"
    file.parent.mkdir()
    written = [0]

    def write(source: str) -> str:
        file.write_text(source)
        written[0] += 1
        os.utime(file, ns=(written[0], written[0]))
        return module_hash("subject")

    return write


@pytest.mark.parametrize(
    "same",
    [
        SOURCE.replace("A module.", "Another text."),
        SOURCE.replace('    """Twice x."""\n', ""),
        SOURCE.replace("2 * x", "(2*x)  # a comment"),
        "# a comment\n" + SOURCE,
    ],
)
def test_documentation_comments_and_layout_do_not_count(module, same):
    assert module(SOURCE) == module(same)


@pytest.mark.parametrize(
    "other",
    [
        SOURCE.replace("2 * x", "3 * x"),
        SOURCE.replace("2 * x", "2.0 * x"),
        SOURCE.replace("2 * x", "x * 2"),
        SOURCE.replace("double", "twice"),
        SOURCE + "x = None\n",
        SOURCE.replace("return", "'text that is no docstring'; return"),
        SOURCE.replace("def", "@staticmethod\ndef"),
    ],
)
def test_code_counts(module, other):
    assert module(SOURCE) != module(other)


def test_a_package_stands_for_all_its_modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "bundle"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("x = 1")
    before = module_hash("bundle")
    (package / "more.py").write_text("")
    assert module_hash("bundle") != before


def test_stale_records_are_told(module, tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERNORM_RUNS", str(tmp_path / "runs"))
    module(SOURCE)
    record = records.new(CONFIG, {"final": {"error": 1.0}}, {}, ["subject", *DEPENDS])
    assert records.stale(record) == []
    records.save(record)
    records.save(records.new({**CONFIG, "seed": 5}, {"final": {"error": 1.0}}, {}, DEPENDS))
    assert records.staleness_banner("digits") == ""
    module(SOURCE.replace("2", "3"))
    assert records.stale(record) == ["subject"]
    told = "1 of 2 runs were made before the code they depend on changed (subject)."
    assert records.staleness_banner("digits") == told
    assert records.staleness_banner(records.load("digits")) == told
    with pytest.raises(RecordError, match="source of module 'subject' cannot be read"):
        module("syntax error")
    assert records.stale(record) == ["subject"]
    assert records.staleness_banner("digits", "long") == ""


def test_a_module_that_is_gone_makes_stale_but_cannot_be_depended_on():
    gone = records.Record(CONFIG, {"final": {"a": 1.0}}, depends={"layernorm.nowhere.x": "0"})
    assert records.stale(gone) == ["layernorm.nowhere.x"]
    with pytest.raises(RecordError, match=r"no module 'layernorm\.nowhere'"):
        records.new(CONFIG, {"final": {"a": 1.0}}, {}, ["layernorm.nowhere"])
