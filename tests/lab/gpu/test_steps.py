"""The steps of `make bench-gpu`: what was aimed for first, and what is said of it."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from lab.benchmarks.benching import GPU

from layernorm.kernels import speeds
from layernorm.lab.benchmarks.measure import Row
from layernorm.lab.gpu.steps import CHOICE, FIRST, LARGE, SMALL, STEPS, verdicts

COMPILED = ("compile", "compile_large")


@pytest.fixture(scope="module")
def found():
    return {name: plan(GPU) for name, plan in STEPS.items()}


def test_what_was_aimed_for_comes_first(found):
    first, second, updates, last = (
        found[name] for name in ("layer", "recurrent", "updates", "compile")
    )
    assert list(found)[:6] == ["layer", "replayed", "recurrent", "updates", "large", "residual"]
    assert list(found)[-3:] == ["compile", "tables", "compile_large"]  # of thousands of cases
    assert {(c.operation, c.dtype, c.shape, c.mode) for c in first} == {
        ("layer", "bfloat16", size, mode)
        for size in FIRST
        for mode in ("forward", "backward", "forward+backward")
    }
    assert len(FIRST) == 4
    assert {(c.operation, c.dtype, c.mode) for c in second} == {
        (kind, "bfloat16", "training") for kind in ("lstm", "gru")
    }
    assert all("torch" in c.implementations and "fused" in c.implementations for c in second)
    assert [c.operation for c in updates] == ["mlp"] * 3 + ["lstm"] * 2
    several = [c for c in updates if c.batch > 1]
    assert all("batch/reference" in c.implementations for c in several)  # of the LSTM, too
    assert len(several) == 4
    assert {c.operation for c in last} == {"layer", "rms", "residual"}
    assert {c.shape for c in last} == set(FIRST)


def test_torchs_compiler_has_a_step_and_a_profile_of_its_own(found):
    for name, plan in found.items():
        compiled = ["compile" in case.implementations for case in plan]
        assert all(compiled) if name in COMPILED else not any(compiled), name
        assert {case.profile == "compile" for case in plan} == {name in COMPILED}
    asked = [case.shape for name in COMPILED for case in found[name]]
    assert set(asked) == set(LARGE)
    assert len(asked) == 9 * len(LARGE)  # three operations, three modes


def test_nothing_is_measured_twice_under_one_name(found):
    """A case with fewer implementations in the same profile would put the other's out of date."""
    seen = {}
    for name, plan in found.items():
        for case in plan:
            place = (case.benchmark, case.profile, case.shape, case.dtype, case.mode)
            before = seen.setdefault((*place, repr(case.options)), case.implementations)
            assert before == case.implementations, (name, case)


def test_all_methods_and_the_recurrent_layers_are_there(found):
    assert {"batch", "weight", "layer", "rms", "group", "instance", "residual"} <= {
        case.operation for case in found["methods"]
    }
    assert {(c.operation, c.mode, c.dtype, c.tf32) for c in found["layers"]} == {
        *product(("lstm", "gru"), ("training", "inference"), ("bfloat16",), (False,)),
        *product(("lstm", "gru"), ("training", "inference"), ("float32",), (False, True)),
    }
    assert all(case.graph for case in found["replayed"])
    copies = [case for case in found["replayed"] if case.operation == "copy"]
    assert {(c.shape, c.dtype) for c in copies} == {
        (c.shape, c.dtype) for c in found["replayed"] if c.operation == "layer"
    }
    assert sum(case.graph for case in found["small"]) == len(found["small"]) / 2
    on = {case.device for plan in found.values() for case in plan}
    assert on == {GPU, "cuda"}


@pytest.mark.parametrize("width", [512, 768, 1024, 2048, 4096, 5120])
@pytest.mark.parametrize("rows", [16, 1000, 8192, 65536])
def test_auto_finds_neighbors_for_what_is_usual(found, rows, width):
    """If our kernel is the faster one wherever it is measured, it is chosen there."""
    assert (65536, 512) in CHOICE
    ratios = {}
    for case in found["choice"]:
        assert case.implementations in (("torch", "triton"), ("torch",))
        if case.operation == "layer" and case.dtype == "bfloat16":
            ratios.setdefault(case.shape[1], {})[case.shape[0]] = 0.9
    assert speeds.decide(ratios, rows, width, torch.bfloat16.itemsize) is (rows * width <= 2**28)


def row(name, seconds, mode="forward", shape=(4096, 1024), fraction=0.95, benchmark="layer"):
    common = (name, "torch", mode, shape, "bfloat16", "cuda", 0, "measured")
    return Row(benchmark, "layer", *common, seconds=seconds, fraction=fraction)


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([row("torch", 1.3), row("triton", 1.0), row("compile", 1.0)],
         "95% of the roof; 1.30 times torch's speed; 1.00 times compile's speed"),
        ([row("triton", 1.0, fraction=0.94)], "94% of the roof (missed)"),
        ([row("triton", 1.0, "backward", fraction=0.86)], "86% of the roof"),
        ([row("triton", 1.0, "backward", fraction=0.84)], "84% of the roof (missed)"),
        ([row("torch", 1.1), row("triton", 1.0), row("quack", 0.98)],
         "95% of the roof; 1.10 times torch's speed (missed); 0.98 times quack's speed (missed)"),
        ([row("torch", 1.7, "backward"), row("triton", 1.0, "backward")],
         "95% of the roof; 1.70 times torch's speed (missed)"),
        ([row("torch", 1.0, shape=SMALL[0]), row("triton", 1.05, shape=SMALL[0])],
         "1.05 of torch's time"),
        ([row(name, seconds, shape=SMALL[0], benchmark="layer_graph")
          for name, seconds in (("torch", 1.0), ("triton", 1.11))],
         "1.11 of torch's time (missed)"),
        ([row("triton", 1.0, benchmark="layer_graph", fraction=0.6),
          row("torch", 0.96, benchmark="copy_graph")],
         "96% of an equal copy's speed"),
    ],
)  # fmt: skip
def test_verdicts(rows, verdict):
    (line,) = verdicts([*rows, replace(rows[0], implementation="apex", status="failed: ...")])
    where = f"{rows[0].benchmark} {rows[0].mode} {'x'.join(map(str, rows[0].shape))} bfloat16: "
    assert line == where + verdict


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        ({"torch": 1.36, "script": 10.1},
         "1.47 of cuDNN's time, aim 1.5; 5.05 times script's speed"),
        ({"torch": 1.25}, "1.60 of cuDNN's time, aim 1.5, at first 2 (missed)"),
        ({"torch": 0.9, "script": 9.8},
         "2.22 of cuDNN's time, aim 1.5 (missed); 4.90 times script's speed (missed)"),
    ],
)  # fmt: skip
def test_verdicts_on_recurrent_layers(seconds, verdict):
    shape, options = (100, 64, 512, 512), {"kind": "lstm"}
    rows = [
        replace(row(name, taken, "training", shape, benchmark="recurrent"), options=options)
        for name, taken in {**seconds, "fused": 2.0}.items()
    ]
    assert verdicts(rows) == [f"lstm training 100x64x512x512 bfloat16: {verdict}"]
    assert (
        len(verdicts([*rows, *(replace(r, options=options | {"tf32": True}) for r in rows)])) == 2
    )
    assert verdicts([replace(r, mode="inference") for r in rows]) == []
    assert verdicts([replace(r, shape=(10, 4, 64, 64)) for r in rows]) == []


def test_no_verdict_on_what_was_not_aimed_for():
    assert verdicts([row("triton", 1.0, "forward+backward")]) == []
    assert verdicts([row("triton", 1.0, shape=(5, 6))]) == []
    assert verdicts([row("triton", 1.0, benchmark="residual")]) == []
    assert verdicts([row("torch", 1.0)]) == []
    assert not set(LARGE) & set(SMALL)
