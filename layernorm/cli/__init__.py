"""The command `layernorm`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from layernorm.cli import bench
from layernorm.cli.text import print_table


class _OneLineErrors(TyperGroup):
    """What the package refuses becomes one message and exit code 1, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (ValueError, OSError, ModuleNotFoundError) as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=_OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # an error is a line of text, not a box
    help="Layer normalization: claims and their verdicts, records of runs, data, this machine.",
)
records_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Records of runs, own and published."
)
data_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Data sets: what there is, fetch, verify."
)
app.add_typer(records_app, name="records")
app.add_typer(data_app, name="data")
app.add_typer(bench.app, name="bench")


@app.command()
def claims(
    id: Annotated[str | None, typer.Argument(help="One claim; it is shown with its rule.")] = None,
    kind: Annotated[str | None, typer.Option(help="proof, property or experiment.")] = None,
    chapter: Annotated[str | None, typer.Option(help="Two digits, 01 to 22.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects, all fields.")] = False,
) -> None:
    """Decide claims now.

    Shows what the paper and its summaries say, the verdict and the evidence.
    """
    from layernorm.lab import claims as ledger
    from layernorm.lab.claims.render import text

    if id is not None and (kind or chapter):
        raise typer.BadParameter("one claim is named by its ID alone, without --kind or --chapter")
    chosen = (ledger.get(id),) if id is not None else ledger.select(chapter, kind)
    decided, failures = [], []
    for claim in _with_progress(chosen):
        try:
            decided.append((claim, ledger.decide(claim.id)))
        except ledger.ClaimError as error:
            failures.append(error)
    if as_json:
        rows = [_as_dict(claim, finding) for claim, finding in decided]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False))
    elif decided:
        shown = (text(claim, finding, rule=id is not None) for claim, finding in decided)
        typer.echo("\n\n".join(shown))
    elif not failures:
        typer.echo("no claims")
    for error in failures:
        typer.echo(f"Error: {error}", err=True)
    if failures:
        raise typer.Exit(1)


def _with_progress(items: Sequence[Any]) -> Iterator[Any]:
    if not sys.stderr.isatty():
        yield from items
        return
    with typer.progressbar(items, label="deciding", file=sys.stderr) as bar:
        yield from bar


def _as_dict(claim: Any, finding: Any) -> dict[str, Any]:
    """Strict JSON: numbers that are not finite are the strings "nan", "inf" and "-inf"."""
    numbers = {k: v if math.isfinite(v) else str(v) for k, v in finding.numbers.items()}
    return {
        "id": claim.id,
        "statement": claim.statement,
        "said_by": list(claim.said_by),
        "kind": claim.kind,
        "chapter": claim.chapter,
        "rule": claim.rule,
        "verdict": finding.verdict,
        "condition": finding.condition,
        "reason": finding.reason,
        "evidence": finding.evidence,
        "numbers": numbers,
    }


@records_app.command("list")
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


@records_app.command("add")
def add_records(
    paths: Annotated[list[Path], typer.Argument(help="Run files, or folders that hold some.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Drop the sweeps' other published runs.")
    ] = False,
) -> None:
    """Publish runs in the package.

    They are added to its own records, one compact file per sweep.
    """
    from layernorm.lab import records

    for path in records.publish(paths, replace=replace):
        typer.echo(path)


@data_app.command("list")
def list_data() -> None:
    """List data sets and where they are."""
    from layernorm.lab import data

    rows = [[row["name"], row["license"], row["status"], row["what"]] for row in data.describe()]
    print_table(["name", "license", "status", "content"], rows)


Names = Annotated[list[str] | None, typer.Argument(help="Data sets; all if none is named.")]


@data_app.command("fetch")
def fetch_data(names: Names = None) -> None:
    """Download what is not here, and check it."""
    from layernorm.lab import data

    for name in names or data.DATASETS:
        _print_found(name, data.fetch(name))


@data_app.command("verify")
def verify_data(names: Names = None) -> None:
    """Check the hashes of what is here."""
    from layernorm.lab import data

    for name in names or data.DATASETS:
        _print_found(name, data.verify(name))


def _print_found(name: str, found: Iterable[Any]) -> None:
    for file in found:
        typer.echo(f"{name}: {file.path or file.file} has sha256 {file.sha256}, as expected")


Sets = Annotated[
    list[str] | None, typer.Option("--set", help="key=value; repeat it. A value is JSON or a word.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[int, typer.Option(help="Of each run; other numbers give other last bits.")]


@app.command()
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


@app.command()
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


@app.command()
def doctor() -> None:
    """Show what works here, and why not the rest."""
    from layernorm.cli.doctor import examine

    broken = False
    topic = None
    for line in examine():
        if line.topic != topic:
            topic = line.topic
            typer.echo(topic)
        typer.echo(f"{'✗' if line.problem else ' '} {line.name:<14} {line.says}")
        broken = broken or line.problem
    if broken:
        typer.echo("Error: what is marked ✗ is broken", err=True)
        raise typer.Exit(1)
