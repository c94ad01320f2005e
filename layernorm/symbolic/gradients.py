"""The backward pass of each normalization, derived from its definition.

A normalization works on vectors v of n numbers: the H units of a case (layer, RMS) or of a group,
the N cases of a unit (batch), the D weights of a unit (weight). With

    x_hat = (v - mu) / s,   s = sqrt(sigma^2 + eps),   y = gain x_hat + bias

the program takes three steps, for a symbol n and so for every n:

1. move v to v + t u and differentiate x_hat by t at t = 0: the differential, linear in u;
2. write v as mu + s x_hat; the definitions of mu and s say what x_hat and its square sum to;
3. multiply by c, the gradient with respect to x_hat, sum, and read off what multiplies u: the
   gradient with respect to v.

`layernorm.symbolic.code` prints what comes out as code that runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import sympy

from layernorm.methods import FORMS
from layernorm.symbolic.definitions import METHODS, Sizes, check_name, check_size, statistics
from layernorm.symbolic.sums import collect, index, total

V, U, C, X_HAT, DY, GAIN, BIAS = (
    sympy.IndexedBase(name, real=True) for name in ("v", "u", "c", "xhat", "dy", "gain", "bias")
)
MU, T = sympy.symbols("mu t", real=True)
S = sympy.Symbol("s", positive=True)
EPS = sympy.Symbol("epsilon", nonnegative=True)
K, J, SIZE = index("k"), index("j"), index("n")


@dataclass(frozen=True)
class Gradient:
    """The derived backward pass of one method; v, u, c, x_hat and s as in the module's text.

    Args:
        method: its name.
        mu, variance: the definition, in terms of v.
        differential: the derivative of x_hat[k] along u.
        backward: the gradient with respect to v[k], given c, that with respect to x_hat.
        facts: the sums of x_hat and of its square, where mu and s fix them.
    """

    method: str
    mu: sympy.Expr
    variance: sympy.Expr
    differential: sympy.Expr
    backward: sympy.Expr
    facts: dict[sympy.Sum, sympy.Expr]

    def simplify(self, expression: sympy.Expr) -> sympy.Expr:
        """An expression in x_hat with its sums collected and the facts used."""
        known = sympy.expand(_one_index(collect(expression))).subs(self.facts)
        return _one_index(collect(sympy.expand(sympy.simplify(known))))


@cache
def derive(method: str) -> Gradient:
    """The backward pass of a method, for vectors of any length n.

    Raises ValueError for an unknown method.

    >>> derive("rms").backward
    c[k]/s - xhat[k]*Sum(c[j]*xhat[j], (j, 1, n))/(n*s)
    """
    check_name("method", method, METHODS)
    mu, variance = _statistics(method, lambda j: V[j], SIZE)
    start = Gradient(method, mu, variance, sympy.S.Zero, sympy.S.Zero, _facts(method))
    moved = _normalized(method, lambda j: V[j] + T * U[j], SIZE, K)
    differential = start.simplify(_in_x_hat(method, moved.diff(T).subs(T, 0)))
    functional = collect(total(lambda k: C[k] * differential.subs(K, k), index("l"), SIZE))
    backward = _one_index(read_off(functional, K))
    return Gradient(method, mu, variance, differential, backward, start.facts)


@cache
def affine() -> dict[str, sympy.Expr]:
    """The gradients of y[r, k] = gain[r] x_hat[r, k] + bias[r], given dy[r, k].

    k is what the parameters are shared by: the cases, or for weight normalization the features.
    Returns c, the gradient with respect to x_hat[r, k], and those of gain[r] and bias[r].
    """
    r, size = index("r"), index("R")
    moved = (GAIN[r] + T * U[r]) * X_HAT[r, K] + BIAS[r], GAIN[r] * X_HAT[r, K] + BIAS[r] + T * U[r]
    slopes = (DY[r, K] * y.diff(T) for y in moved)
    sums = (total(lambda _, f=f: total(lambda _: f, K, SIZE), r, size) for f in slopes)
    dgain, dbias = (read_off(collect(s), r) for s in sums)
    c = DY[r, K] * (GAIN[r] * X_HAT[r, K] + BIAS[r]).diff(X_HAT[r, K])
    return {"c": c, "dgain": dgain, "dbias": dbias}


def jacobian(method: str, n: Any) -> sympy.Matrix:
    """The matrix of all d x_hat[k] / d v[j] for n numbers, by SymPy's own differentiation.

    Nothing but the definition is used: an independent check of `derive`, and the symbols are
    v1 ... vn and epsilon. Raises ValueError for n < 1 or an unknown method.

    >>> jacobian("layer", 1)
    Matrix([[0]])
    """
    check_name("method", method, METHODS)
    if not isinstance(n, int):
        raise TypeError(f"n must be an int, got {n!r}; derive({method!r}) holds for every n")
    check_size("n", n)
    v = sympy.symbols(f"v1:{n + 1}", real=True)
    x_hat = [_normalized(method, lambda j: v[j - 1], n, k) for k in range(1, n + 1)]
    return sympy.Matrix(x_hat).jacobian(v)


def read_off(functional: sympy.Expr, at: sympy.Symbol) -> sympy.Expr:
    """The factor of u[at] in a sum of terms `factor * Sum(u[j] f[j], (j, 1, n))`."""
    found = sympy.S.Zero
    for term in sympy.Add.make_args(sympy.expand(functional)):
        (of_u,) = (s for s in sympy.Mul.make_args(term) if s.has(U))
        ((j, _, _),) = of_u.limits
        found += term / of_u * (of_u.function / U[j]).subs(j, at)
    return found


def _statistics(method: str, v: Callable[[Any], Any], n: Any) -> tuple[Any, Any]:
    """mu and sigma^2 of the n numbers v(1), ..., v(n) that a method normalizes together."""
    sizes = Sizes(cases=n, features=n, units=n, group=n)
    along_cases = FORMS[method].over == "cases"
    mu, variance = statistics(
        method, lambda m, j: v(m if along_cases else j), lambda _, d: v(d), 1, 1, sizes
    )
    return sympy.sympify(mu), sympy.sympify(variance)


def _normalized(method: str, v: Callable[[Any], Any], n: Any, k: Any) -> sympy.Expr:
    mu, variance = _statistics(method, v, n)
    return (v(k) - mu) / sympy.sqrt(variance + eps_of(method))


def eps_of(method: str) -> sympy.Expr:
    """The symbol eps; 0 for weight normalization, which has none.

    Raises `ValueError` for an unknown method.
    """
    check_name("method", method, METHODS)
    return EPS if FORMS[method].has_eps else sympy.S.Zero


def _in_x_hat(method: str, expression: sympy.Expr) -> sympy.Expr:
    """v[j] replaced by mu + s x_hat[j]."""
    mu = MU if _statistics(method, lambda j: V[j], SIZE)[0] != 0 else 0
    return expression.replace(
        lambda e: isinstance(e, sympy.Indexed) and e.base == V,
        lambda e: mu + S * X_HAT[e.indices[0]],
    )


def _facts(method: str) -> dict[sympy.Sum, sympy.Expr]:
    """The sums of x_hat and x_hat^2, from mu = mean(v) and s^2 = sigma^2 + eps."""
    mu, variance = _statistics(method, lambda j: V[j], SIZE)
    facts: dict[sympy.Sum, sympy.Expr] = {}
    equations = [mu - MU] if mu != 0 else []
    for equation in (*equations, variance + eps_of(method) - S**2):
        known = sympy.expand(_one_index(collect(_in_x_hat(method, equation)))).subs(facts)
        (unknown,) = known.atoms(sympy.Sum)
        (facts[unknown],) = sympy.solve(known, unknown)
    return facts


def _one_index(expression: sympy.Expr) -> sympy.Expr:
    """Every sum written with the index j."""
    return expression.replace(
        lambda e: isinstance(e, sympy.Sum) and len(e.limits) == 1,
        lambda e: sympy.Sum(e.function.subs(e.variables[0], J), (J, *e.limits[0][1:])),
    )
