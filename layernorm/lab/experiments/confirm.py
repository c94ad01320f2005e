"""One fresh run of each arm: does changed code still give the published results?

A published sweep whose code changed in arithmetic only need not be made again. A run of each arm
that is stale is made afresh. The arm is confirmed, and with it its runs of the tuning, by heart and
at the next best rate, if the bits are the same, or every metric that the plan compares the arm by
is off by less than a tenth of the margin. That is noted beside the arm's published runs, whose
results stay as they are. On another processor than theirs the bits are others whatever the code;
there a checkout of the code that the published runs are of makes the run, too, and the two of this
machine are compared. ::

    layernorm records confirm mnist --profile standard
    layernorm records confirm mnist --profile standard --before ../older
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from layernorm.lab import records
from layernorm.lab.experiments import earlier, get, machine
from layernorm.lab.experiments.contrasts import Comparisons, term
from layernorm.lab.experiments.data_parallel import Workers
from layernorm.lab.experiments.experiment import TUNING_SEED, Config
from layernorm.lab.experiments.planning import Sweep, finished
from layernorm.lab.experiments.run import depends_on
from layernorm.lab.experiments.sweep import carry_out
from layernorm.lab.records import Record, published
from layernorm.lab.records.files import runs_folder
from layernorm.lab.records.staleness import Root

SHARE = 0.1  # of a margin, that a metric may be off by
SAME_BITS = "same bits"
HERE = "the earlier code on the same machine"
BOTH_HERE = f"same bits as {HERE}"


@dataclass(frozen=True)
class Answer:
    """The outcome of one arm.

    `off`: by what share of its margin each metric is off, none if the bits are the same: from the
    published run, or, `both_here`, from what the earlier code gives on this machine.
    `problem`: why the arm could not be compared.
    """

    arm: str
    seed: int | None = None
    off: Mapping[str, float] | None = None
    problem: str = ""
    both_here: bool = False

    @property
    def confirmed(self) -> bool:
        return not self.problem and (self.off is None or max(self.off.values()) < SHARE)

    def __str__(self) -> str:
        if self.problem:
            return f"{self.arm}: {self.problem}"
        said = "confirmed" if self.confirmed else f"not confirmed, {SHARE:g} is allowed"
        if self.off is None:
            bits = BOTH_HERE if self.both_here else SAME_BITS
            return f"{self.arm}, seed {self.seed}: {said}, the {bits}"
        off = ", ".join(f"{metric} {share:.2g}" for metric, share in self.off.items())
        since = f" from {HERE}" if self.both_here else ""
        return f"{self.arm}, seed {self.seed}: {said}; off{since} by shares of its margin: {off}"


@dataclass(frozen=True)
class _Again(Sweep):
    """A sweep's runs that are to be made once more, by key."""

    configs: Mapping[str, Config] = field(default_factory=dict)

    def wanted(self, done: Mapping[str, Record]) -> list[Config]:
        """Those that the code as it is has not made yet."""
        return [config for key, config in self.configs.items() if _old(done.get(key))]


def _old(run: Record | None) -> bool:
    return run is None or not run.digest or bool(records.stale(run))


def confirm(
    name: str,
    profile: str,
    *,
    arms: Sequence[str] = (),
    seed: int | None = None,
    workers: int | Executor | None = None,
    threads: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    before: str | Path | None = None,
) -> list[Answer]:
    """Run each stale arm of a published sweep once more, and note those that are confirmed.

    The fresh runs are kept where all runs are (`records.path`); called again it goes on from them.
    Where the arms' own runs are not published (chapters make them live), the tuning run at the
    chosen learning rate takes their place.

    Args:
        arms: default: all of the profile's.
        seed: of the run that is made again; default: the plan's first that is published.
        threads: default: as many as the published runs had.
        workers, progress: as in `carry_out`.
        before: a checkout of the code that the published runs are of; it makes those runs, too,
            whose bits are not the published ones.

    Raises:
        ValueError: as `Sweep`; nothing is published, or timings alone; no checkout.
        ChildProcessError: the checkout's code failed.
    """
    if name.startswith("bench_"):
        raise ValueError(
            f"{name} holds timings, which no second run repeats: measure again with "
            "`layernorm bench`"
        )
    sweep = Sweep(name, profile, by_heart=False)
    Sweep(name, profile, tuple(arms), by_heart=False)  # refuses what is not there
    with records.published_only():
        done = finished(name)
    profiles = [profile, *(f"{profile}_{beside}" for beside in ("tuning", "overfit", "next_best"))]
    group = [run for run in done.values() if run.config["profile"] in profiles]
    if not group:
        raise ValueError(f"{name} has no published runs in profile {profile!r}")
    stale = {run.config["arm"] for run in group if records.stale(run)}
    known = dict.fromkeys((*sweep.arms, *sorted(stale)))
    wanted = [arm for arm in known if arm in stale and arm in (arms or stale)]
    chosen = _chosen(sweep, done, seed)
    absent = (
        f"no run of the plan is published with {'any seed' if seed is None else f'seed {seed}'}"
    )
    problems = {arm: _problem(*chosen[arm]) if arm in chosen else absent for arm in wanted}
    current = "what is stale is no run that this plan makes again"
    problems |= {arm: current for arm in wanted if arm in chosen and not _old(chosen[arm][1])}
    again = [chosen[arm] for arm in wanted if not problems[arm]]
    fresh = _Again(name, profile, configs={config.key(): config for config, _ in again})
    if threads is None:
        threads = next((run.environment["threads"] for run in group if run.environment), 1)
    outcome = carry_out(fresh, workers=workers, threads=threads, anew=True, progress=progress)
    there = [run for _, run in chosen.values()]
    answers, commits = [], {}
    for arm in wanted:
        if problems[arm]:
            answers.append(Answer(arm, problem=problems[arm]))
            continue
        config, old = chosen[arm]
        if (failure := outcome.failed.get(config.key())) is not None:
            answers.append(Answer(arm, problem=f"{failure.reason} (log: {failure.log})"))
            continue
        new = outcome.done[config.key()]
        commits[arm] = new.environment["commit"] or "unknown"
        answers.append(_compared(sweep.compared, there, old, new))
    if before is not None:
        other = {a.arm: chosen[a.arm][0] for a in answers if a.off is not None}
        at_once = workers if isinstance(workers, int) else max(1, machine.cores() // threads)
        root = runs_folder() / "before"
        made = earlier.runs(before, other.values(), profile, root, threads, at_once)
        for n, answer in enumerate(answers):
            if config := other.get(answer.arm):
                here, new = made[config.key()], outcome.done[config.key()]
                if here is not None:
                    answers[n] = replace(
                        _compared(sweep.compared, there, here, new), both_here=True
                    )
                elif not answer.confirmed:
                    problem = f"its published run is not of the code in {before}"
                    answers[n] = replace(answer, problem=problem)
    for each in profiles:
        _note(name, each, [answer for answer in answers if answer.confirmed], commits)
    return answers


def _chosen(sweep: Sweep, done: Mapping[str, Record], seed: int | None):
    """The published run of each arm that is made again, by arm: its configuration and record. It is
    a stale one, if there is any: another one would be compared with itself."""
    found: dict[str, tuple[Config, Record]] = {}
    seeds = sweep.seeds if seed is None else (seed,)
    for arm in sweep.arms:
        for number, rate in enumerate(sweep.rates(done, arm)):
            configs = [sweep.config(arm, each, rate) for each in seeds]
            if number:
                configs = [config.in_profile(f"{sweep.profile}_next_best") for config in configs]
            elif seed in (None, TUNING_SEED):
                tuned = sweep.config(arm, TUNING_SEED, rate)
                configs.append(tuned.in_profile(f"{sweep.profile}_tuning"))
            for config in configs:
                run = done.get(config.key())
                if run is not None and (arm not in found or _old(run) > _old(found[arm][1])):
                    found[arm] = config, run
    return found


def _problem(config: Config, old: Record) -> str:
    """Why a fresh run could not be compared with a published one."""
    here = records.environment()
    if bool(old.environment.get("gpus")) != bool(here["gpus"]):
        return "of this machine and that of the published run, one has a GPU"
    if get(config.experiment).data(config.options) != old.config["data"]:
        return "the data are others than those of the published run"
    return ""


def _compared(plan: Comparisons, there: list[Record], old: Record, fresh: Record) -> Answer:
    """`there`: the chosen published runs of all arms, in which the two take their arm's place; some
    metrics are of several arms."""
    arm, seed = old.config["arm"], old.config["seed"]
    if published.same_bits(old, fresh):
        return Answer(arm, seed)
    timed = replace(fresh, timing=old.timing)  # times are not what is confirmed
    others = [run for run in there if run.config["arm"] != arm]
    frames = [records.tidy([*others, run]) for run in (old, timed)]
    arms = {run.config["arm"] for run in there}
    rows = [row for row in plan.rows if arm in row.arms and set(row.arms) <= arms]
    off: dict[str, float] = {}
    for row in rows or plan.rows:
        for metric in dict.fromkeys(m for _, a, m in row.contrast if a == arm or not rows):
            one, other = (
                term(frame, arm, metric, row.arms if rows else (arm,)).to_dict() for frame in frames
            )
            if seed in one:
                name = row.margin.of if callable(metric) else metric
                share = _apart(one[seed], other.get(seed, math.nan)) / row.margin.size
                off[name] = max(share, off.get(name, 0.0))
    if not off:
        return Answer(arm, seed, problem="other bits, and the plan compares none of its metrics")
    return Answer(arm, seed, off)


def _apart(one: float, other: float) -> float:
    """The distance of two values; NaN is far from every number."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    return abs(one - other) if math.isfinite(one) and math.isfinite(other) else math.inf


def _depends(run: Record) -> list[Root]:
    """The code that a run like this one depends on where that one was made."""
    kind = "cuda" if run.environment.get("gpus") else "cpu"
    workers = Workers(size=run.config["options"].get("workers", 1))
    return depends_on(get(run.config["experiment"]), torch.device(kind), workers)


def _difference(answer: Answer) -> float | str:
    """As a published file has it."""
    if answer.off:
        return max(answer.off.values())
    return BOTH_HERE if answer.both_here else SAME_BITS


def _note(name: str, profile: str, answers: Iterable[Answer], commits: Mapping[str, str]) -> None:
    """Write into a published file which of its arms are confirmed."""
    confirmed = {answer.arm: answer for answer in answers}
    runs = published.published(name, profile)
    now = {run.key: records.digest(_depends(run), run.config, run.environment)
           for run in runs if run.config["arm"] in confirmed}  # fmt: skip
    noted = []
    for run in runs:
        answer = confirmed.get(run.config["arm"])
        if answer is not None and records.stale(run):
            arm = {now[other.key] for other in runs if other.config["arm"] == answer.arm}
            said = {
                "digests": sorted(arm),
                "seed": answer.seed,
                "difference": _difference(answer),
                "commit": commits[answer.arm],
            }
            run = replace(run, confirmed=said)
        noted.append(run)
    if noted != runs:
        published.note(noted)
