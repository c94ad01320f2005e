"""The command `layernorm`."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from layernorm.cli import bench, challenge, claims, conform, data, doctor, records, run, sweep
from layernorm.cli.text import print_error


class _OneLineErrors(TyperGroup):
    """Commands whose errors become one message and exit code 1, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except KeyboardInterrupt:
            typer.echo("Stopped.", err=True)
            raise typer.Exit(130) from None
        except (ValueError, OSError, ModuleNotFoundError) as error:
            print_error(error)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=_OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # an error is a line of text, not a box
)


def _version(asked: bool) -> bool:
    if asked:
        typer.echo(f"layernorm {metadata.version('layernorm')}")
        raise typer.Exit
    return asked


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it, and end.")
    ] = False,
) -> None:
    """Layer normalization: claims and their verdicts, records of runs, data, this machine."""


app.command()(claims.claims)
app.command()(challenge.challenge)
app.add_typer(records.app, name="records")
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")
app.command()(run.run)
app.command()(run.experiments)
app.command()(sweep.sweep)
app.command()(conform.conform)
app.command()(doctor.doctor)
