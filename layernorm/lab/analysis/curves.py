"""Final values and curves of runs, by seed, from a table of `layernorm.lab.records.load`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pandas import DataFrame, Series

NEVER = 0.25  # above this share of runs that are never at a level, there is no number


def final(frame: DataFrame, arm: str, metric: str) -> Series:
    """The final values of an arm's metric; empty where there are none."""
    rows = frame[(frame.arm == arm) & (frame.metric == metric) & frame.step.isna()]
    return rows.set_index("seed").value.sort_index()


def by_seed(frame: DataFrame, arm: str, metric: str) -> DataFrame:
    """The curves of an arm's metric: one row a seed, one column a step.

    Raises `ValueError` if there are none, so that a misspelled arm cannot vanish from a figure.
    """
    rows = frame[(frame.arm == arm) & (frame.metric == metric) & frame.step.notna()]
    if rows.empty:
        raise ValueError(
            f"no curve of {metric!r} for arm {arm!r}: the frame has arms "
            f"{sorted(frame.arm.unique())} and metrics {sorted(frame.metric.unique())}"
        )
    return rows.pivot_table(index="seed", columns="step", values="value")


def by_rate(frame: DataFrame, metric: str) -> DataFrame:
    """The final values of a metric, each with the learning rate of its run as `rate`."""
    rows = frame[(frame.metric == metric) & frame.step.isna()]
    return rows.assign(rate=[options["learning_rate"] for options in rows.options])


def seconds_per_update(frame: DataFrame, arm: str) -> float:
    """The median over an arm's readings of its seconds of training by its updates."""
    rows = frame[(frame.arm == arm) & (frame.step > 0)]
    return (rows.seconds / rows.step).median()


def logarithm(metric):
    """A metric of comparisons: the logarithm of a final value, or of another metric, so that
    differences are ratios."""

    def values(frame: DataFrame, arm: str, arms: tuple[str, ...]) -> Series:
        found = metric(frame, arm, arms) if callable(metric) else final(frame, arm, metric)
        return np.log(found)

    return values


def beyond(metric: str, null: Callable[[dict], float]):
    """A metric of comparisons: a final value less that of its null, given an arm's options."""

    def values(frame: DataFrame, arm: str, arms: tuple[str, ...]) -> Series:
        found = final(frame, arm, metric)
        return found - null(frame.loc[frame.arm == arm, "options"].iloc[0]) if len(found) else found

    return values


def over_seconds(metric: str):
    """A metric of comparisons: the mean of a curve over the seconds that the quickest of their
    arms takes in all; infinite for a run that diverged, which has no finite value at its end."""

    def values(frame: DataFrame, arm: str, arms: tuple[str, ...]) -> Series:
        until = min(float(frame[frame.arm == one].seconds.max()) for one in arms)
        rows = frame[(frame.arm == arm) & (frame.metric == metric) & frame.step.notna()]

        def mean(curve: DataFrame) -> float:
            at = np.append(curve.seconds[curve.seconds < until], until)
            return np.trapezoid(np.interp(at, curve.seconds, curve.value), at) / until

        curves = rows.sort_values(["seed", "step"]).groupby("seed")
        found = curves[["seconds", "value"]].apply(mean)
        ended = np.isfinite(final(frame, arm, metric).reindex(found.index))
        return found.where(ended, math.inf)

    return values


def at_level(metric: str, level: float, of: str):
    """A metric of comparisons: the metric where the curve `of` first falls to a level.

    As `crossing`: NaN if it never does.
    """

    def values(frame: DataFrame, arm: str, arms: tuple[str, ...]) -> Series:
        rows = frame[(frame.arm == arm) & frame.step.notna()]
        table = rows.pivot_table(index=["seed", "step"], columns="metric", values="value")
        return table.groupby("seed").apply(lambda run: crossing(run[of], run[metric], level))

    return values


def until(metric: str, level: Callable[[str], float], unit: str = "step"):
    """A metric of comparisons: the updates (`step`) or `seconds` after which a curve first falls to
    the level of its runs' profile.

    As `crossing`, but a run that never gets there counts with its whole budget, one that diverged
    with that of the longest run; NaN for every run where more than a quarter of them are such.
    """

    def values(frame: DataFrame, arm: str, arms: tuple[str, ...]) -> Series:
        rows = frame[(frame.arm == arm) & (frame.metric == metric) & frame.step.notna()]
        if rows.empty:
            return rows.set_index("seed").value
        curves = rows.sort_values(["seed", "step"]).groupby("seed")
        wanted = level(main_profile(frame))
        found = curves[["value", unit]].apply(lambda run: crossing(run.value, run[unit], wanted))
        ends = frame[(frame.arm == arm) & frame.step.isna()].groupby("seed").value
        diverged = found.index.isin([seed for seed, all in ends if np.isinf(all).all()])
        found = found.mask(diverged)
        budget = curves[unit].max().mask(diverged, rows[unit].max())
        return found * math.nan if found.isna().mean() > NEVER else found.fillna(budget)

    return values


def main_profile(frame: DataFrame) -> str:
    """The profile that a table's runs belong to; those at next best rates are named after it."""
    return frame.profile.iloc[0].removesuffix("_next_best") if len(frame) else ""


def crossing(falling: Series, read: Series, level: float) -> float:
    """The value of `read` where a curve first falls to a level: that of the first reading if it is
    there at once, between two readings both are taken as straight; NaN if it never is.

    >>> import pandas
    >>> crossing(pandas.Series([9.0, 5.0, 3.0]), pandas.Series([0.0, 10.0, 20.0]), 4.0)
    15.0
    """
    y, x = falling.to_numpy(), read.to_numpy()
    below = int((y <= level).argmax())
    if not y[below] <= level:
        return math.nan
    if below == 0:
        return float(x[0])
    share = (y[below - 1] - level) / (y[below - 1] - y[below])
    return float(x[below - 1] + share * (x[below] - x[below - 1]))
