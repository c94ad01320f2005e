"""The rule by which a comparison is judged, on made-up intervals."""

import math
from itertools import product

import pytest

from layernorm.lab.analysis.statistics import Interval
from layernorm.lab.experiments import contrasts
from layernorm.lab.experiments.contrasts import Comparison, Margin, less
from layernorm.lab.experiments.judged import Judged, of_ratio, stands, together, verdict

SUPPORTED, OPPOSITE, SAME = "supported here", "opposite here", "no difference here"
NOT_BETTER, OPEN = "not better here", "inconclusive"

TABLE = {  # interval at margin 1: what it makes of better, not worse, same
    (-3.0, -2.0): (SUPPORTED, SUPPORTED, OPPOSITE),
    (-3.0, -1.001): (SUPPORTED, SUPPORTED, OPPOSITE),
    (-1.0, 1.0): (SAME, SUPPORTED, SUPPORTED),
    (-0.5, 0.2): (SAME, SUPPORTED, SUPPORTED),
    (1.001, 3.0): (OPPOSITE, OPPOSITE, OPPOSITE),
    (-1.0, 1.001): (NOT_BETTER, OPEN, OPEN),
    (1.0, 3.0): (NOT_BETTER, OPEN, OPEN),
    (0.5, 3.0): (NOT_BETTER, OPEN, OPEN),
    (-1.001, 1.0): (OPEN, SUPPORTED, OPEN),
    (-3.0, -1.0): (OPEN, SUPPORTED, OPEN),
    (-3.0, 0.5): (OPEN, SUPPORTED, OPEN),
    (-1.001, 1.001): (OPEN, OPEN, OPEN),
    (-3.0, 3.0): (OPEN, OPEN, OPEN),
}


@pytest.mark.parametrize("interval", TABLE)
def test_each_cell_of_the_rule_and_its_borders(interval):
    assert tuple(verdict(*interval, 1.0, says) for says in contrasts.SAYS) == TABLE[interval]


STANDS = {  # interval about the range 1 to 3: where below, above, outside is what is said
    (-1.0, 0.999): (SUPPORTED, OPPOSITE, SUPPORTED),
    (3.001, 5.0): (OPPOSITE, SUPPORTED, SUPPORTED),
    (1.001, 2.999): (OPEN, OPEN, OPPOSITE),
    (0.999, 1.001): (OPEN, OPEN, OPEN),
    (2.0, 3.001): (OPEN, OPEN, OPEN),
    (0.0, 4.0): (OPEN, OPEN, OPEN),
}


@pytest.mark.parametrize("interval", STANDS)
def test_a_value_stands_on_one_side_of_a_range_or_is_open(interval):
    found = tuple(stands(*interval, (1.0, 3.0), says) for says in ("below", "above", "outside"))
    assert found == STANDS[interval]


def test_at_a_single_level_there_is_nothing_between():
    ends = ((0.1, 0.4), (0.6, 0.7), (0.4, 0.6))
    found = [stands(*interval, (0.5, 0.5), "below") for interval in ends]
    assert found == [SUPPORTED, OPPOSITE, OPEN]


def test_a_ratio_is_judged_in_logarithms():
    """0.9 lies inside a margin of 1.1, below 1/1.1; 1.2 beyond it."""
    assert of_ratio(0.91, 1.09, 1.1, "better") == SAME
    assert of_ratio(0.80, 0.90, 1.1, "better") == SUPPORTED
    assert of_ratio(0.80, 0.92, 1.1, "better") == OPEN
    assert of_ratio(0.80, 1.09, 1.1, "not worse") == SUPPORTED
    assert of_ratio(1.11, 1.20, 1.1, "better") == OPPOSITE
    assert of_ratio(1.11, 1.20, 1.1, "better", inverse=True) == SUPPORTED
    assert of_ratio(0.95, 1.20, 1.1, "better", inverse=True) == OPEN


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ((SUPPORTED, SUPPORTED), SUPPORTED),
        ((OPPOSITE, OPPOSITE), OPPOSITE),
        ((OPEN, OPEN), OPEN),
        ((SUPPORTED, OPEN), OPEN),
        ((SUPPORTED, OPPOSITE, OPEN), OPEN),
        ((SUPPORTED, OPPOSITE), "depends"),
        ((SUPPORTED, SAME), "depends"),
        ((SAME, OPPOSITE), "depends"),
        ((SUPPORTED, NOT_BETTER), "depends"),
        ((SAME, NOT_BETTER), NOT_BETTER),
        ((OPPOSITE, NOT_BETTER), NOT_BETTER),
        ((OPPOSITE, SAME, NOT_BETTER), "depends"),
    ],
)
def test_conditions_share_a_verdict_or_it_depends(conditions, expected):
    for order in (conditions, conditions[::-1]):
        assert together(order) == expected


def judged(low, high, margin=1.0, says="better"):
    row = Comparison("a - b", less("a", "b", "loss"), Margin(margin, "nats", "", ""), says=says)
    return Judged(row, 0.95, Interval((low + high) / 2, low, high, 5))


ENDS = (-3.0, -1.5, -0.2, 0.0, 0.3, 1.2, 2.5)
ALL = [(a, b) for a, b in product(ENDS, ENDS) if a < b]


@pytest.mark.parametrize("says", contrasts.SAYS)
def test_a_verdict_holds_for_the_margins_it_names_and_no_others(says):
    for (low, high), m in product(ALL, (0.1, 0.7, 1.3, 2.0, 5.0)):
        one = judged(low, high, m, says)
        first, last = one.margins()
        assert first <= m <= last
        inside = [first + 1e-6, min((first + last) / 2, first + 1), min(last, 1e3) - 1e-6]
        assert {verdict(low, high, at, says) for at in inside} == {one.verdict}
        assert first == 0 or verdict(low, high, first - 1e-6, says) != one.verdict
        assert last == math.inf or verdict(low, high, last + 1e-6, says) != one.verdict


@pytest.mark.parametrize(
    ("interval", "says", "notes"),
    [
        ((-3, -2), "better", "supported here (for margins up to 2)"),
        ((0.2, 0.6), "better", "no difference here (for margins from 0.6)"),
        ((0.2, 3), "better", "not better here (for margins from 0.2 up to 3)"),
        ((-3, -2), "not worse", "supported here (for any margin)"),
        (
            (-3, -0.5),
            "better",
            "inconclusive (for margins from 0.5 up to 3; below 0; possible: an advantage that "
            "matters, none that matters)",
        ),
        (
            (0.5, 3),
            "same",
            "inconclusive (for margins from 0.5 up to 3; above 0; possible: none that matters, a "
            "disadvantage)",
        ),
        ((-3, 2), "same", "inconclusive (for margins up to 3; anything is possible)"),
    ],
)
def test_a_comparison_says_what_its_interval_leaves_open(interval, says, notes):
    assert str(judged(*interval, says=says)).partition("margin 1: ")[2] == notes
