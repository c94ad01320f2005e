"""Sweeps by executors that are handed in, which may break, stop or drop what they are given."""

import multiprocessing
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import pytest
import torch
from lab.experiments import toy_experiment
from lab.experiments.toy_experiment import by_name, reasons

from layernorm.lab import records
from layernorm.lab.experiments import run
from layernorm.lab.experiments.planning import Sweep
from layernorm.lab.experiments.sweep import carry_out

pytestmark = pytest.mark.usefixtures("toy")


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


def test_processes_that_are_handed_in_are_asked_for_all_that_can_be_started():
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


def test_a_record_made_on_another_disk_is_kept_here(tmp_path):
    with Apart(tmp_path / "there") as pool:
        carry_out(Sweep("toy", "plain", ("none",), (0,), by_heart=False), workers=pool)
    kept = [{p.name for p in (tmp_path / d).rglob("*.json")} for d in ("there", "runs")]
    assert kept[0] == kept[1]
    assert len(kept[0]) == 1
