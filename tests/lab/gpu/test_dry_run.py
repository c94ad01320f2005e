"""`python -m layernorm.lab.gpu` as it would go, on a GPU that is not there: all steps; and in two
calls on two machines that keep nothing, with a kernel that makes an illegal access and one that
ends its process."""

import json
import os
import re
from pathlib import Path

import pytest
from apart import python
from lab.benchmarks.benching import GPU, ROOT
from lab.gpu.pretended_gpu import some

from layernorm.lab import records
from layernorm.lab.benchmarks.measure import resume
from layernorm.lab.gpu import archive
from layernorm.lab.gpu.steps import STEPS

PROGRAM = Path(__file__).with_name("pretended_gpu.py")


def call(runs, out, *arguments, minutes="30"):
    """The lines that a call prints."""
    done = python(
        *(PROGRAM, "bench", "--pretend", "--minutes", minutes, "--runs", runs, "--out", out),
        *arguments, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def went(tmp_path_factory):
    """The lines of both calls, and the results as they came home."""
    place = tmp_path_factory.mktemp("gpu")
    steps = ["--steps", "layer", "broken", "killed", "replayed"]
    first = call(place / "one", place / "out", *steps[:3])
    packed = place / "out" / "gpu.tar.gz"
    second = call(place / "two", place / "again", *steps, "--from", packed)
    third = call(place / "two", place / "again", *steps)
    archive.unpack(place / "again" / "gpu.tar.gz", place / "home")
    return first, second, third, place / "home"


def rows(home, profile):
    with records.only_own(home):
        found = [resume.from_record(r) for r in records.runs() if r.config["profile"] == profile]
    return {(r.benchmark, r.mode, r.dtype, r.implementation): r for r in found}


def test_the_device_is_named_and_every_step_is_told(went):
    first, second, *_ = went
    assert first[0].startswith("cuda: pretended GPU, torch ")
    assert [line for line in second if line.startswith("==")] == [
        "== layer", "== broken", "== killed", "== replayed",
    ]  # fmt: skip


def test_an_illegal_access_ends_one_process_and_its_own_times_alone(went):
    first, _, _, home = went
    found = rows(home, "broken")
    assert len(found) == 9
    for (*_, name), row in found.items():
        if name == "triton":
            assert row.status.startswith("crashed: RuntimeError: CUDA error: an illegal memory")
        else:
            assert row.status == "measured"
            assert row.machine == "pretended GPU"
    assert sum("found the GPU useless" in line for line in first) == 3


def test_a_process_that_is_killed_costs_its_case_and_no_other(went):
    _, second, _, home = went
    assert {row.status for row in rows(home, "killed").values()} == {resume.CRASHED}
    assert sum("died of signal 9" in line for line in second) >= 3


def test_the_second_machine_goes_on_where_the_first_one_stopped(went):
    first, second, third, home = went
    assert first[-1] == "complete"
    assert re.fullmatch(r"\d+ files of .*gpu.tar.gz", second[0])
    targets = rows(home, "targets")
    assert {row.status for row in targets.values()} == {"measured"}
    assert {name for *_, name in targets} >= {"definition", "torch", "triton"}
    assert any(row.benchmark == "layer_graph" for row in targets.values())
    assert all(row.host > 0 for row in targets.values())
    assert third[-1] == "complete"
    assert not any("useless" in line or "died" in line for line in third)
    with records.only_own(home):
        known = {r.key: json.dumps(r.timing) for r in records.runs()}
    others = [rows(home, profile) for profile in ("broken", "killed")]
    assert len(known) == sum(map(len, others)) + len(targets)


@pytest.fixture(scope="module")
def of_all(tmp_path_factory):
    """The lines of a call with some cases of every step, and its results."""
    place = tmp_path_factory.mktemp("all")
    lines = call(place / "runs", place / "out", "--steps", *(f"some_{name}" for name in STEPS))
    return lines, place / "runs"


def test_every_step_goes_through(of_all):
    lines, home = of_all
    assert [line for line in lines if line.startswith("==")] == [f"== some_{n}" for n in STEPS]
    assert [name for name, step in STEPS.items() if not some(step)(GPU)] == []
    assert lines[-1] == "complete"  # each of these cases has a record
    with records.only_own(home):
        found = [resume.from_record(run) for run in records.runs()]
    failed = {(r.benchmark, r.implementation, r.status) for r in found if r.status != "measured"}
    assert not failed


def test_what_was_never_measured_is_not_published(went, tmp_path):
    with pytest.raises(records.RecordError, match="more: of a dry run"):
        records.publish([went[-1]], folder=tmp_path)
