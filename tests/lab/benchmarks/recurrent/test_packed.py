"""`bench packed`: what is timed, its gate and its table."""

import pytest
import torch
from torch import nn

from layernorm.lab.benchmarks import packed
from layernorm.lab.benchmarks.measure.case import measure
from layernorm.lab.benchmarks.packed import LAYERS, PACKED, PADDED, PackedCase, plan, table
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
    case = PackedCase(kind, SHAPE, rounds=6, sample_seconds=1e-4, threads=1)
    rows = measure(case)
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
    case = PackedCase("gru", SHAPE, rounds=6, sample_seconds=1e-4)
    found = {row.implementation: row.status for row in measure(case)}
    assert found[PACKED].startswith("wrong: y")
    assert found[PADDED] == "measured"


def test_the_plan_is_of_both_kinds_and_thread_counts(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    cases = plan()
    assert len(cases) == 2 * 2 * len(packed.SHAPES)
    assert [case.threads for case in cases[:: len(cases) // 2]] == [1, 2]
    [one] = plan("gru", "3,4,5,6", PACKED, threads=3, profile="trial")
    assert (one.operation, one.shape, one.implementations) == ("gru", (3, 4, 5, 6), (PACKED,))
    assert (one.threads, one.profile) == (3, "trial")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"kind": "ltsm"}, "kind: expected one of lstm, gru, both, got 'ltsm'"),
        ({"shapes": "1,2,3"}, "four positive integers T,B,I,H"),
        ({"subjects": "our"}, "subjects: expected one of ours packed"),
        ({"threads": 0}, "threads: expected 1 to"),
        ({"rounds": 5}, "rounds: expected at least 6"),
    ],
)
def test_words_that_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        plan(**words)
