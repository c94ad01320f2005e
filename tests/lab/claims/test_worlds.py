"""No rule has a verdict that it cannot give.

A claim that may be conditional has three verdicts: the one that is stored, the one of its sabotage,
and a third. For each of these claims `worlds` has a world in which the third one is found: mutants
of what is tested, never of what judges or draws. Where a rule does not speak of the best verdict,
two are all.
"""

from contextlib import ExitStack
from unittest import mock

import pytest

from layernorm.lab import claims
from layernorm.lab.claims.verdicts import Stored
from tests.lab.claims.worlds import chapters_01_to_03, chapters_04_to_08, chapters_09_to_22

STORED = Stored()
WORLDS = {**chapters_01_to_03.WORLDS, **chapters_04_to_08.WORLDS, **chapters_09_to_22.WORLDS}
JUDGES = ("layernorm.lab.claims.adversary", "layernorm.lab.claims.checks")
BEST = {"proof": "proved", "property": "held"}
CONDITIONAL = [
    claim
    for claim in claims.all()
    if claim.kind in BEST
    and ("conditional" in claim.rule.lower() or STORED.finding(claim).verdict == "conditional")
]


def best(claim):
    """The verdict without a condition, if the rule speaks of it."""
    return {BEST[claim.kind]} if BEST[claim.kind] in claim.rule.lower() else set()


def found(claim, *mutants):
    with ExitStack() as world:
        for target, mutant in mutants:
            world.enter_context(mock.patch(target, mutant))
        return claims.decide(claim.id).verdict


@pytest.mark.parametrize("claim", CONDITIONAL, ids=lambda claim: claim.id)
def test_each_verdict_can_be_had(claim):
    verdicts = {STORED.finding(claim).verdict, found(claim, claim.sabotage)}
    if best(claim):
        verdicts.add(found(claim, *WORLDS[claim.id]))
    assert verdicts == {"conditional", "refuted"} | best(claim)


def test_worlds_change_what_is_tested_and_not_who_judges():
    assert sorted(WORLDS) == sorted(claim.id for claim in CONDITIONAL if best(claim))
    for mutants in WORLDS.values():
        assert not [target for target, _ in mutants if target.startswith(JUDGES)]
