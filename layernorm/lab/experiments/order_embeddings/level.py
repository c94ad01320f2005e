"""Updates and seconds until a level of validation, which comes from tuning runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from layernorm.lab import records
from layernorm.lab.analysis.curves import crossing, main_profile

if TYPE_CHECKING:
    from pandas import DataFrame, Series

SELECT = "validation_missed"
NEVER = 0.25  # above this share of runs that are never at the level, there is no number


def level(profile: str = "standard") -> float:
    """The level: the best reading of a run without normalization, the mean over the tuning seeds
    at the rate where that is lowest; NaN where there is no such run."""
    tuning = records.tidy(records.runs("order_embeddings", f"{profile}_tuning"))
    rows = tuning[(tuning.arm == "none") & (tuning.metric == SELECT) & tuning.step.notna()]
    if rows.empty:
        return math.nan
    rate = rows.options.map(lambda options: options.get("learning_rate", 0.0))
    return float(rows.groupby([rate, "seed"]).value.min().groupby(level=0).mean().min())


def until_level(unit: str):
    """A metric of comparisons: the logarithm of the updates (`step`) or `seconds` after which a run
    is at the level of its profile.

    Between two readings the curve is taken as straight; a run that never gets there counts with its
    whole budget. NaN for every run where more than a quarter of them never do.
    """

    def values(frame: DataFrame, arm: str, arms: tuple[str, ...]) -> Series:
        rows = frame[(frame.arm == arm) & (frame.metric == SELECT) & frame.step.notna()]
        curves = rows.sort_values(["seed", "step"]).groupby("seed")[["value", unit]]
        wanted = level(main_profile(frame))
        found = curves.apply(lambda run: crossing(run.value, run[unit], wanted))
        if math.isnan(wanted) or found.isna().mean() > NEVER:
            return found * math.nan
        return np.log(found.fillna(rows.groupby("seed")[unit].max()))

    return values
