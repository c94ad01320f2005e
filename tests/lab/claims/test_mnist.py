"""Chapter 19's claims, decided from made-up runs of the experiment."""

import math
import re

import pandas
import pytest
import torch

from layernorm.lab.claims import chapter_19, chapter_19_mnist
from layernorm.lab.claims.chapter_19_mnist import FAMILY, MARGINS, SPEED
from layernorm.lab.experiments import get
from layernorm.lab.experiments.mnist import plan

EXPERIMENT = get("mnist")


def test_claims_compare_arms_that_there_are_under_the_experiments_names():
    for contrast in FAMILY.values():
        assert {*contrast.favored, *contrast.other} <= set(EXPERIMENT.arms)
    for size in (128, 4, 1):
        assert chapter_19_mnist.named("layer", size) == plan.named("layer", size)
    assert MARGINS[SPEED] == EXPERIMENT.margin
    assert EXPERIMENT.primary == SPEED


SEEDS = range(5)


def frame(finals, curves=()):
    """A table of runs: finals {(arm, metric): values by seed}, curves (arm, seconds, values)."""
    rows = [
        (arm, seed, math.nan, math.nan, metric, value)
        for (arm, metric), values in finals.items()
        for seed, value in zip(SEEDS, values, strict=True)
    ]
    rows += [
        (arm, seed, float(step), second, "test_nll", value)
        for arm, seconds, values in curves
        for seed in SEEDS
        for step, (second, value) in enumerate(zip(seconds, values, strict=True))
    ]
    return pandas.DataFrame(rows, columns=["arm", "seed", "step", "seconds", "metric", "value"])


def test_curves_are_averaged_over_the_seconds_that_the_quicker_arm_takes():
    curves = [("layer", (0.0, 2.0, 4.0), (2.0, 1.0, 0.0)), ("none", (0.0, 3.0), (2.0, 2.0))]
    table = frame({}, curves)
    assert chapter_19_mnist.over_seconds(table, "layer", 3.0) == pytest.approx([1.25] * 5)
    contrast = FAMILY["layer - none, test_nll over seconds, batch 128"]
    assert chapter_19_mnist.difference(table, contrast) == pytest.approx([-0.75] * 5)


def test_a_cost_is_a_difference_of_differences():
    values = {"layer/large": 3.0, "layer": 1.0, "none/large": 2.5, "none": 2.0}
    table = frame({(arm, SPEED): [v] * 5 for arm, v in values.items()})
    contrast = FAMILY["large start, layer - none"]
    assert chapter_19_mnist.difference(table, contrast) == pytest.approx([1.5] * 5)


@pytest.fixture
def published(monkeypatch):
    """Made-up runs in which every arm has the same values, but for those given by the test."""

    def publish(changes, overfit=None):
        arms = dict.fromkeys(a for c in FAMILY.values() for a in (*c.favored, *c.other))
        wobble = torch.linspace(-0.001, 0.001, 5).tolist()
        metrics = dict.fromkeys((SPEED, "drift", "drift_below", "test_nll", "train_nll"), 0.5)
        metrics |= {"best_test_error": 3.0, "test_error": 3.0}
        finals = {(arm, m): [v] * 5 for arm in arms for m, v in metrics.items()}
        finals |= {key: [v + w for w in wobble] for key, v in changes.items()}
        same = [(arm, (0.0, 1.0), (2.0, 1.0)) for arm in arms]
        heart = {(arm, "train_error"): [(overfit or {}).get(arm, 0.0)] * 5 for arm in arms}
        tables = {"standard": frame(finals, same), "standard_overfit": frame(heart)}
        monkeypatch.setattr("layernorm.lab.records.runs", lambda *args: [object()])
        monkeypatch.setattr("layernorm.lab.records.load", lambda name, profile: tables[profile])

    return publish


SAME = "no difference here"


def test_verdicts_follow_the_sign_and_the_margin(published):
    check = chapter_19_mnist.shared
    name = "layer - none, mean_test_nll, batch 128"
    for value, verdict in ((0.8, "supported here"), (0.2, "opposite here"), (0.505, SAME)):
        published({("none", SPEED): value})
        assert check(name).verdict == verdict
        assert f"{0.5 - value:.3g}" in check(name).evidence


def test_batch_sizes_that_disagree_are_inconclusive(published):
    published({("none-4", SPEED): 0.8})
    names = [f"layer - none, mean_test_nll, batch {n}" for n in (128, 4)]
    finding = chapter_19_mnist.shared(*names)
    assert finding.verdict == "inconclusive"
    assert "batch 4: supported here" in finding.reason


def test_arms_that_guess_diverge_or_do_not_fit_are_not_compared(published):
    name = "layer - none, mean_test_nll, batch 128"
    for changes, overfit, reason in (
        ({("none", "test_error"): 91.0}, {}, "guessing .*: none"),
        ({}, {"none": 3.1}, "Errors on 32 training examples: none"),
        ({("none", SPEED): math.inf}, {}, "diverged in layer - none"),
    ):
        published({("none", SPEED): 0.8, **changes}, overfit)
        finding = chapter_19_mnist.shared(name)
        assert finding.verdict == "inconclusive"
        assert re.search(reason, finding.reason)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "inconclusive"),  # no gain to explain
        ({"none": 0.8, "below": 0.2, "noise": 0.9, "slower": 0.8}, "supported here"),
        ({"none": 0.8, "below": 0.2, "noise": 0.9}, "opposite here"),  # noise, yet as fast
        ({"none": 0.8, "noise": 0.9, "slower": 0.8}, "opposite here"),  # no less drift
        ({"none": 0.8, "below": 0.2, "slower": 0.8}, "inconclusive"),  # noise raises no drift
        ({"none": 0.8, "below": 0.2}, "inconclusive"),  # nor does it cost
    ],
)
def test_drift_causes_the_gain_only_if_it_falls_and_its_rise_costs(published, changes, verdict):
    names = {
        "none": ("none", SPEED),
        "below": ("layer", "drift_below"),
        "noise": ("layer/noise", "drift"),
        "slower": ("layer/noise", SPEED),
    }
    published({names[key]: value for key, value in changes.items()})
    assert chapter_19.less_drift_causes_the_gain().verdict == verdict


def test_one_rate_for_all_starts_is_refuted_by_one_that_costs(published):
    published({})
    assert chapter_19.learning_ignores_initial_scale().verdict == "supported here"
    published({("layer/large", SPEED): 0.9})
    assert chapter_19.learning_ignores_initial_scale().verdict == "opposite here"


def test_learning_online_needs_every_seed(published):
    for error, verdict in ((9.0, "supported here"), (20.5, "inconclusive"), (91, "opposite here")):
        published({("layer-1", "best_test_error"): error})
        assert chapter_19.learns_online().verdict == verdict
