"""Stored verdicts: kept, renewed, and told when the code or the records have changed."""

import json
from dataclasses import replace

import pytest

from layernorm.lab import claims
from layernorm.lab.claims import Claim, Finding, verdicts
from layernorm.lab.claims.experiments import rule
from layernorm.lab.claims.verdicts import Stored
from layernorm.lab.experiments import get
from layernorm.lab.records import staleness

ONE = Claim("one", "One holds.", ("this book",), "property", "03")
TWO = Claim("two/mnist", "Two holds.", ("this book",), "experiment", "19")
FOUND = Finding("conditional", "It is 0.", condition="eps = 0", numbers={"worst": 0.0})
OPEN = Finding("inconclusive", reason="Few seeds.")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of one module and one record, in the place of the real one."""
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "mnist-standard.json").write_text("{}")
    source = tmp_path / "code.py"
    source.write_text("x = 1\n")
    monkeypatch.setattr(verdicts, "PACKAGE", tmp_path)
    monkeypatch.setattr(verdicts.published, "published_folder", lambda: folder)
    monkeypatch.setattr(verdicts, "code", lambda claim: repr(eval(source.read_text()[4:])))
    monkeypatch.setattr(staleness, "changed", lambda then, *_: then != verdicts.code(ONE))
    return tmp_path


@pytest.fixture
def file(package):
    """Both claims, stored."""
    file = package / "verdicts.json"
    Stored(file).save([(ONE, FOUND), (TWO, OPEN)], [ONE, TWO])
    return file


def test_an_interruption_leaves_the_verdicts_as_they_were(file, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    before = file.read_bytes()
    monkeypatch.setattr("layernorm.lab.records.files.os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        Stored(file).save([(ONE, OPEN)], [ONE])
    assert file.read_bytes() == before


def test_what_was_found_is_kept_but_its_numbers(file):
    stored = Stored(file)
    assert stored.finding(ONE) == Finding("conditional", "It is 0.", condition="eps = 0")
    assert stored.finding(TWO) == OPEN
    assert stored.outdated([ONE, TWO]) == set()


@pytest.mark.parametrize(
    ("changed", "text", "outdated"),
    [
        ("code.py", "x = 2\n", {"one", "two/mnist"}),
        ("code.py", "x = 1  # the same code\n", set()),
        (
            "records/mnist-standard.json",
            '{"runs":[{"config":{"data":"a","options":"a"},"environment":"a"}],"shared":{"a":1}}',
            {"two/mnist"},
        ),
        ("records/mnist-standard.json", '{"confirmed":{"layer":{}}}', set()),
        ("notes.md", "prose", set()),
        ("verdicts.json", None, set()),
    ],
)
def test_a_verdict_belongs_to_its_code_and_records(changed, text, outdated, file, package):
    if text is not None:
        (package / changed).write_text(text)
    assert Stored(file).outdated([ONE, TWO]) == outdated


def test_a_changed_rule_and_a_changed_margin_make_a_verdict_old(file, package):
    (package / "code.py").write_text("x = 1  # other bytes\n")
    other = replace(ONE, rule="Another rule.")
    assert Stored(file).outdated([other, TWO]) == {"one"}
    plan = get("mnist").comparisons
    said, rows = next(iter(plan.claims().items()))
    margin = replace(rows[0].margin, size=2 * rows[0].margin.size)
    rules = {rule(get("mnist"), plan, said, each)
             for each in (rows, [replace(row, margin=margin) for row in rows])}  # fmt: skip
    assert len(rules) == 2


def test_renewing_some_leaves_the_others_outdated(file, package):
    (package / "code.py").write_text("x = 2\n")
    Stored(file).save([(ONE, FOUND)], [ONE, TWO])
    assert Stored(file).outdated([ONE, TWO]) == {"two/mnist"}
    Stored(file).save([(TWO, OPEN)], [ONE, TWO])
    assert Stored(file).outdated([ONE, TWO]) == set()


def test_what_is_not_registered_is_dropped(file):
    Stored(file).save([], [TWO])
    assert list(json.loads(file.read_text())["verdicts"]) == ["two/mnist"]
    assert Stored(file).finding(ONE) == verdicts.MISSING
    assert Stored(file).outdated([ONE]) == set()


def test_a_verdict_depends_on_the_code_that_its_check_reaches():
    claim = claims.get("gradient-has-mean-zero")
    digest = verdicts.code(claim)
    assert digest.startswith("gradient_has_mean_zero ")
    assert not staleness.changed(digest, verdicts.RUN, {})
    assert staleness.changed(digest[:-1], verdicts.RUN, {})
    assert verdicts.code(ONE) == ""
    lambdas = [c for c in claims.all() if c.check and "<lambda>" in c.check.__qualname__]
    assert all(verdicts.code(c).startswith(c.check.__module__) for c in lambdas)
