"""Claims with their findings, to read in a terminal and in a notebook; both are fixed text."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from layernorm.lab.claims.schema import Claim, Finding

OPEN = 6  # comparisons that a claim shows without a click

# Mark and badge color of each verdict. White text has a contrast of at least 4.5 on these colors,
# so a badge reads the same on light and dark pages; the mark and the word carry the meaning alone.
_BADGES = {
    "proved": ("✓", "#1a7f37"),
    "held": ("✓", "#1a7f37"),
    "so printed": ("✓", "#1a7f37"),
    "supported here": ("✓", "#1a7f37"),
    "conditional": ("◐", "#8a5a00"),
    "refuted": ("✗", "#b42318"),
    "opposite here": ("✗", "#b42318"),
    "not so printed": ("✗", "#b42318"),
    "not better here": ("≥", "#0550ae"),
    "no difference here": ("=", "#0550ae"),
    "depends": ("◐", "#8a5a00"),
    "inconclusive": ("?", "#57606a"),
    "exploratory": ("·", "#57606a"),
    "not yet tested": ("…", "#57606a"),
}


@dataclass(frozen=True)
class Decided:
    """Claims and what was found, in this order."""

    entries: Sequence[tuple[Claim, Finding]]

    def __iter__(self) -> Iterator[tuple[Claim, Finding]]:
        return iter(self.entries)

    def __repr__(self) -> str:
        return "\n\n".join(text(claim, finding) for claim, finding in self.entries) or "no claims"

    def _repr_html_(self) -> str:
        rows = "\n".join(self._row(claim, finding) for claim, finding in self.entries)
        # `dataframe` is the class that notebook and book styles know how to show in the dark.
        return f'<table class="dataframe claims">\n<tbody>\n{rows}\n</tbody>\n</table>'

    def _row(self, claim: Claim, finding: Finding) -> str:
        return row(claim, finding)


def text(claim: Claim, finding: Finding, *, rule: bool = False, outdated: bool = False) -> str:
    """A claim and its finding as lines of at most 96 characters.

    Args:
        claim: which claim.
        finding: its verdict and evidence.
        rule: also by which rule it was decided.
        outdated: say that the verdict belongs to code or records that have changed.
    """
    mark, _ = _BADGES[finding.verdict]
    lines = [f"{mark} {finding.verdict:<18} {claim.id}"]
    parts = [claim.statement, finding.sentence, f"({_source(claim)})"]
    if rule and claim.rule:
        parts.append(f"Rule: {claim.rule}")
    if outdated:
        parts.append("Decided before code or records changed; decide it again with --check.")
    indent = " " * 21
    for part in filter(None, parts):
        lines += textwrap.wrap(part, 96, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines)


def row(claim: Claim, finding: Finding, links: str = "") -> str:
    """A claim and its finding as a row of a table; `links` are HTML, on a line of their own."""
    mark, color = _BADGES[finding.verdict]
    badge = (
        f'<span style="background: {color}; color: #fff; border-radius: 1em; padding: 0.1em 0.7em; '
        f'margin-right: 0.3em; white-space: nowrap">{mark} {finding.verdict}</span>'
    )
    sentence = finding.reason if finding.table else finding.sentence
    evidence = f"<br>{escape(sentence)}" if sentence else ""
    evidence += _comparisons(finding.table)
    links = f"<br>{links}" if links and not finding.table else links
    rule = f"<br>Rule: {escape(claim.rule)}" if claim.rule else ""
    return (
        '<tr><td style="text-align: left; white-space: normal; padding: 0.6em">'
        f"{badge} <strong>{escape(claim.statement)}</strong>{evidence}{links}"
        f"<details><summary><small>{escape(_source(claim))}</small></summary>"
        f"<small><code>{claim.id}</code>{rule}</small></details></td></tr>"
    )


def _comparisons(table: Sequence[Mapping[str, str]]) -> str:
    """A line for each comparison; many are folded below one that counts them and their verdicts."""
    lines = "".join(map(_comparison, table))
    if len(table) <= OPEN:
        return lines
    verdicts = Counter(filter(None, (shown.get("verdict") for shown in table)))
    counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    title = ": ".join(filter(None, (f"{len(table)} comparisons", escape(counted))))
    return f"<details><summary>{title}</summary>{lines}</details>"


def _comparison(shown: Mapping[str, str]) -> str:
    """A comparison in one line: its name, then what there is, each with its name before it."""
    name, *parts = shown.items()
    said = "; ".join(f"{what} {value}" for what, value in parts if value)
    return (
        f'<div class="comparison" style="margin-left: 1em"><em>{escape(name[1])}</em>: '
        f"{escape(said) or 'no runs'}</div>"
    )


def _source(claim: Claim) -> str:
    return f"{', '.join(claim.said_by)}; {claim.kind}, chapter {claim.chapter}"
