import math

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas
import pytest

from layernorm.lab import plotting
from layernorm.lab.experiments.handwriting.figure import figure_5


def records(curves):
    """Rows of {(arm, metric): one list of values a seed}, read at the updates 0, 10 and 20."""
    rows = [
        (arm, seed, float(step), metric, value)
        for (arm, metric), runs in curves.items()
        for seed, run in enumerate(runs)
        for step, value in zip((0, 10, 20), run, strict=True)
    ]
    rows.append(("layer", 0, math.nan, "test_nll", 99.0))  # a final value is no point of a curve
    return pandas.DataFrame(rows, columns=["arm", "seed", "step", "metric", "value"])


FRAME = records(
    {
        ("layer", "test_nll"): [[9, 4, 2], [9, 6, 1], [9, 5, 3]],
        ("layer", "train_nll"): [[9, 3, 1], [9, 5, 1], [9, 4, 1]],
    }
)


def test_every_run_is_drawn_beside_the_mean_of_its_arm():
    _, ax = plt.subplots()
    figure_5(ax, FRAME, ["layer"], points=100)
    *runs, mean, train = ax.lines
    assert [line.get_ydata().tolist() for line in runs] == [[400, 200], [600, 100], [500, 300]]
    np.testing.assert_allclose(mean.get_ydata(), [500, 200])
    np.testing.assert_allclose(train.get_ydata(), [400, 100])
    assert {tuple(line.get_xdata()) for line in ax.lines} == {(10, 20)}
    assert {line.get_color() for line in ax.lines} == {plotting.look("layer")["color"]}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["layer, 3 seeds"]


def test_an_arm_that_was_not_run_is_refused():
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match="no curve of 'test_nll' for arm 'batch'"):
        figure_5(ax, FRAME, ["layer", "batch"], points=100)
