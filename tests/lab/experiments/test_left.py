"""The runs that a sweep has left, kept without asking its plan after every run."""

from collections import Counter
from dataclasses import replace

import pytest
from lab.experiments import toy_experiment

from layernorm.lab.experiments import run
from layernorm.lab.experiments.left import Left
from layernorm.lab.experiments.planning import Sweep

pytestmark = pytest.mark.usefixtures("toy")


def a_record():
    config = toy_experiment.EXPERIMENT.config("book", "layer", 0, learning_rate=0.02)
    return run.train(config, save=False)


def free(config):
    return False


@pytest.mark.parametrize(("seeds", "arms"), [(10, 2), (200, 2), (200, 3)])
def test_the_plan_is_asked_once_for_each_group(monkeypatch, seeds, arms):
    sweep = Sweep(
        "toy", "plain", ("none", "layer", "batch")[:arms], tuple(range(seeds)), by_heart=False
    )
    made = a_record()
    asked = []
    real = Sweep.wanted
    monkeypatch.setattr(Sweep, "wanted", lambda self, done: asked.append(1) or real(self, done))
    done, looked = {}, Counter()
    left = Left(sweep, done)
    assert len(left) == arms * seeds

    def busy(config):
        looked[config.key()] += 1
        return False

    while left:
        for key, _, _ in list(left.start(2, busy)):
            done[key] = made
        left.ended(next(iter(left.at_work)))
    assert len(done) == arms * seeds
    assert len(asked) == 1 + arms
    assert max(looked.values()) == 1


def test_it_has_at_any_time_what_the_plan_wants():
    """A sweep that tunes, whose runs end in another order than they start and sometimes fail."""
    sweep = Sweep("toy", "book", ("none", "layer", "rescaled"))
    made = a_record()
    done, failed = {}, {}
    left, ended = Left(sweep, done, failed.keys()), 0
    while left:
        list(left.start(None, free))
        assert not left.waiting
        key = sorted(left.at_work)[ended % len(left.at_work)]
        if (left.at_work[key].profile, left.at_work[key].seed) == ("book", 1):
            failed[key] = None
        else:
            done[key] = replace(made, config=sweep.plan.document(left.at_work[key]))
        left.ended(key)
        ended += 1
        wanted = {config.key() for config in sweep.wanted(done)} - failed.keys()
        assert left.waiting.keys() | left.at_work.keys() == wanted
    assert failed
    assert len(done) + len(failed) == ended > 10


def test_the_runs_of_other_processes_are_last():
    sweep = Sweep("toy", "plain", ("none",), (0, 1, 2, 3), by_heart=False)
    left = Left(sweep, {})
    theirs = list(left.waiting)[:2]
    started = list(left.start(3, lambda config: config.key() in theirs))
    assert [config.seed for _, config, _ in started] == [2, 3, 0]
    assert [taken for *_, taken in started] == [False, False, True]
    assert list(left.waiting) == theirs[1:]
    assert list(left.start(3, free)) == []
