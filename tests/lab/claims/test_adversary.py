"""The adversary's cases, and the search that tells which of them break a statement."""

import math

import pytest
import torch

from layernorm.lab.claims import adversary, checks

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


def test_the_climb_finds_what_is_not_a_number():
    torch.manual_seed(0)
    draws = [(torch.full((1, 4), 0.5).double(),)]
    found = adversary.searched(
        2.6, "It is small.", lambda a: math.nan if a.abs().max() > 2.5 else size(a), draws, {}
    )
    assert found.verdict == "refuted"
    assert "the climb" in found.evidence


@pytest.mark.parametrize("values", [(0.0, math.nan), (math.nan, 0.0), (0.0, math.nan, 0.0)])
def test_no_bound_holds_for_what_is_not_a_number(values):
    violations = {f"case {i}": value for i, value in enumerate(values)}
    assert checks.within(1.0, "It is {below}.", **violations).verdict == "refuted"


def along_a_hidden_direction(a):
    """How far a case points along one of 400 directions: 1 at most, 0.05 for most of them."""
    hidden = torch.sin(torch.arange(400.0)).double()
    return (a @ hidden / (a.norm(dim=-1) * hidden.norm())).max()


def test_the_ascent_finds_what_neither_draws_nor_the_random_climb_do():
    torch.manual_seed(0)
    draws = [(torch.randn(1, 400).double(),) for _ in range(100)]
    missed = adversary.searched(0.9, "So it is.", lambda a: along_a_hidden_direction(a).item(),
                                draws, {})  # fmt: skip
    assert missed.verdict == "held"
    assert "ascent" not in missed.evidence
    found = adversary.searched(0.9, "So it is.", along_a_hidden_direction, draws, {})
    assert found.verdict == "refuted"
    assert found.evidence.endswith("an ascent along the gradient, 0 cases of the adversary; "
                                   "broken by the ascent.")  # fmt: skip


def test_neither_climb_leaves_the_condition():
    def below_two(a):
        return bool((a.abs() < 2).all())

    draws = [(torch.ones(1, 4).double(),)]
    found = adversary.searched(2.0, "It is small.", lambda a: a.abs().max(), draws, {},
                               ("it is below 2", below_two))  # fmt: skip
    assert found.verdict == "held"
    assert 1.5 < found.numbers["largest"] < 2


def test_an_ascent_where_there_is_no_slope_stops():
    assert adversary.ascend(lambda a: 3.0, (torch.ones(2),)) == 3
    flat = (torch.ones(2).double(),)
    assert adversary.ascend(lambda a: (0 * a).sum(), flat) == 0
    assert adversary.ascend(lambda a: math.inf if a.sum() > 3 else a.sum(), flat) == math.inf


def test_seeds_of_a_check_follow_from_the_one_it_began_with():
    found = []
    for seed in (0, 3):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            found.append(list(checks.seeds(2)))
    assert found == [[1, 2], [3001, 3002]]


@pytest.mark.parametrize("units", [*adversary.SIZES, 64])
def test_rows_are_finite_and_as_named(units):
    rows = adversary.rows(units)
    assert {a.shape for a in rows.values()} == {(1, units)}
    assert all(a.isfinite().all() and a.square().mean().isfinite() for a in rows.values())
    assert [name for name, a in rows.items() if not adversary.varies(a)] == (
        list(rows) if units == 1 else ["zeros", "all equal"]
    )
    assert adversary.conditioning(rows["zeros"]) == 1
    assert units == 1 or adversary.conditioning(rows["nearly constant"]) > 1e5


def test_matrices_have_the_ranks_that_their_names_say():
    rank = {n: torch.linalg.matrix_rank(w).item() for n, w in adversary.matrices(6, 4).items()}
    assert rank.pop("zeros") == 0
    assert {rank.pop(n) for n in ("equal rows", "one row", "one column", "rank one")} == {1}
    assert set(rank.values()) == {4}


def test_gates_are_saturated():
    for b in adversary.gates(5, 4).values():
        s = b.sigmoid()
        assert torch.minimum(s, 1 - s).max() < 1e-15
