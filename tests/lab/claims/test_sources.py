"""Every statement of the paper and its summaries leads to the claims that decide it."""

import re
from dataclasses import replace

import pytest
import yaml

from layernorm.lab import claims
from layernorm.lab.claims import ClaimError, sources
from layernorm.lab.claims.experiments import ROWS
from layernorm.lab.claims.sources import reported

REGISTRY = claims.all()
SOURCES = sources.load()


def without(name: str, id: str) -> list[sources.Source]:
    """All sources, with a claim left out of every statement of one of them."""
    changed = tuple(
        altered(s, places={place: tuple({*ids} - {id}) for place, ids in s.places.items()})
        for s in SOURCES[name].statements
    )
    return [altered(s, statements=changed) if s.name == name else s for s in SOURCES.values()]


def altered(model, **changes):
    return model.model_copy(update=changes)


def test_statements_lead_to_claims_and_claims_are_said_by_those_who_say_them():
    assert sources.problems(SOURCES.values(), REGISTRY) == []


def test_the_sources_are_the_paper_five_summaries_and_others():
    assert {name: len(source.statements) for name, source in SOURCES.items()} == {
        **{"paper": 55, "summary A": 26, "summary B": 11},
        **{"summary C": 24, "summary D": 27, "summary E": 41, "others": 28},
    }
    assert list(SOURCES) == ["paper", *(f"summary {letter}" for letter in "ABCDE"), "others"]


@pytest.mark.parametrize("name", list(SOURCES))
def test_who_says_a_claim_follows_from_the_statements_that_name_it(name):
    said = {c.id for c in REGISTRY if any(s.startswith(name) for s in c.said_by)}
    named = {id for s in SOURCES[name].statements if not s.elsewhere for id in s.claims}
    assert said == named
    assert said
    for id in said:
        left = sources.said_by(id, without(name, id))
        assert not any(place.startswith(name) for place in left)


def test_places_are_cited_one_by_one():
    assert sources.said_by("table-1-row-layer") == (
        *("paper section 5.1", "paper table 1", "summary A", "summary C"),
    )
    assert sources.said_by("gains-start-at-one") == ("paper section 6", "this book")
    assert sources.said_by("no-such-claim") == ("this book",)


def test_what_the_paper_does_not_say_is_not_credited_to_it():
    assert sources.said_by("published-cell-is-the-papers") == ("others",)
    assert not any(s.elsewhere for s in SOURCES["paper"].statements)


def control_only(rows) -> bool:
    """Tell whether each row compares with the control, which no source has."""
    return all(len({"rescaled" in arm for arm in row.arms}) == 2 for row in rows)


def test_comparisons_with_the_control_are_this_books():
    against = {id for id, (*_, rows) in ROWS.items() if control_only(rows)}
    assert {"faster-per-update/mnist", "better-result/digits_batch_4", "drift-reduced/digits"} < (
        against
    )
    for id in against:
        claim = claims.get(id)
        assert "this book" in claim.said_by, id
        assert "good scale" in claim.statement or "unit variance" in claim.statement, id


def test_what_compares_with_the_control_alone_is_no_sources():
    """None has such a control, and no statement says more than what is compared."""
    names = {
        *("faster-per-update", "faster-than-rescaled", "trains-faster-than-rescaled"),
        *("better-than-rescaled", "layer-beats-rescaled"),
    }
    against = {id for id, (*_, rows) in ROWS.items() if control_only(rows)}
    found = {id: claims.get(id).said_by for id in against if id.partition("/")[0] in names}
    assert {id.partition("/")[0] for id in found} == names
    assert set(found.values()) == {("this book",)}
    assert not [c.id for c in REGISTRY if "not the scale of the start" in c.statement]


def test_later_papers_that_a_statement_cites_are_among_the_others():
    cite = re.compile(r"\([^()]*?(\w+( et al\.| and \w+)? 20\d\d)")
    cited = {c.id: found[1] for c in REGISTRY if (found := cite.search(c.statement))}
    assert len(cited) > 20
    assert cited["the-mean-is-small/transformer"] == "Gupta et al. 2024"
    for id, who in cited.items():
        assert any(who in s.says for s in SOURCES["others"].statements if id in s.claims), (id, who)


def test_a_source_without_places_stands_beside_this_book():
    assert sources.said_by("removes-correlation/digits") == ("summary A", "this book")
    assert sources.said_by("drift-reduced/digits") == (
        *("paper section 3", "this book", "summary A", "summary D"),
    )


def test_a_statement_that_leads_nowhere_is_noticed():
    (first, *others) = SOURCES["summary B"].statements
    lost = altered(first, places={"": ("no-such-claim",)})
    changed = altered(SOURCES["summary B"], statements=(lost, *others))
    found = sources.problems([changed], REGISTRY)
    assert [p for p in found if p.startswith("summary")] == [
        "summary B, 1: there is no claim 'no-such-claim'"
    ]


def test_a_claim_that_names_another_source_is_noticed():
    claim = replace(REGISTRY[0], id="new", said_by=("summary D",))
    assert sources.problems(SOURCES.values(), [*REGISTRY, claim]) == [
        "claim 'new' says that it is said by ('summary D',); the sources say ('this book',)"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"says": " "}, "says: String should have at least 1 character; got ' '"),
        ({"says": 5}, "says: Input should be a valid string; got 5"),
        ({"claims": None}, "expected claims or the reason why it is uncheckable, one of the two"),
        ({"uncheckable": "b"}, "expected claims or the reason why it is uncheckable, one of the"),
        ({"claims": None, "uncheckable": ""}, "uncheckable: String should have at least 1"),
        ({"claims": []}, "expected claims or the reason why it is uncheckable, one of the two"),
        ({"claims": ["a", "a"]}, "a claim must be named once"),
        ({"claims": "a"}, "claims: Input should be a valid dictionary; got 'a'"),
        ({"claims": {"section 3": "a"}}, "claims: section 3: Input should be a valid tuple"),
        ({"claims": {"section five": ["a"]}}, "must be a place like 'eq. 4', not 'section five'"),
        ({"claims": {"this book": ["a"]}}, "must be a place like 'eq. 4', not ''"),
        ({"claim": ["a"]}, "claim: Extra inputs are not permitted; got ['a']"),
        ({"elsewhere": "no"}, "elsewhere: Input should be a valid boolean; got 'no'"),
    ],
)
def test_bad_statements_are_refused(change, message, tmp_path):
    entry = {"says": "It is.", "claims": {"section 3": ["a"], "eq. 4, table 1": ["b"]}}
    source = {"name": "paper", "title": "A title", "statements": [entry]}
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(source))
    assert sources.read(file).credits("b") == ["paper eq. 4", "paper table 1"]
    changed = {name: value for name, value in (entry | change).items() if value is not None}
    file.write_text(yaml.safe_dump(source | {"statements": [changed]}))
    with pytest.raises(ClaimError) as error:
        sources.read(file)
    assert message in str(error.value)
    assert re.match("mine.yaml: (statements: )?statement 1: ", str(error.value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "mine.yaml is no YAML"),
        ("3", "mine.yaml: Input should be a valid dictionary or instance of Source; got 3"),
        ("name: paper", "mine.yaml: title: Field required; got {'name': 'paper'}"),
        ("{name: a, title: b, statements: 3}", "statements: must be a list of mappings; got 3"),
    ],
)
def test_bad_files_are_refused(text, message, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(ClaimError, match=message):
        sources.read(file)


def test_reported_tables_are_compared_by_what_is_better():
    columns = ("R@1", "mean r", "SICK MSE")
    assert reported.worse((1.0, 2.0, 3.0), (2.0, 1.0, 2.0), columns) == []
    assert reported.worse((1.0, 2.0, 3.0), (1.0, 3.0, 3.0), columns) == list(columns)
    for table, names in (
        (reported.TABLE_2, reported.TABLE_2_COLUMNS),
        (reported.TABLE_3, reported.TABLE_3_COLUMNS),
    ):
        assert {len(row) for row in table.values()} == {len(names)}
