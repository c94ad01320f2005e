"""Runs that are killed: what is resumed is, bit for bit, what would have been without."""

import math
import multiprocessing
import signal

import pytest
import torch
from lab.experiments import killed, toy_experiment

from layernorm.lab import records
from layernorm.lab.experiments import checkpoint, get, run
from layernorm.lab.experiments.run import train

OPTIONS = {"updates": 80, "evaluations": 8, "pythons": True}
KILLED = -signal.SIGKILL


pytestmark = pytest.mark.usefixtures("toy")


def config(arm="batch", **options):
    return get("toy").config("book", arm, 0, **OPTIONS | options)


def document(which):
    return get(which.experiment).document(which)


def path(which=None, suffix=".checkpoint"):
    return records.path(document(which or config())).with_suffix(suffix)


@pytest.fixture(scope="module")
def server():
    """A process that does nothing but to fork: quick, and no type checker in it draws numbers."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=killed.serve, args=(theirs,))
    process.start()
    theirs.close()  # so that a server that died is an error here, not an answer to wait for
    yield mine
    process.kill()
    process.join()


@pytest.fixture
def kill(server, tmp_path):
    def run(which, step, write=None):
        server.send((killed.train_and_die, which, tmp_path / "runs", step, write))
        assert server.recv() == KILLED

    return run


@pytest.fixture
def finish(server, tmp_path):
    """The result of a run that goes on in another process, and the updates it tells of."""

    def run(which):
        server.send((killed.train_and_tell, which, tmp_path / "runs"))
        answer = server.recv()
        assert not isinstance(answer, int), f"the run ended with exit code {answer}"
        assert server.recv() == 0
        return answer

    return run


@pytest.mark.parametrize(
    ("arm", "step", "write", "onward"),
    [
        ("batch", 0, None, [0, 10, 20, 30]),  # before the first update
        ("batch", 10, None, [0, 10, 20, 30]),  # before the first checkpoint
        ("batch", 20, None, [20, 30, 40]),
        ("batch", 80, None, [80]),  # after the last update
        ("none", 40, None, [40, 50, 60]),
        ("batch", None, 3, [30, 40, 50]),  # while the third checkpoint is written
        ("batch", None, 9, []),  # while the record is written
    ],
)
def test_a_run_that_is_killed_goes_on_to_the_same_bits(kill, finish, arm, step, write, onward):
    which = config(arm)
    whole, _ = finish(which)
    path(which, ".json").unlink()
    kill(which, step, write)
    assert not path(which, ".json").exists()
    result, told = finish(which)
    assert told[: len(onward)] == onward
    assert result == whole
    left = [file.name for file in path(which).parent.iterdir()]
    assert left == [path(which, ".json").name]


def test_a_run_survives_being_killed_again_and_again(kill, finish):
    which = config(noise=0.3)
    for step in (20, 30, 50, 50):
        kill(which, step)
    result, told = finish(which)
    assert told == [50, 60, 70, 80]
    assert path(which, ".json").exists()
    path(which, ".json").unlink()
    assert finish(which)[0] == result


def interrupted(which=None):
    """A run that stopped after its checkpoint of update 50."""
    toy_experiment.stopped(60, which or config())


def steps_of(which=None):
    told = []
    train(which or config(), progress=lambda step, _: told.append(step))
    return told


def test_a_checkpoint_holds_the_optimizers_state_and_running_statistics():
    interrupted()
    state = checkpoint.read(path())
    assert state["done"]["step"] == 50
    assert state["model"]["0.weight"].shape == (6, 4)
    assert state["model"]["1.num_batches_tracked"] == 50
    assert {float(s["step"]) for s in state["optimizer"]["state"].values()} == {50.0}
    assert set(state["generators"]) == {"torch", "python", "numpy"}
    assert steps_of() == [60, 70, 80]
    assert not path().exists()


DAMAGES = {
    "empty": lambda content: b"",
    "only a hash": lambda content: content[:32],
    "cut": lambda content: content[:-1],
    "half": lambda content: content[: len(content) // 2],
    "longer": lambda content: content + b"0",
    "first byte": lambda content: bytes([content[0] ^ 1]) + content[1:],
    "last byte": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "inner byte": lambda content: content[:999] + bytes([content[999] ^ 1]) + content[1000:],
    "another file": lambda content: b"{}" * 100,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_put_aside_and_the_run_starts_anew(damage, capsys):
    interrupted()
    damaged = DAMAGES[damage](path().read_bytes())
    path().write_bytes(damaged)
    assert steps_of()[:2] == [0, 10]
    said = capsys.readouterr().err
    assert "is damaged: its content does not have the hash it begins with" in said
    assert f"it is now {path(suffix='.checkpoint.old').name}, and the run starts anew" in said
    assert path(suffix=".checkpoint.old").read_bytes() == damaged


def test_a_checkpoint_of_other_code_is_put_aside(monkeypatch, capsys):
    interrupted()
    content = path().read_bytes()
    monkeypatch.setattr(records, "digest", lambda *run: "Toy 0")
    assert steps_of()[:2] == [0, 10]
    assert "written by other code; it is now" in capsys.readouterr().err
    assert path(suffix=".checkpoint.old").read_bytes() == content


def test_a_checkpoint_names_the_code_that_decides_its_result():
    interrupted()
    digest, made = checkpoint.read(path())["code"], document(config())
    engine = {"Progressed", "Trainer", "_updates", "deterministic", "seeded", "summary"}
    assert set(digest.split()[:-1]) == {*engine, "lab.experiments.toy_experiment:Toy"}
    assert records.changed(digest, made, records.environment()) == ""
    assert records.changed(digest[:-1] + "x", made, records.environment())


def test_another_number_of_threads_is_warned_of(capsys):
    interrupted()
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        assert steps_of() == [60, 70, 80]
    finally:
        torch.set_num_threads(before)
    said = capsys.readouterr().err
    assert f"'threads': {before}" in said
    assert f"'threads': {before + 1}" in said
    assert "results may differ in their last bits" in said


def test_the_same_setting_says_nothing(capsys):
    interrupted()
    assert steps_of() == [60, 70, 80]
    assert capsys.readouterr().err == ""


def test_checkpoints_keep_their_distance(monkeypatch):
    now, written = 0.0, []

    def clock():
        nonlocal now
        now += 1.0
        return now

    monkeypatch.setattr(run.time, "monotonic", clock)
    monkeypatch.setattr(checkpoint, "write", lambda file, state: written.append(now))
    monkeypatch.setattr(run, "APART", math.inf)
    train(config(), checkpoint_seconds=2.5)
    assert len(written) == 2  # of eight readings, on a clock that each glance moves by a second
    train(config(), save=False, checkpoint_seconds=0)
    assert len(written) == 2


@pytest.mark.parametrize(("slow", "expected"), [(0.0, [20, 40, 60, 80]), (0.12, [20, 50, 80])])
def test_a_short_run_keeps_shares_of_itself(monkeypatch, slow, expected):
    """Ten updates a second; at a fifth of the run a checkpoint is due, if the last one took no more
    than a twentieth of the time since."""
    now, written = 0.0, []
    update = run.Trainer.update

    def updated(self, step):
        nonlocal now
        now += 0.1
        update(self, step)

    def write(file, state):
        nonlocal now
        now += slow
        written.append(state["done"]["step"])

    monkeypatch.setattr(run.Trainer, "update", updated)
    monkeypatch.setattr(run, "SHARE", 0.2)
    monkeypatch.setattr(run, "APART", 1.5)
    monkeypatch.setattr(run.time, "monotonic", lambda: now)
    monkeypatch.setattr(checkpoint, "write", write)
    train(config())
    assert written == expected
