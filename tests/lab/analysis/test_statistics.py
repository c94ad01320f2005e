import numpy as np
import pytest
from scipy import stats

from layernorm.lab.analysis.statistics import interval, paired_interval


def test_interval_equals_scipys_and_a_hand_worked_one():
    values = [3.1, 2.7, 3.5, 2.9, 3.3]
    low, high = stats.t.interval(0.9, 4, np.mean(values), stats.sem(values))
    ours = interval(values, 0.9)
    np.testing.assert_allclose([ours.mean, ours.low, ours.high], [3.1, low, high], rtol=1e-12)
    # two values: t = 12.706, s / sqrt(2) = |a - b| / 2
    two = interval([0.0, 2.0])
    assert two.high - two.mean == pytest.approx(12.7062, abs=1e-4)


def test_interval_covers_the_mean_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(1.0, 2.0, (2000, 5))
    hits = sum(i.low <= 1 <= i.high for i in map(interval, draws))
    assert 0.93 <= hits / 2000 <= 0.97  # 4 standard errors of a 95 % proportion


def test_paired_interval_removes_what_seeds_share():
    seeds = np.array([0.0, 10.0, 20.0, 30.0])
    a, b = np.add(seeds, [1.0, 1.1, 0.9, 1.0]), seeds
    paired = paired_interval(a, b)
    assert 0.8 < paired.low < paired.high < 1.2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: interval([1.0]), "at least two seeds"),
        (lambda: interval([1.0, float("inf")]), "non-finite"),
        (lambda: interval([1.0, 2.0], confidence=95.0), "confidence must lie in"),
        (lambda: paired_interval([1.0, 2.0], [1.0, 2.0, 3.0]), "same seeds"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
