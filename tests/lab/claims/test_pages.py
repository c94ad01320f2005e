"""Every claim has one page: that of its chapter, or the side paths."""

import pytest

from layernorm.lab import claims
from layernorm.lab.claims import pages


def test_no_claim_is_lost_and_none_is_shown_twice():
    names = [*claims.CHAPTERS, pages.SIDE_PATHS]
    ids = [claim.id for name in names for claim in pages.shown(name)]
    assert sorted(ids) == sorted(claim.id for claim in claims.all())


def test_side_paths_have_what_they_name_and_their_chapters_do_not():
    assert [claim.id for claim in pages.shown("side-paths")] == list(pages.IDS)
    assert "removes-correlation" in [claim.id for claim in claims.select("01")]
    assert "removes-correlation" not in [claim.id for claim in pages.shown("01")]


def test_findings_are_shown():
    found = {claim.id: finding.verdict for claim, finding in pages.show("01")}
    assert list(found) == [claim.id for claim in pages.shown("01")]
    assert found["inactive-region-avoided"] == "conditional"


def test_a_page_that_is_not_there_is_refused(monkeypatch):
    with pytest.raises(claims.ClaimError, match="page must be a chapter or 'side-paths': chapter"):
        pages.shown("1")
    monkeypatch.setattr(pages, "IDS", ("removes-correlations",))
    with pytest.raises(claims.ClaimError, match="did you mean removes-correlation"):
        pages.show("side-paths")
