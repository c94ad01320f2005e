"""DRAW's loss: the KL divergence and both bounds against what they stand for; its plan: the level
to which updates are counted, and the options."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from lab.experiments.drawing import ARMS, EXPERIMENT, SMALL, drawer, normal, pictures
from torch.distributions import Bernoulli, Independent, Normal, kl_divergence

from layernorm.lab.analysis.curves import until
from layernorm.lab.data.binarized import binarized
from layernorm.lab.experiments.compare import Verdicts
from layernorm.lab.experiments.draw import model as task
from layernorm.lab.experiments.draw import plan
from layernorm.lab.experiments.run import train


def test_kl_is_the_closed_form_and_what_samples_say():
    mean, log_std = normal(6, 3), 0.5 * normal(6, 3, seed=1)
    found = task.divergence(mean, log_std)
    prior, posterior = Normal(0.0, 1.0), Normal(mean, log_std.exp())
    torch.testing.assert_close(found, kl_divergence(posterior, prior).sum(-1))
    count = 40_000
    z = mean + log_std.exp() * normal(count, 6, 3, seed=2)
    each = (posterior.log_prob(z) - prior.log_prob(z)).sum(-1)
    error = each.std(0) / math.sqrt(count)
    assert ((each.mean(0) - found).abs() <= 6 * error).all()
    assert (task.divergence(torch.zeros(2, 3), torch.zeros(2, 3)) == 0).all()


def test_the_reconstruction_loss_is_that_of_bernoulli_pixels():
    x, canvas = pictures(), 3 * normal(5, 7, 7, seed=1)
    expected = -Independent(Bernoulli(logits=canvas), 2).log_prob(x)
    torch.testing.assert_close(task.reconstruction(canvas, x), expected)
    assert task.reconstruction(torch.zeros(1, 7, 7), x[:1].float()).item() == pytest.approx(
        49 * math.log(2), rel=1e-6
    )


def test_log_weights_are_the_joint_over_the_posterior_and_their_mean_is_the_bound():
    model, x, count = drawer("layer"), pictures(1), 20_000
    noise = normal(3, count, 4, seed=1)
    drawn = model(noise, x.expand(count, -1, -1))
    found = task.log_weights(drawn, noise, x.expand(count, -1, -1))
    z = drawn.mean + drawn.log_std.exp() * noise
    joint = Normal(0.0, 1.0).log_prob(z).sum((0, 2))
    joint -= task.reconstruction(drawn.canvases[-1], x.expand(count, -1, -1))
    posterior = Normal(drawn.mean, drawn.log_std.exp()).log_prob(z).sum((0, 2))
    torch.testing.assert_close(found, joint - posterior)
    kl = task.divergence(drawn.mean, drawn.log_std).sum(0)
    closed = task.reconstruction(drawn.canvases[-1], x.expand(count, -1, -1)) + kl
    gap = closed + found  # mean 0: only KL's closed form and its sample differ
    assert abs(gap.mean()) <= 6 * gap.std() / math.sqrt(count)
    assert gap.std() > 0.1


def test_both_bounds_by_hand_and_the_weighted_one_is_never_above_the_other():
    weights = torch.tensor([[-10.0, -7.0], [-10.0, -9.0]]).double()
    found = task.bounds(weights)
    assert found["sampled_bound"] == pytest.approx(9.0)
    assert found["sampled_bound_error"] == pytest.approx(0.5)  # of 8.5 and 9.5
    mean = (math.exp(-7) + math.exp(-9)) / 2
    assert found["weighted_bound"] == pytest.approx((10 - math.log(mean)) / 2)
    for seed in range(20):
        drawn = task.bounds(-80 + 3 * normal(8, 30, seed=seed))
        assert drawn["weighted_bound"] < drawn["sampled_bound"]
    assert math.isnan(task.bounds(weights[:1])["sampled_bound_error"])


@pytest.mark.parametrize("arm", ARMS)
def test_a_run_measures_both_bounds_and_the_kl_of_each_glimpse(arm):
    final = train(EXPERIMENT.config("book", arm, 0, **SMALL), save=False).result["final"]
    assert final["weighted_bound"] < final["sampled_bound"]
    steps = [final[f"test_kl_{t}"] for t in (1, 2, 3)]
    assert sum(steps) == pytest.approx(final["test_kl"], rel=1e-9)
    trivial = task.marginal_bound("digits", 20)
    assert final["share_of_pixels"] == pytest.approx(final["test_bound"] / trivial)


def test_the_trivial_baseline_draws_each_pixel_as_often_as_it_is_set():
    there = binarized("digits")
    share = (there.train.double().sum(0) + 1) / (len(there.train) + 2)
    x = task.spaced(there.test, 50).double()
    expected = -(x * share.log() + (1 - x) * (1 - share).log()).sum((1, 2)).mean()
    assert task.marginal_bound("digits", 50) == pytest.approx(float(expected))


def test_held_out_pictures_are_spread_over_the_file():
    numbers = torch.arange(10, dtype=torch.uint8)[:, None, None]
    assert task.spaced(numbers, 3).flatten().tolist() == [0, 3, 6]
    assert task.spaced(numbers, 10).flatten().tolist() == list(range(10))
    with pytest.raises(ValueError, match="held_out must be at most 10, got 11"):
        task.spaced(numbers, 11)


# The plan


def frame(curves):
    """A table of runs of one arm: validation bounds at steps 0, 10, 20, ..."""
    rows = [("a", seed, "validation_bound", 10.0 * n, value)
            for seed, curve in curves.items() for n, value in enumerate(curve)]  # fmt: skip
    columns = ["arm", "seed", "metric", "step", "value"]
    return pd.DataFrame(rows, columns=columns).assign(profile="book_next_best")


def test_updates_to_a_level_by_hand():
    runs = {0: [9, 5, 3, 4], 1: [9, 8, 7, 6], 2: [4, 3, 2, 1], 3: [9, 8, 4, 2]}
    found = until("validation_bound", {"book": 4.0}.get)(frame(runs), "a", ("a",))
    assert found.to_dict() == pytest.approx({0: 15.0, 1: 30.0, 2: 0.0, 3: 20.0})
    more = {**runs, 4: [9, 9, 9, 9]}
    found = until("validation_bound", {"book": 4.0}.get)(frame(more), "a", ("a",))
    assert found.isna().all()


class Run:
    def __init__(self, arm, rate, mean, end):
        self.config = {"arm": arm, "options": {"learning_rate": rate}}
        self.result = {"final": {"mean_validation_bound": mean, "validation_bound": end}}


def test_the_level_is_where_tuned_runs_of_none_end(monkeypatch):
    asked = []
    runs = [Run("none", 1, 9, 4.0), Run("none", 1, 7, 5.0), Run("none", 2, 7.5, 1.0),
            Run("none", 2, 9, 1.0), Run("layer", 3, 0, 0.0)]  # fmt: skip
    monkeypatch.setattr(plan.records, "runs", lambda *which: asked.append(which) or runs)
    assert plan.level() == 4.5
    assert plan.level("book") == 4.5
    assert asked == [("draw", "standard_tuning"), ("draw", "book_tuning")]
    monkeypatch.setattr(plan.records, "runs", lambda *which: runs[4:])
    assert math.isnan(plan.level())
    assert not np.isfinite(plan.UPDATES(frame({0: [9, 1]}), "a", ("a",))).any()


def test_the_papers_sizes_and_a_narrow_run_of_them():
    paper = EXPERIMENT.config("paper", "layer", 0).options
    sizes = (paper.glimpses, paper.hidden, paper.read, paper.write, paper.latent, paper.batch_size)
    assert sizes == (64, 256, 2, 5, 100, 128)
    assert (paper.updates, paper.variant, paper.learning_rate) == (78_000, "cell_only", 1e-3)
    narrow = {"dataset": "digits", "hidden": 8, "latent": 4, "updates": 2, "evaluations": 1,
              "held_out": 10, "samples": 2}  # fmt: skip
    result = train(EXPERIMENT.config("paper", "layer", 0, **narrow), save=False).result
    assert result["final"]["test_bound"] < result["curves"]["test_bound"]["value"][0]
    assert "test_kl_64" in result["final"]


@pytest.mark.parametrize(
    ("arrives", "verdict"),
    [(360, "supported here"), (120, "supported here"), (900, "opposite here"), (396, None)],
)
def test_twice_as_fast_can_have_each_verdict(monkeypatch, arrives, verdict):
    """`none` reaches 150 nats after 600 updates; the margin is a tenth of 360."""
    monkeypatch.setattr(plan.records, "runs", lambda *which: [Run("none", 1, 7, 150.0)])
    seeds, rows = tuple(range(100, 120)), []
    for arm, at in (("none", 600), ("layer", arrives)):
        for seed in seeds:
            off = 20.0 * (seed % 4 - 1.5) * (arm == "layer")
            bounds = ((0.0, 200.0), (at + off, 150.0), (1200.0, 140.0))
            rows += [(arm, seed, "validation_bound", *point, {}) for point in bounds]
            rows.append((arm, seed, "share_of_pixels", math.nan, 0.5, {}))
    columns = ["arm", "seed", "metric", "step", "value", "options"]
    few = [(arm, 1000, "train_bound", math.nan, 2.0, {}) for arm in ("none", "layer")]
    tables = (
        pd.DataFrame(table, columns=columns).assign(profile="standard") for table in (rows, few)
    )
    comparisons = EXPERIMENT.comparisons
    row = next(row for row in comparisons.rows if row.claim == plan.TWICE)
    comparisons = replace(comparisons, rows=(row,))
    found = Verdicts(comparisons, *tables, ("none", "layer"), seeds, first=10)[row.name]
    assert found.problem is None
    assert found.verdict == (verdict or "inconclusive")
