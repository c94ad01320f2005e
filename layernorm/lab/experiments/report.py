"""A sweep's tables: every arm's primary metric with its interval, and the verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from layernorm.lab import records
from layernorm.lab.analysis import statistics
from layernorm.lab.experiments import compare, get
from layernorm.lab.experiments.planning import Sweep

if TYPE_CHECKING:
    import pandas

    from layernorm.lab.experiments.experiment import Experiment

HEAD = ["arm", "learning rate", "runs", "diverged", "ms/update"]


def arms(sweep: Sweep, done: Mapping[str, records.Record]) -> list[list[str]]:
    """A table, its head first: one row an arm, the primary metric's mean and 95% t interval."""
    experiment = get(sweep.experiment)
    rows = [[*HEAD, f"{experiment.primary} [95% interval]"]]
    counts = sweep.counts(done)
    for arm, runs in _by_arm(sweep, done).items():
        rate = sweep.rate(done, arm)
        values = [_primary(run) for run in runs]
        diverged = sum(run.result["diverged_at"] is not None for run in runs)
        times = sorted(run.timing["seconds_per_update"] for run in runs)
        rows.append(
            [
                arm,
                "not tuned yet" if rate is None else f"{rate:g}",
                f"{len(runs)} of {counts[arm]}",
                str(diverged),
                f"{1000 * times[len(times) // 2]:.2f}" if times else "",
                _interval(values),
            ]
        )
    return rows


def _by_arm(sweep: Sweep, done: Mapping[str, records.Record]) -> dict[str, list[records.Record]]:
    found: dict[str, list[records.Record]] = {arm: [] for arm in sweep.arms}
    for run in sweep.runs(done):
        found[run.config["arm"]].append(run)
    return found


def _primary(run: records.Record) -> float:
    """Infinite for a run that diverged, even where it is measured after the last update only."""
    metric = get(run.config["experiment"]).primary
    return math.inf if run.result["diverged_at"] is not None else run.result["final"][metric]


def _interval(values: list[float]) -> str:
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < len(values):
        return f"not finite in {len(values) - len(finite)} of {len(values)} runs"
    if len(values) < 2:
        return f"{values[0]:.4g}" if values else ""
    return f"{statistics.interval(values):.4g}"


def verdicts(sweep: Sweep, done: Mapping[str, records.Record]) -> list[list[str]]:
    """A table, its head first: the plan's comparisons among the arms of the sweep."""
    rows = [["comparison", "difference [interval]", "margin", "verdict"]]
    for name, one in sweep.verdicts(done).items():
        if set(one.row.arms) <= set(sweep.arms):
            shown = f"{one.difference:.4g}" if one.difference else ""
            why = f" ({one.problem or '; '.join(one.notes())})"
            margin = f"{one.row.margin.size:g} {one.row.margin.unit}"
            rows.append([name, shown, margin, one.verdict + why])
    return rows


def box(experiment: Experiment, arm: str = "layer") -> pandas.DataFrame:
    """The paper's experiment beside ours: its claim, data, setup, updates, seeds and result, which
    is "not measured yet" while there are no published runs.

    Raises `ValueError` for an experiment that repeats none.
    """
    import pandas

    if experiment.original is None:
        raise ValueError(f"{experiment.name} repeats no experiment of the paper: it has no box")

    paper, plan = experiment.original, experiment.comparisons
    scale = experiment.profile(plan.profile)
    options = experiment.config(plan.profile, arm, scale.seeds[0]).options
    ours = options.model_dump()
    share = f" ({options.updates / paper.updates:.2%} of the paper's)" if paper.updates else ""
    found = compare.recorded(experiment)
    results = (
        ["not measured yet"]
        if found is None
        else [
            f"{name}: {one.difference:.2g} {one.row.margin.unit}, {one.verdict}"
            for name, one in ((name, found[name]) for name in paper.rows)
        ]
    )
    rows = {
        "claim": (paper.claim, experiment.question),
        "data": (paper.data, paper.ours),
        "setup": (paper.setup, ", ".join(f"{name} {ours[name]}" for name in paper.shown)),
        "updates": (
            f"{paper.updates:,}" if paper.updates else "not said",
            f"{options.updates:,}{share}",
        ),
        "seeds": (
            paper.seeds,
            f"{len(scale.seeds)}, learning rates tuned on {len(scale.tuning_seeds)} more",
        ),
        "result": (paper.result, "; ".join(results)),
    }
    return pandas.DataFrame.from_dict(rows, orient="index", columns=["the paper", "here"])


def table(found: compare.Verdicts, *names: str) -> pandas.DataFrame:
    """These comparisons, or all of them, as a chapter shows them."""
    import pandas

    rows = {
        name: {
            "difference": f"{one.difference:.3g}" if one.difference else "",
            "level": f"{one.confidence:.2%}",
            "margin": f"{one.row.margin.size:g} {one.row.margin.unit}",
            "verdict": one.verdict,
        }
        for name, one in ((name, found[name]) for name in names or found)
    }
    return pandas.DataFrame.from_dict(rows, orient="index")
