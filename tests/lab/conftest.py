"""The toy experiment, for all tests that run something."""

import sys

import pytest


@pytest.fixture
def toy(folders, monkeypatch):
    """It is known under its name for one test, whose runs lie in folders of its own."""
    from lab.experiments import toy_experiment

    from layernorm.lab import experiments

    monkeypatch.setattr(experiments, "NAMES", (*experiments.NAMES, "toy"))
    monkeypatch.setitem(sys.modules, "layernorm.lab.experiments.toy.plan", toy_experiment)
    return folders


@pytest.fixture
def here(toy, monkeypatch):
    """Its sweeps take place in this process."""
    from lab.experiments.toy_experiment import Here

    monkeypatch.setattr("layernorm.lab.experiments.sweep._pool", Here)
    return Here


@pytest.fixture
def trained(monkeypatch):
    """Profile, arm and seed of each run that is trained from now on."""
    from layernorm.lab.experiments import run

    made, train = [], run.train

    def noted(config, **rest):
        made.append((config.profile, config.arm, config.seed))
        return train(config, **rest)

    monkeypatch.setattr(run, "train", noted)
    return made
