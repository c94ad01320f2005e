"""Sweeps in worker processes: what fails is reported and the rest finished, with the same bits."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from lab.experiments import toy_experiment
from lab.experiments.toy_experiment import Here, by_name, reasons

from layernorm.lab import records
from layernorm.lab.experiments import get, machine, report, run, timing
from layernorm.lab.experiments import sweep as engine
from layernorm.lab.experiments.planning import Sweep, finished
from layernorm.lab.experiments.sweep import carry_out, live, rates

pytestmark = pytest.mark.usefixtures("toy")


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


class Clock:
    """Each update takes as many seconds as its arm's learning rate says."""

    now = 0.0

    def __call__(self):
        return Clock.now


def test_arms_are_timed_in_turns_and_their_records_say_so(here, monkeypatch):
    sweep = Sweep("toy", "plain", ("layer", "batch"), (0, 1), by_heart=False)
    noted = {"digests": ["Toy 0123"]}  # of published runs, which files of their own now replace
    done = {key: replace(made, confirmed=noted) for key, made in carry_out(sweep).done.items()}
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
        assert made.confirmed == noted
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
