"""Sums whose length is a number or a symbol, and the one rule of algebra that this package needs.

    total(f, j, 3) = f(1) + f(2) + f(3)          total(f, j, H) = sum over j = 1 ... H of f(j)

So one definition, written once, is an explicit expression for H = 3 and an expression that holds
for every H where H is a symbol. `collect` uses that sums are linear: it takes out of a sum whatever
does not depend on the index. What it shows for a symbol H is shown for every H.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy


def index(name: str) -> sympy.Symbol:
    """A symbol for an index or a size: an integer from 1 on."""
    return sympy.Symbol(name, integer=True, positive=True)


def total(f: Callable[[Any], Any], j: sympy.Symbol, n: Any) -> Any:
    """The sum of f(1), ..., f(n): written out if n is an int, else SymPy's `Sum` over j.

    Raises `ValueError` for an int below 1, `TypeError` for an n that is neither int nor symbolic.
    """
    if isinstance(n, bool) or not isinstance(n, int | sympy.Expr):
        raise TypeError(f"n must be an int or a SymPy expression, got {n!r}")
    if isinstance(n, int):
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        return sum(f(k) for k in range(1, n + 1))
    return sympy.Sum(f(j), (j, 1, n))


def mean(f: Callable[[Any], Any], j: sympy.Symbol, n: Any) -> Any:
    """The mean of f(1), ..., f(n), exact."""
    return total(f, j, n) * (Fraction(1, n) if isinstance(n, int) else 1 / n)


@dataclass(frozen=True)
class Numbers:
    """at(1), ..., at(n), whose sums are written with the index j; what `methods.Form` asks of."""

    at: Callable[[Any], Any]
    j: sympy.Symbol
    n: Any

    def total(self, f: Callable[[Any], Any] = lambda a: a) -> Any:
        return total(lambda k: f(self.at(k)), self.j, self.n)

    def mean(self, f: Callable[[Any], Any] = lambda a: a) -> Any:
        return mean(lambda k: f(self.at(k)), self.j, self.n)


def collect(expression: sympy.Expr) -> sympy.Expr:
    """The same expression with every sum expanded and all that is free of its index taken out.

    >>> j, H, c, a = index("j"), index("H"), sympy.Symbol("c"), sympy.IndexedBase("a")
    >>> collect(total(lambda j: 3 * a[j] + c, j, H))
    H*c + 3*Sum(a[j], (j, 1, H))
    """
    if not expression.args or isinstance(expression, sympy.Indexed):
        return expression
    if not isinstance(expression, sympy.Sum):
        return expression.func(*map(collect, expression.args))
    inside = collect(expression.function)
    for j, first, last in expression.limits:  # SymPy lists the innermost first
        taken_out = []
        for term in sympy.Add.make_args(sympy.expand(inside)):
            factor, rest = term.as_independent(j, as_Add=False)
            terms = last - first + 1 if rest == 1 else sympy.Sum(rest, (j, first, last))
            taken_out.append(factor * terms)
        inside = sympy.Add(*taken_out)
    return inside
