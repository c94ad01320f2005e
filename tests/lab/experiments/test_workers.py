"""Sweeps in worker processes: what fails is reported and the rest finished, with the same bits."""

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial

import pytest
import torch
from lab.experiments import toy_experiment

from layernorm.lab import records
from layernorm.lab.experiments import loop, timing, workers
from layernorm.lab.experiments.planning import Sweep, finished
from layernorm.lab.experiments.workers import carry_out, live


@pytest.fixture(autouse=True)
def toy(monkeypatch, tmp_path):
    toy_experiment.use(monkeypatch, tmp_path)


class Here:
    """A pool that works in this process at once; `dies(config)`: the pool breaks with that run."""

    dies = staticmethod(lambda config: False)

    def __init__(self, workers, threads):
        self.broken = False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def submit(self, work, config):
        if self.broken:
            raise BrokenProcessPool
        future = Future()
        self.broken = self.dies(config)
        try:
            if self.broken:
                raise BrokenProcessPool
            future.set_result(work(config))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(workers, "_pool", Here)
    return Here


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
        assert loop.train(config, save=False).result == record.result
        assert records.read(records.path(config.document())) == record
        assert record.environment["threads"] == 1
    logs = {failure.config.arm: failure.log for failure in outcome.failed.values()}
    assert "Traceback" in logs["broken"].read_text()
    assert 'raise RuntimeError("the toy is broken")' in logs["broken"].read_text()
    left = {file.suffix for file in logs["broken"].parent.iterdir()}
    assert left == {".json", ".log"}
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
    assert not list(records.path(sweep.wanted({})[0].document()).parent.glob("*.log"))


def test_what_is_done_is_not_run_again(here, monkeypatch):
    sweep = Sweep("toy", "plain", ("none", "layer"), (0, 1), by_heart=False)
    first = carry_out(replace(sweep, seeds=(0,)))
    trained = []
    train = loop.train
    monkeypatch.setattr(
        loop, "train", lambda c, **rest: trained.append((c.arm, c.seed)) or train(c, **rest)
    )
    both = carry_out(sweep)
    assert trained == [("none", 1), ("layer", 1)]
    assert {key: both.done[key] for key in first.done} == first.done
    carry_out(sweep)
    assert len(trained) == 2


def test_tuning_that_is_published_counts_as_done(here, tmp_path):
    sweep = Sweep("toy", "book", ("none",), by_heart=False)
    outcome = carry_out(sweep, root=tmp_path / "elsewhere")
    tuning = tmp_path / "elsewhere" / "toy" / "book_tuning"
    records.publish([tuning], folder=tmp_path / "published")
    assert {config.profile for config in sweep.wanted(finished("toy"))} == {"book"}
    again = carry_out(sweep)
    assert again.done.keys() == outcome.done.keys()
    assert not (tmp_path / "runs" / "toy" / "book_tuning").exists()


def test_live_keeps_nothing_and_takes_the_published_rates(here, tmp_path, monkeypatch):
    sweep = Sweep("toy", "book", ("none", "layer"))
    outcome = carry_out(sweep, root=tmp_path / "elsewhere")
    published = tmp_path / "published"
    records.publish([tmp_path / "elsewhere"], folder=published)
    before = set(tmp_path.rglob("*"))
    trained = []
    train = loop.train
    monkeypatch.setattr(
        loop, "train", lambda c, **rest: trained.append(c.profile) or train(c, **rest)
    )
    found = live(sweep)
    assert trained == ["book"] * 4  # made anew, though published
    assert [run.result for run in found] == [run.result for run in sweep.runs(outcome.done)]
    assert set(tmp_path.rglob("*")) == before


def test_live_raises_what_failed(here):
    with pytest.raises(RuntimeError, match="broken seed 0: RuntimeError: the toy is broken"):
        live(Sweep("toy", "faulty", ("broken",)))


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
    real = workers._work

    def full(config, **rest):
        if config.arm == "none":
            raise OSError(28, "No space left on device")
        return real(config, **rest)

    monkeypatch.setattr(workers, "_work", full)
    outcome = carry_out(Sweep("toy", "plain", ("none", "layer"), (0,), by_heart=False))
    assert reasons(outcome) == {"none": "[Errno 28] No space left on device"}
    assert set(by_name(outcome)) == {"layer 0"}


def test_what_a_run_says_is_in_its_log(here, monkeypatch):
    def full(path, state):
        raise OSError("full")

    monkeypatch.setattr(loop.checkpoint, "write", full)
    monkeypatch.setattr(loop, "train", partial(loop.train, checkpoint_seconds=0))
    sweep = Sweep("toy", "plain", ("none",), (0,), by_heart=False)
    assert carry_out(sweep).failed == {}
    log = records.path(sweep.config("none", 0, 0.001).document()).with_suffix(".log")
    assert "no checkpoint of update 10: full; the run goes on without" in log.read_text()


@pytest.mark.parametrize("name", ["workers", "threads"])
@pytest.mark.parametrize("value", [0, -1])
def test_numbers_below_one_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got {value}"):
        carry_out(Sweep("toy", "plain"), **{name: value})


def test_workers_share_the_cores(monkeypatch):
    asked = []

    def pool(number, threads):
        asked.append((number, threads))
        return Here(number, threads)

    monkeypatch.setattr(workers, "_pool", pool)
    monkeypatch.setattr(workers, "_cores", lambda: 5)
    sweep = Sweep("toy", "plain", ("none",), (0,), by_heart=False)
    for done, (threads, expected) in enumerate([(1, 5), (2, 2), (9, 1)]):
        carry_out(replace(sweep, seeds=(done,)), threads=threads, device="cpu")
        assert asked.pop() == (expected, threads)


class Clock:
    """Each update takes as many seconds as its arm's learning rate says."""

    now = 0.0

    def __call__(self):
        return Clock.now


def test_arms_are_timed_in_turns_and_their_records_say_so(here, monkeypatch):
    sweep = Sweep("toy", "plain", ("layer", "batch"), (0, 1), by_heart=False)
    done = carry_out(sweep).done
    turns = []

    class Timed(timing.Trainer):
        def __init__(self, experiment, config, device):
            super().__init__(experiment, config, device)
            self.arm, self.seconds = config.arm, config.options.learning_rate

        def update(self, step):
            turns.append(self.arm)
            Clock.now += self.seconds
            super().update(step)

    monkeypatch.setattr(timing, "Trainer", Timed)
    monkeypatch.setattr(timing.time, "perf_counter", Clock())
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    found = timing.time_arms(sweep, done, threads=1, device="cpu")
    assert found == {"layer": pytest.approx(0.001), "batch": pytest.approx(0.05)}
    assert turns[:30] == ["layer"] * 10 + ["batch"] * 10 + ["layer"] * 10
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    for run in finished("toy").values():
        assert run.timing["seconds_per_update"] == found[run.config["arm"]]
        assert run.result == done[run.key].result
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
