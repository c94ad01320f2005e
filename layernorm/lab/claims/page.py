"""The registry of claims as a page: counts, tables by chapter, errata, and what each source says.

Every function takes decided claims, `claims.show()`, and computes the rest from them, so the page
grows as claims are declared and decided.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from layernorm.lab.claims import Claim, Decided, Finding, sources
from layernorm.lab.claims.experiments import WIDTH
from layernorm.lab.claims.pages import SIDE_PATHS, on_side_paths
from layernorm.lab.claims.render import row, text
from layernorm.lab.claims.schema import EXPLORATORY, NOT_YET_TESTED, ORDER
from layernorm.lab.experiments.compare import NARROW

if TYPE_CHECKING:
    import pandas

# The chapters that are there, by number. Their pages are in the ledger's own folder; a package that
# was installed without its notebooks has none, and the ledger no links.
NOTEBOOKS = Path(__file__).parents[3] / "notebooks"
PAGES = {path.stem[:2]: path.stem for path in sorted(NOTEBOOKS.glob("[0-9][0-9]-*.ipynb"))}
OPEN = ("inconclusive", EXPLORATORY, NOT_YET_TESTED)
WRONG = ("refuted", "opposite here", "not so printed")


def anchor(id: str) -> str:
    """The name of a claim's row among the verdicts of its chapter's page.

    The book gives that name to the row when its pages are built (book/_ext/claim_anchors.py).
    """
    return f"claim-{id}"


class Linked(Decided):
    """Claims that link to their chapters and to the rows in them that show their verdicts."""

    def _row(self, claim: Claim, finding: Finding) -> str:
        return row(claim, finding, links(claim, finding))


def page_of(claim: Claim) -> str | None:
    """The page that shows the verdict of a claim, None where there is none."""
    return SIDE_PATHS if on_side_paths(claim) else PAGES.get(claim.chapter)


def links(claim: Claim, finding: Finding) -> str:
    """To the chapter and, if the claim is decided, to the verdict there and to the runs that decide
    it; "" without a page."""
    page = page_of(claim)
    if page is None:
        return ""
    side = "side path of " * (page == SIDE_PATHS)
    ways = [f'<a href="{page}.html">{side}chapter {int(claim.chapter)}</a>']
    if finding.verdict != NOT_YET_TESTED:
        ways.append(f'<a href="{page}.html#{anchor(claim.id)}">where it is decided</a>')
        if claim.runs:
            ways.append(f'<a href="../data/{claim.runs}.csv">its runs (CSV)</a>')
    return " · ".join(ways)


def counts(decided: Decided) -> pandas.DataFrame:
    """Count claims by verdict and kind; verdicts that no claim has are left out."""
    import pandas

    pairs = [(finding.verdict, claim.kind) for claim, finding in decided]
    frame = pandas.DataFrame(pairs, columns=["verdict", "kind"])
    table = pandas.crosstab(frame.verdict, frame.kind)
    present = [verdict for verdict in ORDER if verdict in table.index]
    table = table.reindex(present).rename_axis(index=None, columns=None)
    return table.assign(all=table.sum(axis=1))


def power(decided: Decided) -> pandas.DataFrame:
    """How narrow the intervals of judged comparisons came out, by experiment: their number, of how
    many the half-width is at most what the plans ask for and at most the margin, and the median."""
    import pandas

    widths: dict[str, dict[str, float]] = {}
    for claim, finding in decided:
        for shown in finding.table if finding.verdict != EXPLORATORY else ():
            if width := shown.get(WIDTH):
                of_runs = widths.setdefault(claim.runs.removesuffix("-standard"), {})
                of_runs[shown["comparison"]] = float(width)
    rows = {}
    for runs, found in sorted(widths.items()):
        each = pandas.Series(found)
        narrow = {f"at most {bound:g}": (each <= bound).sum() for bound in (NARROW, 1)}
        rows[runs] = {"comparisons": len(each), **narrow, "median": f"{each.median():.2f}"}
    return pandas.DataFrame.from_dict(rows, orient="index")


def errata(decided: Decided, source: str, *verdicts: str) -> Decided:
    """The claims of a source ("paper", "summary A" to "summary E", "others") with these verdicts.

    Raises:
        ValueError: there is no such source or verdict.
    """
    if source not in sources.load():
        raise ValueError(f"source must be one of {', '.join(sources.load())}; got {source!r}")
    for verdict in verdicts:
        if verdict not in ORDER:
            raise ValueError(f"verdicts must be of {', '.join(ORDER)}; got {verdict!r}")
    return Linked(
        [
            (claim, finding)
            for claim, finding in decided
            if finding.verdict in verdicts and any(s.startswith(source) for s in claim.said_by)
        ]
    )


def statements(decided: Decided) -> pandas.DataFrame:
    """Count the statements of each source: those whose claims all have a verdict, those of which
    some have, those of which none has, and those that nothing can check.

    A claim has a verdict if it is not inconclusive, exploratory or not yet tested. A statement that
    repeats another source's counts where it stands.
    """
    import pandas

    undecided = {c.id for c, finding in decided if finding.verdict in OPEN}
    rows = {}
    for name, source in sources.load().items():
        checkable = [set(s.claims) for s in source.statements if s.claims]
        closed = sum(not ids & undecided for ids in checkable)
        open_ = sum(ids <= undecided for ids in checkable)
        rows[name] = {
            "statements": len(source.statements),
            "decided": closed,
            "partly decided": len(checkable) - closed - open_,
            "undecided": open_,
            "uncheckable": len(source.statements) - len(checkable),
        }
    return pandas.DataFrame.from_dict(rows, orient="index")


def verdicts_of(decided: Decided, *names: str) -> dict[str, int]:
    """Count the verdicts of the claims that these sources say ("paper", or the start of names)."""
    counts = dict.fromkeys(ORDER, 0)
    for claim, finding in decided:
        if any(said.startswith(names) for said in claim.said_by):
            counts[finding.verdict] += 1
    return counts


class ByChapter(Linked):
    """All claims, one folded table for each chapter; the book's pages add a filter (ledger.js).

    As plain text only their verdicts, a line each: with the evidence it would be as long again.
    """

    def __repr__(self) -> str:
        return "\n".join(text(*entry).partition("\n")[0] for entry in self.entries)

    def _repr_html_(self) -> str:
        chapters = sorted({claim.chapter for claim, _ in self.entries})
        return f'<div class="ledger">\n{"".join(map(self._chapter, chapters))}</div>'

    def _chapter(self, chapter: str) -> str:
        entries = [(claim, found) for claim, found in self.entries if claim.chapter == chapter]
        page = PAGES.get(chapter)
        title = f"Chapter {int(chapter)}" + (f": {_title(page)}" if page else "")
        rows = "\n".join(
            f'<tr data-verdict="{found.verdict}" data-kind="{claim.kind}" '
            f'data-said="{escape(", ".join(claim.said_by))}">'
            + self._row(claim, found).removeprefix("<tr>")
            for claim, found in entries
        )
        return (
            f"<details><summary><strong>{title}</strong> ({len(entries)})</summary>\n"
            f'<table class="dataframe claims">\n<tbody>\n{rows}\n</tbody>\n</table></details>\n'
        )


def _title(page: str) -> str:
    """The first heading of a notebook."""
    with (NOTEBOOKS / f"{page}.ipynb").open(encoding="utf-8") as lines:
        found = (re.match(r'\s*"# (.+?)(\\n)?",?$', line) for line in lines)
        return escape(next(match[1] for match in found if match))
