"""Updates and seconds until a level of validation, which comes from tuning runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from layernorm.lab import records
from layernorm.lab.analysis import curves

if TYPE_CHECKING:
    from pandas import DataFrame, Series

SELECT = "validation_missed"


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
    """A metric of comparisons: the logarithm of the updates (`step`) or `seconds` until the level,
    as `curves.until`."""
    until = curves.until(SELECT, level, unit)

    def values(frame: DataFrame, arm: str, arms: tuple[str, ...]) -> Series:
        return np.log(until(frame, arm, arms))

    return values
