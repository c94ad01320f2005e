"""The command `layernorm challenge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def challenge(
    id: Annotated[str, typer.Argument(metavar="CLAIM", help="`layernorm claims` lists them.")],
    seeds: Annotated[
        str | None, typer.Option(help="With commas. Default: seeds that nobody has run.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Default: as the cores allow.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs and the answer.")] = Path(
        "challenges"
    ),
) -> None:
    """Decide a claim afresh on this machine, beside the published verdict.

    Makes the runs that decide it with other seeds, measures again what was timed, or searches from
    other random draws. Interrupted, the same command goes on. The answer is a file: a pull request
    with it is welcome whichever way it turns out.
    """
    from layernorm.cli.text import Runs, integers
    from layernorm.lab.claims import challenge as fresh
    from layernorm.lab.claims.render import text

    with Runs(id) as progress:
        answer = fresh.challenge(
            id, integers("seeds", seeds), root=out / "runs", workers=workers, progress=progress
        )
    for who, finding in (("Published", answer.published), ("Here", answer.fresh)):
        typer.echo(f"{who}:\n{text(answer.claim, finding, rule=who == 'Published')}\n")
    said = "the same verdict" if answer.agrees else "another verdict"
    typer.echo(f"{said}: {answer.save(out)}")
