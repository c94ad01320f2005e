"""`layernorm bench norms` as a command: tables, devices side by side, files, errors."""

import json
from dataclasses import replace

import pytest
import torch
from lab.benchmarks.benching import FEW, GPU
from typed import layernorm

from layernorm.lab import records
from layernorm.lab.benchmarks.measure import Row, case
from layernorm.lab.benchmarks.norms import plan as plans
from layernorm.lab.benchmarks.norms import tables


def bench(*arguments):
    return layernorm("bench", "norms", "--no-compile", *arguments)


@pytest.fixture
def fast(monkeypatch):
    real = plans.cases
    monkeypatch.setattr(plans, "cases", lambda *a, **fields: real(*a, **fields | FEW))


SMALL = ("--device", "cpu", "--shapes", "4x32", "--methods", "layer", "--modes", "forward")


def test_the_command_prints_records_and_writes(fast, folders, counted):
    file = folders / "rows.json"
    done = bench(*SMALL, "--dtypes", "float32", "--json", str(file))
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{case.machine_of('cpu', torch.get_num_threads())} (cpu, copies ")
    assert lines[1].split("  ")[0] == "benchmark"
    assert [line.split()[:5] for line in lines[2:4]] == [
        ["layer", "forward", "4x32", "float32", name] for name in ("definition", "torch")
    ]
    assert "triton: needs a CUDA device" in lines
    assert "liger: not installed" in lines
    assert lines[-1] == f"records: {folders / 'runs' / 'bench_layer' / 'full_float32'}"
    rows = json.loads(file.read_text())["rows"]
    assert {row["implementation"] for row in rows if row["seconds"]} == {"definition", "torch"}
    assert bench(*SMALL, "--dtypes", "float32").stdout == done.stdout
    assert len(counted) == 1
    bench(*SMALL, "--dtypes", "float32", "--again")
    assert len(counted) == 2


def test_a_wrong_implementation_is_told_and_fails_the_command(fast, monkeypatch):
    layer = plans.BENCHMARKED["layer"]
    wrong = {**layer.implementations, "torch": lambda x, weight, bias: x}
    broken = replace(layer, implementations=wrong)
    monkeypatch.setitem(plans.BENCHMARKED, "layer", broken)
    done = bench(*SMALL, "--dtypes", "float32")
    assert done.exit_code == 1
    assert "layer forward 4x32 float32 torch: wrong: output 0 is off by" in done.stdout


def test_time_that_is_up_is_told(fast):
    done = bench(*SMALL, "--minutes", "1e-9")
    assert done.exit_code == 0
    assert "3 of 3 cases are left; the same command goes on" in done.stdout


def test_a_missing_device_ends_cleanly():
    done = bench("--quick", "--device", GPU)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"{GPU}: not measured yet on this device\n\n"


def test_devices_stand_side_by_side(fast):
    assert bench(*SMALL, "--dtypes", "float32", "--profile", "two").exit_code == 0
    for record in records.runs("bench_layer", "two"):
        if record.config["arm"] == "torch":
            options = {**record.config["options"], "device": "cuda", "machine": "A GPU"}
            timing = {**record.timing, "seconds": 1e-6, "bandwidth": 9e9, "roof": 1e10}
            for shape in ([4, 32], [8, 32]):
                config = {**record.config, "options": options | {"shape": shape}}
                records.save(replace(record, config=config, timing=timing))
    out = bench(*SMALL, "--dtypes", "float32", "--profile", "two").stdout
    assert "A GPU (cuda, copies 10 to 10 GB/s)" in out
    assert "8x32" not in out
    lines = out[out.index("side by side") :].splitlines()
    assert lines[1].split("  ")[-1] == "A GPU"
    assert lines[2].endswith("not measured yet")  # the definition
    assert lines[3].endswith("1.0 90%")
    missing = bench(*SMALL, "--dtypes", "float32", "--profile", "two", "--device", GPU).stdout
    assert missing.startswith(f"{GPU}: not measured yet on this device\n")
    assert "A GPU (cuda" in missing


def test_more_than_the_roof_is_marked():
    common = ("layer", "layer", "torch", "torch", "forward", (2, 3), "float32", "cpu", 0)
    row = Row(*common, "measured", seconds=1.0, bandwidth=1.2e9, roof=1e9, fraction=1.2, note="!")
    (table,) = tables.tables([row])
    assert table.lines[0][-2] == "120%!"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--methods", "laier"), "did you mean 'layer'"),
        (("--minutes", "0"), "minutes: expected more than 0, got 0.0"),
        (("--json", "nowhere/rows.json"), "folder of nowhere/rows.json does not exist"),
        (("--json", "."), "json: . is a folder; name a file"),
        (("--profile", "My"), "must be lower-case"),
    ],
)
def test_errors_are_one_line_before_anything_is_measured(arguments, message, fast, counted):
    done = bench(*SMALL, *arguments)
    assert (done.exit_code, counted) == (1, [])
    (line,) = done.stderr.splitlines()
    assert message in line
    assert line.startswith("Error: ")
