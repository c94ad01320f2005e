import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from layernorm.lab import plotting
from layernorm.lab.analysis.statistics import interval
from layernorm.methods import METHODS

FRAME = pd.DataFrame(
    [
        {"arm": arm, "metric": "loss", "seed": seed, "step": step, "value": step + seed + shift}
        for arm, shift in [("layer-4", 0.0), ("none-4", 5.0)]
        for seed in range(3)
        for step in (0, 10)
    ]
)


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def test_curves_draw_the_mean_and_its_interval():
    _, ax = plt.subplots()
    plotting.curves(ax, FRAME, "loss", ["layer-4", "none-4"])
    line = ax.lines[0]
    np.testing.assert_allclose(line.get_ydata(), [1.0, 11.0])
    assert line.get_color() == METHODS["layer"].color
    low, high = ax.collections[0].get_datalim(ax.transData).intervaly
    assert low == pytest.approx(interval([0.0, 1.0, 2.0]).low)
    assert high == pytest.approx(interval([10.0, 11.0, 12.0]).high)


def test_a_curve_may_have_another_unit_and_style():
    _, (left, right) = plt.subplots(1, 2)
    plotting.curves(left, FRAME, "loss", ["layer-4"])
    plotting.curve(right, FRAME, "layer-4", "loss", 0.5, color="black")
    line, as_in_curves = right.lines[0], left.lines[0]
    np.testing.assert_allclose(line.get_xdata(), [0.0, 5.0])
    np.testing.assert_allclose(line.get_ydata(), as_in_curves.get_ydata())
    assert line.get_label() == as_in_curves.get_label() == "layer-4"
    assert (line.get_color(), line.get_marker()) == ("black", as_in_curves.get_marker())


def test_levels_cross_every_panel():
    _, axes = plt.subplots(1, 2)
    plotting.levels(axes, 1.0, 3.0)
    for ax in axes:
        assert [line.get_ydata()[0] for line in ax.lines] == [1.0, 3.0]


def test_a_band_has_one_row_a_seed():
    _, ax = plt.subplots()
    plotting.band(ax, [1.0, 2.0], [[0.0, 4.0], [2.0, 4.0]], color="black", label="two seeds")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [1.0, 4.0])
    low, high = ax.collections[0].get_datalim(ax.transData).intervaly
    assert (low, high) == pytest.approx((interval([0.0, 2.0]).low, interval([0.0, 2.0]).high))


def test_a_band_on_a_logarithmic_axis_stays_above_zero():
    _, ax = plt.subplots()
    runs = [[0.01, 1.0], [1.0, 1.0], [100.0, 1.0]]
    plotting.band(ax, [1.0, 2.0], runs, log=True)
    assert ax.get_yscale() == "log"
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [1.0, 1.0])
    (path,) = ax.collections[0].get_paths()
    expected = 10.0 ** interval([-2.0, 0.0, 2.0]).low
    assert path.vertices[:, 1].min() == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"positive on a logarithmic axis, got 0\.0"):
        plotting.band(ax, [1.0], [[0.0], [1.0]], log=True)


def test_an_arm_without_a_curve_is_refused():
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match="no curve of 'loss' for arm 'layr'"):
        plotting.curves(ax, FRAME, "loss", ["layr"])


def test_points_put_every_arm_on_its_row():
    _, ax = plt.subplots()
    plotting.points(ax, {"layer": interval([1.0, 2.0]), "rescaled": interval([3.0, 4.0])})
    assert [t.get_text() for t in ax.get_yticklabels()] == ["layer", "rescaled"]
    assert [c.lines[0].get_xdata()[0] for c in ax.containers] == [1.5, 3.5]


def test_the_axes_picture_knows_only_methods_that_average():
    assert len(plotting.axes_picture(["batch", "rms"]).axes) == 2
    with pytest.raises(ValueError, match="average over no activations"):
        plotting.axes_picture(["weight"])
