"""Sweeps beside other processes: locks, runs and data that two want, workers that must end."""

import contextlib
import errno
import os
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from apart import python, started

from layernorm.lab import records
from layernorm.lab.experiments import checkpoint, lock, run
from layernorm.lab.experiments import sweep as engine
from layernorm.lab.experiments.planning import Sweep
from layernorm.lab.experiments.sweep import carry_out

pytestmark = pytest.mark.usefixtures("toy")


def test_a_run_that_another_process_is_at_is_left_for_last_and_waited_for(
    here, trained, monkeypatch, capsys
):
    sweep = Sweep("toy", "plain", ("none",), by_heart=False)
    first, *_ = sweep.wanted({})
    theirs = replace(run.train(first, save=False), timing={"seconds_per_update": 5.0})
    trained.clear()
    other = contextlib.ExitStack()
    other.enter_context(lock.held(lock.place(first)))
    other.callback(lambda: records.save(theirs))  # before it lets go
    monkeypatch.setattr(lock.time, "sleep", lambda _: other.close())
    names = []
    outcome = carry_out(sweep, workers=1, progress=lambda *about: names.append(about[2]))
    assert outcome.failed == {}
    assert names == ["none seed 1", "none seed 2", "none seed 0"]
    assert trained == [("plain", "none", 1), ("plain", "none", 2)]
    assert outcome.done[first.key()] == theirs
    said = "waiting for runs that another process is at: 1"
    assert capsys.readouterr().err.count(said) == 1


def test_a_run_that_another_process_made_meanwhile_is_not_made_again(here, monkeypatch):
    sweep = Sweep("toy", "plain", ("none",), (0, 1), by_heart=False)
    second = sweep.wanted({})[1]
    trained = []
    train = run.train

    def both(config, **rest):
        trained.append(config)
        if config != second:
            train(second, **rest)
        return train(config, **rest)

    monkeypatch.setattr(run, "train", both)
    assert len(carry_out(sweep, workers=1).done) == 2
    assert second not in trained


COMMAND = """
from lab.experiments import toy_experiment
toy_experiment.register()
from layernorm.lab.experiments import run
run.train.__kwdefaults__["checkpoint_seconds"] = 0.0
from layernorm.__main__ import main
if __name__ == "__main__":
    main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_sweep_however_it_ends(tmp_path, how):
    file = tmp_path / "command.py"
    file.write_text(COMMAND)
    arguments = "sweep toy --profile plain --arms none --seeds 0,1 --workers 2 --device cpu"
    sets = ["--set", "updates=100000000", "--set", "evaluations=1"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = started(file, *arguments.split(), *sets, env=env, start_new_session=True)
    with command as sweep:
        try:
            until = time.monotonic() + 300
            while len(kept := list(tmp_path.rglob("*.checkpoint"))) < 2:
                assert sweep.poll() is None, sweep.communicate()
                assert time.monotonic() < until
                time.sleep(0.05)
            sweep.send_signal(how)
            _, said = sweep.communicate(timeout=300)  # all who hold the pipes have ended
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(sweep.pid, signal.SIGKILL)
    assert all(checkpoint.read(file)["done"]["step"] > 0 for file in kept)
    assert not any(map(lock.busy, tmp_path.rglob("*.lock")))
    if how == signal.SIGTERM:
        assert sweep.returncode == 130
        assert "stopped after 0 runs, which are kept; the same command goes on" in said
        assert "Traceback" not in said


def test_locks_are_taken_one_after_another(tmp_path):
    inside, most = 0, 0

    def enter(number):
        nonlocal inside, most
        with lock.held(tmp_path / "lock"):
            inside += 1
            most = max(most, inside)
            assert lock.busy(tmp_path / "lock")
            time.sleep(0.001)
            inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(40)))
    assert most == 1
    assert not lock.busy(tmp_path / "lock")
    assert not list(tmp_path.iterdir())


def test_a_lock_that_was_deleted_meanwhile_is_none(tmp_path):
    path = tmp_path / "lock"
    with lock._opened(path) as file:
        path.unlink()
        assert not lock._taken(file, path)
        path.write_text("")  # another process's new one
        assert not lock._taken(file, path)


def test_without_locks_work_goes_on(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with lock.held(tmp_path / "file" / "lock"):  # no file can be made there
        assert not lock.busy(tmp_path / "file" / "lock")

    def unknown(*about):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", unknown)
    with lock.held(tmp_path / "lock"), lock.held(tmp_path / "lock"):
        assert not lock.busy(tmp_path / "lock")


def test_one_worker_of_a_machine_fetches_the_data_and_the_others_wait(monkeypatch, tmp_path):
    """Three of one machine, and after them one of another, which has a temporary folder of its
    own."""
    config = Sweep("toy", "plain", ("none",), (0,)).config("none", 0, 0.01)
    waiting, told = threading.Semaphore(0), []

    class Data:
        def document(self, config):
            told.append("begin")
            if len(told) == 1:
                assert waiting.acquire(timeout=300)
                assert waiting.acquire(timeout=300)
            told.append("end")

    def wait(seconds):
        waiting.release()
        pause(seconds)

    def work():
        engine._fetch(config)
        told.append("goes on")

    pause = time.sleep
    monkeypatch.setattr(engine, "get", lambda name: Data())
    monkeypatch.setattr(engine, "_fetched", set())
    monkeypatch.setattr(lock.time, "sleep", wait)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(work)
        while not told:
            assert not first.done()
            pause(0.01)
        others = [pool.submit(work) for _ in range(2)]
        for each in (first, *others):
            each.result()
    assert told == ["begin", "end", *3 * ["goes on"]]
    assert engine._fetched == {"toy"}
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "other"))
    work()
    assert told[5:] == ["begin", "end", "goes on"]


SCRIPT = """
from lab.experiments import toy_experiment
from lab.experiments.toy_experiment import Here
toy_experiment.register()
from layernorm.lab.experiments.planning import Sweep
from layernorm.lab.experiments.sweep import carry_out
carry_out(Sweep("toy", "plain", ("none",), (0, 1), by_heart=False), workers=2)
"""


@pytest.mark.parametrize("guarded", [False, True])
def test_a_script_without_a_main_guard_is_told_what_to_do(tmp_path, guarded):
    file = tmp_path / "script.py"
    lines = SCRIPT.strip().splitlines()
    if guarded:
        lines[-1] = f"if __name__ == '__main__':\n    {lines[-1]}"
    file.write_text("\n".join(lines))
    done = python(file, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == (0 if guarded else 1), done.stderr
    last = done.stderr.splitlines()[-1:] or [""]
    assert ("under `if __name__ == '__main__':`" in last[0]) == (not guarded)
    assert len(list(tmp_path.rglob("*.json"))) == 2 * guarded
