"""Sweeps in worker processes: what fails is reported and the rest finished, with the same bits."""

import contextlib
import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
import torch
from apart import python
from lab.experiments import toy_experiment
from lab.experiments.toy_experiment import Here

from layernorm.lab import records
from layernorm.lab.experiments import checkpoint, get, lock, machine, report, run, timing
from layernorm.lab.experiments import sweep as engine
from layernorm.lab.experiments.planning import Sweep, finished
from layernorm.lab.experiments.sweep import carry_out, live, rates

pytestmark = pytest.mark.usefixtures("toy")


def by_name(outcome):
    return {f"{r.config['arm']} {r.config['seed']}": r for r in outcome.done.values()}


def reasons(outcome):
    return {failure.config.arm: failure.reason for failure in outcome.failed.values()}


def test_processes_give_the_same_bits_and_what_fails_or_dies_is_blamed_alone():
    sweep = Sweep("toy", "faulty", by_heart=False)
    told = []
    outcome = carry_out(sweep, workers=2, progress=lambda *about: told.append(about))
    assert reasons(outcome) == {
        "broken": "RuntimeError: the toy is broken",
        "deadly": "its worker process died",
    }
    assert set(by_name(outcome)) == {"none 0", "layer 0"}
    for record in outcome.done.values():
        config = sweep.config(record.config["arm"], 0, sweep.rate({}, record.config["arm"]))
        assert run.train(config, save=False).result == record.result
        assert records.read(records.path(get("toy").document(config))) == record
        assert record.environment["threads"] == 1
    logs = {failure.config.arm: failure.log for failure in outcome.failed.values()}
    assert "Traceback" in logs["broken"].read_text()
    assert 'raise RuntimeError("the toy is broken")' in logs["broken"].read_text()
    left = {file.suffix for file in logs["broken"].parent.iterdir()}
    assert left == {".json", ".log", ".lock"}  # the dead one's lock: who comes next takes it
    assert [ended for ended, _, _ in told] == [1, 2, 3, 4]
    assert {known for _, known, _ in told} == {4}
    assert {name for _, _, name in told} == {f"{arm} seed 0" for arm in sweep.arms}


def test_a_sweep_tunes_runs_and_is_then_done(here):
    sweep = Sweep("toy", "book")
    told = []
    outcome = carry_out(sweep, workers=2, progress=lambda *about: told.append(about))
    assert outcome.failed == {}
    assert sweep.wanted(outcome.done) == []
    assert len(sweep.runs(outcome.done)) == 6
    assert [ended for ended, _, _ in told] == list(range(1, len(outcome.done) + 1))
    assert told[-1][:2] == (len(outcome.done), len(outcome.done))
    assert outcome.done == finished("toy")
    assert not list(records.path(get("toy").document(sweep.wanted({})[0])).parent.glob("*.log"))


def test_what_is_done_is_not_run_again(here, trained):
    sweep = Sweep("toy", "plain", ("none", "layer"), (0, 1), by_heart=False)
    first = carry_out(replace(sweep, seeds=(0,)))
    trained.clear()
    both = carry_out(sweep)
    assert trained == [("plain", "none", 1), ("plain", "layer", 1)]
    assert {key: both.done[key] for key in first.done} == first.done
    carry_out(sweep)
    assert len(trained) == 2


def test_what_is_stale_is_made_again_if_asked(here, trained, monkeypatch):
    sweep = Sweep("toy", "plain", ("none", "layer"), (0, 1), by_heart=False)
    done = carry_out(sweep).done
    trained.clear()
    monkeypatch.setattr(records, "stale", lambda run: run.config["arm"] == "none" and "Toy")
    assert carry_out(sweep).done == done
    assert trained == []
    assert carry_out(sweep, anew=True).done.keys() == done.keys()
    assert trained == [("plain", "none", 0), ("plain", "none", 1)]


def test_tuning_that_is_published_counts_as_done(here, tmp_path):
    sweep = Sweep("toy", "book", ("none",), by_heart=False)
    outcome = carry_out(sweep, root=tmp_path / "elsewhere")
    tuning = tmp_path / "elsewhere" / "toy" / "book_tuning"
    records.publish([tuning], folder=tmp_path / "published")
    assert {config.profile for config in sweep.wanted(finished("toy"))} == {"book"}
    again = carry_out(sweep)
    assert again.done.keys() == outcome.done.keys()
    assert not (tmp_path / "runs" / "toy" / "book_tuning").exists()


def test_live_keeps_nothing_and_takes_the_published_rates(here, trained, tmp_path):
    sweep = Sweep("toy", "book", ("none", "layer"))
    as_here = torch.get_num_threads()  # on which last bits may depend
    outcome = carry_out(sweep, threads=as_here, root=tmp_path / "elsewhere")
    published = tmp_path / "published"
    records.publish([tmp_path / "elsewhere"], folder=published)
    before = set(tmp_path.rglob("*"))
    trained.clear()
    found = live("toy", arms=("none", "layer"))
    assert [profile for profile, *_ in trained] == ["book"] * 4  # made anew, though published
    assert [run.result for run in found] == [run.result for run in sweep.runs(outcome.done)]
    assert set(tmp_path.rglob("*")) == before
    short = live("toy", arms=["layer"], seeds=[5], updates=7)
    assert [(r.config["arm"], r.config["seed"], r.config["options"]["updates"]) for r in short] == [
        ("layer", 5, 7)
    ]
    assert rates("toy") == {arm: sweep.rate(outcome.done, arm) for arm in sweep.arms} | {
        "rescaled": sweep.rate(outcome.done, "none")
    }
    chosen = short[0].config["options"]["learning_rate"]
    assert chosen == sweep.rate(outcome.done, "layer")


def test_live_runs_in_processes_are_those_of_this_one():
    alone, two = (live("toy", "plain", arms=["none"], seeds=[0, 1], workers=n) for n in (1, 2))
    assert [run.result for run in alone] == [run.result for run in two]


def test_live_raises_what_failed_and_what_is_not_tuned():
    with pytest.raises(RuntimeError, match="the toy is broken"):
        live("toy", "faulty", arms=["broken"])
    with pytest.raises(ValueError, match="no published tuning of layer; run `layernorm sweep toy"):
        live("toy", arms=["layer"])


def test_the_runs_of_a_pool_that_breaks_are_tried_alone(here, monkeypatch):
    tries = []

    def dies(config):
        tries.append(config.arm)
        return config.arm == "broken" and tries.count("broken") == 1

    monkeypatch.setattr(here, "dies", staticmethod(dies))
    sweep = Sweep("toy", "faulty", ("none", "broken", "layer"), by_heart=False)
    outcome = carry_out(sweep, workers=3)  # layer is refused by a pool that is broken already
    assert reasons(outcome) == {"broken": "RuntimeError: the toy is broken"}
    assert set(by_name(outcome)) == {"none 0", "layer 0"}
    assert tries.count("none") == tries.count("layer") == 1


def test_a_log_that_cannot_be_written_fails_its_run_alone(here, monkeypatch):
    real = engine._work

    def full(config, **rest):
        if config.arm == "none":
            raise OSError(28, "No space left on device")
        return real(config, **rest)

    monkeypatch.setattr(engine, "_work", full)
    outcome = carry_out(Sweep("toy", "plain", ("none", "layer"), (0,), by_heart=False))
    assert reasons(outcome) == {"none": "[Errno 28] No space left on device"}
    assert set(by_name(outcome)) == {"layer 0"}


def test_what_a_run_says_is_in_its_log(here, monkeypatch):
    def full(path, state):
        raise OSError("full")

    monkeypatch.setattr(run.checkpoint, "write", full)
    monkeypatch.setattr(run, "train", partial(run.train, checkpoint_seconds=0))
    sweep = Sweep("toy", "plain", ("none",), (0,), by_heart=False)
    assert carry_out(sweep).failed == {}
    log = records.path(get("toy").document(sweep.config("none", 0, 0.001))).with_suffix(".log")
    assert "no checkpoint of update 10: full; the run goes on without" in log.read_text()


@pytest.mark.parametrize("name", ["workers", "threads"])
@pytest.mark.parametrize("value", [0, -1])
def test_numbers_below_one_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got {value}"):
        carry_out(Sweep("toy", "plain"), **{name: value})


@pytest.mark.parametrize("name", ["workers", "threads"])
@pytest.mark.parametrize(("cores", "most"), [(2, 64), (100, 400)])
def test_numbers_beyond_reason_are_refused(monkeypatch, name, cores, most):
    monkeypatch.setattr(machine, "cores", lambda: cores)
    with pytest.raises(ValueError, match=f"{name} must be at most {most} on {cores} cores, got"):
        carry_out(Sweep("toy", "plain"), **{name: most + 1})
    machine.check_number(name, most)


def test_workers_share_the_cores(monkeypatch):
    asked = []

    def pool(number, threads):
        asked.append((number, threads))
        return Here(number, threads)

    monkeypatch.setattr(engine, "_pool", pool)
    monkeypatch.setattr(machine, "cores", lambda: 5)
    sweep = Sweep("toy", "plain", ("none",), (0,), by_heart=False)
    for done, (threads, expected) in enumerate([(1, 5), (2, 2), (9, 1)]):
        carry_out(replace(sweep, seeds=(done,)), threads=threads, device="cpu")
        assert asked.pop() == (expected, threads)


@pytest.mark.parametrize("workers", [1, 3])
def test_threads_that_are_handed_in_give_the_same_bits_as_one_run_alone(workers):
    sweep = Sweep("toy", "faulty", ("none", "broken", "layer"))
    before = torch.get_num_threads()
    with ThreadPoolExecutor(workers) as pool:
        outcome = carry_out(sweep, workers=pool)
        assert pool.submit(int).result() == 0  # it is still open
    assert set(reasons(outcome).items()) == {("broken", "RuntimeError: the toy is broken")}
    assert len(outcome.done) == 4  # two seeds, two by heart
    for record in outcome.done.values():
        options = {**record.config["options"], "method": record.config["method"]}
        seed, arm = record.config["seed"], record.config["arm"]
        config = toy_experiment.EXPERIMENT.config("faulty", arm, seed, **options)
        assert run.train(config, save=False).result == record.result
    assert torch.get_num_threads() == before


def test_processes_that_are_handed_in_are_asked_for_all_that_can_be_started(tmp_path):
    sweep = Sweep("toy", "plain", ("none", "layer"), by_heart=False)
    asked = []

    class Counted(ProcessPoolExecutor):
        def submit(self, *work):
            asked.append(work)
            return super().submit(*work)

    with Counted(2, multiprocessing.get_context("spawn")) as pool:
        outcome = carry_out(sweep, workers=pool)
    assert len(asked) == len(outcome.done) == 6
    for arm in sweep.arms:
        config = sweep.config(arm, 0, 0.001)
        assert outcome.done[config.key()].result == run.train(config, save=False).result


def test_an_executor_that_breaks_or_is_shut_down_ends_the_sweep():
    sweep = Sweep("toy", "faulty", ("deadly", "none"), by_heart=False)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        outcome = carry_out(sweep, workers=pool)
    assert reasons(outcome) == dict.fromkeys(("deadly", "none"), "its worker process died")
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    outcome = carry_out(sweep, workers=closed)
    assert set(reasons(outcome).values()) == {"cannot schedule new futures after shutdown"}


class Apart(ThreadPoolExecutor):
    """Workers with a disk of their own."""

    def __init__(self, disk):
        super().__init__(1)
        self.disk = disk

    def submit(self, work, config):
        return super().submit(partial(work, root=self.disk), config)


def test_a_record_from_another_disk_takes_the_place_of_a_stale_one(tmp_path, monkeypatch):
    sweep = Sweep("toy", "plain", ("none", "layer"), (0,), by_heart=False)
    before = carry_out(sweep).done
    monkeypatch.setattr(records, "stale", lambda run: run.config["arm"] == "none" and "Toy")
    with Apart(tmp_path / "another") as pool:
        after = carry_out(sweep, workers=pool, anew=True).done
    for key, record in after.items():
        assert records.read(records.path(record.config)) == record
        assert (record == before[key]) == (record.config["arm"] == "layer")


class Careless(ThreadPoolExecutor):
    """Does one arm's job in a way that executors should not."""

    def __init__(self, way):
        super().__init__(1)
        self.way = way

    def submit(self, work, config):
        return self.way() if config.arm == "none" else super().submit(work, config)


def cancelled():
    future = Future()
    future.cancel()
    return future


def without_result():
    future = Future()
    future.set_result(None)
    return future


def full():
    raise OSError("the queue is full")


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        (cancelled, "its executor cancelled it"),
        (without_result, "its executor returned None where a record was expected"),
        (full, "the queue is full"),
    ],
)
def test_a_job_that_an_executor_drops_fails_alone(way, reason):
    with Careless(way) as pool:
        outcome = carry_out(Sweep("toy", "plain", seeds=(0,), by_heart=False), workers=pool)
    assert reasons(outcome) == {"none": reason}
    assert set(by_name(outcome)) == {"layer 0", "batch 0"}


def test_after_an_interruption_an_executor_is_left_without_jobs(tmp_path):
    def interrupt(*about):
        raise KeyboardInterrupt

    sweep = Sweep("toy", "plain", by_heart=False)
    with ThreadPoolExecutor(1) as pool, pytest.raises(KeyboardInterrupt):
        carry_out(sweep, workers=pool, progress=interrupt)
    assert 1 <= len(list(tmp_path.rglob("*.json"))) <= 2  # of nine; one may have been at work


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
    command = subprocess.Popen(
        [sys.executable, file, *arguments.split(), *sets],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
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


def test_a_record_made_on_another_disk_is_kept_here(tmp_path):
    with Apart(tmp_path / "there") as pool:
        carry_out(Sweep("toy", "plain", ("none",), (0,), by_heart=False), workers=pool)
    kept = [{p.name for p in (tmp_path / d).rglob("*.json")} for d in ("there", "runs")]
    assert kept[0] == kept[1]
    assert len(kept[0]) == 1


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


class Clock:
    """Each update takes as many seconds as its arm's learning rate says."""

    now = 0.0

    def __call__(self):
        return Clock.now


def test_arms_are_timed_in_turns_and_their_records_say_so(here, monkeypatch):
    sweep = Sweep("toy", "plain", ("layer", "batch"), (0, 1), by_heart=False)
    done = carry_out(sweep).done
    turns = []

    class Timed(run.Trainer):
        def __init__(self, experiment, config, device):
            super().__init__(experiment, config, device)
            self.arm, self.seconds = config.arm, config.options.learning_rate

        def update(self, step):
            turns.append(self.arm)
            Clock.now += self.seconds
            super().update(step)

    own = replace(get("toy"), trainer=Timed)  # as an experiment that makes its own updates
    monkeypatch.setattr(toy_experiment, "EXPERIMENT", own)
    monkeypatch.setattr(timing.time, "perf_counter", Clock())
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    found = timing.time_arms(sweep, done, threads=1, device="cpu")
    assert found == {"layer": pytest.approx(0.001), "batch": pytest.approx(0.05)}
    assert turns[:30] == ["layer"] * 10 + ["batch"] * 10 + ["layer"] * 10
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    for key, made in finished("toy").items():
        assert made.timing["seconds_per_update"] == found[made.config["arm"]]
        assert made.result == done[key].result
    frame = records.load("toy", "plain")
    curve = frame[(frame.arm == "batch") & (frame.metric == "test_nll") & frame.step.notna()]
    assert curve.seconds.tolist() == pytest.approx((0.05 * curve.step).tolist())


def test_a_table_of_live_runs_is_the_table_of_records(here):
    sweep = Sweep("toy", "plain", ("none", "layer"), (0, 1), by_heart=False)
    outcome = carry_out(sweep)
    frame = records.tidy(sweep.runs(outcome.done))
    whole = records.load("toy", "plain")
    order = ["arm", "seed", "metric", "step"]
    frames = [f.sort_values(order).reset_index(drop=True) for f in (frame, whole)]
    assert frames[0].equals(frames[1])
    assert len(records.tidy([])) == 0


def test_runs_that_the_plan_does_not_ask_for_decide_nothing(here):
    """Other options, another rate and another seed, under the arms of the plan."""
    plan = replace(get("toy").comparisons, profile="book")
    assert report.recorded(get("toy"), plan) is None
    carry_out(Sweep("toy", "book"))
    asked = report.recorded(get("toy"), plan)["layer against none"]
    assert asked.difference.n == 2
    others = ({"updates": 12}, {"learning_rate": 0.03}, {"examples": 9})
    for options in others:
        carry_out(Sweep("toy", "book", options=options))
    carry_out(Sweep("toy", "book", seeds=(0, 7)))
    assert report.recorded(get("toy"), plan)["layer against none"] == asked
    assert len(report.recorded(get("toy"), plan).frame.query("metric == 'size'")) == 6
