"""`bench packed`: what is timed, its gate and its table."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from lab.benchmarks.benching import files, ticking
from torch import nn
from typed import layernorm

from layernorm.lab import claims, records
from layernorm.lab.benchmarks import packed
from layernorm.lab.benchmarks.measure import measure, resume
from layernorm.lab.benchmarks.packed import (
    LAYERS,
    PACKED,
    PADDED,
    TORCH_PACKED,
    PackedCase,
    plan,
    table,
)
from layernorm.recurrent import LayerNormGRU

SHAPE = (9, 5, 3, 4)


def test_lengths_are_between_a_quarter_and_all_of_the_steps():
    drawn = packed.lengths(200, 400)
    assert drawn[0] == 200
    assert 50 <= drawn[-1] < 56
    assert (drawn.diff() <= 0).all()
    assert drawn.double().mean() == pytest.approx(125, abs=8)
    assert packed.lengths(1, 3).tolist() == [1, 1, 1]
    assert not torch.equal(drawn, packed.lengths(200, 400, seed=1))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_all_are_right_and_timed(kind):
    case = PackedCase(kind, SHAPE, rounds=6, processes=1, threads=1)
    rows = measure(case, ticking())
    assert [row.status for row in rows] == ["measured"] * len(LAYERS)
    assert [row.implementation for row in rows] == list(LAYERS)
    assert {row.baseline for row in rows} == {PACKED}
    own = int(packed.lengths(9, 5).sum())
    assert {row.options["rows"] for row in rows} == {round(own / 45, 3)}
    text = table(rows).text()
    assert f"{kind} 9,5,3,4" in text
    assert " ms" in text


def test_a_layer_that_counts_the_padding_is_wrong(monkeypatch):
    """Packed rows that are computed as one sequence agree in shape alone."""

    def forward(self, input, state=None):
        if isinstance(input, nn.utils.rnn.PackedSequence):
            y, _ = whole(self, input.data[:, None])
            return input._replace(data=y[:, 0]), None
        return whole(self, input, state)

    whole = LayerNormGRU.forward
    monkeypatch.setattr(LayerNormGRU, "forward", forward)
    case = PackedCase("gru", SHAPE, rounds=6, processes=1)
    found = {row.implementation: row.status for row in measure(case, ticking())}
    assert found[PACKED].startswith("wrong: ")
    assert found[PADDED] == "measured"


def test_the_command(folders):
    words = ["bench", "packed", "--kind", "gru", "--shapes", "3,2,3,4", "--subjects", "ours packed"]
    few = ["--threads", "1", "--rounds", "6", "--processes", "1", "--profile", "mine"]
    done = layernorm(*words, *few)
    assert done.exit_code == 0, done.output
    assert "gru 3,2,3,4" in done.output
    assert len(files(folders / "runs" / "bench_packed" / "mine")) == 1


def test_the_plan_is_of_both_kinds_and_thread_counts(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    cases = plan()
    assert len(cases) == 2 * 2 * len(packed.SHAPES)
    assert [case.threads for case in cases[:: len(cases) // 2]] == [1, 2]
    [one] = plan("gru", "3,4,5,6", PACKED, threads=3, profile="trial")
    assert (one.operation, one.shape, one.implementations) == ("gru", (3, 4, 5, 6), (PACKED,))
    assert (one.threads, one.profile) == (3, "trial")


def save(name, ratio, kind="lstm", steps=100, threads=1, machine="here"):
    told = {"kind": kind, "rounds": 6, "threads": threads, "rows": 0.6}
    row = PackedCase(kind, (steps, 2, 3, 4), threads=threads).blank(name)
    records.save(
        resume.record_of(
            replace(
                row, seconds=1e-3, p20=1e-3, p80=1e-3, error=0.5, ratio=ratio,
                ratio_low=0.99 * ratio, ratio_high=1.01 * ratio,
                options={**told, "machine": f"{machine}, {threads} threads"},
            ),
            "cpu",
        )
    )  # fmt: skip


def test_claims_follow_the_record():
    ids = ("three-quarters-of-padded", "eight-times-faster", "six-times-faster")

    def found():
        return [claims.get(f"{id}/packed_cpu").check().verdict for id in ids]

    assert found() == ["not yet tested"] * 3
    for kind, threads in product(("lstm", "gru"), (1, 2)):
        save(PADDED, 1.4, kind, threads=threads)
        save(TORCH_PACKED, 7.0, kind, threads=threads)
    save(TORCH_PACKED, 2.0, steps=50)  # too few steps to count
    assert found() == ["supported here", "opposite here", "supported here"]
    beside = claims.get("three-quarters-of-padded/packed_cpu").check().evidence
    assert "have 60% to 60% of the padded batch's rows; the time is 1.19 to 1.19 times" in beside
    save(PADDED, 1.2, "gru", steps=50, threads=2)
    save(TORCH_PACKED, 9.0, steps=200)
    assert found() == ["depends", "depends", "supported here"]
    save(PADDED, 1.4, machine="there")
    with pytest.raises(records.RecordError, match=r"several machines \(here; there\)"):
        packed.recorded()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"kind": "ltsm"}, "kind: expected one of lstm, gru, both, got 'ltsm'"),
        ({"shapes": "1,2,3"}, "four positive integers T,B,I,H"),
        ({"subjects": "our"}, "subjects: expected one of ours packed"),
        ({"threads": 0}, "threads: expected 1 to"),
        ({"rounds": 5, "processes": 1}, "rounds: expected at least 6"),
        ({"processes": 3}, "processes: expected 1, or at least 6"),
    ],
)
def test_words_that_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        plan(**words)
