"""The plan of `layernorm bench norms`: cases from words, implementations that run here."""

import os
from shutil import which

import pytest
import torch
from lab.benchmarks.benching import CPU, GPU, python, rows_of, timed, tiny

from layernorm.lab.benchmarks import norms
from layernorm.lab.benchmarks.norms import implementations
from layernorm.lab.benchmarks.norms import plan as plans


def test_quick_is_every_benchmark_at_few_shapes():
    plan = plans.plan(quick=True, device="cpu")
    assert {case.operation for case in plan} == set(norms.OPERATIONS)
    assert {case.profile for case in plan} == {"quick"}
    mine = plans.plan(quick=True, device="cpu", profile="mine")
    assert {case.profile for case in mine} == {"mine"}
    assert {case.mode for case in plan} == {"forward", "forward+backward"}
    assert {case.dtype for case in plan} == {"float32"}
    assert all("compile" in case.implementations for case in plan)


@pytest.mark.parametrize(("device", "most"), [("cpu", 2**24), (GPU, 2**28)])
def test_all_is_what_the_issue_asks_for(device, most):
    plan = plans.plan(device=device)
    sizes = {case.shape for case in plan if case.operation == "layer"}
    assert max(count * width for count, width in sizes) == most
    assert {1, 65536} <= {count for count, _ in sizes}
    assert {32, 769, 1000, 5120, 65536} <= {width for _, width in sizes}
    assert {case.dtype for case in plan} == {"float32", "float16", "bfloat16"}
    assert {case.mode for case in plan} == {"forward", "backward", "forward+backward"}
    assert {case.operation for case in plan} == set(norms.OPERATIONS)
    assert {case.profile for case in plan if case.dtype == "float16"} == {"full_float16"}
    assert not any(case.operation == "batch" and case.shape[0] == 1 for case in plan)


def test_a_plan_from_words():
    plan = plans.plan(
        device="cpu",
        methods="rms, layer,rms",
        dtypes="bfloat16",
        modes="backward",
        shapes="2x3,4x5",
        profile="mine",
    )
    assert [(c.operation, c.shape, c.dtype, c.mode, c.profile) for c in plan] == [
        (name, size, "bfloat16", "backward", "mine")
        for size in ((2, 3), (4, 5))
        for name in ("rms", "layer")
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"methods": "laier"}, "methods: expected one of none, .*residual, got 'laier'; .*'layer'"),
        ({"dtypes": "float64"}, "dtypes: expected one of float32, float16, bfloat16"),
        ({"modes": "foward"}, "modes: .*did you mean 'forward'"),
        ({"shapes": "4096"}, "shapes: expected rows x elements of a row, .* got '4096'"),
        ({"shapes": "0x5"}, "shapes: .* got '0x5'"),
        ({"shapes": "65536x1024"}, "shapes: expected at most 16777216 elements .* 65536x1024"),
        ({"methods": "batch", "shapes": "1x64"}, "batch normalization needs two rows"),
        ({"device": "gpu"}, "device: expected auto, cpu, cuda or cuda:1, got 'gpu'"),
        ({"device": "mps"}, "device: expected auto"),
    ],
)
def test_words_that_are_wrong_are_named(words, message):
    with pytest.raises(ValueError, match=message):
        plans.plan(**{"device": "cpu"} | words)


@pytest.mark.parametrize("name", norms.OPERATIONS)
def test_our_kernels_run_on_a_gpu_alone(name):
    ours = name in ("layer", "rms", "residual")
    benchmark, refused = implementations.candidates(norms.OPERATIONS[name], CPU)
    assert list(benchmark.implementations) == ["definition", "torch", "compile"]
    assert refused.get("triton") == ("needs a CUDA device" if ours else None)
    benchmark, _ = implementations.candidates(norms.OPERATIONS[name], torch.device("cuda"))
    assert ("triton" in benchmark.implementations) == ours


def test_the_compiler_starts_anew_for_every_case(monkeypatch):
    seen = []
    monkeypatch.setattr(torch._dynamo, "reset", lambda: seen.append("reset"))

    def compile(function, **options):
        assert options == {"dynamic": False, "fullgraph": True}
        seen.append("compile")
        return function

    monkeypatch.setattr(torch, "compile", compile)
    rows = rows_of(tiny((2, 32), (3, 32), compiled=True))
    assert seen == ["reset", "compile"] * 2
    assert sum(row.implementation == "compile" and row.status == "measured" for row in rows) == 2


@pytest.mark.skipif(which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_backward_pass_is_timed_by_itself():
    """In a process without checked annotations, which the compiler cannot see through."""
    script = """
from lab.benchmarks.benching import rows_of, tiny
rows = rows_of(tiny((3, 7), name="rms", mode="backward", compiled=True))
print({row.implementation: row.status for row in rows}["compile"])
"""
    plain = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    assert python(script, env=plain, check=True).stdout == "measured\n"


@pytest.mark.parametrize("name", ["layer", "rms", "residual"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_ours_passes_the_gate(monkeypatch, name, dtype):
    """In Triton's interpreter, as if on a GPU."""
    monkeypatch.setattr(implementations, "_on_gpu", lambda device: True)
    rows = rows_of(tiny((5, 33), name=name, dtype=dtype, mode="forward+backward"))
    assert "triton" in timed(rows)


def test_a_replayed_graph_is_another_measurement():
    (case,) = tiny(graph=True)
    row = case.blank("torch")
    assert (row.benchmark, row.options["graph"]) == ("layer_graph", True)
