"""`make experiments-gpu`: every sweep's runs in order, as far as there is time; tried here on the
processor, with a few updates."""

import json
import os
import time
from dataclasses import replace

import pytest
from apart import python
from lab.benchmarks.benching import ROOT

from layernorm.lab import records
from layernorm.lab.benchmarks.measure.case import Poisoned
from layernorm.lab.experiments import NAMES, STUDIES, get, graphed, run
from layernorm.lab.gpu import __main__ as entry
from layernorm.lab.gpu import archive, training

EVERY = (*training.STEPS, *training.MORE)


def here(folder, *steps, seconds=600.0, again=False):
    training.here(steps, "cpu", folder, time.monotonic() + seconds, again, pretend=True)


def made(folder):
    with records.only_own(folder):
        return {(r.config["experiment"], r.config["arm"]): r for r in records.runs()}


def dry(*arguments, **environment):
    """The lines of `train --pretend`, a program of its own."""
    done = python(
        *("-m", "layernorm.lab.gpu", "train", "--pretend", "--minutes", "20", *arguments),
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_every_experiment_has_both_profiles_standard_first():
    assert set(training.ORDER) == set(NAMES) - set(STUDIES)
    assert len(training.STEPS) == 2 * len(training.ORDER)
    assert all(step.endswith("/standard") for step in training.STEPS[: len(training.ORDER)])
    for step in (*training.STEPS, *training.MORE):
        name, _, profile = step.partition("/")
        assert training.plan_of(step, pretend=False).profile == profile
        assert profile in get(name).profiles


def test_more_profiles_can_be_named(capsys):
    assert entry._given(["train"]).steps == list(training.STEPS)
    assert entry._given(["train", "--steps", "convnet/cifar10"]).steps == ["convnet/cifar10"]
    with pytest.raises(SystemExit):
        entry._given(["train", "--steps", "convnet/cifar"])
    assert "expected some of mnist/standard, " in capsys.readouterr().err


def test_runs_are_made_once_and_told(tmp_path, capsys):
    here(tmp_path, "mnist/standard")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(" µs an update" in line for line in lines)
    assert len(made(tmp_path)) == 2
    assert list(training.told(["mnist/standard"], "cpu", tmp_path, pretend=True)) == ["complete"]
    here(tmp_path, "mnist/standard")
    assert capsys.readouterr().out == ""
    here(tmp_path, "mnist/standard", again=True)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_stale_runs_are_made_again(tmp_path, capsys):
    here(tmp_path, "mnist/standard")
    first = min(records.path(run.config, tmp_path) for run in made(tmp_path).values())
    record = records.read(first)
    records.save(replace(record, digest=record.digest[:-1] + "x"), tmp_path)
    (line,) = training.told(["mnist/standard"], "cpu", tmp_path, pretend=True)
    assert line == "left, at least: 1 of mnist/standard; the same command goes on"
    capsys.readouterr()
    here(tmp_path, "mnist/standard")
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert records.read(first).digest == record.digest


def test_out_of_time_a_run_is_left_and_goes_on(tmp_path, capsys, monkeypatch):
    clock = iter([0.0, 0.0, 2.0])
    monkeypatch.setattr(training.time, "monotonic", lambda: next(clock, 2.0))
    training.here(["mnist/standard"], "cpu", tmp_path, 1.0, pretend=True)
    assert "out of time, the next call goes on" in capsys.readouterr().out
    assert made(tmp_path) == {}
    (line,) = training.told(["mnist/standard"], "cpu", tmp_path, pretend=True)
    assert line == "left, at least: 2 of mnist/standard; the same command goes on"
    monkeypatch.undo()
    here(tmp_path, "mnist/standard")
    assert len(made(tmp_path)) == 2


def test_a_run_that_fails_costs_no_other(tmp_path, capsys, monkeypatch):
    real = run.train

    def train(config, **options):
        if config.arm == failing:
            raise RuntimeError("out of memory")
        return real(config, **options)

    failing = training.plan_of("mnist/paper", pretend=True).arms[0]
    monkeypatch.setattr(run, "train", train)
    here(tmp_path, "mnist/paper")
    told = capsys.readouterr().out
    assert f"{failing} seed " in told
    assert "failed: RuntimeError: out of memory" in told
    assert len(made(tmp_path)) == 1


def test_a_gpu_that_has_become_useless_ends_the_process(tmp_path, monkeypatch):
    """Another process goes on; in this one every run would fail."""
    tried = []

    def train(config, **options):
        tried.append(config.arm)
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(run, "train", train)
    monkeypatch.setattr(training, "alive", lambda device: False)
    with pytest.raises(Poisoned, match="illegal memory access"):
        here(tmp_path, "mnist/standard", "draw/standard")
    assert len(tried) == 1


def test_checkpoints_are_written_often(tmp_path, monkeypatch):
    """The machine may be taken away at any moment."""
    seconds, real = [], run.train

    def train(config, checkpoint_seconds, **options):
        seconds.append(checkpoint_seconds)
        return real(config, checkpoint_seconds=checkpoint_seconds, **options)

    monkeypatch.setattr(run, "train", train)
    here(tmp_path, "mnist/standard")
    assert seconds == [training.OFTEN] * 2
    assert training.OFTEN <= 20  # between two archives


def test_what_cannot_be_planned_is_left_out(tmp_path, capsys, monkeypatch):
    plan = training.plan_of

    def broken(step, pretend):
        if step.startswith("draw"):
            raise ValueError("no data here")
        return plan(step, pretend)

    monkeypatch.setattr(training, "plan_of", broken)
    here(tmp_path, "draw/standard", "mnist/standard")
    assert "draw/standard: left out: ValueError: no data here" in capsys.readouterr().out
    assert len(made(tmp_path)) == 2
    told = training.told(["draw/standard", "mnist/standard"], "cpu", tmp_path, pretend=True)
    assert list(told)[-1] == "complete but for draw/standard"


@pytest.mark.parametrize("steps", [("mnist/standard", "draw/paper")])
def test_a_dry_run(steps, tmp_path):
    """As the command goes, on a GPU that is not there, archive included."""
    lines = dry("--steps", *steps, "--runs", tmp_path / "runs", "--out", tmp_path / "out")
    assert [line for line in lines if line.startswith("==")] == [f"== {step}" for step in steps]
    assert lines[-1] == "complete", lines
    archive.unpack(tmp_path / "out" / "gpu.tar.gz", tmp_path / "home")
    runs = made(tmp_path / "home")
    assert {name for name, _ in runs} == {"mnist", "draw"}
    assert {json.dumps(r.environment["gpus"]) for r in runs.values()} == {'["pretended GPU"]'}


@pytest.fixture(scope="module")
def of_all(tmp_path_factory):
    """The lines of a dry run of every step, in one process and without data, and its runs."""
    place = tmp_path_factory.mktemp("all")
    (place / "nothing").mkdir()
    where = dict.fromkeys(("LAYERNORM_DATA", "NLTK_DATA"), str(place / "nothing"))
    lines = dry("--here", "--steps", *EVERY, "--runs", place / "runs", **where)
    with records.only_own(place / "runs"):
        return lines, list(records.runs())


@pytest.mark.parametrize("step", EVERY)
def test_a_step_trains_small_networks_of_its_own_profile(step, of_all):
    lines, runs = of_all
    name, _, profile = step.partition("/")
    found = [r for r in runs if (r.config["experiment"], r.config["profile"]) == (name, profile)]
    told = [line for line in lines if line.startswith(f"{step} ")]
    assert len(found) == len(told) == 2, lines
    data = training.stand_ins(step)
    assert all(f", on {text}: " in line for line in told for text in data.values())
    for one in found:
        assert one.environment["gpus"] == ["pretended GPU"]
        assert one.result["diverged_at"] is None
        used = one.config["options"]
        assert used["updates"] > graphed.WARM + 1  # what a graph replays is among them
        own = get(name).config(profile, one.config["arm"], one.config["seed"]).plain()["options"]
        other = {o for o in own if json.dumps(used[o]) != json.dumps(own[o])}
        assert other <= {*training.TINY, *training.MOST, *data}
        assert not any(used[o] in training.FETCHED for o in training.DATA if o in used)


def test_every_dry_run_has_layer_normalization_where_the_profile_has_it():
    for step in EVERY:
        name, _, profile = step.partition("/")
        arms = {arm: get(name).arms[arm].get("method") for arm in get(name).profile(profile).arms}
        tried = {arms[arm] for arm in training.plan_of(step, pretend=True).arms}
        assert ("layer" in tried) == ("layer" in arms.values()), step
