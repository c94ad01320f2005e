"""What `layernorm bench norms` measures: cases from words, implementations that run here."""

import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest
import torch
from lab.benchmarks.norms_survey import CPU, GPU, own_folder, rows_of, tiny

from layernorm.lab.benchmarks import implementations, norms, plans
from layernorm.lab.benchmarks.plans import Case

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    return own_folder(tmp_path, monkeypatch)


def test_quick_is_every_benchmark_at_few_shapes():
    plan = plans.plan(quick=True, device="cpu")
    assert {case.name for case in plan.cases} == set(norms.BENCHMARKS)
    assert {case.profile for case in plan.cases} == {"quick"}
    assert {case.mode for case in plan.cases} == {"forward", "forward+backward"}
    assert {case.dtype for case in plan.cases} == {"float32"}
    assert plan.compiled


@pytest.mark.parametrize(("device", "most"), [("cpu", 2**24), (GPU, 2**28)])
def test_all_is_what_the_issue_asks_for(device, most):
    plan = plans.plan(device=device)
    sizes = {(case.count, case.width) for case in plan.cases}
    assert max(count * width for count, width in sizes) == most
    assert {1, 65536} <= {count for count, _ in sizes}
    assert {32, 769, 1000, 5120, 65536} <= {width for _, width in sizes}
    assert {case.dtype for case in plan.cases} == {"float32", "float16", "bfloat16"}
    assert {case.mode for case in plan.cases} == {"forward", "backward", "forward+backward"}
    assert {case.name for case in plan.cases} == set(norms.BENCHMARKS)
    assert {case.profile for case in plan.cases if case.dtype == "float16"} == {"full_float16"}
    assert not any(case.name == "batch" and case.count == 1 for case in plan.cases)


def test_a_plan_from_words():
    plan = plans.plan(
        device="cpu",
        methods="rms, layer,rms",
        dtypes="bfloat16",
        modes="backward",
        shapes="2x3,4x5",
        profile="mine",
    )
    assert [tuple(case) for case in plan.cases] == [
        (name, *size, "bfloat16", "backward", "mine", False)
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
        ({"profile": "My"}, "must be lower-case"),
    ],
)
def test_words_that_are_wrong_are_named(words, message):
    with pytest.raises(ValueError, match=message):
        plans.plan(**{"device": "cpu"} | words)


def test_what_runs_on_a_cpu():
    benchmark, refused = implementations.candidates(norms.BENCHMARKS["layer"], CPU)
    assert list(benchmark.implementations) == ["definition", "torch", "compile"]
    assert refused["triton"] == "needs a CUDA device"


def test_what_runs_on_a_gpu():
    for name in norms.BENCHMARKS:
        benchmark, _ = implementations.candidates(norms.BENCHMARKS[name], torch.device("cuda"))
        assert ("triton" in benchmark.implementations) == (name in ("layer", "rms", "residual"))


def test_the_compiler_starts_anew_for_every_case(monkeypatch):
    seen = []
    monkeypatch.setattr(torch._dynamo, "reset", lambda: seen.append("reset"))

    def compile(function, **options):
        assert options == {"dynamic": False, "fullgraph": True}
        seen.append("compile")
        return function

    monkeypatch.setattr(torch, "compile", compile)
    cases = [Case("layer", n, 32, "float32", "forward", "trial") for n in (2, 3)]
    rows = rows_of(tiny(*cases, compiled=True))
    assert seen == ["reset", "compile"] * 2
    assert sum(row.implementation == "compile" and row.status == "measured" for row in rows) == 2


@pytest.mark.skipif(which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_backward_pass_is_timed_by_itself():
    """In a process without checked annotations, which the compiler cannot see through."""
    script = """
import sys
sys.path.insert(0, "tests")
from lab.benchmarks.norms_survey import rows_of, tiny
from layernorm.lab.benchmarks.plans import Case
rows = rows_of(tiny(Case("rms", 3, 7, "float32", "backward", "trial"), compiled=True))
print({row.implementation: row.status for row in rows}["compile"])
"""
    plain = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=plain, check=True)
    assert done.stdout == "measured\n", done.stdout


def test_without_a_compiler_the_row_says_so(monkeypatch):
    def compile(function, **options):
        def fails(**inputs):
            raise RuntimeError("No working C++ compiler found\n in a long list")

        return fails

    monkeypatch.setattr(torch, "compile", compile)
    rows = rows_of(tiny(compiled=True))
    (row,) = (row for row in rows if row.implementation == "compile")
    assert row.status == "failed: RuntimeError: No working C++ compiler found in a long list"
    assert rows_of(tiny(compiled=True))[2] == row  # read from its record
