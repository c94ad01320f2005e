"""`make bench-gpu`: in parts, what was aimed for first, with little installed."""

import os
import subprocess
from dataclasses import replace

import pytest
from lab.benchmarks.benching import GPU, ROOT, files, python, tiny

from layernorm.lab.benchmarks import gpu, training
from layernorm.lab.benchmarks.gpu import LARGE, SMALL, verdicts
from layernorm.lab.benchmarks.measure import Row
from layernorm.lab.benchmarks.norms import plan as norm_plans
from layernorm.lab.benchmarks.recurrent.plan import gpu_plan


def test_what_was_aimed_for_comes_first():
    found = {name: plan(GPU) for name, plan in gpu.STEPS.items()}
    large, small, residual, recurrent, updates, tables = found.values()
    wanted = {
        (name, size, dtype, mode)
        for name in ("layer", "rms")
        for size in ((4096, 1024), (4096, 16384), (16384, 4096))
        for dtype in ("bfloat16", "float32")
        for mode in ("forward", "backward", "forward+backward")
    }
    assert wanted <= {(case.operation, case.shape, case.dtype, case.mode) for case in large}
    assert {case.profile for case in (*large, *small, *residual)} == {"targets"}
    assert not any(case.graph for case in (*large, *residual))
    assert sum(case.graph for case in small) == len(small) / 2
    assert {case.operation for case in residual} == {"residual"}
    assert recurrent == gpu_plan(GPU)
    assert updates == training.plan(None, "cuda", profile="cuda")
    assert tables == norm_plans.plan(quick=True, device=GPU) + norm_plans.plan(device=GPU)
    assert {case.device for plan in found.values() for case in plan} == {GPU, "cuda"}


def row(name, seconds, mode="forward", shape=(4096, 1024), fraction=0.95, benchmark="layer"):
    common = (name, "torch", mode, shape, "bfloat16", "cuda", 0, "measured")
    return Row(benchmark, "layer", *common, seconds=seconds, fraction=fraction)


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        (
            [row("torch", 1.3), row("triton", 1.0), row("compile", 1.0)],
            "95% of the roof; 1.30 times torch's speed; 1.00 times compile's speed",
        ),
        ([row("triton", 1.0, fraction=0.89)], "89% of the roof (missed)"),
        ([row("triton", 1.0, "backward", fraction=0.81)], "81% of the roof"),
        ([row("triton", 1.0, "backward", fraction=0.79)], "79% of the roof (missed)"),
        (
            [row("torch", 1.1), row("triton", 1.0), row("quack", 0.98)],
            "95% of the roof; 1.10 times torch's speed (missed); 0.98 times quack's speed (missed)",
        ),
        (
            [row("torch", 1.7, "backward"), row("triton", 1.0, "backward")],
            "95% of the roof; 1.70 times torch's speed (missed)",
        ),
        (
            [row("torch", 1.0, shape=SMALL[0]), row("triton", 1.05, shape=SMALL[0])],
            "1.05 of torch's time",
        ),
        (
            [
                row(name, seconds, shape=SMALL[0], benchmark="layer_graph")
                for name, seconds in (("torch", 1.0), ("triton", 1.11))
            ],
            "1.11 of torch's time (missed)",
        ),
    ],
)
def test_verdicts(rows, verdict):
    (line,) = verdicts([*rows, replace(rows[0], implementation="apex", status="failed: ...")])
    where = f"{rows[0].benchmark} {rows[0].mode} {'x'.join(map(str, rows[0].shape))} bfloat16: "
    assert line == where + verdict


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        ({"torch": 1.0, "script": 10.1}, "0.50 times torch's speed; 5.05 times script's speed"),
        (
            {"torch": 0.9, "script": 9.8},
            "0.45 times torch's speed (missed); 4.90 times script's speed (missed)",
        ),
    ],
)
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


def test_a_call_goes_on_where_the_last_one_stopped(monkeypatch, folders, capsys):
    steps = {"small": lambda device: tiny(), "large": lambda device: tiny((2, 32))}
    monkeypatch.setattr(gpu, "STEPS", steps)
    arguments = ["--device", "cpu", "--out", str(folders / "out"), "--steps", "small", "--minutes"]
    assert gpu.main([*arguments, "1e-9"]) == []
    assert capsys.readouterr().out.endswith("1 cases are left: the same command goes on\n")
    rows = gpu.main([*arguments, "1"])
    assert capsys.readouterr().out.endswith("complete\n")
    assert len(files(folders / "out" / "bench_layer" / "trial")) == 2
    assert [row.implementation for row in rows] == ["definition", "torch"]
    again = gpu.main([*arguments, "1"])  # read, not measured
    assert again == [replace(row, samples=()) for row in rows]


def test_a_missing_device_ends_cleanly(capsys):
    assert gpu.main(["--device", GPU]) == []
    assert capsys.readouterr().out == f"{GPU}: not measured yet on this device\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--minutes", "0"], "--minutes: expected more than 0"),
        (["--device", "tpu"], "device: expected auto, cpu, cuda"),
        (["--steps", "lage"], "invalid choice: 'lage'"),
    ],
)
def test_bad_arguments_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit):
        gpu.main(arguments)
    assert message in capsys.readouterr().err


def test_it_needs_no_more_than_torch_triton_numpy_and_jaxtyping(folders):
    # sympy is not on the list: torch's own compiler imports it
    blocked = [
        *("typer", "click", "pandas", "pydantic", "scipy", "sklearn", "matplotlib", "pooch"),
        *("beartype", "tqdm", "yaml", "hypothesis", "jupytext", "nbformat", "IPython", "packaging"),
    ]
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked})); "
        "from lab.benchmarks.benching import tiny; "
        "from layernorm.lab.benchmarks import gpu; "
        "[plan('cuda') for plan in gpu.STEPS.values()]; "
        "gpu.STEPS = {'small': lambda device: tiny()}; "
        f"rows = gpu.main(['--device', 'cpu', '--out', {str(folders)!r}]); "
        "assert [row.status for row in rows] == ['measured'] * 2, rows"
    )
    done = python(script)
    assert done.returncode == 0, done.stderr


def test_make_calls_it_with_the_machines_own_python():
    asked = ["make", "-n", "bench-gpu", "PYTHON=some-python", "OUT=folder"]
    # as from a shell, also where the tests themselves were started by make
    shell = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(asked, capture_output=True, text=True, cwd=ROOT, check=True, env=shell)
    assert done.stdout.split() == [
        *("some-python", "-m", "layernorm.lab.benchmarks.gpu", "--minutes", "8", "--out", "folder")
    ]
