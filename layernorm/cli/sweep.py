"""The command `layernorm sweep`."""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from layernorm.cli.run import Device, Name, Sets, Threads, assigned
from layernorm.cli.text import Runs, integers, print_table, words

if TYPE_CHECKING:
    from layernorm.lab.experiments.planning import Sweep
    from layernorm.lab.experiments.sweep import Outcome


def sweep(
    name: Name,
    profile: Annotated[
        str | None, typer.Option(help="book, standard or paper. Default: standard if it has one.")
    ] = None,
    arms: Annotated[str | None, typer.Option(help="With commas. Default: the plan's.")] = None,
    seeds: Annotated[str | None, typer.Option(help="With commas. Default: the plan's.")] = None,
    sets: Sets = None,
    device: Device = "auto",
    workers: Annotated[int | None, typer.Option(help="Default: as the cores allow.")] = None,
    threads: Threads = 1,
    cluster: Annotated[
        str | None, typer.Option(help="Run on a Ray cluster: auto, or HOST:PORT of its head.")
    ] = None,
    gpus: Annotated[float, typer.Option(help="Of each run on the cluster, or a fraction.")] = 0,
    time: Annotated[
        bool | None,
        typer.Option(
            help="Time the arms after the runs, alone, on this machine. Default: without --cluster."
        ),
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Make stale runs again, own and published.")
    ] = False,
) -> None:
    """Tune the arms of an experiment, run them over the seeds, compare them.

    What is done already, here or in the package, is skipped and counted; a run that fails is
    reported and the others finish. Several sweeps in one folder share their runs.
    `layernorm experiments NAME` shows arms and options.
    """
    from layernorm.lab.experiments import get, report
    from layernorm.lab.experiments.planning import Sweep

    numbers = integers("seeds", seeds)
    if profile is None:
        profile = "standard" if "standard" in get(name).profiles else "book"
    plan = Sweep(name, profile, words(arms), numbers, assigned(sets or []))
    if time is None:
        time = cluster is None
    with _pool(cluster, workers, threads, gpus, device) as pool:
        outcome = _carried_out(plan, device, pool, threads, time, anew)
    print_table((table := report.arms(plan, outcome.done))[0], table[1:])
    typer.echo()
    if len(table := report.verdicts(plan, outcome.done)) > 1:
        print_table(table[0], table[1:])
    for failure in outcome.failed.values():
        typer.echo(
            f"Error: {failure.config.arm} seed {failure.config.seed} failed: {failure.reason} "
            f"(log: {failure.log})",
            err=True,
        )
    if outcome.failed:
        raise typer.Exit(1)


def _pool(
    cluster: str | None, workers: int | None, threads: int, gpus: float, device: str
) -> AbstractContextManager[Executor | int | None]:
    """The workers as `carry_out` takes them; a cluster is left at the end."""
    if cluster is None:
        if gpus:
            raise ValueError(f"gpus are those of each run on a --cluster, got {gpus:g} without one")
        return nullcontext(workers)
    if workers is not None:
        raise ValueError(
            f"workers are those of this machine, got {workers} with --cluster, whose nodes start "
            "as many as they have room for; leave one of the two out"
        )
    if device == "cuda" and not gpus:
        raise ValueError("device cuda on a cluster needs --gpus: 1, or a fraction of one")
    from layernorm.lab.experiments.cluster import RayExecutor

    return RayExecutor(cluster, threads=threads, gpus=gpus)


def _carried_out(
    plan: Sweep, device: str, workers: Executor | int | None, threads: int, time: bool, anew: bool
) -> Outcome:
    """The sweep with one bar over all runs; then the times of its arms, if wanted."""
    from layernorm.lab import records
    from layernorm.lab.experiments import lock, timing
    from layernorm.lab.experiments.checkpoint import say
    from layernorm.lab.experiments.planning import finished
    from layernorm.lab.experiments.sweep import carry_out

    try:
        with Runs(f"{plan.experiment} {plan.profile}") as progress:
            outcome = carry_out(
                plan, workers=workers, threads=threads, device=device, anew=anew, progress=progress
            )
    except KeyboardInterrupt:
        say(f"stopped after {progress.ended} runs, which are kept; the same command goes on, those "
            "that were at work from their last checkpoints")  # fmt: skip
        raise
    used = plan.runs(outcome.done)
    published = [run for run in used if not records.path(run.config).exists()]
    if published:
        say(f"{len(published)} of {len(used)} runs are published ones of this package")
    old = [run for run in used if records.stale(run)]
    if old:
        say(f"{len(old)} runs were made before the code they depend on changed; --anew makes them "
            "again")  # fmt: skip
    if time and not outcome.failed:
        with lock.alone():
            outcome.done.update(finished(plan.experiment, stale=not anew))
            timing.time_arms(plan, outcome.done, threads=threads, device=device)
        outcome.done.update(finished(plan.experiment, stale=not anew))
    return outcome
