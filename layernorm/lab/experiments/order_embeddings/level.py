"""The level of validation until which updates and seconds are counted, from tuning runs."""

from __future__ import annotations

import math

from layernorm.lab import records

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
