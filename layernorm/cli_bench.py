"""The commands `layernorm bench ...`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from layernorm.cli_text import print_table

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="What things cost on this machine."
)


@app.callback()
def bench() -> None:
    """What things cost on this machine; nothing that is wrong is timed."""


@app.command("recurrent")
def bench_recurrent(
    kind: Annotated[str, typer.Option(help="lstm, gru or both.")] = "both",
    mode: Annotated[str, typer.Option(help="training, inference or both.")] = "both",
    shapes: Annotated[
        str | None, typer.Option(help="T,B,I,H; several with semicolons. Default: eight.")
    ] = None,
    subjects: Annotated[
        str | None, typer.Option(help="Implementations, with commas. Default: all.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Default: as many as torch uses.")] = None,
    rounds: Annotated[int, typer.Option(help="Samples of each, at least 6.")] = 11,
    huge_pages: Annotated[
        str, typer.Option(help="off, on or both: THP_MEM_ALLOC_ENABLE; both: ours and torch's.")
    ] = "both",
    memory: Annotated[bool, typer.Option(help="Measure memory of processes, too.")] = True,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write all rows there.")] = None,
    profile: Annotated[
        str | None, typer.Option(help="Save records of this profile for `records add`.")
    ] = None,
) -> None:
    """Time LN-LSTM and LN-GRU against torch's layers and the loops that people write.

    Everything must first agree with its definition in float64. Ratios are to torch.nn's layer,
    measured in turns in one process, with the 95% interval of the median. torch's layer has no
    norms: it is another function, what one would use instead.
    """
    from layernorm.benchmarks import comparison, processes

    plan = processes.plan(kind, mode, shapes, subjects, threads, rounds)
    settings = processes.settings(huge_pages)
    processes.check_outputs(as_json, profile)
    rows = []
    for row in processes.run(plan, settings, memory):
        rows.append(row)
        if sys.stderr.isatty():
            typer.echo(comparison.progress(row), err=True)
    for title, table in comparison.tables(rows):
        typer.echo(title)
        print_table(table[0], table[1:])
        typer.echo()
    typer.echo(comparison.verdict(rows))
    if as_json is not None:
        comparison.write_json(rows, as_json)
    if profile is not None:
        typer.echo(f"records: {processes.save(rows, profile)}")
    if comparison.problems(rows):
        raise typer.Exit(1)


@app.command("engine")
def bench_engine(
    rounds: Annotated[int, typer.Option(help="Samples of each copy, at least 6.")] = 7,
    copies: Annotated[int, typer.Option(help="How often each loop is made anew.")] = 8,
    threads: Annotated[int, typer.Option(help="As a sweep's runs have.")] = 1,
    profile: Annotated[
        str | None, typer.Option(help="Save records of this profile for `records add`.")
    ] = None,
) -> None:
    """Time an update of the experiment engine against a training loop written by hand.

    The MNIST network of the paper on random data, in batches of 128 and 4. The losses must be the
    same bits first; ratios are to the bare loop, in turns, with the 95% interval of the median.
    """
    from layernorm.benchmarks import engine, processes
    from layernorm.experiments import terminal

    terminal.use_threads(threads)
    processes.check_outputs(None, profile)
    rows = [
        row
        for batch in engine.BATCHES
        for row in engine.measure(batch, rounds=rounds, copies=copies)
    ]
    print_table((table := engine.table(rows))[0], table[1:])
    if profile is not None:
        typer.echo(f"records: {engine.save(rows, profile)}")
    if any(row.seconds is None for row in rows):
        raise typer.Exit(1)
