"""Sweeps on a cluster of Ray: nodes and commands that die change no record but for its times."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from cli import commands
from lab.experiments.nodes import Nodes

from layernorm.lab.experiments import lock
from layernorm.lab.experiments.experiment import TUNING_SEED
from layernorm.lab.experiments.planning import Sweep, finished
from layernorm.lab.experiments.sweep import carry_out

pytestmark = pytest.mark.usefixtures("toy")
COMMAND = """
toy_experiment.register()
from layernorm.__main__ import main
if __name__ == "__main__":
    main()
"""
SLOW = {"updates": 8000, "evaluations": 10}  # seconds, with a checkpoint every two
REASONS = {
    "broken": "RuntimeError: the toy is broken",
    "deadly": "its worker process or node died, 4 times in a row",
}
with_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `cluster`"
)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    started = Nodes(tmp_path_factory.mktemp("ray"))
    try:
        yield started
    finally:
        started.close()


def sweep_of(seeds):
    return Sweep("toy", "plain", ("none", "layer"), tuple(range(seeds)), SLOW)


def command(nodes, tmp_path, seeds, *more):
    """The sweep, by the command, in a process of its own."""
    file = tmp_path / "command.py"
    file.write_text(COMMAND)
    arms = ["--arms", "none,layer", "--seeds", ",".join(map(str, range(seeds)))]
    sets = [word for name, value in SLOW.items() for word in ("--set", f"{name}={value}")]
    words = ["sweep", "toy", "--profile", "plain", *arms, *sets, "--cluster", nodes.address, *more]
    return subprocess.Popen(
        [sys.executable, file, *words],
        env=nodes.env | {"LAYERNORM_RUNS": os.environ["LAYERNORM_RUNS"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )


def wait_for(process, reached):
    until = time.monotonic() + 300
    while not reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)


def at_work(tmp_path):
    return [path for path in tmp_path.rglob("*.lock") if lock.busy(path)]


def assert_records_are_those_of(sweep, tmp_path):
    """The records of runs in this process, but for times and places."""
    found = finished("toy")
    plain = carry_out(sweep, workers=1, root=tmp_path / "plain").done
    assert found.keys() == plain.keys()
    for key, record in found.items():
        assert record.result == plain[key].result
        assert record.config == plain[key].config
        assert record.digest == plain[key].digest
        assert record.environment["threads"] == 1


@with_ray
def test_a_node_that_dies_in_mid_sweep_changes_no_record(nodes, tmp_path):
    second = nodes.add()
    with command(nodes, tmp_path, 3) as sweep:
        wait_for(sweep, lambda: len(at_work(tmp_path)) == 2 and [*tmp_path.rglob("*.checkpoint")])
        nodes.kill(second)
        out, err = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, err
    assert "mean_test_nll" in out
    assert "raylet" not in err
    assert not at_work(tmp_path)
    assert_records_are_those_of(sweep_of(3), tmp_path)


@with_ray
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_that_is_stopped_leaves_the_cluster_idle_and_goes_on(nodes, tmp_path, how):
    with command(nodes, tmp_path, 2) as sweep:
        wait_for(sweep, lambda: at_work(tmp_path) and [*tmp_path.rglob("*.json")])
        sweep.send_signal(how)
        _, err = sweep.communicate(timeout=300)
    until = time.monotonic() + 120
    while at_work(tmp_path):
        assert time.monotonic() < until, "a run goes on"
        time.sleep(0.1)
    there = finished("toy")
    assert 1 <= len(there) < len(sweep_of(2).wanted({}))
    if how == signal.SIGINT:
        assert sweep.returncode == 130, err
        assert "the same command goes on" in err
        assert "Traceback" not in err
    with command(nodes, tmp_path, 2) as again:
        _, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert {key: finished("toy")[key] for key in there} == there
    assert_records_are_those_of(sweep_of(2), tmp_path)


@with_ray
def test_a_run_that_fails_or_kills_its_worker_is_reported_alone(nodes, tmp_path):
    file = tmp_path / "command.py"
    file.write_text(COMMAND)
    words = ["sweep", "toy", "--profile", "faulty", "--cluster", nodes.address]
    done = subprocess.run(
        [sys.executable, file, *words],
        env=nodes.env | {"LAYERNORM_RUNS": os.environ["LAYERNORM_RUNS"]},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    failures = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    said = {line.partition(" (log: ")[0].removeprefix("Error: ") for line in failures}
    assert said == {
        f"{arm} seed {seed} failed: {reason}"
        for seed in (0, TUNING_SEED)  # and the run by heart
        for arm, reason in REASONS.items()
    }
    assert {run.config["arm"] for run in finished("toy").values()} == {"none", "layer"}


def refused(nodes, *words, **env):
    done = subprocess.run(
        [sys.executable, "-m", "layernorm", "sweep", "drift", "--profile", "book", *words],
        env=nodes.env | env,
        capture_output=True,
        text=True,
        cwd=nodes.folder,  # not that of the package
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    return line


@with_ray
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--threads", "2"], "a run takes 2 CPU, 0 GPU, and no node of the cluster has them (1"),
        (["--gpus", "0.5"], "a run takes 1 CPU, 0.5 GPU, and no node of the cluster has them"),
    ],
)
def test_runs_that_no_node_has_room_for_are_refused(nodes, words, message):
    assert message in refused(nodes, "--cluster", nodes.address, *words)


@with_ray
def test_another_token_is_refused_in_one_line(nodes):
    line = refused(nodes, "--cluster", nodes.address, RAY_AUTH_TOKEN="x" * 40)
    assert "no connection to the cluster" in line
    assert "RAY_AUTH_TOKEN" in line


@with_ray
def test_a_node_with_other_code_is_refused(nodes, tmp_path):
    """Its package differs from this one's by a comment."""
    [folder] = importlib.util.find_spec("layernorm").submodule_search_locations
    other = tmp_path / "other" / "layernorm"
    shutil.copytree(folder, other, copy_function=os.symlink)
    code = other / "__init__.py"
    changed = code.read_text() + "# other\n"
    code.unlink()
    code.write_text(changed)
    path = os.pathsep.join([str(tmp_path / "other"), nodes.env["PYTHONPATH"]])
    line = refused(nodes, "--cluster", nodes.address, PYTHONPATH=path)
    assert "of the cluster has layernorm " in line
    assert "install the same everywhere" in line


def said(*words):
    return commands.refused("sweep", "toy", "--profile", "plain", *words)


def test_a_cluster_without_ray_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    message = "a cluster needs the package ray, which is not installed here"
    assert message in said("--cluster", "auto")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cluster", "auto", "--workers", "2"], "workers are those of this machine, got 2 with"),
        (["--cluster", "auto", "--device", "cuda"], "device cuda on a cluster needs --gpus"),
        (["--gpus", "1"], "gpus are those of each run on a --cluster, got 1 without one"),
        (["--cluster", "auto", "--gpus", "1.5"], "gpus must be a fraction of 1 or a whole number"),
        (["--cluster", "auto", "--threads", "0"], "threads must be at least 1, got 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(words, message):
    assert message in said(*words)


@with_ray
@pytest.mark.parametrize("address", ["ray://here:1", "here", ":1", "auto:x"])
def test_an_address_that_is_none_is_refused(address):
    assert f"cluster must be auto or HOST:PORT, got {address!r}" in said("--cluster", address)


@with_ray
def test_no_cluster_is_told_at_once(nodes):
    began = time.monotonic()
    line = refused(nodes, "--cluster", "127.0.0.1:1")
    assert "no connection to the cluster '127.0.0.1:1': " in line
    assert "Connection refused; start its nodes with `ray start`" in line
    assert time.monotonic() - began < 120  # Ray by itself takes four minutes
