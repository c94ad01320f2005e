"""The first updates of published runs, made again where a chapter is executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from layernorm.lab.analysis.curves import by_seed
from layernorm.lab.experiments import sweep

if TYPE_CHECKING:
    from pandas import DataFrame


def beginnings(
    published: DataFrame,
    name: str,
    metric: str,
    parts: Mapping[str, tuple[int, int]],
    seeds: Sequence[int],
) -> DataFrame:
    """Return the mean of a metric over the seeds after some updates, `here` and as `recorded`.

    Args:
        published: the runs of the profile `book`, as `layernorm.lab.records.load` gives them.
        name: the experiment.
        metric: one that has a curve.
        parts: by arm, how many updates are made again, and how many evaluations up to there. The
            published curve has a reading after so many updates.
        seeds: those of the runs.
    """
    import pandas

    found = {}
    for arm, (updates, evaluations) in parts.items():
        recorded = by_seed(published, arm, metric).loc[list(seeds), updates]
        short = {"updates": updates, "evaluations": evaluations}
        runs = sweep.live(name, arms=[arm], seeds=seeds, **short)
        here = [run.result["final"][metric] for run in runs]
        found[arm] = {"here": sum(here) / len(here), "recorded": recorded.mean()}
    return pandas.DataFrame.from_dict(found, orient="index")
