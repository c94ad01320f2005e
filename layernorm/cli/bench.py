"""The commands `layernorm bench ...`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from layernorm.cli.text import print_table

QUICK_MINUTES = 2.7

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
    from layernorm.lab.benchmarks import comparison, processes

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
    from layernorm.lab.benchmarks import engine, processes
    from layernorm.lab.experiments import terminal

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


@app.command("training")
def bench_training(
    models: Annotated[
        str | None, typer.Option(help="mlp, digits, lstm, with commas. Default: all.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer samples.")] = False,
    threads: Annotated[int, typer.Option(help="As a sweep's runs have.")] = 1,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write all rows there.")] = None,
    profile: Annotated[
        str | None, typer.Option(help="Save records; killed, it goes on after the last of them.")
    ] = None,
) -> None:
    """Time whole updates (forward, loss, backward, Adam) with each method and implementation.

    One update of each must first agree with its definition in float64. Ratios are to the same
    model without normalization, in turns, with the 95% interval of the median.
    """
    from layernorm.lab.benchmarks import comparison, processes, training
    from layernorm.lab.benchmarks.report import MEASURED, NO_DEVICE
    from layernorm.lab.experiments import terminal
    from layernorm.lab.records.files import runs_folder

    plan = training.plan(models, device, quick)
    terminal.use_threads(threads)
    processes.check_outputs(as_json, profile)
    rows = []
    for measured in training.run(plan, profile):
        rows += measured
        if sys.stderr.isatty():
            first = measured[0]
            typer.echo(f"{first.options['model']} {first.shape}: done", err=True)
    print_table((table := training.table(rows))[0], table[1:])
    if as_json is not None:
        comparison.write_json(rows, as_json)
    if profile is not None:
        typer.echo(f"records: {runs_folder(None) / 'bench_training' / profile}")
    if any(row.status not in (MEASURED, NO_DEVICE) for row in rows):
        raise typer.Exit(1)


@app.command("norms")
def bench_norms(
    quick: Annotated[bool, typer.Option("--quick", help="Few shapes: at most 3 minutes.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    methods: Annotated[
        str | None, typer.Option(help="With commas; also residual. Default: all.")
    ] = None,
    dtypes: Annotated[str | None, typer.Option(help="float32, float16, bfloat16.")] = None,
    modes: Annotated[str | None, typer.Option(help="forward, backward, forward+backward.")] = None,
    shapes: Annotated[
        str | None, typer.Option(help="Rows x elements, such as 4096x1024,16x769.")
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compile/--no-compile", help="With torch.compile.")
    ] = True,
    again: Annotated[bool, typer.Option("--again", help="Measure what is recorded, too.")] = False,
    minutes: Annotated[
        float | None, typer.Option(help="Begin no case later. Default: 2.7 if quick, else no end.")
    ] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write all rows there.")] = None,
    profile: Annotated[
        str | None, typer.Option(help="Of the records. Default: quick, or full_float32 etc.")
    ] = None,
) -> None:
    """Time the normalizations: the definition, torch's own, torch.compile, ours, and peers.

    Each must first agree with the definition in float64. Ratios are to torch's own, in turns, with
    the 95% interval of the median; the roof is a copy measured alike. Every result is recorded at
    once; killed or out of time, it goes on where it was. Records of other devices are shown beside.
    """
    import math
    import time

    from layernorm.lab.benchmarks import comparison, norms_table, plans, processes, survey
    from layernorm.lab.benchmarks.report import MEASURED, NO_DEVICE

    if minutes is not None and not minutes > 0:
        raise ValueError(f"minutes: expected more than 0, got {minutes}")
    chosen = plans.plan(quick, device, methods, dtypes, modes, shapes, profile, compiled)
    processes.check_outputs(as_json, None)
    limit = minutes or (QUICK_MINUTES if quick else math.inf)
    rows, left = [], len(chosen.cases)
    for _, found in survey.run(chosen, again=again, until=time.monotonic() + 60 * limit):
        rows += found
        left -= 1
        if sys.stderr.isatty():
            typer.echo(norms_table.progress(found), err=True)
    if not plans.present(chosen.device):
        typer.echo(f"{chosen.device}: {NO_DEVICE}\n")
    others = [row for row in norms_table.recorded(chosen) if row.status == MEASURED]
    mine = {norms_table.machine(row) for row in rows}
    shown = rows + [row for row in others if norms_table.machine(row) not in mine]
    for title, table in norms_table.tables(shown):
        typer.echo(title)
        print_table(table[0], table[1:])
        typer.echo()
    for reason in norms_table.reasons(rows):
        typer.echo(reason)
    if as_json is not None:
        comparison.write_json(rows, as_json)
    if plans.present(chosen.device):
        typer.echo(f"records: {' '.join(map(str, survey.folders(chosen)))}")
    if left:
        typer.echo(f"{left} of {len(chosen.cases)} cases are left; the same command goes on")
