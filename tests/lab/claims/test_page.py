"""The ledger says what the registry says, and links to the chapters that are in the book."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import yaml
from pairs import ROOT

from layernorm.lab import claims
from layernorm.lab.claims import Claim, Decided, Finding, page, sources


def entry(id, verdict, *said_by, chapter="03", kind="property"):
    condition = "eps = 0" if verdict == "conditional" else None
    finding = Finding(verdict, "Evidence.", condition)
    return Claim(id, f"{id} holds.", said_by, kind, chapter), finding


DECIDED = Decided(
    [
        entry("a", "refuted", "summary A", "paper section 3"),
        entry("b", "conditional", "paper eq. 4", chapter="04"),
        entry("c", "not yet tested", "summary A", chapter="22", kind="experiment"),
        entry("d", "proved", "this book"),
    ]
)


def test_counts():
    table = page.counts(DECIDED)
    assert table.index.tolist() == ["proved", "refuted", "conditional", "not yet tested"]
    assert table.columns.tolist() == ["experiment", "property", "all"]
    assert table["all"].tolist() == [1, 1, 1, 1]
    assert table.loc["not yet tested"].tolist() == [1, 0, 1]


def test_errata_are_those_of_the_source():
    assert [c.id for c, _ in page.errata(DECIDED, "paper", *page.WRONG)] == ["a"]
    assert [c.id for c, _ in page.errata(DECIDED, "paper", "conditional", "refuted")] == [
        *("a", "b")
    ]
    assert not page.errata(DECIDED, "summary B", *page.WRONG).entries


def test_bad_sources_and_verdicts_are_refused():
    with pytest.raises(ValueError, match=r"source must be one of paper, summary A.*'summary F'"):
        page.errata(DECIDED, "summary F", "refuted")
    with pytest.raises(ValueError, match=r"verdicts must be of proved, .*; got 'wrong'"):
        page.errata(DECIDED, "paper", "wrong")


COLUMNS = ["decided", "partly decided", "undecided", "uncheckable"]


@pytest.mark.parametrize("verdict", ["not yet tested", "inconclusive"])
def test_statements_count_what_is_open(verdict):
    table = page.statements(Decided([]))
    assert (table[["partly decided", "undecided"]] == 0).to_numpy().all()
    assert (table[COLUMNS].sum(axis=1) == table["statements"]).all()
    ids = sources.load()["summary B"].statements[1].claims
    reason = "Few runs." if verdict == "inconclusive" else None
    found = [(entry(id, "held", "summary B", kind="experiment")[0], Finding(verdict, reason=reason))
             for id in ids]  # fmt: skip
    one, every = (page.statements(Decided(found[:n])).loc["summary B"] for n in (1, None))
    assert (one["partly decided"], one["undecided"]) == (1, 0)
    assert (every["partly decided"], every["undecided"]) == (0, 1)


def test_the_verdicts_of_a_source_are_counted():
    found = page.verdicts_of(DECIDED, "summary")
    assert {k: n for k, n in found.items() if n} == {"refuted": 1, "not yet tested": 1}
    assert sum(page.verdicts_of(DECIDED, "paper", "summary").values()) == 3


def test_each_claim_has_a_row_in_the_table_of_its_chapter(monkeypatch):
    monkeypatch.delitem(page.PAGES, "22")  # as if that chapter were not written
    html = page.ByChapter(DECIDED.entries)._repr_html_()
    parts = html.split("<details><summary><strong>Chapter ")[1:]
    assert [re.match(r"\d+", part)[0] for part in parts] == ["3", "4", "22"]
    assert [part.count("<tr ") for part in parts] == [2, 1, 1]
    assert 'data-verdict="refuted" data-kind="property" data-said="summary A, paper' in parts[0]
    assert parts[0].count('href="03-layer-normalization.html"') == 2
    assert 'href="03-layer-normalization.html#claim-d"' in parts[0]
    assert "href" not in parts[2]
    assert page.ByChapter([])._repr_html_().count("<tr") == 0
    lines = repr(page.ByChapter(DECIDED.entries)).splitlines()
    for line, (claim, found) in zip(lines, DECIDED, strict=True):
        assert line.endswith(claim.id)
        assert found.verdict in line


def test_what_nothing_has_decided_links_to_its_chapter_alone():
    for verdict, there in (("proved", True), ("not yet tested", False)):
        claim, finding = entry("c", verdict, "paper eq. 3", kind="experiment")
        html = page.Linked([(claim, finding)])._repr_html_()
        assert 'href="03-layer-normalization.html"' in html
        assert ("#claim-c" in html) == there


def test_a_claim_about_runs_links_to_their_file_and_shows_its_comparisons():
    table = ({"comparison": "a - <b>", "n": "12", "interval": "-1 [-2, 0]", "but": ""},)
    finding = Finding("supported here", "In a sentence.", table=table)
    claim = replace(claims.get("mixed-units/digits"), statement="S.")
    html = page.Linked([(claim, finding)])._repr_html_()
    assert 'href="../data/mixed_units-book.csv"' in html
    assert "<em>a - &lt;b&gt;</em>: n 12; interval -1 [-2, 0]</div>" in html
    assert "In a sentence." not in html
    assert claims.get("learns-online/mnist").runs == "mnist-standard"
    assert claims.get("one-mean-and-spread-per-case").runs == ""


JUDGED = [{"comparison": f"a{n}", "ratio": "1"} for n in range(18)]
for _n, _one in enumerate(JUDGED):
    _one["verdict"] = "inconclusive" if _n % 6 == 0 else "supported here"


@pytest.mark.parametrize(
    ("table", "title"),
    [
        (JUDGED[:6], None),
        (JUDGED[:7], "7 comparisons: 5 supported here, 2 inconclusive"),
        (JUDGED, "18 comparisons: 15 supported here, 3 inconclusive"),
        ([{**one, "verdict": ""} for one in JUDGED], "18 comparisons"),
    ],
)
def test_many_comparisons_are_folded_and_their_verdicts_counted(table, title):
    claim = replace(claims.get("mixed-units/digits"), statement="S.")
    decided = [(claim, Finding("supported here", "In a sentence.", table=tuple(table)))]
    for html in (Decided(decided)._repr_html_(), page.ByChapter(decided)._repr_html_()):
        row = ElementTree.fromstring(html.replace("<br>", "")).find(".//tr")
        lines = row.findall(".//div[@class='comparison']")
        assert ["".join(line.itertext())[:2] for line in lines[:2]] == ["a0", "a1"]
        assert len(lines) == len(table)
        folded = row.findall(".//details")
        assert [one.findtext("summary") for one in folded[:-1]] == [title] * (title is not None)
        assert folded[0].findall("div") == lines * (title is not None)
        assert folded[-1].findtext("small/code") == claim.id


def test_exploratory_claims_are_counted_and_leave_their_statements_open():
    some = sources.load()["summary B"].statements[1].claims[0]
    for verdict in ("exploratory", "inconclusive"):
        reason = "Why." if verdict == "inconclusive" else None
        claim = Claim(some, "S.", ("summary B",), "experiment", "08")
        decided = Decided([(claim, Finding(verdict, "Evidence.", reason=reason))])
        assert page.counts(decided).loc[verdict].tolist() == [1, 1]
        assert page.statements(decided).loc["summary B", "partly decided"] == 1


def test_errata_have_links_too():
    html = page.errata(DECIDED, "paper", "conditional")._repr_html_()
    assert 'href="04-the-family.html#claim-b"' in html


def test_links_lead_to_the_chapters_of_the_book():
    toc = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text(encoding="utf-8"))
    files = [c["file"] for part in toc["parts"] for c in part["chapters"]]
    chapters = {f.removeprefix("notebooks/") for f in files if f.startswith("notebooks/")}
    others = {"side-paths", "the-ledger", "ten-implementations"}
    assert set(page.PAGES.values()) == chapters - others


def test_the_address_with_a_number_leads_to_the_one_without():
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    (folder,) = config["sphinx"]["config"]["html_extra_path"]
    old = (ROOT / folder / "notebooks" / "21-the-ledger.html").read_text(encoding="utf-8")
    assert set(re.findall(r'(?:url=|href="|replace\(")([^"]+)"', old)) == {"the-ledger.html"}
    assert (ROOT / "notebooks" / "the-ledger.ipynb").is_file()
