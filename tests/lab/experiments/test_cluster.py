"""Sweeps on a cluster of Ray: nodes and commands that die change no record but for its times."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from apart import python, started
from lab.experiments.nodes import Nodes
from typed import layernorm

from layernorm.lab.experiments import cluster_checkpoints, lock
from layernorm.lab.experiments.experiment import TUNING_SEED
from layernorm.lab.experiments.planning import Sweep, finished
from layernorm.lab.experiments.sweep import carry_out

COMMAND = """
from lab.experiments import toy_experiment
toy_experiment.register()
from layernorm.__main__ import main
if __name__ == "__main__":
    main()
"""
SLOW = {"updates": 8000, "evaluations": 10}  # seconds, with a checkpoint every two
QUICK = {"updates": 20, "evaluations": 2}
REASONS = {
    "broken": "RuntimeError: the toy is broken",
    "deadly": "its worker process or node died, 4 times in a row",
}
with_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `cluster`"
)


pytestmark = pytest.mark.usefixtures("toy")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    started = Nodes(tmp_path_factory.mktemp("ray"))
    try:
        yield started
    finally:
        started.close()


def sweep_of(seeds):
    return Sweep("toy", "plain", ("none", "layer"), tuple(range(seeds)), SLOW)


def command(nodes, tmp_path, seeds, *more, options=SLOW):
    """The sweep, by the command, in a process of its own."""
    file = tmp_path / "command.py"
    file.write_text(COMMAND)
    arms = ["--arms", "none,layer", "--seeds", ",".join(map(str, range(seeds)))]
    sets = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    words = ["sweep", "toy", "--profile", "plain", *arms, *sets, "--cluster", nodes.address, *more]
    env = nodes.env | {"LAYERNORM_RUNS": os.environ["LAYERNORM_RUNS"]}
    return started(file, *words, env=env, cwd=tmp_path)


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
    runs = {"LAYERNORM_RUNS": os.environ["LAYERNORM_RUNS"]}
    done = python(file, *words, env=nodes.env | runs)
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
    words = ("sweep", "drift", "--profile", "book", *words)
    elsewhere = nodes.folder  # not that of the package
    done = python("-m", "layernorm", *words, env=nodes.env | env, cwd=elsewhere)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    return line


@with_ray
@pytest.mark.parametrize(
    ("words", "takes"),
    [(["--threads", "2"], "2 CPU, 0 GPU"), (["--gpus", "0.5"], "1 CPU, 0.5 GPU")],
)
def test_runs_that_no_node_has_room_for_are_refused(nodes, words, takes):
    line = refused(nodes, "--cluster", nodes.address, *words)
    assert f"a run takes {takes}, and no node of the cluster has them (1 CPU, 0 GPU)" in line


@with_ray
def test_another_token_is_refused_in_one_line(nodes):
    line = refused(nodes, "--cluster", nodes.address, RAY_AUTH_TOKEN="x" * 40)
    assert "no connection to the cluster" in line
    assert "RAY_AUTH_TOKEN" in line


@with_ray
@pytest.mark.parametrize("file", ["__init__.py", "recurrent/cpu/native/norm.h"])
def test_a_node_with_other_code_is_refused(nodes, tmp_path, file):
    """Its package differs from this one's by a line's end."""
    [folder] = importlib.util.find_spec("layernorm").submodule_search_locations
    other = tmp_path / "other" / "layernorm"
    shutil.copytree(folder, other, copy_function=os.symlink)
    code = other / file
    changed = code.read_text() + "\n"
    code.unlink()
    code.write_text(changed)
    path = os.pathsep.join([str(tmp_path / "other"), nodes.env["PYTHONPATH"]])
    line = refused(nodes, "--cluster", nodes.address, PYTHONPATH=path)
    assert "of the cluster has layernorm " in line
    assert "install the same everywhere" in line


def said(*words):
    result = layernorm("sweep", "toy", "--profile", "plain", *words)
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    return line


def test_a_cluster_without_ray_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "a cluster needs the package ray, which is not installed here" in said(
        "--cluster", "auto"
    )


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


@with_ray
def test_runs_take_threads_and_share_a_gpu(nodes, tmp_path, monkeypatch):
    """Of a node that has room for three by its CPUs; they wait until the gate is opened, and are
    short, since more threads than cores wait for each other. OMP_NUM_THREADS is 1 there. Ray starts
    a process for each of them, as always for a task that takes some of a GPU."""
    gate = tmp_path / "gate"
    node = nodes.add(cpus=6, gpus=1, TOY_GATE=str(gate))
    for share, fit in (("0.5", 2), ("1", 1)):
        monkeypatch.setenv("LAYERNORM_RUNS", str(tmp_path / share))
        takes = ["--threads", "2", "--gpus", share]
        with command(nodes, tmp_path, 1, *takes, options=QUICK) as sweep:
            wait_for(sweep, lambda fit=fit: len(at_work(tmp_path)) >= fit)
            time.sleep(5)  # for one more, if it were started
            at_once = len(at_work(tmp_path))
            gate.touch()
            _, err = sweep.communicate(timeout=300)
        gate.unlink()
        assert sweep.returncode == 0, err
        assert at_once == fit
        made = finished("toy").values()
        assert len(made) == 4  # two of them by heart
        assert {run.environment["threads"] for run in made} == {2}
    nodes.kill(node)


def can_have_own_disks():
    unshare = shutil.which("unshare")
    return unshare and not subprocess.run([unshare, "--mount", "true"], check=False).returncode


@with_ray
@pytest.mark.skipif(not can_have_own_disks(), reason="needs mounts of its own, by unshare")
def test_a_run_goes_on_from_the_checkpoint_that_its_dead_node_sent(nodes, tmp_path):
    """Both nodes have disks of their own. Checkpoints differ, if only in their times."""
    here, runs = tmp_path / "runs", {}
    here.mkdir()
    for disk in (tmp_path / "one", tmp_path / "other"):
        disk.mkdir()
        runs[disk] = nodes.add(gpus=1, disk=(disk, here))
    with command(nodes, tmp_path, 1, "--gpus", "1") as sweep:
        wait_for(sweep, lambda: [*here.rglob("*.checkpoint")])
        sent = next(here.rglob("*.checkpoint")).relative_to(here)
        dead, other = sorted(runs, key=lambda disk: not (disk / sent).exists())
        nodes.kill(runs[dead])
        was = (here / sent).read_bytes()
        wait_for(sweep, (other / sent).exists)
        assert (other / sent).read_bytes() == was
        _, err = sweep.communicate(timeout=300)
    nodes.kill(runs[other])
    assert sweep.returncode == 0, err
    assert [*dead.rglob("*.checkpoint")]
    assert not [*here.rglob("*.checkpoint*"), *other.rglob("*.checkpoint*")]
    assert_records_are_those_of(sweep_of(1), tmp_path)


class Elsewhere:
    """Another machine's folder in the place of Ray and its actor; `asked`: calls and times."""

    def __init__(self, folder, monkeypatch):
        self._folder, self._files, self.asked = folder, cluster_checkpoints.files()(), []
        self.exceptions = SimpleNamespace(RayError=type("RayError", (Exception,), {}))
        monkeypatch.setattr(cluster_checkpoints, "LOOK", 0.01)
        monkeypatch.setattr(cluster_checkpoints, "APART", 0.2)

    def get(self, call, timeout):
        name, file, *content = call
        self.asked.append((name, time.monotonic()))
        return getattr(self._files, name)(str(self._folder / os.path.basename(file)), *content)

    def __getattr__(self, name):
        return SimpleNamespace(remote=lambda *words: (name, *words))

    def times(self, name):
        return [at for what, at in self.asked if what == name]


def put(file, size=100):
    content = os.urandom(size)
    cluster_checkpoints.files()().write(str(file), content)
    return content


def wait_until(reached):
    until = time.monotonic() + 300
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_checkpoints_are_sent_now_and_then_until_the_run_ends(monkeypatch, tmp_path):
    there = Elsewhere(tmp_path / "there", monkeypatch)
    file, copy = tmp_path / "here" / "run.checkpoint", tmp_path / "there" / "run.checkpoint"

    def three():
        put(file)
        return len(there.times("write")) == 3

    with cluster_checkpoints.sent(there, there, file):
        wait_until(three)
        last = put(file)
        wait_until(lambda: copy.exists() and copy.read_bytes() == last)
        file.unlink()
    first, second, third, *_ = there.times("write")
    assert min(second - first, third - second) >= cluster_checkpoints.APART
    assert not [*copy.parent.iterdir()]


def test_a_run_that_fails_leaves_its_checkpoint_and_begins_with_it_elsewhere(monkeypatch, tmp_path):
    there = Elsewhere(tmp_path / "there", monkeypatch)
    copy = tmp_path / "there" / "run.checkpoint"

    def fails():
        with cluster_checkpoints.sent(there, there, tmp_path / "one" / copy.name):
            put(tmp_path / "one" / copy.name)
            wait_until(copy.exists)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    sent = copy.read_bytes()
    own = tmp_path / "other" / copy.name
    with cluster_checkpoints.sent(there, there, own):
        assert own.read_bytes() == sent
        newer = put(own)
        wait_until(lambda: len(there.times("write")) == 2)
        assert copy.read_bytes() == newer
    assert not copy.exists()


def test_a_newer_checkpoint_of_the_same_disk_is_kept(monkeypatch, tmp_path):
    there = Elsewhere(tmp_path / "there", monkeypatch)
    own, copy = tmp_path / "here" / "run.checkpoint", tmp_path / "there" / "run.checkpoint"
    put(copy)
    newer = put(own)
    with cluster_checkpoints.sent(there, there, own):
        assert own.read_bytes() == newer
    assert not copy.exists()


def test_nothing_is_sent_to_the_same_disk(monkeypatch, tmp_path):
    there, file = Elsewhere(tmp_path, monkeypatch), tmp_path / "run.checkpoint"
    with cluster_checkpoints.sent(there, there, file):
        for n in (2, 3):
            put(file)
            wait_until(lambda n=n: len(there.asked) == n)
    assert {name for name, _ in there.asked} == {"begins"}
    assert file.exists()


def test_a_run_goes_on_that_can_send_nothing(monkeypatch, tmp_path, capsys):
    there = Elsewhere(tmp_path / "there", monkeypatch)
    monkeypatch.setattr(cluster_checkpoints, "LARGEST", 2**20)
    with cluster_checkpoints.sent(there, there, tmp_path / "run.checkpoint"):
        put(tmp_path / "run.checkpoint", 2**20 + 1)
        wait_until(lambda: len(there.asked) == 2)
    assert not there.times("write")
    assert "it has more than 1 MiB" in capsys.readouterr().err
    (tmp_path / "there").write_text("no folder")
    with cluster_checkpoints.sent(there, there, tmp_path / "run.checkpoint"):
        pass
    assert "machine: [Errno 20] Not a directory" in capsys.readouterr().err
