"""A sweep's tables: every arm's primary metric with its interval, and the verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from layernorm.lab import records
from layernorm.lab.analysis import statistics
from layernorm.lab.experiments import compare, get
from layernorm.lab.experiments.planning import Sweep, finished, metric

if TYPE_CHECKING:
    import pandas

    from layernorm.lab.experiments.box import Box
    from layernorm.lab.experiments.contrasts import Comparisons
    from layernorm.lab.experiments.experiment import Experiment
    from layernorm.lab.experiments.judged import Judged

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
    if run.result["diverged_at"] is not None:
        return math.inf
    return metric(run, get(run.config["experiment"]).primary)


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
    found = sweep.verdicts(done)
    for name, one in found.items():
        if set(one.row.arms) <= set(sweep.arms):
            shown = f"{one.difference:.4g}" if one.difference else ""
            why = one.problem or "; ".join(one.notes())
            rows.append(
                [name, shown, str(one.row.margin), _verdict(one, found) + (why and f" ({why})")]
            )
    return rows


def box(experiment: Experiment, arm: str = "layer") -> Box:
    """The paper's experiment beside ours: its claim, data, setup, parameters, updates, seeds and
    result, which is "not measured yet" while there are no published runs.

    Raises `ValueError` for an experiment that repeats none.
    """
    from layernorm.lab.experiments.box import Box

    if experiment.original is None:
        raise ValueError(f"{experiment.name} repeats no experiment of the paper: it has no box")

    paper, plan = experiment.original, experiment.comparisons
    scale = experiment.profile(plan.profile)
    options = experiment.config(plan.profile, arm, scale.seeds[0]).options
    ours = options.model_dump()
    made, weights = paper.share(ours), paper.weights(options)
    if paper.parameters:
        theirs, size = paper.parameters, ""
    else:
        whole = paper.weights(experiment.config("paper", arm, 0).options)
        theirs, size = f"{whole:,}, {paper.counted}", f" ({weights / whole:.2%} of the paper's)"
    found = recorded(experiment)
    if found is None:
        results = ["not measured yet"]
        seeds = f"{scale.first or len(scale.seeds)} at first, planned"
    else:
        results = [_result(name, found) for name in paper.rows]
        seeds = _numbers(one.difference.n for one in found.values() if one.difference)
    rows = {
        "claim": (paper.claim, experiment.question),
        "data": (paper.data, paper.ours),
        "setup": (paper.setup, paper.shown.format(**ours)),
        "parameters": (theirs, f"{weights:,}{size}"),
        "updates": (
            paper.updates if isinstance(paper.updates, str) else f"{paper.updates:,}",
            f"{options.updates:,}" + (f" ({made:.2%} of the paper's)" if made else ""),
        ),
        "seeds": (paper.seeds, f"{seeds}, learning rates tuned on {len(scale.tuning_seeds)} more"),
        "result": (paper.result, "\n".join(results)),
    }
    return Box.from_dict(rows, orient="index", columns=[paper.by, "here"])


def _result(name: str, found: compare.Verdicts) -> str:
    one, verdict = found[name], _verdict(found[name], found)
    if one.difference is None:
        return f"{name}: {verdict}"
    return f"{name}: {one.difference:.3g} {one.row.margin.unit}, {verdict}"


def _verdict(one: Judged, found: compare.Verdicts) -> str:
    """The verdict; there is none while planned runs are missing."""
    return one.verdict if found.made(one.row) else "not yet tested"


def recorded(experiment: Experiment, plan: Comparisons | None = None) -> compare.Verdicts | None:
    """An experiment's main comparisons, or another of its `plans`, on the runs that its plan asks
    for; None where there are none."""
    sweep = Sweep(experiment.name, (plan or experiment.comparisons).profile)
    found = sweep.verdicts(finished(experiment.name))
    return None if found.frame.empty else found


def share(found: compare.Verdicts, arms: Iterable[str]) -> str:
    """The least and the most updates of the runs of these arms, as fractions of those of the paper;
    "" where it does not say how many it made, or there are no runs."""
    options = found.frame[found.frame.arm.isin(arms)].drop_duplicates("arm").options
    shares = [found.original and found.original.share(each) for each in options]
    known = sorted(share for share in shares if share is not None)
    return " to ".join(dict.fromkeys(f"{share:.2%}" for share in (*known[:1], *known[-1:])))


def _numbers(counts: Iterable[int]) -> str:
    """The least and the greatest of these numbers of seeds."""
    ends = sorted(counts)
    return " to ".join(map(str, dict.fromkeys((ends[0], ends[-1])))) if ends else "none yet"


def table(found: compare.Verdicts, *names: str) -> pandas.DataFrame:
    """These comparisons, or all of them, as a chapter shows them."""
    import pandas

    rows = {
        name: {
            "difference": f"{one.difference:.3g}" if one.difference else "",
            "confidence": f"{one.confidence:.2%}",
            "n": one.difference.n if one.difference else "",
            "margin": str(one.row.margin),
            "verdict": _verdict(one, found),
            "same for margins": one.reach(),
            "of the paper's updates": share(found, one.row.arms),
        }
        for name, one in ((name, found[name]) for name in names or found)
    }
    table = pandas.DataFrame.from_dict(rows, orient="index")
    return table.loc[:, (table != "").any()]
