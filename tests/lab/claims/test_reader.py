"""Chapter 15's claims, decided from made-up runs of the attentive reader."""

import math
import re

import numpy as np
import pandas
import pytest

from layernorm.lab import claims
from layernorm.lab.claims import chapter_15_reader as chapter
from layernorm.lab.claims.chapter_15_reader import ERROR, FAMILY, MARGINS, SECONDS, SPEED
from layernorm.lab.data.cloze_baselines import best_trivial
from layernorm.lab.experiments import get
from layernorm.lab.experiments.attentive_reader.model import held_out

EXPERIMENT = get("attentive_reader")
SEEDS = range(10)
SAME = "no difference here"


def test_claims_compare_arms_that_there_are_by_the_experiments_measure():
    for _, favored, other in FAMILY.values():
        assert {favored, other} <= set(EXPERIMENT.profile("standard").arms)
    assert set(EXPERIMENT.comparisons.values()) == set(chapter.PAIRS[SPEED])
    assert (EXPERIMENT.primary, EXPERIMENT.margin) == (SPEED, MARGINS[SPEED])
    assert len(EXPERIMENT.profile("standard").seeds) == len(SEEDS)


def test_every_comparison_decides_a_claim():
    rules = " ".join(claims.get(f"{name}/attentive_reader").rule for name, *_ in chapter.CLAIMS)
    for _, favored, other in FAMILY.values():
        assert f"{favored} - {other}" in rules


def frame(finals, seconds):
    """A table of runs: finals {(arm, metric): value}, which differ a little by seed; and curves of
    the cross-entropy from 3 to 1 nats that take so many seconds."""
    wobble = np.random.default_rng(0)
    rows = [
        (arm, seed, math.nan, math.nan, metric, value + 0.01 * wobble.random())
        for (arm, metric), value in finals.items()
        for seed in SEEDS
    ]
    rows += [
        (arm, seed, step, step * taken, "test_nll", 3.0 - 2 * step)
        for arm, taken in seconds.items()
        for seed in SEEDS
        for step in (0.0, 1.0)
    ]
    return pandas.DataFrame(rows, columns=["arm", "seed", "step", "seconds", "metric", "value"])


@pytest.fixture
def published(monkeypatch):
    """Made-up runs in which every arm has the same values, but for those given by the test."""

    def publish(changes, seconds=(), by_heart=()):
        arms = EXPERIMENT.arms
        finals = {(arm, m): v for arm in arms for m, v in ((SPEED, 30.0), (ERROR, 8.0))}
        table = frame({**finals, **changes}, {**dict.fromkeys(arms, 1.0), **dict(seconds)})
        learned = {**dict.fromkeys(arms, 0.0), **dict(by_heart)}
        few = [(arm, 1000, math.nan, math.nan, "train_error", v) for arm, v in learned.items()]
        tables = {
            "standard": table,
            "standard_overfit": pandas.DataFrame(few, columns=table.columns),
        }
        monkeypatch.setattr("layernorm.lab.records.runs", lambda *args: [object()])
        monkeypatch.setattr("layernorm.lab.records.load", lambda name, profile: tables[profile])

    return publish


def decided(id):
    return claims.get(f"{id}/attentive_reader").check()


def test_without_published_runs_nothing_is_tested(monkeypatch):
    monkeypatch.setattr("layernorm.lab.records.runs", lambda *args: [])
    for id, *_ in chapter.CLAIMS:
        assert decided(id).verdict == "not yet tested"


def test_verdicts_follow_the_sign_and_the_margin(published):
    for value, verdict in ((35.0, "supported here"), (25.0, "opposite here"), (31.0, SAME)):
        published({("none", SPEED): value})
        finding = decided("faster-than-plain")
        assert finding.verdict == verdict
        assert f"{30 - value:.3g} [" in finding.evidence
        assert decided("faster-than-rescaled").verdict == SAME


def test_two_kinds_of_batch_normalization_must_agree(published):
    published({("batch", SPEED): 40.0})
    finding = decided("faster-than-batch")
    assert finding.verdict == "inconclusive"
    assert re.search("layer - batch, .*: supported here .*everywhere, .*: no diff", finding.reason)
    published({("batch", SPEED): 40.0, ("batch/everywhere", SPEED): 40.0})
    assert decided("faster-than-batch").verdict == "supported here"
    assert decided("better-result-than-batch").verdict == SAME
    published({("batch", ERROR): 4.0, ("batch/everywhere", ERROR): 4.0})
    assert decided("better-result-than-batch").verdict == "opposite here"


def test_seconds_are_judged_by_what_is_reached_in_the_same_time(published):
    published({}, seconds={"none": 0.5})
    finding = decided("faster-in-seconds")
    assert finding.verdict == "opposite here"
    # until 0.5 s: none goes from 3 to 1, layer from 3 to 2
    assert f"layer - none, {SECONDS}: 0.5 [0.5, 0.5] nats" in finding.evidence
    published({}, seconds={"none": 2.0})
    assert decided("faster-in-seconds").verdict == "supported here"


def test_the_trivial_error_is_that_of_the_test_stories():
    options = EXPERIMENT.config("standard", "layer", 0).options
    stories = held_out(options.world(), 1000)["test"]
    expected = 100 - 100 * best_trivial(options.world(), stories)
    assert chapter.trivial_error() == pytest.approx(expected)
    assert 15 < chapter.trivial_error() < 60


@pytest.mark.parametrize(
    ("changes", "by_heart", "reason"),
    [
        ({("none", ERROR): 60.0}, {}, "Not clearly below the .*% error of a trivial .*: none"),
        ({}, {"none": 6.25}, "Does not know a handful of stories by heart: none"),
        ({("none", SPEED): math.inf}, {}, "A run diverged in layer - none, mean_test_error"),
        ({("none", ERROR): math.inf}, {}, "A run diverged: none"),
    ],
)
def test_arms_that_do_not_learn_are_not_compared(published, changes, by_heart, reason):
    published({("none", SPEED): 60.0, **changes}, by_heart=by_heart)
    finding = decided("faster-than-plain")
    assert finding.verdict == "inconclusive"
    assert re.search(reason, finding.reason)
    assert decided("faster-than-rescaled").verdict == SAME


def test_an_arm_whose_gain_or_start_is_the_question_may_learn_nothing(published):
    for arm, id in (
        ("layer/gain-0.1", "gains-of-one-are-better"),
        ("batch/gain-1", "batch-needs-small-gains"),
        ("none/small", "faster-from-a-small-start"),
    ):
        published({(arm, SPEED): 85.0, (arm, ERROR): 80.0})
        assert decided(id).verdict == "supported here"
        published({(arm, SPEED): 85.0}, by_heart={arm: 50.0})
        assert decided(id).verdict == "inconclusive"
