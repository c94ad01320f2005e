"""The command `layernorm run`."""

from __future__ import annotations

from typing import Annotated

import typer

Sets = Annotated[
    list[str] | None, typer.Option("--set", help="key=value; repeat it. A value is JSON or a word.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[int, typer.Option(help="Of each run; other numbers give other last bits.")]


def run(
    name: Annotated[str, typer.Argument(help="The experiment.")],
    profile: Annotated[str, typer.Option(help="book, standard or paper.")] = "book",
    arm: Annotated[str, typer.Option(help="What is compared; plain arms are methods.")] = "layer",
    seed: Annotated[int, typer.Option(help="Of every random number in the run.")] = 0,
    sets: Sets = None,
    device: Device = "auto",
    threads: Threads = 1,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget an earlier run of this.")] = False,
) -> None:
    """Train one arm of an experiment; killed, it goes on where it was.

    The learning rate is the one tuned for the arm and profile, if that was done.
    """
    from layernorm.lab.experiments import terminal

    config = terminal.configuration(name, profile, arm, seed, sets or [])
    record, path = terminal.run(config, device, threads, fresh)
    for metric, value in sorted(record.result["final"].items()):
        typer.echo(f"{metric:<24} {value:.6g}")
    if record.result["diverged_at"] is not None:
        typer.echo(f"diverged at update {record.result['diverged_at']}: its loss was not finite")
    typer.echo(f"record: {path}")
