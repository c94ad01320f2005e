"""The GPU's recurrent benchmark: its plan, its rows, its gate. Where there is no GPU
the measuring is tried on the CPU."""

from dataclasses import replace

import pytest
import torch
from kernels.kernel_cases import DEVICE
from lab.benchmarks.benching import ticking

from layernorm.lab.benchmarks.measure import measure
from layernorm.lab.benchmarks.measure.table import place
from layernorm.lab.benchmarks.recurrent import GpuCase
from layernorm.lab.benchmarks.recurrent.plan import gpu_plan
from layernorm.lab.benchmarks.recurrent.subjects import LOOPS
from layernorm.recurrent import LayerNormLSTM

SHAPE = (4, 2, 3, 5)


def asked(kind="lstm", shape=SHAPE, **fields):
    return GpuCase(kind, shape, **{"device": DEVICE, "rounds": 6} | fields)


def quick(kind="lstm", **fields):
    return {row.implementation: row for row in measure(asked(kind, **fields), ticking())}


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_every_implementation_passes_the_gate_and_is_timed(kind, mode):
    for dtype in ("float32", "bfloat16"):
        rows = quick(kind, dtype=dtype, mode=mode)
        assert {row.status for row in rows.values()} == {"measured"}, rows
        assert list(rows) == ["fused", "torch", "script", "definition"]
        for row in rows.values():
            assert row.ratio == 1
            assert 0 < row.error < 1
            assert row.peak_memory > 0


class Faulty(LayerNormLSTM):
    def forward(self, input, hx=None):
        y, states = super().forward(input, hx)
        return y * 1.001, states


def test_what_is_wrong_is_not_timed(monkeypatch):
    faulty = replace(LOOPS["lstm"]["fused"], make=Faulty)
    monkeypatch.setitem(LOOPS["lstm"], "fused", faulty)
    row = quick()["fused"]
    assert row.status.startswith("wrong: ")
    assert " is off by 0.001 of its size" in row.status
    assert row.seconds is None


def test_the_plan():
    """Training decides most, then inference; TF32 is last. A time relative to the definition's is
    what the file of speeds has."""
    found = [place(case.blank("fused")) for case in gpu_plan()]
    assert len(found) == len(set(found)) == len(set(gpu_plan()))
    assert found[0] == "lstm training 100x64x512x512 bfloat16"
    assert "lstm training 200x32x1024x1024 float32" in found[:8]
    assert "gru training 10x4x512x512 bfloat16" in found[8:12]
    assert "gru inference 10x4x2048x2048 float32" in found
    assert {case.profile for case in gpu_plan()} == {"cuda"}
    stages = [(case.tf32, case.mode == "inference") for case in gpu_plan()]
    assert stages == sorted(stages)
    for case in gpu_plan():
        assert ("definition" in case.implementations) != case.tf32


def test_tf32_is_set_and_put_back():
    def now():
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    before = now()
    for tf32 in (True, False):
        with asked(tf32=tf32).setting():
            assert now() == (tf32, tf32)
        assert now() == before
