"""The commands `layernorm bench ...`."""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layernorm.cli.run import use_threads

if TYPE_CHECKING:
    from layernorm.lab.benchmarks.measure import Plan, Row, Table

QUICK_MINUTES = 2.7

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The costs of things on this machine."
)
Again = Annotated[bool, typer.Option("--again", help="Measure what is recorded, too.")]
AsJson = Annotated[Path | None, typer.Option("--json", help="Write all rows there.")]
Profile = Annotated[
    str | None, typer.Option(help="Save records for `records add`; killed, it goes on.")
]
Subjects = Annotated[str | None, typer.Option(help="Implementations, with commas. Default: all.")]
Processes = Annotated[int, typer.Option(help="How many measure: 1, or at least 6.")]
Rounds = Annotated[int, typer.Option(help="Samples of each in a process; of one alone at least 6.")]
Quick = Annotated[bool, typer.Option("--quick", help="Few samples: minutes instead of hours.")]


def _threads(about: str) -> typer.models.OptionInfo:
    """The option `--threads`; too few or too many are refused."""

    def checked(number: int | None) -> int | None:
        from layernorm.lab.experiments.machine import check_number

        if number is not None:
            check_number("threads", number)
        return number

    return typer.Option(help=about, callback=checked)


@app.callback()
def bench() -> None:
    """The costs of things on this machine; nothing that is wrong is timed."""


def measured(plan: Plan, again: bool, json_path: Path | None, until: float = math.inf) -> list[Row]:
    """The rows of a plan in its order, as far as there is time.

    Raises:
        ValueError: the path is a folder, or in none that can be written to; nothing is measured.
    """
    from layernorm.lab.benchmarks.measure import run, table

    if json_path is not None and not json_path.parent.is_dir():
        raise ValueError(f"json: the folder of {json_path} does not exist; create it first")
    if json_path is not None and json_path.is_dir():
        raise ValueError(f"json: {json_path} is a folder; name a file")
    if json_path is not None:
        try:
            tempfile.TemporaryFile(dir=json_path.parent).close()
        except OSError as error:
            raise ValueError(
                f"json: {json_path.parent} cannot be written to ({error}); name another place"
            ) from error
    done = {}
    for case, rows in run(plan, again=again, until=until):
        done[case] = rows
        if sys.stderr.isatty():
            typer.echo(table.progress(rows), err=True)
    if left := len(plan) - len(done):
        typer.echo(f"{left} of {len(plan)} cases are left; the same command goes on\n")
    return [row for case in plan for row in done.get(case, [])]


def show(
    plan: Plan,
    rows: Sequence[Row],
    tables: Iterable[Table],
    told: Sequence[str] | None,
    json_path: Path | None,
) -> None:
    """Print tables and what else is to be told (None: what went wrong), write what was asked for,
    say where records are; end with exit code 1 where something is wrong, failed or crashed."""
    from layernorm.lab.benchmarks.measure import MEASURED, NO_DEVICE, resume
    from layernorm.lab.benchmarks.measure.table import problems

    for table in tables:
        typer.echo(f"{table.text()}\n")
    for line in problems(rows) if told is None else told:
        typer.echo(line)
    if json_path is not None:
        resume.write_json(rows, json_path)
    found = {row.status for row in rows}
    if found != {NO_DEVICE} and (folders := resume.folders(plan)):
        typer.echo(f"records: {' '.join(map(str, folders))}")
    if found - {MEASURED, NO_DEVICE}:
        raise typer.Exit(1)


@app.command("recurrent")
def bench_recurrent(
    kind: Annotated[str, typer.Option(help="lstm, gru or both.")] = "both",
    mode: Annotated[str, typer.Option(help="training, inference or both.")] = "both",
    shapes: Annotated[
        str | None, typer.Option(help="T,B,I,H; several with semicolons. Default: nine.")
    ] = None,
    subjects: Subjects = None,
    threads: Annotated[int | None, _threads("Default: as many as torch uses.")] = None,
    processes: Processes = 10,
    rounds: Rounds = 3,
    huge_pages: Annotated[
        str, typer.Option(help="off, on or both: THP_MEM_ALLOC_ENABLE; both: ours and torch's.")
    ] = "both",
    memory: Annotated[bool, typer.Option(help="Measure memory of processes, too.")] = True,
    again: Again = False,
    as_json: AsJson = None,
    profile: Profile = None,
) -> None:
    """Time LN-LSTM and LN-GRU against torch's layers and the loops that people write.

    Everything must first agree with its definition in float64. Ratios are to torch.nn's layer,
    measured in turns in each process, with the 95% interval of the processes' median. torch's layer
    has no norms: it is another function, what one would use instead.
    """
    from layernorm.lab.benchmarks.recurrent import plan as plans
    from layernorm.lab.benchmarks.recurrent import tables

    plan = plans.plan(
        kind, mode, shapes, subjects, threads, rounds, huge_pages, memory, profile, processes
    )
    rows = measured(plan, again, as_json)
    show(plan, rows, tables.tables(rows), [tables.verdict(rows)], as_json)


@app.command("packed")
def bench_packed(
    kind: Annotated[str, typer.Option(help="lstm, gru or both.")] = "both",
    shapes: Annotated[
        str | None, typer.Option(help="T,B,I,H; several with semicolons. Default: six.")
    ] = None,
    subjects: Subjects = None,
    threads: Annotated[int | None, _threads("Default: one, then two.")] = None,
    processes: Processes = 10,
    rounds: Rounds = 3,
    again: Again = False,
    as_json: AsJson = None,
    profile: Profile = None,
) -> None:
    """Time LN-LSTM and LN-GRU on packed sequences against padded ones, and torch's layers.

    Lengths are uniform between T/4 and T. Everything must first agree with its definition in
    float64. Ratios are to ours packed, in turns, with the 95% interval of the processes' median.
    """
    from layernorm.lab.benchmarks import packed

    plan = packed.plan(kind, shapes, subjects, threads, rounds, profile, processes)
    rows = measured(plan, again, as_json)
    show(plan, rows, [packed.table(rows)], None, as_json)


@app.command("compile")
def bench_compile(
    kind: Annotated[str, typer.Option(help="lstm, gru or both.")] = "both",
    shapes: Annotated[
        str | None, typer.Option(help="T,B,I,H; several with semicolons. Default: 10,32,128,128.")
    ] = None,
    subjects: Subjects = None,
    threads: Annotated[int, _threads("Of the processes that compile.")] = 1,
    rounds: Annotated[int, typer.Option(help="Samples of each, at least 6.")] = 10,
    again: Again = False,
    as_json: AsJson = None,
    profile: Profile = None,
) -> None:
    """Time torch.compile of LN-LSTM and LN-GRU, packed sequences too, and of torch's layers.

    The first training step, forward and backward, in a new process without cached graphs; its
    results must be the definition's. torch.nn's layer is measured as torch.compile treats it, left
    out of the graph, and traced into it.
    """
    from layernorm.lab.benchmarks import compiling

    plan = compiling.plan(kind, shapes, subjects, threads, rounds, profile)
    rows = measured(plan, again, as_json)
    show(plan, rows, [compiling.table(rows)], None, as_json)


@app.command("training")
def bench_training(
    models: Annotated[
        str | None, typer.Option(help="mlp, digits, lstm, engine. Default: the first three.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    quick: Quick = False,
    threads: Annotated[int, typer.Option(help="As a sweep's runs have.")] = 1,
    processes: Annotated[
        int | None, typer.Option(help="How many measure. Default: 10 on a CPU, 1 if quick.")
    ] = None,
    again: Again = False,
    as_json: AsJson = None,
    profile: Profile = None,
) -> None:
    """Time whole updates (forward, loss, backward, Adam) with each method and implementation.

    One update of each must first agree with its definition in float64. Ratios are to the same
    model without normalization, in turns, with the 95% interval of the processes' median. The model
    engine is the experiments' trainer against loops written by hand.
    """
    from layernorm.lab.benchmarks import training

    plan = training.plan(models, device, quick, profile, processes=processes)
    use_threads(threads)
    rows = measured(plan, again, as_json)
    show(plan, rows, [training.table(rows)], None, as_json)


@app.command("workers")
def bench_workers(
    what: Annotated[str | None, typer.Option(help="updates, sweeps. Default: both.")] = None,
    quick: Quick = False,
    again: Again = False,
    as_json: AsJson = None,
    profile: Profile = None,
) -> None:
    """Time updates shared by 1, 2 and 4 processes, and sweeps by the engines installed here.

    A shared update must first have the gradient of one process in float64, and a sweep the results
    of runs made alone. Overhead is the time of a sweep's run by one process over one made alone.
    """
    from layernorm.lab.benchmarks import workers

    plan = workers.plan(what, quick, profile)
    use_threads(1)
    rows = measured(plan, again, as_json)
    show(plan, rows, workers.tables(rows), None, as_json)


@app.command("norms")
def bench_norms(
    quick: Quick = False,
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
    again: Again = False,
    minutes: Annotated[
        float | None, typer.Option(help="Begin no case later. Default: 2.7 if quick, else no end.")
    ] = None,
    as_json: AsJson = None,
    profile: Annotated[
        str | None, typer.Option(help="Of the records. Default: quick, or full_float32 etc.")
    ] = None,
) -> None:
    """Time the normalizations: the definition, torch's own, torch.compile, ours, and peers.

    Each must first agree with the definition in float64. Ratios are to torch's own, in turns, with
    the 95% interval of the median; the roof is a copy measured alike. Every result is recorded at
    once; killed or out of time, it goes on where it was. Records of other devices are shown beside.
    """
    import torch

    from layernorm.lab.benchmarks.measure import NO_DEVICE
    from layernorm.lab.benchmarks.measure.table import problems
    from layernorm.lab.benchmarks.measure.timing import present
    from layernorm.lab.benchmarks.norms import plan as plans
    from layernorm.lab.benchmarks.norms import tables

    if minutes is not None and not minutes > 0:
        raise ValueError(f"minutes: expected more than 0, got {minutes}")
    plan = plans.plan(quick, device, methods, dtypes, modes, shapes, profile, compiled)
    limit = minutes or (QUICK_MINUTES if quick else math.inf)
    rows = measured(plan, again, as_json, time.monotonic() + 60 * limit)
    where = plan[0].device
    here = present(torch.device(where))
    if not here:
        typer.echo(f"{where}: {NO_DEVICE}\n")
    mine = {row.machine for row in rows}
    shown = rows + [row for row in tables.elsewhere(plan) if row.machine not in mine]
    told = [*problems(rows), *(plans.absent(plan) if here else [])]
    show(plan, rows, tables.tables(shown), told, as_json)
