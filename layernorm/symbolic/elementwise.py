r"""Element-wise maps in a norm's place: layer normalization along one unit, tanh and erf.

Of a row of H units, H - 1 stand still, with mean m and standard deviation s, and one moves at the
distance u from m. From the definition of a method (`layernorm.methods.FORMS`) follow its output y
for this unit and the row's sigma, both as functions of u. For layer normalization

    y(u) = sqrt(H - 1) u / sqrt(H s^2 + u^2),   dy/du = (1 - (1 + y^2) / H) / sigma(u).

If sigma is held constant, the same differential equation has the solution

    y(u) = sqrt(H - 1) tanh(sqrt(H - 1) u / (H sigma)).

Source: Stollenwerk 2025, arXiv:2503.21708, for RMS normalization; with the mean, derived here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy

from layernorm.methods import FORMS
from layernorm.symbolic import definitions
from layernorm.symbolic.definitions import check_name
from layernorm.symbolic.invariances import FEW, TRANSFORMATIONS

H, S, SIGMA = sympy.symbols("H s sigma", positive=True)
U, M, Z = sympy.symbols("u m z", real=True)
CURVES = {"dyt": sympy.tanh, "derf": sympy.erf}


@dataclass(frozen=True)
class _Row:
    """H - 1 units with mean m and standard deviation s, and one at m + u: means of polynomials of
    degree 2."""

    def mean(self, f: Callable[[Any], Any] = lambda a: a) -> sympy.Expr:
        standing = sympy.Poly(sympy.expand(f(M + S * Z)), Z)
        constant, square = standing.coeff_monomial(1), standing.coeff_monomial(Z**2)
        return ((H - 1) * (constant + square) + f(M + U)) / H


def along_one_unit(method: str) -> tuple[sympy.Expr, sympy.Expr]:
    """y and sigma of a method as functions of one unit's distance u from the mean of the others.

    Raises ValueError for a method whose statistics are not those of the units of a row.

    >>> along_one_unit("layer")[0]
    u*sqrt(H - 1)/sqrt(H*s**2 + u**2)
    """
    check_name(
        "method", method, {name: form for name, form in FORMS.items() if form.over == "units"}
    )
    mu, variance = FORMS[method].statistics(_Row())
    sigma = sympy.sqrt(sympy.factor(variance))
    return sympy.factor(M + U - mu) / sigma, sigma


def frozen(name: str = "dyt") -> sympy.Expr:
    """The curve of a method with the bound of layer normalization along one unit, and with its
    slope at u = 0 if sigma is the row's there.

    Raises ValueError for anything but `dyt` and `derf`.

    >>> frozen()
    sqrt(H - 1)*tanh(u*sqrt(H - 1)/(H*sigma))
    """
    z = sympy.sqrt(H - 1) * U / (H * SIGMA)
    slope = curve(name, Z).diff(Z).subs(Z, 0)
    return sympy.sqrt(H - 1) * curve(name, z / slope)


def defect(y: sympy.Expr, sigma: sympy.Expr) -> sympy.Expr:
    """dy/du sigma less 1 - (1 + y^2) / H: 0 for layer normalization."""
    return sympy.simplify(y.diff(U) * sigma - 1 + (1 + y**2) / H)


def curve(name: str, z: sympy.Expr) -> sympy.Expr:
    """tanh(z) for `dyt`, erf(z) for `derf`. Raises ValueError for other names."""
    return CURVES[check_name("method", name, CURVES)](z)


def relative_slope(name: str) -> sympy.Expr:
    """The slope of a curve at z, over that at 0."""
    slope = curve(name, Z).diff(Z)
    return sympy.simplify(slope / slope.subs(Z, 0))


def flat_beyond(name: str, share: sympy.Expr) -> sympy.Expr:
    """The argument z > 0 at which a curve's slope is a share of that at 0.

    >>> [flat_beyond(name, sympy.Rational(1, 10)).evalf(3) for name in CURVES]
    [1.82, 1.52]
    """
    check_name("method", name, CURVES)
    if name == "dyt":
        return sympy.atanh(sympy.sqrt(1 - share))
    return sympy.sqrt(sympy.log(1 / share))


def moved_input(transformation: str, draws: int = 10) -> tuple[int, int] | None:
    """A summed input before and after one of Table 1's transformations, in a layer of integers;
    None if none changes in any draw. A strictly increasing map of a summed input changes with it.

    Raises ValueError for an unknown transformation.

    >>> moved_input("dataset_rescaling")
    (-4, -8)
    """
    move = TRANSFORMATIONS[check_name("transformation", transformation, TRANSFORMATIONS)]
    chance = random.Random(0)
    for _ in range(draws):
        X, W = (_drawn(chance, rows) for rows in (FEW.cases, FEW.units))
        shift = [chance.randint(-2, 3) for _ in range(FEW.features)]
        plain = [lambda row, column, of=of: of[row - 1][column - 1] for of in (X, W)]
        given = (lambda k: 1 + int(k == 1), lambda d, shift=shift: shift[d - 1])
        moved = move.inputs(plain[0], *given), move.weights(plain[1], *given)
        before, after = (definitions.summed_inputs(*layer, FEW) for layer in (plain, moved))
        places = [(n, i) for n in range(1, FEW.cases + 1) for i in range(1, FEW.units + 1)]
        pairs = [(int(before(*at)), int(after(*at))) for at in places]
        if any(one != two for one, two in pairs):
            return max(pairs, key=lambda pair: abs(pair[1] - pair[0]))
    return None


def _drawn(chance: random.Random, rows: int) -> list[list[int]]:
    return [[chance.randint(-2, 3) for _ in range(FEW.features)] for _ in range(rows)]
