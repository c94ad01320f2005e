"""Records of a plan: written at once, not measured again, and left by a killed or crashed call."""

import json
import math
from dataclasses import replace

import pytest
import torch
from lab.benchmarks.benching import GPU, files, python, rows_of, timed, tiny

from layernorm.lab import records
from layernorm.lab.benchmarks.measure import Row, case, recording, resume, run
from layernorm.lab.benchmarks.measure.process import row_from
from layernorm.lab.records.published import published, published_folder

PUBLISHED = published_folder()


def test_rows_are_measured_written_and_read_again(counted, folders):
    first = rows_of(tiny())
    assert set(timed(first)) == {"definition", "torch"}
    assert all(
        r.peak_memory and r.bandwidth and r.fraction and r.ratio for r in timed(first).values()
    )
    assert [len(row.samples) for row in first] == [6, 6]
    assert {row.machine for row in first} == {case.machine_of("cpu", torch.get_num_threads())}
    assert len(files(folders)) == 2
    assert rows_of(tiny()) == [replace(row, samples=()) for row in first]
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
    next(iter(files(folders).values())).unlink()
    rows_of(tiny(rounds=7))
    assert len(counted) == 5
    monkeypatch.setattr(case, "machine_of", lambda device, threads: "another machine")
    rows_of(tiny(rounds=7))
    assert len(counted) == 6
    assert len(files(folders)) == 4


def test_time_that_is_up_begins_nothing(counted):
    assert rows_of(tiny(), until=-math.inf) == []
    assert counted == []


def test_a_failed_case_is_told_and_tried_again_after_the_others(monkeypatch, counted, folders):
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
    assert len(files(folders)) == 6  # the failures are forgotten


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_nothing_is_written_where_nothing_can_be_measured(device, folders):
    """An argument out of range is an error; a device that is not there has no times yet."""
    plan = [replace(one, device=device) for one in tiny(rounds=6 if device == GPU else 5)]
    if device == GPU:
        assert {row.status for row in rows_of(plan)} == {"not measured yet on this device"}
    else:
        with pytest.raises(ValueError, match="rounds: expected at least 6"):
            rows_of(plan)
    assert files(folders) == {}
    assert not list(folders.rglob("*.begun"))


KILLED = """
import os, signal
from lab.benchmarks.benching import tiny
from layernorm.lab.benchmarks.measure import case, run
real = case.measure
def measure(one, *args, **options):
    if one.shape[0] == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(one, *args, **options)
case.measure = measure
list(run(tiny((2, 32), (3, 32), (4, 32))))
"""


def test_a_killed_call_goes_on_with_what_killed_it_last(folders, counted):
    assert python(KILLED).returncode == -9
    assert len(files(folders)) == 2
    (marker,) = folders.rglob("*.begun")
    assert json.loads(marker.read_text())["case"] == "layer forward 3x32 float32"
    rows = rows_of(tiny((2, 32), (3, 32), (4, 32)))
    assert [one.shape[0] for one in counted] == [4, 3]
    assert {row.status for row in rows} == {"measured"}
    assert not list(folders.rglob("*.begun"))


def stopped(*args):
    raise KeyboardInterrupt


def test_a_case_that_crashes_twice_is_told_and_not_tried_a_third_time(
    folders, monkeypatch, counted
):
    plan = tiny((3, 32))
    assert python(KILLED).returncode == -9
    with monkeypatch.context() as stopping:  # a second try that is stopped by hand counts for none
        stopping.setattr(case, "measure", stopped)
        with pytest.raises(KeyboardInterrupt):
            rows_of(plan)
    assert python(KILLED).returncode == -9
    assert [row.status for row in rows_of(plan)] == [resume.CRASHED] * 2
    assert counted == []
    assert {row.shape[0] for row in resume.recorded("layer", "trial")} == {2, 4}
    assert len(timed(rows_of(plan, again=True))) == 2
    assert {row.shape[0] for row in resume.recorded("layer", "trial")} == {2, 3, 4}


def test_stopped_by_hand_it_is_no_crash(monkeypatch, folders):
    monkeypatch.setattr(case, "measure", stopped)
    with pytest.raises(KeyboardInterrupt):
        rows_of(tiny())
    assert not list(folders.rglob("*.begun"))


def test_records_hold_what_made_them_and_times_apart_from_results():
    rows_of(tiny())
    (record,) = (r for r in records.runs("bench_layer") if r.config["arm"] == "torch")
    assert {"torch", "python", "numpy"} <= set(record.environment["versions"])
    assert {"commit", "gpus", "cpu", "driver"} <= set(record.environment)
    assert all(value == float(f"{value:.6g}") for value in record.timing.values())
    assert "samples" not in record.timing
    assert set(record.result["final"]) == {"bytes", "error"}
    assert record.digest
    assert not records.stale(record)


def test_published_records_are_rows():
    """Every value of a published run is in its row: a new record of it would have the same values
    and the same key."""
    found = [r for r in published(folder=PUBLISHED) if r.config["experiment"].startswith("bench_")]
    assert len(found) > 300
    for record in found:
        again = recording.record_of(recording.from_record(record), record.config["profile"])
        assert again.timing == record.timing
        assert again.key == record.key


def test_a_measurement_is_published_in_place_of_one_by_fewer_processes(folders):
    """Of the same thing on the same processor; that of another machine stands beside it."""
    [first, *_] = rows_of(tiny())

    def publish(**changes):
        row = replace(first, options=first.options | changes)
        path = records.save(recording.record_of(row, "trial"))
        records.publish([path], folder=folders / "published", same=recording.subject)
        found = published("bench_layer", folder=folders / "published")
        return [(r.config["options"]["machine"], r.config["options"]["processes"]) for r in found]

    here = first.options["machine"]
    assert publish() == [(here, 1)]
    assert publish(processes=12, rounds=3) == [(here, 12)]
    assert publish(machine="another") == [(here, 12), ("another", 1)]


def test_rows_as_json(folders):
    common = ("layer", "layer", "torch", "torch", "forward", (2, 3), "float32", "cpu", 0)
    rows = [Row(*common, "measured", seconds=0.1 + 0.2, samples=(1.0, 2.0), options={"a": 1})]
    resume.write_json(rows, folders / "rows.json")
    document = json.loads((folders / "rows.json").read_text())
    assert [row_from(row) for row in document["rows"]] == rows
    assert document["environment"]["threads"] == torch.get_num_threads()
