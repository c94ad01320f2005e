"""`bench compile`: samples in turns from processes of their own, its gate, records and table."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn
from typed import layernorm

from layernorm.lab import claims, records
from layernorm.lab.benchmarks import compiling
from layernorm.lab.benchmarks.compiling import (
    PACKED,
    SUBJECTS,
    TRACED,
    CompileCase,
    plan,
    recorded,
    table,
)
from layernorm.lab.benchmarks.measure import resume, run
from layernorm.lab.benchmarks.measure.process import ask
from layernorm.recurrent import cpu

SHAPE = (3, 4, 5, 6)
ONE = {"kind": "gru", "shapes": "3,4,5,6", "rounds": 6}


def answers(monkeypatch, **status):
    """Processes that answer at once; each call of one subject takes a second longer."""
    asked = []

    def answer(case, question, settings, name):
        assert question == "compiled"
        assert settings["TORCHINDUCTOR_CACHE_DIR"] not in [cache for _, cache in asked]
        asked.append((name, settings["TORCHINDUCTOR_CACHE_DIR"]))
        count = sum(name == other for other, _ in asked)
        seconds = count * (10.0 if name == TRACED else 1.0)
        told = status.get(name.replace(" ", "_"), "measured")
        return [{"seconds": seconds, "graphs": 1, "status": told, "error": 0.5}]

    monkeypatch.setattr(compiling, "ask", answer)
    return asked


def test_samples_are_taken_in_turns_and_compared(monkeypatch):
    asked = answers(monkeypatch, ours_packed="wrong: y")
    rows = {row.implementation: row for row in plan(**ONE)[0].measured()}
    right = [name for name in SUBJECTS if name != PACKED]
    assert [name for name, _ in asked] == [*SUBJECTS, *right * 5]
    assert rows[PACKED].status == "wrong: y"
    assert rows[PACKED].seconds is None
    assert (rows["ours"].seconds, rows[TRACED].seconds) == (3.5, 35.0)
    assert (rows["ours"].ratio, rows["ours"].baseline) == (0.1, TRACED)
    assert rows["ours"].samples == (1, 2, 3, 4, 5, 6)
    assert (rows["ours"].error, rows["ours"].options["path"]) == (0.5, "graphs: 1")
    assert (rows["ours"].method, rows[TRACED].method) == ("layer", "none")
    text = table(list(rows.values())).text()
    assert "gru 3,4,5,6" in text
    assert "3.5 [2.0, 5.0] graphs: 1" in text
    assert "wrong" in text


def test_what_was_recorded_is_not_measured_again(monkeypatch, tmp_path):
    asked = answers(monkeypatch)
    [(_, first)] = run(plan(**ONE, profile="trial"), root=tmp_path)
    count = len(asked)
    [(_, again)] = run(plan(**ONE, profile="trial"), root=tmp_path)
    assert len(asked) == count == 6 * len(SUBJECTS)
    assert [row.seconds for row in again] == [row.seconds for row in first]


def test_the_command(monkeypatch, folders):
    answers(monkeypatch)
    words = ["bench", "compile", "--kind", "gru", "--shapes", "3,4,5,6", "--rounds", "6"]
    done = layernorm(*words, "--profile", "mine")
    assert done.exit_code == 0, done.output
    assert "gru 3,4,5,6" in done.output
    assert "35.0 [20.0, 50.0] graphs: 1" in done.output
    assert len(records.runs("bench_compile", "mine")) == len(SUBJECTS)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_gate_judges_what_was_compiled(kind, name, monkeypatch):
    """A compiler that changes nothing, and one that gets the outputs a little wrong."""
    if name == PACKED and cpu.missing():
        pytest.skip(cpu.missing())
    monkeypatch.setattr(torch, "compile", lambda module, **_: module)
    [found] = CompileCase(kind, SHAPE).compiled(name)
    assert found["status"] == "measured"
    assert found["error"] <= 1
    assert found["seconds"] > 0

    class Off(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, x):
            return self.module(x)[0] * 1.01, None

    def compiler(module, **_):
        return Off(module) if isinstance(module, nn.Module) else module

    monkeypatch.setattr(torch, "compile", compiler)
    [found] = CompileCase(kind, SHAPE).compiled(name)
    assert found["status"].startswith("wrong: ")


def test_a_compiler_that_fails_is_told(monkeypatch):
    class Broken(nn.Module):
        def forward(self, x):
            raise RuntimeError("no such\n instruction")

    def compiler(module, **_):
        return Broken() if isinstance(module, nn.Module) else module

    monkeypatch.setattr(torch, "compile", compiler)
    [found] = CompileCase("gru", SHAPE).compiled("ours")
    assert found["status"] == "failed: RuntimeError: no such instruction"


@pytest.mark.parametrize("name", ["ours", PACKED])
def test_one_process_compiles_one_graph(name, tmp_path):
    if cpu.missing():
        pytest.skip(cpu.missing())
    case = CompileCase("lstm", SHAPE)
    [found] = ask(case, "compiled", {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}, name)
    assert found["status"] == "measured", found
    assert found["graphs"] == 1
    assert any(tmp_path.iterdir()), "what it compiled is in the folder that it was given"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            {"kind": "ltsm"},
            "kind: expected one of lstm, gru, both, got 'ltsm'; did you mean 'lstm'",
        ),
        ({"shapes": "1,2,3"}, "four positive integers T,B,I,H"),
        ({"subjects": "our"}, "subjects: expected one of ours, ours packed"),
        ({"rounds": 5}, "rounds: expected at least 6"),
    ],
)
def test_words_that_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        plan(**words)


def save(name, ratio, kind):
    row = CompileCase(kind, SHAPE).blank(name)
    times = {"seconds": ratio, "p20": ratio, "p80": ratio, "ratio": ratio}
    ends = {"ratio_low": 0.9 * ratio, "ratio_high": 1.1 * ratio}
    records.save(resume.record_of(replace(row, error=0.5, **times, **ends), "cpu"))


def test_the_claim_follows_the_record():
    claim = claims.get("compiles-five-times-faster/compile_cpu")
    assert claim.check().verdict == "not yet tested"
    for kind, name in product(("lstm", "gru"), ("ours", PACKED)):
        save(name, 0.1, kind)
        save("definition", 0.9, kind)  # which the claim is not about
    found = claim.check()
    assert found.verdict == "supported here"
    assert {shown["n"] for shown in found.table} == {"10"}  # rounds, each a process of its own
    assert [row.implementation for row in recorded()] == ["ours", PACKED, "definition"] * 2
    save(PACKED, 0.2, "gru")
    assert claim.check().verdict == "inconclusive"
    save(PACKED, 0.4, "gru")
    assert claim.check().verdict == "depends"
