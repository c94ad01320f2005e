"""The symbolic definitions are those of layernorm.functional, and sums are rewritten correctly."""

import pytest
import sympy
import torch
from sympy import Indexed

from layernorm import functional as F
from layernorm.methods import METHODS as ROWS
from layernorm.symbolic import definitions
from layernorm.symbolic.definitions import METHODS, Sizes, centering, entries, normalized
from layernorm.symbolic.sums import collect, index, total

SIZES = Sizes(cases=3, features=4, units=6, group=2)
EPS = 0.25  # large, so that a misplaced eps shows


def in_numbers(method, X, W, eps=EPS):
    """The symbolic definition, at every case and unit of matrices of numbers."""
    x, w = (lambda r, c, rows=rows: rows[r - 1, c - 1].item() for rows in (X, W))
    return torch.tensor(
        [
            [float(normalized(method, x, w, n, i, SIZES, eps)) for i in range(1, 7)]
            for n in range(1, 4)
        ],
        dtype=torch.float64,
    )


def in_torch(method, X, W, eps=EPS):
    if method == "weight":
        return X @ F.weight_norm(W, torch.ones(6, 1).double()).T
    if method == "group":
        return F.group_norm(X @ W.T, 3, eps=eps)
    norm = ROWS[method].norm(6).double()
    norm.eps, norm.backend = eps, "reference"
    return norm(X @ W.T).detach()


def agree(method):
    torch.manual_seed(0)
    X, W = 2 + torch.randn(3, 4).double(), torch.randn(6, 4).double()
    torch.testing.assert_close(in_numbers(method, X, W), in_torch(method, X, W))


@pytest.mark.parametrize("method", METHODS)
def test_the_definition_is_that_of_functional(method):
    agree(method)


def unbiased(method, a, W, n, i, sizes):
    mu, variance = ORIGINAL(method, a, W, n, i, sizes)
    return mu, variance * 2


def uncentered(method, a, W, n, i, sizes):
    return a(n, 1) / 3, ORIGINAL(method, a, W, n, i, sizes)[1]


ORIGINAL = definitions.statistics


@pytest.mark.parametrize("mutant", [unbiased, uncentered])
@pytest.mark.parametrize("method", METHODS)
def test_a_changed_definition_is_noticed(method, mutant, monkeypatch):
    monkeypatch.setattr(definitions, "statistics", mutant)
    with pytest.raises(AssertionError):
        agree(method)


@pytest.mark.parametrize("method", METHODS)
def test_symbols_stand_for_every_size(method):
    """With numbers put in for its sizes, the general expression is the one for these sizes."""
    general, special = Sizes(), Sizes(cases=2, features=2, units=4, group=2)
    X, W = entries("X"), entries("W")
    put_in = dict(zip(vars(general).values(), vars(special).values(), strict=True))
    for case, unit in ((1, 1), (2, 3)):
        one = normalized(method, X, W, case, unit, general).subs(put_in).doit()
        two = normalized(method, X, W, case, unit, special)
        numbers = {
            e: (3 * k * k + 1) % 7 for k, e in enumerate(sorted(two.atoms(Indexed), key=str))
        }
        assert one.subs(numbers) == two.subs(numbers) != 0
        assert one.atoms(Indexed) == two.atoms(Indexed)


def test_centering_is_the_subtraction_of_the_mean_for_every_size():
    H = index("H")
    P, ones = centering(H), sympy.OneMatrix(H, 1)
    assert sympy.expand(P * ones).doit() == sympy.ZeroMatrix(H, 1)
    a = sympy.MatrixSymbol("a", H, 1)
    once = sympy.expand(P * a).doit()
    assert sympy.expand(P * once).doit() == once != a
    a = sympy.Matrix(sympy.symbols("a1:5"))
    assert sympy.expand(centering(4).as_explicit() * a - (a - sympy.ones(4, 1) * sum(a) / 4)) == (
        sympy.zeros(4, 1)
    )


def test_collecting_keeps_the_value():
    """Nested sums, products of sums, sums of constants: the same after numbers are put in."""
    n, m, j, k = (index(name) for name in "nmjk")
    a, c = sympy.IndexedBase("a"), sympy.Symbol("c")
    inner = total(lambda k: c * a[k] + a[j], k, m)
    for expression in (
        total(lambda j: (a[j] - total(lambda j: a[j], j, n) / n) ** 2, j, n),
        total(lambda j: inner.subs(index("j"), j) * (c + 2), j, n),
        total(lambda _: c + total(lambda k: c, k, m), j, n),
    ):
        put_in = {n: 3, m: 2}
        difference = collect(expression).subs(put_in).doit() - expression.subs(put_in).doit()
        assert sympy.expand(difference) == 0


@pytest.mark.parametrize("name", ["cases", "features", "units", "group"])
def test_sizes_below_one_are_refused(name):
    for value in (0, -3, sympy.Integer(0), sympy.Symbol("H")):
        with pytest.raises(ValueError, match=f"{name} must be an int >= 1 or a SymPy symbol"):
            Sizes(**{name: value})
    for value in (2.5, "4", True, None):
        with pytest.raises(TypeError, match=f"{name} must be an int >= 1.*got"):
            Sizes(**{name: value})


def test_other_bad_input_names_the_way_out():
    with pytest.raises(ValueError, match="group must divide units, got group=4 and units=6"):
        Sizes(units=6, group=4)
    with pytest.raises(ValueError, match=r"n must be an int >= 1.*got 0"):
        centering(0)
    with pytest.raises(ValueError, match=r"unknown method 'layr'.*did you mean 'layer'\?"):
        normalized("layr", entries("X"), entries("W"), 1, 1, Sizes())
    with pytest.raises(ValueError, match=r"unknown method 'zzz': expected one of \[.*'batch'"):
        normalized("zzz", entries("X"), entries("W"), 1, 1, Sizes())


@pytest.mark.parametrize("n", [0, -3])
def test_a_sum_over_nothing_is_refused(n):
    with pytest.raises(ValueError, match=f"n must be at least 1, got {n}"):
        total(lambda j: j, index("j"), n)


@pytest.mark.parametrize("n", [2.5, "H", True])
def test_a_length_that_is_no_number_is_refused(n):
    with pytest.raises(TypeError, match="n must be an int or a SymPy expression"):
        total(lambda j: j, index("j"), n)
