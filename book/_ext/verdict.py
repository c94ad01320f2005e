"""Sphinx extension: the role `{verdict}` shows the verdict of a claim and links to where it is
decided, so that a page of advice cannot say another verdict than the ledger does.

    {verdict}`learns-online/digits`

A claim whose chapter has no page yet leads to the ledger. An unknown id fails the build.
"""

from functools import cache

from docutils import nodes
from sphinx.util.docutils import SphinxRole

from layernorm.lab.claims import ClaimError, get
from layernorm.lab.claims.page import anchor, page_of
from layernorm.lab.claims.schema import NOT_YET_TESTED
from layernorm.lab.claims.verdicts import Stored


@cache
def stored() -> Stored:
    return Stored()


def shown(id: str) -> tuple[str, str, str]:
    """The verdict of a claim, the page that shows it, and the address in that page.

    Raises:
        ClaimError: there is no such claim.
    """
    claim = get(id)
    verdict, page = stored().finding(claim).verdict, page_of(claim)
    at = f"#{anchor(id)}" if page and verdict != NOT_YET_TESTED else ""
    return verdict, f"notebooks/{page or 'the-ledger'}", at


class Verdict(SphinxRole):
    def run(self):
        try:
            verdict, page, at = shown(self.text)
        except ClaimError as error:
            message = self.inliner.reporter.error(str(error), line=self.lineno)
            return [self.inliner.problematic(self.rawtext, self.rawtext, message)], [message]
        uri = self.env.app.builder.get_relative_uri(self.env.docname, page) + at
        text = nodes.reference(
            "", "", nodes.emphasis(text=verdict), refuri=uri, classes=["verdict"]
        )
        return [text], []


def setup(app):
    app.add_role("verdict", Verdict())
    return {"version": "1", "parallel_read_safe": True}
