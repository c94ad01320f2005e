"""A checkout makes published runs again by its own code."""

from pathlib import Path

import pytest
import torch

from layernorm.lab import records
from layernorm.lab.experiments import earlier, run
from layernorm.lab.experiments.planning import Sweep, finished
from layernorm.lab.records.published import same_bits

ROOT = Path(__file__).parents[3]


def test_a_checkout_makes_published_runs_again(tmp_path):
    """This one, an arm of the digits that takes a second, at its published rate."""
    with records.published_only():
        plan, done = Sweep("batch_size", "book"), finished("batch_size")
    (rate, *_) = plan.rates(done, "none-128")
    config = plan.config("none-128", plan.seeds[0], rate)
    other = config.in_profile("other")
    made = earlier.runs(ROOT, [config, other], "book", tmp_path, at_once=2)
    assert made[other.key()] is None  # not published
    torch.set_num_threads(1)  # as there
    assert same_bits(made[config.key()], run.train(config, save=False))
    assert not records.stale(made[config.key()])
    with pytest.raises(ValueError, match="before: expected a checkout"):
        earlier.runs(tmp_path, [config], "book", tmp_path)
