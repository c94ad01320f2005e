"""The simulation of large sweeps: the engine's own code on nodes that fail at random."""

import importlib.util
import os
import re
import sys

import at_scale
import pytest
from apart import python

from layernorm.lab import experiments
from layernorm.lab.experiments.cluster import RETRIES


@pytest.fixture(autouse=True)
def unchanged(monkeypatch):
    monkeypatch.setattr(experiments, "NAMES", experiments.NAMES)


def swept(arms=3, seeds=7, **cluster):
    given = {"nodes": 4, "seconds": 600.0, "between": 1e9, **cluster}
    return at_scale.of_a_sweep(arms, seeds, at_scale.Cluster(**given))


def test_every_run_ends_and_asks_the_storage_twice():
    """Before it is handed out, whether another process has it; when it ends, for its record."""
    of = swept()
    rates = len(at_scale.RATES)
    assert 3 * (rates + 7) <= of.runs <= 3 * (rates + 3 + 7)  # an edge that wins extends a grid
    assert (of.failed, of.cluster.failures, of.cluster.lost) == (0, 0, 0)
    assert 2 * of.runs <= of.operations < 2 * of.runs + 20
    assert 0.5 < of.cluster.worked / of.cluster.now / 4 <= 1
    assert of.cluster.worked == pytest.approx(610 * of.runs, rel=0.5)


def test_runs_go_on_from_checkpoints_after_failures():
    of = swept(between=3000.0)
    assert of.failed == of.cluster.given_up == 0
    assert of.cluster.failures > 3
    each = of.cluster.start + of.cluster.every  # the most that a failure takes with it
    assert 0 < of.cluster.lost <= each * of.cluster.failures


def test_a_run_that_fails_too_often_is_given_up_and_the_others_go_on():
    of = swept(between=400.0, every=1e9)
    assert 0 < of.failed == of.cluster.given_up
    assert of.runs > 0
    assert of.cluster.failures >= (1 + RETRIES) * of.failed


def test_operations_of_real_runs_are_counted():
    found = at_scale.of_one_run()
    assert found["a run"]["fsync"] == found["a run"]["replace"] == 1  # its record, whole or absent
    assert found["a checkpoint"]["fsync"] == 1
    assert found["a run that is done, read again"].total() < 6 < found["a run"].total() < 60


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_empty_runs_are_handed_to_ray(tmp_path):
    """All of them end, or the command would fail."""
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "t" * 40, "OMP_NUM_THREADS": "1"}
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = python(at_scale.__file__, "--ray", "30", env=os.environ | own | path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    number = r"([0-9.]+)"
    said = rf"30 empty runs by Ray: {number} a second, {number} ms of .* {number} MB/1000 runs"
    rate, each, _ = map(float, re.fullmatch(said, done.stdout.strip()).groups())
    assert rate > 0 < each
