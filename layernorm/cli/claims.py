"""The command `layernorm claims`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from layernorm.cli.text import print_error


def claims(
    id: Annotated[str | None, typer.Argument(help="One claim; it is shown with its rule.")] = None,
    kind: Annotated[str | None, typer.Option(help="proof, property, experiment or text.")] = None,
    chapter: Annotated[str | None, typer.Option(help="Two digits, 01 to 22.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects, all fields.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Decide them now.")] = False,
    save: Annotated[bool, typer.Option("--save", help="With --check: store the verdicts.")] = False,
) -> None:
    """List claims with their verdicts and evidence.

    Shows what the paper and its summaries say, and what was found when the package was made. The
    computed numbers are given with --check.
    """
    from layernorm.lab import claims as registry
    from layernorm.lab.claims.render import text
    from layernorm.lab.claims.verdicts import Stored

    if id is not None and (kind or chapter):
        raise typer.BadParameter("one claim is named by its ID alone, without --kind or --chapter")
    if save and not check:
        raise typer.BadParameter("--save stores what --check has decided; give both")
    chosen = (registry.get(id),) if id is not None else registry.select(chapter, kind)
    stored = Stored()
    outdated = set() if check else stored.outdated(chosen)
    decided, failures = [], []
    for claim in _with_progress(chosen) if check else chosen:
        try:
            found = registry.decide(claim.id) if check else stored.finding(claim)
            decided.append((claim, found))
        except registry.ClaimError as error:
            failures.append(error)
    if save and not failures:
        stored.save(decided, registry.all())
    if as_json:
        rows = [_as_dict(claim, found, claim.id not in outdated) for claim, found in decided]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False))
    elif decided:
        shown = (text(c, f, rule=id is not None, outdated=c.id in outdated) for c, f in decided)
        typer.echo("\n\n".join(shown))
    elif not failures:
        typer.echo("no claims")
    for error in failures:
        print_error(error)
    if failures:
        raise typer.Exit(1)


def _with_progress(items: Sequence[Any]) -> Iterator[Any]:
    if not sys.stderr.isatty():
        yield from items
        return
    with typer.progressbar(items, label="deciding", file=sys.stderr) as bar:
        yield from bar


def _as_dict(claim: Any, finding: Any, current: bool) -> dict[str, Any]:
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
        "table": list(finding.table),
        "current": current,
    }
