"""What skip-thoughts' sentence vectors are judged by: scores worked out by hand, and folds that
no selection has seen."""

import math

import numpy as np
import pytest

from layernorm.lab.data.sentence_tasks import Classes, Pairs
from layernorm.lab.experiments.skip_thoughts import probes


def test_soft_targets_by_hand():
    targets = probes.soft_targets(np.array([1.0, 2.25, 4.9, 5.0]))
    expected = [[1, 0, 0, 0, 0], [0, 0.75, 0.25, 0, 0], [0, 0, 0, 0.1, 0.9], [0, 0, 0, 0, 1]]
    np.testing.assert_allclose(targets, expected, atol=1e-12)
    np.testing.assert_allclose(targets @ np.arange(1, 6), [1, 2.25, 4.9, 5], rtol=1e-12)


def test_correlations_by_hand():
    """Deviations (-1, 0, 1) and (-4/3, -1/3, 5/3): r = 3 / sqrt(2 * 14/3); ranks agree."""
    found = probes.correlations(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0]))
    assert found["r"] == pytest.approx(3 / math.sqrt(28 / 3))
    assert found["rho"] == pytest.approx(1)
    assert found["mse"] == pytest.approx(1 / 3)
    opposite = probes.correlations(np.array([3.0, 2.0, 1.0, 0.0]), np.array([1.0, 2.0, 4.0, 3.0]))
    assert opposite["rho"] == pytest.approx(-0.8)
    assert probes.correlations(np.ones(3), np.array([1.0, 2.0, 4.0]))["r"] == 0


def test_features_of_pairs_by_hand():
    found = probes.pair_features(np.array([[1.0, 2.0]]), np.array([[3.0, -1.0]]))
    assert found.tolist() == [[2, 3, 3, -2]]


def pairs(n=300):
    """The score is a line of the first feature; others are noise."""
    draw = np.random.default_rng(0)
    x = draw.random((n, 4))
    parts = tuple(("train", "train", "development", "test")[i % 4] for i in range(n))
    said = tuple((str(i),) for i in range(n))
    return x, Pairs("sick", said, said, 1 + 4 * x[:, 0], parts)


def test_a_relatedness_that_the_features_tell_is_found():
    x, task = pairs()
    found = probes.relatedness(task, x)
    assert found["r"] > 0.95
    assert found["rho"] > 0.95
    train, test = probes.shown(task)
    quick = probes.quick_relatedness(x[train], task.scores[train], x[test], task.scores[test])
    assert quick["r"] > 0.95


def test_the_regression_learns_from_its_part_alone():
    """Test scores that are turned round change the judgement and not the prediction."""
    x, task = pairs()
    test = task.rows("test")
    turned = task.scores.copy()
    turned[test] = 6 - turned[test]
    before, after = (
        probes.relatedness(Pairs("sick", task.first, task.second, scores, task.parts), x)
        for scores in (task.scores, turned)
    )
    assert after["r"] == pytest.approx(-before["r"], rel=1e-9)


class Spy:
    """A classifier that writes down what it sees; the first feature says which case it is."""

    seen: list

    def __init__(self, penalty):
        self.C = penalty

    def fit(self, x, y):
        Spy.seen.append(("fit", self.C, set(x[:, 0].astype(int))))
        return self

    def predict(self, x):
        Spy.seen.append(("predict", self.C, set(x[:, 0].astype(int))))
        return np.full(len(x), int(self.C == 4))  # the penalty 4 is right for class 1


def test_no_test_fold_is_seen_in_selection(monkeypatch):
    Spy.seen = []
    monkeypatch.setattr(probes, "logistic", Spy)
    n = 50
    x, y = np.arange(n)[:, None].astype(float), np.ones(n, int)
    assert probes.nested_error(x, y, folds=5, penalties=(1, 4, 16)) == 0.0
    size = 5 * 3 * 2 + 2  # of a fold: inner fits and predictions, then one of each
    assert len(Spy.seen) == 5 * size
    for fold in range(5):
        part = Spy.seen[fold * size : (fold + 1) * size]
        test = set(range(10 * fold, 10 * fold + 10))
        for _, _, cases in part[:-1]:
            assert not cases & test
        assert part[-1] == ("predict", 4, test)
        assert part[-2] == ("fit", 4, set(range(n)) - test)
        for (did, c, cases), (then, again, held) in zip(part[:-2:2], part[1:-2:2], strict=True):
            assert (did, then, c) == ("fit", "predict", again)
            assert not cases & held
            assert cases | held == set(range(n)) - test


def test_the_original_has_some_nine_hundred_fits(monkeypatch):
    Spy.seen = []
    monkeypatch.setattr(probes, "logistic", Spy)
    probes.nested_error(np.arange(200)[:, None].astype(float), np.ones(200, int))
    assert sum(did == "fit" for did, _, _ in Spy.seen) == 10 * (9 * 10 + 1)


def test_the_penalty_is_chosen_by_the_inner_folds():
    """With C = 1e-9 all weights stay at 0 and one class is answered always: inner folds see it."""
    draw = np.random.default_rng(1)
    x = draw.normal(size=(200, 3))
    y = (x[:, 0] > 0).astype(int)
    useless, good, both = (probes.nested_error(x, y, 4, p) for p in ((1e-9,), (1.0,), (1e-9, 1.0)))
    assert useless > 30
    assert both == good < 10


def test_a_runs_tasks_learn_from_one_half_and_are_judged_on_the_other():
    labels = np.arange(5000) % 2
    task = Classes("mr", tuple((str(i),) for i in range(5000)), labels)
    train, test = probes.shown(task)
    assert (len(train), len(test)) == (1000, 1000)
    assert not set(train) & set(test)
