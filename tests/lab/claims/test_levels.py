"""Claims about where arms stand: which runs decide them."""

import math

import pandas
import pytest
from lab.experiments import toy_experiment

from layernorm.lab.claims import levels
from layernorm.lab.experiments.compare import Verdicts
from layernorm.lab.experiments.contrasts import Comparison as Row
from layernorm.lab.experiments.contrasts import Comparisons, Margin, less

COLUMNS = ["arm", "seed", "step", "metric", "value", "options"]
ABOVE, BETWEEN, BELOW = (5.0, 5.1, 5.2), (1.0, 1.9, 1.0), (0.1, 0.11, 0.12)


def table(values, seeds=3):
    rows = [
        (arm, seed, math.nan, "test_nll", value, {})
        for arm, of in values.items()
        for seed, value in enumerate(of[:seeds])
    ]
    return pandas.DataFrame(rows, columns=COLUMNS)


@pytest.fixture
def level(monkeypatch):
    one = levels.Level(
        *("low/toy", "A statement.", "01", lambda: toy_experiment.EXPERIMENT, ("layer",)),
        *("test_nll", "the test cross-entropy"),
        between=(1.0, 2.0),
        gated=False,
    )
    monkeypatch.setattr(levels, "LEVELS", (one,))
    return one


def found(best, again=None, tied=(), rows=(), seeds=3):
    frame = table({"layer": best, "none": ABOVE}, seeds)
    return Verdicts(
        *(Comparisons(rows, gates=()), frame, frame, ("layer", "none"), range(3)),
        next_best=table(again) if again else None,
        tied=tied,
    )


@pytest.mark.parametrize(
    ("again", "verdict"),
    [(ABOVE, "inconclusive"), (BETWEEN, "supported here"), (BELOW, "supported here"),
     ((0.1, 0.1, math.inf), "supported here")],
)  # fmt: skip
def test_a_rate_as_good_in_tuning_must_not_decide_otherwise(level, again, verdict):
    assert level.finding(found(BELOW)).verdict == "supported here"
    other = level.finding(found(BELOW, {"layer": again}, {"layer"}))
    assert other.verdict == verdict
    told = other.table[0][levels.AT_RATES]
    assert bool(told) == (again is ABOVE or again is BETWEEN)
    assert ("at another opposite here" in (other.reason or "")) == (again is ABOVE)
    assert other.table[0]["interval"] == level.finding(found(BELOW)).table[0]["interval"]


def test_nothing_is_decided_while_planned_runs_are_missing(level):
    row = Row("layer - none", less("layer", "none", "test_nll"), Margin(1, "", "loss", ""))
    assert level.finding(found(BELOW, rows=(row,))).verdict == "supported here"
    assert level.finding(found(BELOW, rows=(row,), tied=("layer",))).verdict == "not yet tested"
    assert level.finding(found(BELOW, rows=(row,), seeds=2)).verdict == "not yet tested"
