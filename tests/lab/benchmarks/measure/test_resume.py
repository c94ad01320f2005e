"""What is written down, what is not measured again, and what a killed or crashed call leaves."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from lab.benchmarks.benching import CPU, GPU, count, files, own_folder, rows_of, timed, tiny

from layernorm.lab import records
from layernorm.lab.benchmarks.measure import Row, case, resume, run
from layernorm.lab.benchmarks.measure.process import row_from
from layernorm.lab.benchmarks.measure.words import check_outputs


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    return own_folder(tmp_path, monkeypatch)


@pytest.fixture
def counted(monkeypatch):
    return count(monkeypatch)


def without_samples(rows):
    return [replace(row, samples=()) for row in rows]


def test_rows_are_measured_written_and_read_again(counted, folders):
    first = rows_of(tiny())
    assert set(timed(first)) == {"definition", "torch"}
    assert all(
        r.peak_memory and r.bandwidth and r.fraction and r.ratio for r in timed(first).values()
    )
    assert [len(row.samples) for row in first] == [6, 6]
    assert len(files(folders)) == 2
    second = rows_of(tiny())
    assert second == without_samples(first)
    assert len(counted) == 1
    rows_of(tiny(), again=True)
    assert len(counted) == 2
    assert len(files(folders)) == 2
    assert not list(folders.rglob("*.begun"))


def test_without_a_profile_nothing_is_written(folders, counted):
    for _ in range(2):
        assert len(timed(rows_of(tiny(profile=None)))) == 2
    assert len(counted) == 2
    assert not (folders / "runs").exists()


def test_each_case_is_written_before_the_next_one_begins(folders):
    running = run((*tiny(), *tiny(name="rms")))
    next(running)
    assert len(files(folders / "runs" / "bench_layer")) == 2
    assert not (folders / "runs" / "bench_rms").exists()


def test_other_code_torch_rounds_or_machines_are_measured_again(counted, monkeypatch, folders):
    rows_of(tiny())
    rows_of(tiny(rounds=7))
    assert len(counted) == 2
    for record in records.runs("bench_layer"):
        records.save(replace(record, environment={"versions": {"torch": "1.0"}}))
    rows_of(tiny(rounds=7))
    assert len(counted) == 3
    with monkeypatch.context() as changed:
        changed.setattr(records, "stale", lambda record: ["layernorm.functional"])
        rows_of(tiny(rounds=7))
    assert len(counted) == 4
    assert len(files(folders)) == 2  # the new in place of the old
    monkeypatch.setattr(case, "machine_of", lambda device, threads: "another machine")
    rows_of(tiny(rounds=7))
    assert len(counted) == 5
    assert len(files(folders)) == 4


def test_a_case_that_lost_one_of_its_records_is_measured_again(counted, folders):
    rows_of(tiny())
    next(iter(files(folders).values())).unlink()
    rows_of(tiny())
    assert len(counted) == 2


def test_time_that_is_up_begins_nothing(counted):
    assert rows_of(tiny(), until=-math.inf) == []
    assert counted == []


def test_what_failed_is_told_and_tried_again_after_the_others(monkeypatch, counted, folders):
    real = case.measure

    def too_large(one, *args, **options):
        if one.shape[0] == 2:
            raise ValueError("tried to allocate\n 8 GiB")
        return real(one, *args, **options)

    plan = tiny((2, 32), (3, 32))
    with monkeypatch.context() as failing:
        failing.setattr(case, "measure", too_large)
        rows = rows_of(plan)
    assert rows[0].status == "failed: ValueError: tried to allocate 8 GiB"
    assert rows[0].error is None
    assert len(timed(rows[2:])) == 2
    assert rows_of(plan, until=-math.inf)[2:] == rows[:2]  # no time: as it was
    counted.clear()
    again = rows_of((*plan, *tiny((4, 32))))
    assert [one.shape[0] for one in counted] == [4, 2]
    assert [row.shape[0] for row in again] == [3, 3, 4, 4, 2, 2]
    assert all(row.seconds for row in again)
    assert len(files(folders)) == 6  # what failed is forgotten


def test_an_argument_out_of_range_is_an_error_and_no_record(folders):
    with pytest.raises(ValueError, match="rounds: expected at least 6"):
        rows_of(tiny(rounds=5))
    assert files(folders) == {}
    assert not list(folders.rglob("*.begun"))


def test_a_device_that_is_not_there_is_not_measured_yet(counted, folders):
    rows = rows_of([replace(one, device=GPU) for one in tiny()])
    assert {row.status for row in rows} == {"not measured yet on this device"}
    assert files(folders) == {}
    assert not list(folders.rglob("*.begun"))


SCRIPT = """
import os, signal, sys
sys.path.insert(0, "tests")
from lab.benchmarks.benching import tiny
from layernorm.lab.benchmarks.measure import case, run
real = case.measure
def measure(one, *args, **options):
    if one.shape[0] == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(one, *args, **options)
case.measure = measure
list(run(tiny((2, 32), (3, 32), (4, 32))))
"""


def test_a_killed_call_goes_on_with_what_killed_it_last(folders, counted):
    killed = subprocess.run([sys.executable, "-c", SCRIPT, "3"], capture_output=True)
    assert killed.returncode == -9
    assert len(files(folders)) == 2
    (marker,) = folders.rglob("*.begun")
    assert marker.read_text() == "layer forward 3x32 float32\n"
    rows = rows_of(tiny((2, 32), (3, 32), (4, 32)))
    assert [one.shape[0] for one in counted] == [4, 3]
    assert {row.status for row in rows} == {"measured"}
    assert not list(folders.rglob("*.begun"))


def test_what_crashes_twice_is_recorded_and_told_and_not_tried_a_third_time(
    folders, monkeypatch, counted
):
    plan, found = tiny((3, 32)), []
    marker = resume._Book(plan, None).marker(plan[0])
    marker.parent.mkdir(parents=True)
    marker.touch()

    def crashes(*args):  # after the records that it leaves were written
        found.extend(map(resume.from_record, records.runs("bench_layer", "trial")))
        raise KeyboardInterrupt

    with monkeypatch.context() as crashing:
        crashing.setattr(case, "measure", crashes)
        with pytest.raises(KeyboardInterrupt):
            rows_of(plan)
    assert [row.status for row in found] == [resume.CRASHED] * 2
    assert rows_of(plan) == found
    assert counted == []
    assert resume.recorded("layer", "trial") == []
    assert len(timed(rows_of(plan, again=True))) == 2
    assert len(resume.recorded("layer", "trial")) == 2


def test_stopped_by_hand_it_is_no_crash(monkeypatch, folders):
    def stopped(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(case, "measure", stopped)
        with pytest.raises(KeyboardInterrupt):
            rows_of(tiny())
    assert not list(folders.rglob("*.begun"))


def test_records_hold_what_made_them_and_times_apart_from_results():
    rows_of(tiny())
    (record,) = (r for r in records.runs("bench_layer") if r.config["arm"] == "torch")
    assert {"torch", "python", "numpy"} <= set(record.environment["versions"])
    assert {"commit", "gpus", "cpu", "driver"} <= set(record.environment)
    assert not any(name.startswith("sample") for name in record.timing)
    assert set(record.result["final"]) == {"bytes", "error"}
    assert record.digest
    assert not records.stale(record)


def test_published_records_are_rows():
    """Every value of a published run is in its row, and a new record would have the same key."""
    for record in records.published.published():
        if record.config["experiment"].startswith("bench_"):
            row = resume.from_record(record)
            assert {n: getattr(row, n) for n in record.timing} == dict(record.timing)
            config = resume._config(row, record.config["profile"])
            assert records.key(config) == record.key


def test_rows_as_json(folders):
    common = ("layer", "layer", "torch", "torch", "forward", (2, 3), "float32", "cpu", 0)
    rows = [Row(*common, "measured", seconds=0.1 + 0.2, samples=(1.0, 2.0), options={"a": 1})]
    resume.write_json(rows, folders / "rows.json")
    document = json.loads((folders / "rows.json").read_text())
    assert [row_from(row) for row in document["rows"]] == rows
    assert document["environment"]["threads"] == torch.get_num_threads()


@pytest.mark.parametrize(
    ("path", "profile", "message"),
    [
        ("none/rows.json", None, "folder of .*none/rows.json does not exist"),
        ("", None, "is a folder; name a file"),
        ("rows.json", "My", "must be lower-case"),
    ],
)
def test_outputs_are_checked_before_anything_is_measured(path, profile, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        check_outputs(tmp_path / path, profile)
    check_outputs(tmp_path / "rows.json", "mine")


def test_a_gpu_of_another_name_is_another_machine():
    assert case.machine_of("cpu", 3).endswith(", 3 threads")
    assert tiny()[0].blank("torch").machine == case.machine_of("cpu", torch.get_num_threads())
    assert CPU.type == "cpu"
