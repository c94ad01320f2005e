"""How runs become comparisons and verdicts, on made-up runs."""

import math

import pandas
import pytest

from layernorm.lab.analysis.statistics import interval
from layernorm.lab.experiments import contrasts, report
from layernorm.lab.experiments.compare import Verdicts
from layernorm.lab.experiments.contrasts import (
    Comparison,
    Comparisons,
    Gate,
    Margin,
    Said,
    less,
    minus,
)
from layernorm.lab.experiments.experiment import Original

SUPPORTED, OPPOSITE, SAME = "supported here", "opposite here", "no difference here"
OPEN = "inconclusive"
ABOUT = Margin(1.0, "nats", "the loss", "it is visible", resolution=0.25)


def table(values, metric="loss", options=None):
    """Final values by arm and seed."""
    rows = [
        (arm, seed, math.nan, metric, value, options or {})
        for arm, of_seed in values.items()
        for seed, value in enumerate(of_seed)
    ]
    return pandas.DataFrame(rows, columns=["arm", "seed", "step", "metric", "value", "options"])


def verdicts(values, rows=None, gates=(), few=None, seeds=None, **columns):
    rows = rows or (Comparison("a - b", less("a", "b", "loss"), ABOUT),)
    few = table(few or {}, "train_error")
    frame = table(values, **columns)
    arms = {arm for row in rows for arm in row.arms}
    return Verdicts(
        Comparisons(rows, gates=gates), frame, few, arms, range(2) if seeds is None else seeds
    )


def test_a_family_shares_five_percent_by_a_hand_worked_number():
    """Five comparisons: 99%, where t of one degree of freedom is 63.657; s / sqrt(2) is 1."""
    rows = [Comparison(str(i), less("a", "b", "loss"), ABOUT) for i in range(5)]
    other = Comparison("other", less("a", "b", "loss"), ABOUT, family="exploratory")
    elsewhere = Comparison("elsewhere", less("a", "c", "loss"), ABOUT)
    plan = Comparisons((*rows, other, elsewhere), gates=())
    frame = table({"a": (1.0, 2.0), "b": (2.0, 5.0)})
    found = Verdicts(plan, frame, frame, ("a", "b"), range(2))
    assert len(found) == 6
    d = found["0"].difference
    assert (d.mean, d.n) == (-2.0, 2)
    assert d.high - d.mean == d.mean - d.low == pytest.approx(63.6567, abs=1e-3)
    d = found["other"].difference
    assert d.high - d.mean == pytest.approx(12.7062, abs=1e-3)


def test_differences_are_paired_by_seed_whatever_the_order_of_the_runs():
    values = {"a": (0.0, 10.0, 20.0), "b": (2.0, 12.0, 22.5)}
    found = verdicts(values, seeds=range(3))
    found.frame = found.frame.sort_values("value", ascending=False)
    d = found["a - b"].difference
    assert d.mean == pytest.approx(-13 / 6)
    assert d.high - d.mean == pytest.approx(4.302653 * math.sqrt(1 / 12) / math.sqrt(3), rel=1e-6)


def test_terms_are_added_with_their_signs():
    values = {"a": (1.0, 1.0), "b": (2.0, 2.0), "c": (4.0, 4.0), "d": (10.0, 10.0)}
    frame = table(values)
    one, other = less("a", "b", "loss"), less("c", "d", "loss")
    assert contrasts.difference(frame, minus(one, other)).tolist() == [5.0, 5.0]
    assert contrasts.difference(frame, minus(one, other, share=0.5)).tolist() == [2.0, 2.0]
    late = less("a", "c", lambda frame, arm, arms: 7 * contrasts.final(frame, arm, "loss"))
    assert contrasts.difference(frame, late).tolist() == [-21.0, -21.0]


def test_where_seeds_agree_the_resolution_is_the_half_width():
    def found(a):
        return verdicts({"a": (a, a), "b": (2.0, 2.0)})["a - b"]

    assert (found(0.5).difference.low, found(0.5).difference.high) == (-1.75, -1.25)
    assert [found(a).verdict for a in (0.5, 0.9, 1.3)] == [SUPPORTED, OPEN, SAME]


def test_first_seeds_that_agree_say_nothing_of_the_spread_of_later_ones():
    """Against the noisy `c` both `a` and `b` need all six seeds."""
    values = {"a": (1.0, 1.0, 1.0, 1.5, 2.0, 3.0), "b": (0.0,) * 6, "c": (9.0, -9.0) * 3}
    pairs = (("a", "b"), ("a", "c"), ("b", "c"))
    rows = tuple(Comparison(x + y, less(x, y, "loss"), ABOUT) for x, y in pairs)
    frame = table(values)
    found = Verdicts(Comparisons(rows, gates=()), frame, frame, "abc", range(6), first=3)["ab"]
    assert found.difference == interval(values["a"], found.confidence)
    assert found.difference.n == 6


INFINITE = "A run of a or b diverged, or its curve never reached the level."


@pytest.mark.parametrize(
    ("values", "seeds", "problem"),
    [
        ({"a": (1.0, 2.0)}, range(2), "Runs are missing: b."),
        ({"a": (1.0, 2.0), "b": (1.0,)}, range(2), "Runs are missing: b."),
        ({"a": (1.0,), "b": (1.0,)}, range(1), "Runs are missing: one seed has no interval."),
        ({"a": (1.0, math.inf), "b": (1.0, 1.0)}, range(2), INFINITE),
        ({"a": (1.0, math.inf), "b": (1.0, math.inf)}, range(2), INFINITE),
        ({"a": (1.0, math.nan), "b": (1.0, 1.0)}, range(2), INFINITE),
    ],
)
def test_missing_and_diverged_runs_decide_nothing(values, seeds, problem):
    every = verdicts(values, seeds=seeds)
    found = every["a - b"]
    assert (found.verdict, found.problem) == (OPEN, problem)
    assert str(found) == OPEN
    assert every.made(found.row) == (problem != "Runs are missing: b.")


def test_a_metric_that_no_record_has_is_named():
    found = verdicts({"a": (1.0, 2.0), "b": (1.0, 2.0)}, metric="error")["a - b"]
    assert (found.verdict, found.problem) == (OPEN, "The records have no final metric loss.")


def test_a_primary_comparison_is_made_with_all_runs_at_a_rate_that_is_as_good():
    frame, again = table({"a": (1.0, 1.1), "b": (5.0, 5.1)}), table({"a": (1.0,)})
    for family, expected in (("primary", False), ("exploratory", True)):
        row = Comparison("a - b", less("a", "b", "loss"), ABOUT, family=family)
        plan = Comparisons((row,), gates=())
        assert Verdicts(plan, frame, frame, "ab", range(2)).made(row)
        assert Verdicts(plan, frame, frame, "ab", range(2), next_best=again).made(row) == expected
        assert Verdicts(plan, frame, frame, "ab", range(2), tied="a").made(row) == expected
        every = Verdicts(plan, frame, frame, "ab", range(2), next_best=frame, tied="a")
        assert every.made(row)


def test_runs_beyond_the_planned_seeds_do_not_count():
    values = {"a": (1.0, 1.2, 9.0), "b": (5.0, 5.1, 0.0)}
    assert (
        verdicts(values)["a - b"].difference
        == verdicts({arm: of[:2] for arm, of in values.items()})["a - b"].difference
    )


def test_a_comparison_uses_all_seeds_that_are_planned_for_its_arms():
    """Against the noisy `b` both `a` and `c` need more seeds than against each other; `d` has no
    noisy comparison, so that its own stays at the first seeds."""
    values = {
        "a": (0.0, 0.01, 0.0, 0.01),
        "b": (0.0, 1.0, 2.0, 0.0),
        "c": (0.1,) * 4,
        "d": (0.0,) * 4,
    }
    pairs = ("ab", "cb", "ac", "ad")
    rows = tuple(Comparison(f"{x} - {y}", less(x, y, "loss"), ABOUT) for x, y in pairs)
    plan, frame = Comparisons(rows, gates=()), table(values)
    found = Verdicts(plan, frame, frame, "abcd", range(4), first=2)
    assert {name: found.count(row) for name, row in found.rows.items()} == {
        "a - b": 4, "c - b": 4, "a - c": 4, "a - d": 2,
    }  # fmt: skip
    assert found["a - c"].difference.n == 4
    without = Verdicts(Comparisons(rows[2:], gates=()), frame, frame, "acd", range(4), first=2)
    assert without.count(rows[2]) == 2
    few = Verdicts(plan, frame[frame.arm != "b"], frame, "abcd", range(4), first=2)
    assert few.count(rows[0]) is None
    assert few.count(rows[2]) == 2


def test_a_lengthened_first_stage_keeps_the_larger_plan():
    """The first two seeds are apart and ask for all six, three for fewer; the other way round the
    three ask for more. The interval has the spread of three."""
    wide, late = (0.0, 0.1, 0.05, 0.05, 0.05, 0.05), (0.05, 0.051, 0.0, 0.1, 0.05, 0.05)
    row = Comparison("a - b", less("a", "b", "loss"), ABOUT)
    plan = Comparisons((row,), gates=())
    for values in (wide, late):
        frame = table({"a": values, "b": (0.0,) * 6})
        short, long, both = (
            Verdicts(plan, frame, frame, "ab", range(6), **stages)
            for stages in ({"first": 2}, {"first": 3}, {"first": 3, "short_first": 2})
        )
        assert short.count(row) != long.count(row)
        assert both.count(row) == max(short.count(row), long.count(row))
        found = both[row.name].difference
        expected = interval(values[: found.n], both[row.name].confidence, 3)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_what_other_rates_give_stands_beside_a_verdict():
    frame, again = table({"a": (1.0, 1.01), "b": (5.0, 5.0)}), table({"a": (4.0, 4.05)})
    row = Comparison("a - b", less("a", "b", "loss"), ABOUT)
    plan = Comparisons((row,), gates=())
    found = Verdicts(plan, frame, frame, "ab", range(2), next_best=again)["a - b"]
    assert found.verdict == SUPPORTED
    other = found.others[0]
    assert other.difference.mean == pytest.approx(-0.975)
    assert f"at rates as good in tuning {other.difference:.3g}, {OPEN}" in str(found)
    assert Verdicts(plan, frame, frame, "ab", range(2))["a - b"].elsewhere() == ""


GOOD = {"a": (1.0, 1.0), "b": (5.0, 5.0)}
BELOW = {"fails": "guesses", "metric": "loss", "below": 5.5}


def test_a_run_without_the_metric_of_a_gate_does_not_pass_it():
    frame = pandas.concat([table(GOOD), table({"a": (1.0, 1.0, 1.0)}, metric="error")])
    gate = Gate(**BELOW)
    assert [gate.passed(frame, arm) for arm in "abc"] == [False, True, False]


@pytest.mark.parametrize(
    ("gate", "values", "passes"),
    [
        (BELOW, GOOD, True),
        (BELOW | {"below": 5.0}, GOOD, False),
        (BELOW, {**GOOD, "b": (5.0, 5.6)}, False),
        (BELOW | {"surely": True}, {**GOOD, "b": (5.4, 5.5)}, False),
        (BELOW | {"surely": True}, {**GOOD, "b": (5.0, 5.01)}, True),
        (BELOW | {"surely": True}, {**GOOD, "b": (5.0, math.inf)}, False),
        (BELOW | {"below": 1.0, "exempt": ("[ab]",)}, GOOD, True),
        (BELOW | {"below": 1.5, "exempt": ("a",)}, GOOD, False),
        (BELOW | {"below": lambda options: options["bound"]}, GOOD, True),
        (BELOW | {"below": lambda options: options["bound"] - 1}, GOOD, False),
        (BELOW | {"metric": "unknown"}, GOOD, False),
    ],
)
def test_an_arm_counts_if_it_passes_the_gates(gate, values, passes):
    found = verdicts(values, gates=(Gate(**gate),), options={"bound": 5.5})["a - b"]
    assert found.problem is None if passes else found.problem.startswith("Gate failed: ")
    assert found.difference is not None or not passes
    assert (found.verdict == OPEN) == (not passes)


@pytest.mark.parametrize(
    ("few", "problem"),
    [
        ({"a": (0.0,), "b": (0.0,)}, None),
        ({"a": (0.0,), "b": (3.1,)}, "Gate failed: b does not memorize a few examples."),
        ({"a": (0.0,)}, "Gate failed: b does not memorize a few examples."),
    ],
)
def test_an_arm_must_learn_a_few_examples_by_heart(few, problem):
    assert verdicts(GOOD, gates=contrasts.GATES[1:], few=few)["a - b"].problem == problem


def test_rows_with_one_claim_are_its_conditions():
    claim = Said("x", "X.")
    rows = (
        Comparison("1", less("a", "b", "loss"), ABOUT, claim),
        Comparison("2", less("a", "c", "loss"), ABOUT),
        Comparison("3", less("b", "c", "loss"), ABOUT, claim),
    )
    assert {
        said.id: [row.name for row in of] for said, of in Comparisons(rows).claims().items()
    } == {"x": ["1", "3"]}


def test_what_is_not_named_primary_is_exploratory():
    claim, other = Said("x", "X."), Said("y", "Y.")
    rows = (
        Comparison("1", less("a", "b", "loss"), ABOUT, claim),
        Comparison("2", less("a", "c", "loss"), ABOUT, claim),
        Comparison("3", less("b", "c", "loss"), ABOUT, other),
    )
    found = contrasts.families(iter(rows), "1")
    assert [row.family for row in found] == ["primary", "exploratory", "exploratory"]
    assert [row.claim for row in found] == [claim, None, other]  # a claim's rows are of one family
    plan = Comparisons(found)
    assert plan.confidence("primary", "abc") == pytest.approx(0.95)
    assert plan.confidence("exploratory", "abc") == pytest.approx(0.975)
    assert plan.primary_arms() == {"a", "b"}
    with pytest.raises(ValueError, match="no comparison has the name 4"):
        contrasts.families(rows, "1", "4")
    mixed = (found[0], contrasts.replace(found[1], claim=claim))
    with pytest.raises(ValueError, match="a claim's rows must be of one family"):
        Comparisons(mixed)


@pytest.mark.parametrize("values", [(-3.0, -3.1), (0.1, 0.2), (3.0, 3.1)])
def test_an_exploratory_comparison_has_an_interval_and_no_verdict(values):
    found = shifted(values, family="exploratory")["a - b"]
    assert found.verdict == "exploratory"
    assert found.notes() == []
    assert str(found).endswith("nats, margin 1: exploratory")
    assert found.difference.n == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Margin(0.0, "nats", "", ""), "margin must be positive and finite, got 0.0"),
        (lambda: Margin(-1.0, "nats", "", ""), "margin must be positive"),
        (lambda: Margin(math.nan, "nats", "", ""), "margin must be positive"),
        (lambda: Comparison("x", (), ABOUT, says="worse"), "x: must be one of better, not worse"),
        (lambda: Comparison("x", (), ABOUT, family="all"), "x: must be one of primary, expl"),
        (
            lambda: Comparisons((Comparison("x", (), ABOUT),) * 2),
            "two comparisons have one name: x",
        ),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def shifted(values, **row):
    """The comparison of an arm with these values and one with zeros."""
    rows = (Comparison("a - b", less("a", "b", "loss"), ABOUT, **row),)
    frame = table({"a": values, "b": (0.0,) * len(values)})
    return Verdicts(Comparisons(rows, gates=()), frame, frame, ("a", "b"), range(len(values)))


@pytest.mark.parametrize(
    ("values", "verdict", "agrees"),
    [
        ((-1.5,) * 5 + (-1.6,) * 5, SUPPORTED, True),
        ((-1.5,) * 9, SUPPORTED, False),  # nine are too few
        ((-1.3,) * 5 + (-1.0,) * 2 + (-1.5,) * 9, SUPPORTED, True),
        ((0.1, -0.1) * 6, SAME, True),
        ((2.0, 3.0) * 6, OPPOSITE, True),
    ],
)
def test_where_runs_leave_a_plateau_or_not_exact_signs_must_agree(values, verdict, agrees):
    assert shifted(values)["a - b"].verdict == verdict
    found = shifted(values, plateau=True)["a - b"]
    assert found.verdict == (verdict if agrees else OPEN)
    assert found.problem is None if agrees else "9 seeds are too few" in found.problem


def test_signs_contradict_an_interval_of_runs_that_are_far_from_normal():
    """Two thirds of the runs are at the margin: their signs do not matter, and four others cannot
    be rare enough: all of them agree in one of sixteen. The interval does not know."""
    values = (-1.0,) * 8 + (-1.2, -1.2, -1.2, -1.2)
    interval = shifted(values)["a - b"]
    assert interval.verdict == SUPPORTED
    assert interval.difference.high < -1
    found = shifted(values, plateau=True)["a - b"]
    assert found.verdict == OPEN
    assert found.problem == "An exact sign-flip test does not agree with the interval."


def test_an_arm_and_the_one_whose_rate_it_takes_change_rates_together():
    rows = (Comparison("a/x - a", less("a/x", "a", "loss"), ABOUT),)
    frame = table({"a": (0.0, 0.1), "a/x": (5.0, 5.1)})
    again = table({"a": (9.0, 9.1), "a/x": (14.0, 14.1)})
    found = Verdicts(
        *(Comparisons(rows, gates=()), frame, frame, ("a", "a/x"), range(2)),
        next_best=again,
        rate_of={"a/x": "a"},
    )
    assert found["a/x - a"].verdict == OPPOSITE
    apart = Verdicts(
        *(Comparisons(rows, gates=()), frame, frame, ("a", "a/x"), range(2)), next_best=again
    )
    assert apart["a/x - a"].verdict == OPEN  # -4 at another pairing


@pytest.mark.parametrize(
    ("updates", "size", "options", "share"),
    [
        (100, 128, {"updates": 10, "batch_size": 128}, 0.1),
        (100, 128, {"updates": 10, "batch_size": 4}, 0.1 / 32),  # of the epochs
        (100, None, {"updates": 10, "batch_size": 4}, 0.1),
        ("not said", 128, {"updates": 10, "batch_size": 4}, None),
    ],
)
def test_how_much_of_the_papers_updates_a_run_makes(updates, size, options, share):
    said = dict.fromkeys(("claim", "data", "ours", "setup", "seeds", "result"), "")
    paper = Original(**said, updates=updates, shown=(), rows=(), network=None, batch_size=size)
    assert paper.share(options) == (share and pytest.approx(share))
    rows = (Comparison("a - b", less("a", "b", "loss"), ABOUT),)
    frame = table({"a": (1.0, 1.2), "b": (3.0, 3.1)}, options=options)
    plan = Comparisons(rows, gates=())
    found = Verdicts(plan, frame, frame, ("a", "b"), range(2), original=paper)
    assert report.share(found, rows[0].arms) == ("" if share is None else f"{share:.2%}")
    shown = report.table(found).loc["a - b"]
    assert shown["n"] == 2
    assert shown["confidence"] == "95.00%"
    assert ("of the paper's updates" in shown) == (share is not None)
    assert shown["same for margins"] == found["a - b"].reach()
