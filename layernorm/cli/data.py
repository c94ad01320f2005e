"""The commands `layernorm data list|fetch|verify`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from layernorm.cli.text import print_error, print_table

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Data sets: what there is, fetch, verify."
)


@app.command("list")
def list_data() -> None:
    """List data sets and where they are."""
    from layernorm.lab import data

    rows = [[row["name"], row["license"], row["status"], row["what"]] for row in data.describe()]
    print_table(["name", "license", "status", "content"], rows)


Names = Annotated[list[str] | None, typer.Argument(help="Data sets; all if none is named.")]


@app.command("fetch")
def fetch_data(names: Names = None) -> None:
    """Download what is not here, and check it."""
    from layernorm.lab import data

    for name in names or data.DATASETS:
        _print_found(name, data.fetch(name))


@app.command("verify")
def verify_data(names: Names = None) -> None:
    """Check the hashes of what is here.

    Without names, sets that were not fetched are only told; a named one that is not here, or a hash
    that is another one, is an error once all have been looked at.
    """
    from layernorm.lab import data

    failed = False
    for name in names or data.DATASETS:
        try:
            _print_found(name, data.verify(name))
        except (ValueError, OSError, ModuleNotFoundError) as error:
            absent = isinstance(error, FileNotFoundError) and not names
            failed |= not absent
            typer.echo(f"{error}") if absent else print_error(error)
    raise typer.Exit(1 if failed else 0)


def _print_found(name: str, found: Iterable[Any]) -> None:
    for file in found:
        typer.echo(f"{name}: {file.path or file.file} has sha256 {file.sha256}, as expected")
