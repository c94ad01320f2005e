"""The adversary's cases, and the search that tells which of them break a statement."""

import math

import pytest
import torch

from layernorm.lab.claims import adversary

SMALL = [(torch.full((1, 4), 0.1).double(),)] * 3
LARGE = (torch.tensor([[9.0, 0, 0, 0]]).double(),)


def size(a):
    return a.abs().max().item()


def zero(a):
    """Breaks where a number is 0, which no climb meets."""
    return 9.0 if (a == 0).any() else 0.1


def nowhere(a):
    return math.nan if a.max() > 1 else 0.0


@pytest.mark.parametrize(
    ("violation", "cases", "meets", "verdict", "said"),
    [
        (zero, {}, None, "held", "Tried: 3 draws, a climb, 0 cases of the adversary; none"),
        (zero, {"large": LARGE}, None, "refuted", "broken by large."),
        (zero, {"large": LARGE}, lambda a: a.max() < 1, "conditional", "broken by large."),
        (zero, {"large": LARGE}, lambda a: a.max() > 1, "refuted", "broken by large."),
        (nowhere, {"large": LARGE}, None, "refuted", "broken by large."),
        (lambda a: 9.0, {}, lambda a: False, "refuted", "draw 1, draw 2, draw 3, the climb."),
    ],
)
def test_what_breaks_a_statement_is_printed(violation, cases, meets, verdict, said):
    only_if = meets and ("it is small", meets)
    found = adversary.searched(5.0, "So it is.", violation, SMALL, cases, only_if)
    assert found.verdict == verdict
    assert said in found.evidence
    assert found.condition == ("it is small" if verdict == "conditional" else None)


def test_the_climb_finds_what_draws_do_not_and_leaves_no_trace():
    state = torch.get_rng_state()
    found = adversary.searched(0.11, "It is small.", size, SMALL, {})
    assert found.evidence.endswith("broken by the climb.")
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("units", [*adversary.SIZES, 64])
def test_rows_are_finite_and_as_named(units):
    rows = adversary.rows(units)
    assert {a.shape for a in rows.values()} == {(1, units)}
    assert all(a.isfinite().all() and a.square().mean().isfinite() for a in rows.values())
    assert [name for name, a in rows.items() if not adversary.varies(a)] == (
        list(rows) if units == 1 else ["zeros", "all equal"]
    )
    assert adversary.conditioning(rows["zeros"]) == 1
    assert units == 1 or adversary.conditioning(rows["small spread"]) > 1e5


def test_matrices_have_the_ranks_that_their_names_say():
    rank = {n: torch.linalg.matrix_rank(w).item() for n, w in adversary.matrices(6, 4).items()}
    assert rank.pop("zeros") == 0
    assert {rank.pop(n) for n in ("equal rows", "one row", "one column", "rank one")} == {1}
    assert set(rank.values()) == {4}


def test_gates_are_saturated():
    for b in adversary.gates(5, 4).values():
        s = b.sigmoid()
        assert torch.minimum(s, 1 - s).max() < 1e-15
