"""What `layernorm bench norms` writes down, and what it does not measure again."""

import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from lab.benchmarks.norms_survey import GPU, count, files, own_folder, rows_of, timed, tiny

from layernorm.lab import records
from layernorm.lab.benchmarks import implementations, survey
from layernorm.lab.benchmarks.plans import Case
from layernorm.lab.benchmarks.report import Row


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    return own_folder(tmp_path, monkeypatch)


@pytest.fixture
def counted(monkeypatch):
    return count(monkeypatch)


def test_rows_are_measured_written_and_read_again(counted, folders):
    first = rows_of(tiny())
    assert set(timed(first)) == {"definition", "torch"}
    assert all(
        r.peak_memory and r.bandwidth and r.fraction and r.ratio for r in timed(first).values()
    )
    assert len(files(folders)) == 2
    second = rows_of(tiny())
    assert second == first
    assert counted == {"definition": 1, "torch": 1}
    rows_of(tiny(), again=True)
    assert counted == {"definition": 2, "torch": 2}
    assert len(files(folders)) == 2


def test_each_case_is_written_before_the_next_one_begins(folders):
    cases = [Case(name, 4, 32, "float32", "forward", "trial") for name in ("layer", "rms")]
    running = survey.run(tiny(*cases))
    next(running)
    assert len(files(folders / "runs" / "bench_layer")) == 2
    assert not (folders / "runs" / "bench_rms").exists()


def test_other_code_torch_or_rounds_are_measured_again(counted, monkeypatch, folders):
    rows_of(tiny())
    rows_of(tiny(rounds=7))
    assert counted["torch"] == 2
    for change in (
        {"digest": "_measured 0"},
        {"environment": {"versions": {"torch": "1.0"}}},
    ):
        for record in records.runs("bench_layer"):
            records.save(replace(record, **change))
        before = counted["torch"]
        rows_of(tiny(rounds=7))
        assert counted["torch"] == before + 1
        assert len(files(folders)) == 2  # the new in place of the old
    monkeypatch.setattr(survey, "machine_of", lambda device: "another machine")
    rows_of(tiny(rounds=7))
    assert counted["torch"] == 5


def test_a_case_that_lost_one_of_its_records_is_measured_again(counted, folders):
    rows_of(tiny())
    next(iter(files(folders).values())).unlink()
    rows_of(tiny())
    assert counted["torch"] == 2


def test_time_that_is_up_begins_nothing(counted):
    assert rows_of(tiny(), until=-math.inf) == []
    assert counted == {}


def test_what_a_case_cannot_even_begin_is_told(monkeypatch, folders):
    def too_large(*args, **options):
        raise torch.OutOfMemoryError("tried to allocate 8 GiB")

    monkeypatch.setattr(survey, "measure", too_large)
    rows = rows_of(tiny())
    assert rows[0].status == "failed: OutOfMemoryError: tried to allocate 8 GiB"
    assert rows[0].error is None
    monkeypatch.undo()
    monkeypatch.setenv("LAYERNORM_RUNS", str(folders / "runs"))
    assert set(timed(rows_of(tiny(), again=True))) == {"definition", "torch"}
    assert len(files(folders)) == 2  # what failed is forgotten


def test_a_device_that_is_not_there_is_not_measured_yet(counted, folders):
    rows = rows_of(replace(tiny(), device=torch.device(GPU)))
    assert {row.status for row in rows} == {"not measured yet on this device"}
    assert counted == {}
    assert files(folders) == {}


def test_where_torchs_own_loses_digits_ratios_are_to_the_definition():
    common = ("layer", "layer", "definition", "torch", "backward", (2, 3), "float16", "cpu", 0)
    right = Row(*common, "measured", seconds=2.0, samples=(2.0,) * 6)
    other = replace(right, implementation="compile", seconds=1.0, samples=(1.0,) * 6)
    wrong = replace(right, implementation="torch", status="wrong: ...", seconds=None, samples=())
    rows = survey.rebased([right, wrong, other])
    assert [(r.baseline, r.ratio) for r in rows] == [
        ("definition", 1.0),
        ("torch", None),
        ("definition", 0.5),
    ]
    measured_too = replace(wrong, status="measured", seconds=4.0, samples=(4.0,) * 6)
    assert survey.rebased([right, measured_too, other]) == [right, measured_too, other]


def test_records_hold_what_made_them(folders):
    rows_of(tiny())
    (record,) = (r for r in records.runs("bench_layer") if r.config["arm"] == "torch")
    assert record.digest.startswith("_measured ")
    assert {"torch", "python", "numpy"} <= set(record.environment["versions"])
    assert {"commit", "gpus", "cpu", "driver"} <= set(record.environment)
    assert not any(name.startswith("sample") for name in record.timing)


def on_gpu(monkeypatch):
    """Kernels run in Triton's interpreter, as if on a GPU."""
    monkeypatch.setattr(implementations, "_on_gpu", lambda device: True)


@pytest.mark.parametrize("name", ["layer", "rms", "residual"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_ours_passes_the_gate(monkeypatch, name, dtype):
    on_gpu(monkeypatch)
    rows = rows_of(tiny(Case(name, 5, 33, dtype, "forward+backward", "trial")))
    assert "triton" in timed(rows)


def test_a_replayed_graph_is_an_experiment_of_its_own():
    case = Case("layer", 4, 32, "float32", "forward", "trial", graph=True)
    row = replace(survey._blank(tiny(case), case), implementation="triton")
    record = survey._record(tiny(case), case, row)
    assert record.config["experiment"] == "bench_layer_graph"
    assert record.config["options"]["graph"] is True


def test_a_killed_survey_goes_on(folders):
    """Killed while the third case is measured: the first two are there and are not measured."""
    script = """
import os, signal, sys, torch
from layernorm.lab.benchmarks import survey
from layernorm.lab.benchmarks.plans import Case, Plan
cases = tuple(Case("layer", n, 32, "float32", "forward", "trial") for n in (2, 3, 4))
real, begun = survey.measure, []
def measure(benchmark, shape, *args, **options):
    begun.append(shape[0])
    if sys.argv[1] == "kill" and shape[0] == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(benchmark, shape, *args, **options)
survey.measure = measure
plan = Plan(torch.device("cpu"), cases, False, 6, 1e-6)
done = [case.count for case, rows in survey.run(plan)]
print(begun, done)
"""
    killed = subprocess.run([sys.executable, "-c", script, "kill"], capture_output=True)
    assert killed.returncode == -9
    assert len(files(folders)) == 4
    again = subprocess.run(
        [sys.executable, "-c", script, "go"], capture_output=True, text=True, check=True
    )
    assert again.stdout == "[4] [2, 3, 4]\n"
