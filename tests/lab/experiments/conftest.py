"""The toy experiment, for the tests of the engine."""

import pytest
from lab.experiments import toy_experiment

from layernorm.lab.experiments import run
from layernorm.lab.experiments import sweep as engine


@pytest.fixture
def toy(folders, monkeypatch):
    toy_experiment.use(monkeypatch)


@pytest.fixture
def here(monkeypatch):
    """Sweeps work in this process."""
    monkeypatch.setattr(engine, "_pool", toy_experiment.Here)
    return toy_experiment.Here


@pytest.fixture
def trained(monkeypatch):
    """Profile, arm and seed of the runs that are trained from now on."""
    done, train = [], run.train

    def noted(config, **rest):
        done.append((config.profile, config.arm, config.seed))
        return train(config, **rest)

    monkeypatch.setattr(run, "train", noted)
    return done
