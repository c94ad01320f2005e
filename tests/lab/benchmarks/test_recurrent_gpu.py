"""The GPU's recurrent benchmark: its plan, its rows and its gate. Where there is no GPU the
measuring is tried on the CPU."""

from dataclasses import replace

import pytest
import torch
from kernels.kernel_cases import DEVICE

from layernorm.lab.benchmarks import recurrent_gpu
from layernorm.lab.benchmarks.recurrent_gpu import SUBJECTS, measure, targets
from layernorm.lab.benchmarks.report import NO_DEVICE
from layernorm.lab.benchmarks.timing import CpuTimer
from layernorm.recurrent import LayerNormLSTM

SHAPE = (4, 2, 3, 5)


class Ticking:
    """A clock that each reading moves by one second."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def quick(kind="lstm", **options):
    timer = CpuTimer(Ticking())
    rows = measure(kind, SHAPE, rounds=6, timer=timer, device=DEVICE, **options)
    return {row.implementation: row for row in rows}


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_every_implementation_passes_the_gate_and_is_timed(kind, mode):
    for dtype in (torch.float32, torch.bfloat16):
        rows = quick(kind, dtype=dtype, mode=mode)
        assert {row.status for row in rows.values()} == {"measured"}, rows
        assert list(rows) == list(SUBJECTS[kind])
        for row in rows.values():
            assert row.ratio == 1
            assert 0 < row.error < 1
            assert row.peak_memory > 0


class Faulty(LayerNormLSTM):
    def forward(self, input, hx=None):
        y, states = super().forward(input, hx)
        return y * 1.001, states


def test_what_is_wrong_is_not_timed(monkeypatch):
    faulty = replace(SUBJECTS["lstm"]["fused"], make=Faulty)
    monkeypatch.setitem(SUBJECTS["lstm"], "fused", faulty)
    row = quick(dtype=torch.float32)["fused"]
    assert row.status.startswith("wrong: ")
    assert " is off by 0.001 of its size" in row.status
    assert row.seconds is None


def test_the_plan():
    found = dict(targets())
    assert len(found) == len(targets())
    first = "lstm training 100x64x512x512 bfloat16"
    assert next(iter(found)) == first
    assert "lstm training 200x32x1024x1024 tf32" in list(found)[:6]
    assert "gru inference 10x4x2048x2048 float32" in found


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what happens without a GPU")
def test_without_a_gpu_nothing_is_measured():
    for _, rows in targets():
        assert {row.status for row in rows()} == {NO_DEVICE}


def test_tf32_is_set_and_put_back(monkeypatch):
    seen = []

    def look(*_):
        seen.append((torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32))
        return []

    monkeypatch.setattr(recurrent_gpu, "_measured", look)
    look()
    for tf32 in (True, False):
        quick(tf32=tf32)
    look()
    assert seen == [seen[0], (True, True), (False, False), seen[0]]


BAD = [
    (("lstn", SHAPE), {}, "kind: .* did you mean 'lstm'"),
    (("lstm", (1, 2, 3)), {}, "shape: expected four positive"),
    (("lstm", SHAPE), {"mode": "train"}, "mode: "),
    (("lstm", SHAPE), {"subjects": ["ours"]}, "subjects: "),
    (("lstm", SHAPE), {"rounds": 5}, "rounds: expected at least 6"),
]


@pytest.mark.parametrize(("arguments", "options", "message"), BAD)
def test_bad_arguments(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        measure(*arguments, **options)
