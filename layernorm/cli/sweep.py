"""The command `layernorm sweep`."""

from __future__ import annotations

from typing import Annotated

import typer

from layernorm.cli.run import Device, Sets, Threads
from layernorm.cli.text import print_table


def sweep(
    name: Annotated[str, typer.Argument(help="The experiment.")],
    profile: Annotated[str, typer.Option(help="book, standard or paper.")] = "standard",
    arms: Annotated[str | None, typer.Option(help="With commas. Default: the plan's.")] = None,
    seeds: Annotated[str | None, typer.Option(help="With commas. Default: the plan's.")] = None,
    sets: Sets = None,
    device: Device = "auto",
    workers: Annotated[int | None, typer.Option(help="Default: as the cores allow.")] = None,
    threads: Threads = 1,
    time: Annotated[bool, typer.Option(help="Time the arms after the runs, alone.")] = True,
) -> None:
    """Tune the arms of an experiment, run them over the seeds, compare them.

    What is done already is skipped; a run that fails is reported and the others finish.
    """
    from layernorm.lab.experiments import report, terminal

    plan = terminal.plan(name, profile, arms, seeds, sets or [])
    outcome = terminal.sweep(plan, device, workers, threads, time)
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
