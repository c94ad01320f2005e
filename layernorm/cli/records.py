"""The commands `layernorm records list|add|confirm`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layernorm.cli.text import print_table

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Records of runs, own and published."
)


@app.command("list")
def list_records() -> None:
    """Count arms, seeds, runs and stale runs."""
    from layernorm.lab import records

    sweeps: dict[tuple[str, str], list[records.Record]] = {}
    for run in records.runs():
        sweeps.setdefault((run.config["experiment"], run.config["profile"]), []).append(run)
    rows = []
    for sweep, runs in sweeps.items():
        arms, seeds = ({run.config[name] for run in runs} for name in ("arm", "seed"))
        stale = sum(bool(records.stale(run)) for run in runs)
        rows.append([*sweep, *(str(n) for n in (len(arms), len(seeds), len(runs), stale))])
    print_table(["experiment", "profile", "arms", "seeds", "runs", "stale"], rows)


@app.command("add")
def add_records(
    paths: Annotated[list[str], typer.Argument(help="Run files, or folders that hold some.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Drop those published that no plan rests on.")
    ] = False,
) -> None:
    """Publish runs in the package.

    They are added to its own records, one compact file per sweep. A measurement takes the place of
    an earlier one of the same thing on the same processor, also of one by other numbers of rounds
    or processes.
    """
    from layernorm.lab import records
    from layernorm.lab.benchmarks.measure.recording import subject
    from layernorm.lab.experiments.planning import used

    for path in records.publish(paths, replace=replace, used=used, same=subject):
        typer.echo(path)


@app.command("confirm")
def confirm_records(
    name: Annotated[str, typer.Argument(help="The experiment.")],
    profile: Annotated[str, typer.Option(help="book, standard or paper.")] = "standard",
    arms: Annotated[
        list[str] | None, typer.Option("--arm", help="Repeat it. Default: all that are stale.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Default: the plan's first.")] = None,
    workers: Annotated[int | None, typer.Option(help="Default: as the cores allow.")] = None,
    threads: Annotated[int | None, typer.Option(help="Default: as published.")] = None,
    before: Annotated[
        Path | None,
        typer.Option(help="A checkout of the published runs' code, which is run as well."),
    ] = None,
) -> None:
    """Run stale published arms once more: do they still give the same?

    An arm is confirmed by the same bits, or by differences below a tenth of the plan's margins.
    On another processor bits differ whatever the code: there a checkout of the code before makes
    the run, too, and the two are compared.
    """
    from layernorm.lab.experiments.confirm import confirm

    def progress(ended: int, known: int, run: str) -> None:
        typer.echo(f"{ended} of {known}: {run}", err=True)

    answers = confirm(
        name,
        profile,
        arms=arms or (),
        seed=seed,
        workers=workers,
        threads=threads,
        progress=progress,
        before=before,
    )
    for answer in answers:
        typer.echo(answer)
    if not answers:
        typer.echo(f"none of these published runs of {name}, {profile}, is stale")
    if not all(answer.confirmed for answer in answers):
        raise typer.Exit(1)
