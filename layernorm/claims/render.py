"""Claims with their findings, to read in a terminal and in a notebook; both are fixed text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from layernorm.claims.schema import Claim, Finding

# Mark and badge color of each verdict. White text has a contrast of at least 4.5 on these colors,
# so a badge reads the same on light and dark pages; the mark and the word carry the meaning alone.
_BADGES = {
    "proved": ("✓", "#1a7f37"),
    "supported here": ("✓", "#1a7f37"),
    "conditional": ("◐", "#8a5a00"),
    "refuted": ("✗", "#b42318"),
    "opposite here": ("✗", "#b42318"),
    "no difference here": ("=", "#0550ae"),
    "inconclusive": ("?", "#57606a"),
    "not yet tested": ("…", "#57606a"),
    "uncheckable": ("–", "#57606a"),
}


@dataclass(frozen=True)
class Ledger:
    """Claims and what was found, in this order."""

    entries: Sequence[tuple[Claim, Finding]]

    def __iter__(self) -> Iterator[tuple[Claim, Finding]]:
        return iter(self.entries)

    def __repr__(self) -> str:
        return "\n\n".join(text(claim, finding) for claim, finding in self.entries) or "no claims"

    def _repr_html_(self) -> str:
        rows = "\n".join(_row(claim, finding) for claim, finding in self.entries)
        head = '<th style="text-align: left">Verdict</th><th style="text-align: left">Claim</th>'
        # `dataframe` is the class that notebook and book styles know how to show in the dark.
        return (
            f'<table class="dataframe claims">\n<thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{rows}\n</tbody>\n</table>"
        )


def text(claim: Claim, finding: Finding, *, rule: bool = False) -> str:
    """A claim and its finding as lines of at most 96 characters."""
    mark, _ = _BADGES[finding.verdict]
    lines = [f"{mark} {finding.verdict:<18} {claim.id}"]
    parts = [claim.statement, finding.sentence, f"({_source(claim)})"]
    if rule and claim.rule:
        parts.append(f"Rule: {claim.rule}")
    indent = " " * 21
    for part in filter(None, parts):
        lines += textwrap.wrap(part, 96, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines)


def _row(claim: Claim, finding: Finding) -> str:
    mark, color = _BADGES[finding.verdict]
    badge = (
        f'<span style="background: {color}; color: #fff; border-radius: 1em; '
        f'padding: 0.1em 0.7em; white-space: nowrap">{mark} {finding.verdict}</span>'
    )
    rule = f"<br><small>Rule: {escape(claim.rule)}</small>" if claim.rule else ""
    evidence = f"<br>{escape(finding.sentence)}" if finding.sentence else ""
    return (
        f'<tr><td style="text-align: left; vertical-align: top">{badge}</td>'
        f'<td style="text-align: left; vertical-align: top; white-space: normal">'
        f"<strong>{escape(claim.statement)}</strong>{evidence}{rule}"
        f"<br><small><code>{claim.id}</code> · {escape(_source(claim))}</small></td></tr>"
    )


def _source(claim: Claim) -> str:
    return f"{claim.kind}, chapter {claim.chapter}; {', '.join(claim.said_by)}"
