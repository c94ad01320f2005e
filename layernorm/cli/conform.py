"""The command `layernorm conform`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from layernorm.cli.run import Sets


def conform(
    path: Annotated[str, typer.Argument(metavar="package.module:Class")],
    sets: Sets = None,
    shape: Annotated[str, typer.Option(help="Of the inputs, cases first, with commas.")] = "4,5,8",
    units: Annotated[int | None, typer.Option(help="Default: the last of the shape.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Say what a normalization computes, who published it, and what is wrong with it.

    The class is called with the number of units and what --set gives, the module with inputs of
    that shape. Found from outputs alone; exit code 1 where there is a fault or no known formula.
    """
    import os
    import sys

    from layernorm.cli.text import integers
    from layernorm.lab.conform import conform, find
    from layernorm.lab.experiments.options import assigned

    sys.path.insert(0, os.getcwd())  # as with python -m: a module may lie here
    if not (sizes := integers("shape", shape)):
        raise ValueError(f"shape must be integers with commas, such as 4,5,8, got {shape!r}")
    if units is not None and units < 1:
        raise ValueError(f"units must be at least 1, got {units}")
    module = find(path, assigned(sets or []), units or sizes[-1])
    try:
        report = conform(module, sizes)
    except ValueError as error:
        if units is not None or len(sizes) < 3 or sizes[1] in (0, sizes[-1]):
            raise
        raise ValueError(
            f"{error}; if its channels are dimension 1 of the inputs, give --units {sizes[1]}"
        ) from error
    lines = [json.dumps(report.as_json(), indent=1)] if as_json else report.lines()
    typer.echo("\n".join(lines))
    raise typer.Exit(0 if report.conforms else 1)
