import math
from itertools import product

import pandas
import pytest

from layernorm.lab.analysis.curves import (
    at_level,
    by_rate,
    by_seed,
    final,
    logarithm,
    over_seconds,
    seconds_per_update,
    until,
)


def runs(curves, finals=()):
    """Rows of curves {(arm, metric): values} with steps 0, 10, ...; updates of `slow` take 2 s."""
    rows = [
        (arm, seed, 10.0 * i, 10 * i * (2 if arm == "slow" else 1), metric, value)
        for (arm, metric), values in curves.items()
        for seed in (0, 1)
        for i, value in enumerate(values)
    ]
    rows += [(arm, seed, math.nan, math.nan, "loss", v) for arm, seed, v in finals]
    return pandas.DataFrame(rows, columns=["arm", "seed", "step", "seconds", "metric", "value"])


def test_final_values_are_those_without_a_step_by_seed():
    frame = runs({("a", "loss"): (3.0, 2.0)}, [("a", 1, 5.0), ("a", 0, 4.0), ("b", 0, 9.0)])
    assert final(frame, "a", "loss").to_dict() == {0: 4.0, 1: 5.0}
    assert final(frame, "a", "error").empty


def test_curves_have_a_row_a_seed_and_a_column_a_step():
    frame = runs({("a", "loss"): (3.0, 2.0), ("b", "loss"): (9.0,)}, [("a", 0, 5.0)])
    table = by_seed(frame, "a", "loss")
    assert table.index.tolist() == [0, 1]
    assert table.columns.tolist() == [0, 10]
    assert table.to_numpy().tolist() == [[3.0, 2.0], [3.0, 2.0]]
    with pytest.raises(ValueError, match=r"no curve of 'loss' for arm 'c'.*\['a', 'b'\]"):
        by_seed(frame, "c", "loss")


def test_a_run_that_diverged_counts_with_the_longest_budget():
    """Of four, one goes to the level at once and is lost, with a curve that ends early."""
    frame = pandas.concat(
        runs({("a", "loss"): curve}, [("a", seed, end) for seed in (0, 1)]).assign(profile="book")
        .replace({"seed": {0: 2 * pair, 1: 2 * pair + 1}})
        for pair, (curve, end) in enumerate((((9, 3, 1), 1.0), ((9, 5, 3, 3), 3.0)))
    )  # fmt: skip
    lost = frame[~((frame.seed == 0) & (frame.step > 10))]
    lost = lost.mask((lost.seed == 0) & lost.step.isna(), lost.assign(value=math.inf))
    metric = until("loss", {"book": 4.0}.get)
    quick = 10 * 5 / 6
    assert metric(frame, "a", ("a",)).tolist() == pytest.approx([quick, quick, 15, 15])
    assert metric(lost, "a", ("a",)).tolist() == pytest.approx([30, quick, 15, 15])
    both = lost.mask((lost.seed == 1) & lost.step.isna(), lost.assign(value=math.inf))
    assert metric(both, "a", ("a",)).isna().all()


def test_final_values_have_the_rate_of_their_run():
    frame = runs({("a", "loss"): (3.0, 2.0)}, [("a", 0, 4.0), ("a", 1, 5.0)])
    frame["options"] = [{"learning_rate": 0.1 * (1 + seed)} for seed in frame.seed]
    found = by_rate(frame, "loss")
    assert found.value.tolist() == [4.0, 5.0]
    assert found.rate.tolist() == [0.1, 0.2]


def test_an_update_takes_the_median_of_its_arms_readings():
    frame = runs({("slow", "loss"): (4.0, 3.0, 0.0), ("quick", "loss"): (4.0, 2.0)})
    frame.loc[1, "seconds"] = 1000.0  # one slow reading
    assert seconds_per_update(frame, "slow") == pytest.approx(2.0)
    assert seconds_per_update(frame, "quick") == pytest.approx(1.0)


def test_differences_of_logarithms_are_ratios():
    frame = runs({}, [("a", 0, 2.0), ("a", 1, 8.0), ("b", 0, 1.0)])
    assert logarithm("loss")(frame, "a", ()).tolist() == pytest.approx([0.693147, 2.079442])


def test_curves_are_averaged_over_the_seconds_that_the_quicker_arm_takes():
    """Until 20 s: `slow` falls from 4 to 3 there, between its readings at 0 and 20 s."""
    curves = {("slow", "loss"): (4.0, 3.0, 0.0), ("quick", "loss"): (4.0, 2.0, 1.0)}
    frame = runs(curves, product(("slow", "quick"), (0, 1), [1.0]))
    values = over_seconds("loss")
    both = ("slow", "quick")
    assert values(frame, "slow", both).tolist() == pytest.approx([3.5, 3.5])
    assert values(frame, "quick", both).tolist() == pytest.approx([2.25, 2.25])
    assert values(frame, "slow", ("slow",)).tolist() == pytest.approx([2.5, 2.5])


def test_until_is_read_between_two_readings():
    curves = {("slow", "loss"): (4.0, 0.0), ("quick", "loss"): (4.0, 4.0)}
    frame = runs(curves, [("slow", 0, 0.0)])
    assert over_seconds("loss")(frame, "slow", ("slow", "quick")).iloc[0] == pytest.approx(3.0)


def test_a_run_that_diverged_or_did_not_end_is_as_bad_as_can_be():
    """Its curve ends with its last good reading, which says nothing of what came after."""
    curves = {("a", "loss"): (4.0, 2.0)}
    for finals in ([("a", 0, 2.0), ("a", 1, math.inf)], [("a", 0, 2.0)]):
        assert over_seconds("loss")(runs(curves, finals), "a", ("a",)).tolist() == [3.0, math.inf]


def test_a_metric_is_read_where_another_falls_to_a_level():
    curves = {("a", "train"): (3.0, 1.0, 0.5), ("a", "test"): (4.0, 2.0, 3.0)}
    at = {5.0: 4.0, 3.0: 4.0, 2.0: 3.0, 1.0: 2.0, 0.75: 2.5, 0.5: 3.0}  # at 5 and 3 at once
    for level, expected in at.items():
        values = at_level("test", level, of="train")(runs(curves), "a", ("a",))
        assert values.tolist() == pytest.approx([expected] * 2)
    assert at_level("test", 0.4, of="train")(runs(curves), "a", ()).isna().all()
