"""The paper's figure 5 from our runs, with every run beside the mean of its arm."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from layernorm.lab import plotting
from layernorm.lab.analysis.curves import by_seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


def figure_5(ax: Axes, frame: DataFrame, arms: Iterable[str], points: int) -> None:
    """Draw the loss of a line of `points` points against updates, on a logarithmic axis.

    Solid: the mean over the seeds on test lines; thin: the single runs; dotted: the mean on
    training lines. Raises `ValueError` if an arm has no curve.
    """
    for arm in arms:
        test, train = (points * by_seed(frame, arm, f"{part}_nll") for part in ("test", "train"))
        test, train = test.loc[:, 1:], train.loc[:, 1:]  # an axis of logarithms has no update 0
        color = plotting.look(arm)["color"]
        ax.plot(test.columns, test.T, color=color, lw=0.7, alpha=0.5)
        ax.plot(test.columns, test.mean(), color=color, label=f"{arm}, {len(test)} seeds")
        ax.plot(train.columns, train.mean(), ":", color=color)
    ax.set(xscale="log", xlabel="updates", ylabel=f"nats for {points} points")
    ax.legend()
