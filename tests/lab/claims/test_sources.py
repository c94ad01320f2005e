"""Every statement of the paper and its summaries leads to the claims that decide it."""

from dataclasses import replace

import pytest

from layernorm.lab import claims
from layernorm.lab.claims import sources
from layernorm.lab.claims.sources import SOURCES, Statement, problems, reported

REGISTRY = claims.all()
MAPPED = [
    (source.name, statement.number)
    for source in SOURCES.values()
    for statement in source.statements
    if statement.claims
]


def changed(name: str, number: int, statement: Statement | None) -> list[sources.Source]:
    """All sources, with one statement replaced, or left out."""
    source = SOURCES[name]
    kept = (statement if s.number == number else s for s in source.statements)
    new = replace(source, statements=tuple(s for s in kept if s is not None))
    return [new if s.name == name else s for s in SOURCES.values()]


def test_every_statement_is_mapped():
    assert problems(registry=REGISTRY) == []


def test_the_sources_are_the_paper_and_five_summaries():
    assert list(SOURCES) == ["paper", *(f"summary {letter}" for letter in "ABCDE")]
    assert {n: s.count for n, s in SOURCES.items()} == {
        **{"paper": 65, "summary A": 26, "summary B": 11},
        **{"summary C": 24, "summary D": 27, "summary E": 41},
    }


def test_removing_any_mapping_is_noticed():
    for name, number in MAPPED:
        found = problems(changed(name, number, None), REGISTRY)
        assert any(f"without the numbers [{number}]" in problem for problem in found)


@pytest.mark.parametrize("name", list(SOURCES))
def test_marking_a_sole_mapping_uncheckable_is_noticed(name):
    """The claim that names the source stays behind."""
    source = SOURCES[name]
    noticed = 0
    for statement in source.statements:
        others = {id for s in source.statements if s is not statement for id in s.claims}
        left = [
            claim.id
            for claim in REGISTRY
            if claim.id in statement.claims
            and claim.id not in others
            and any(said.startswith(name) for said in claim.said_by)
        ]
        silent = Statement(statement.number, statement.says, uncheckable="no reason")
        found = problems(changed(name, statement.number, silent), REGISTRY)
        assert len(found) == len(left), (statement, found)
        noticed += len(left)
    assert noticed > 0


def test_a_statement_that_leads_nowhere_is_noticed():
    first = SOURCES["summary B"].statements[0]
    lost = replace(first, claims=("no-such-claim", *first.claims))
    assert problems(changed("summary B", 1, lost), REGISTRY) == [
        "summary B, 1: there is no claim 'no-such-claim'"
    ]
    wrong = replace(first, claims=("month-helps-all-but-one-task", *first.claims))
    assert problems(changed("summary B", 1, wrong), REGISTRY) == [
        "summary B, 1: claim 'month-helps-all-but-one-task' is not said by it"
    ]


def test_a_claim_that_no_statement_leads_to_is_noticed():
    claim = replace(REGISTRY[0], id="new", said_by=("summary D",))
    assert problems(registry=[*REGISTRY, claim]) == [
        "summary D says 'new', but none of its statements names that claim"
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"says": " "}, "statement 7: says must be one sentence"),
        ({}, "expected claims or the reason why it is uncheckable"),
        ({"claims": ("a",), "uncheckable": "b"}, "one of the two"),
    ],
)
def test_bad_statements_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Statement(**{"number": 7, "says": "Something.", **fields})


def test_reported_tables_are_compared_by_what_is_better():
    columns = ("R@1", "mean r", "SICK MSE")
    assert reported.worse((1.0, 2.0, 3.0), (2.0, 1.0, 2.0), columns) == []
    assert reported.worse((1.0, 2.0, 3.0), (1.0, 3.0, 3.0), columns) == list(columns)
    for table, names in (
        (reported.TABLE_2, reported.TABLE_2_COLUMNS),
        (reported.TABLE_3, reported.TABLE_3_COLUMNS),
    ):
        assert {len(row) for row in table.values()} == {len(names)}


def test_statements_of_proof_and_property_have_a_verdict():
    open_ones = [c.id for c in REGISTRY if c.kind != "experiment" and c.check is None]
    assert [id for id in open_ones if claims.get(id).uncheckable is None] == []
