"""The normalizations of a fully connected layer as SymPy expressions: two statistics for each.

Case n of a batch has features X[n, d], unit i has weights W[i, d], and

    a[n, i] = sum over d of W[i, d] X[n, d]                                            (paper eq. 1)
    y[n, i] = g[i] (a[n, i] - mu) / sqrt(sigma^2 + eps) + b[i]                         (paper eq. 5)

The methods differ in mu and sigma^2 alone, which `layernorm.methods.FORMS` has. Sizes are ints, or
symbols: then an expression stands for every size. Indices count from 1, as in the paper.

`centering(n)` is the matrix of the same subtraction, for vectors of n numbers.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import sympy

from layernorm.methods import FORMS
from layernorm.symbolic.sums import Numbers, index, total

METHODS = tuple(name for name, form in FORMS.items() if form.over != "positions")

# The indices of sums over cases, units, features.
M, J, D = index("m"), index("j"), index("d")

Entry = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Sizes:
    """The numbers of cases N, features D, units H, and units per group M: ints >= 1, or symbols.

    Raises ValueError for a size below 1 and for groups that do not divide the units; TypeError for
    a size of any other type.

    >>> Sizes(units=0)
    Traceback (most recent call last):
    ...
    ValueError: units must be an int >= 1 or a SymPy symbol for a positive integer, got 0
    """

    cases: Any = field(default_factory=lambda: index("N"))
    features: Any = field(default_factory=lambda: index("D"))
    units: Any = field(default_factory=lambda: index("H"))
    group: Any = field(default_factory=lambda: index("M"))

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_size(name, value)
        if isinstance(self.units, int) and isinstance(self.group, int) and self.units % self.group:
            raise ValueError(
                f"group must divide units, got group={self.group} and units={self.units}; "
                "give the units per group"
            )


def check_size(name: str, value: Any) -> None:
    """ValueError or TypeError unless value is an int >= 1 or a symbol for one."""
    wanted = f"{name} must be an int >= 1 or a SymPy symbol for a positive integer"
    if isinstance(value, bool) or not isinstance(value, int | sympy.Expr):
        raise TypeError(f"{wanted}, got {value!r} of type {type(value).__name__}")
    if value.is_integer is False if isinstance(value, sympy.Expr) else value < 1:
        raise ValueError(f"{wanted}, got {value}")
    if isinstance(value, sympy.Expr) and not (value.is_Symbol and value.is_positive):
        hint = f"; write int({value})" if value.is_Integer and value > 0 else ""
        raise ValueError(f"{wanted}, got {value}{hint}")


def check_name(kind: str, name: str, known: Iterable[str]) -> str:
    """The name; ValueError with the nearest known one if it is none of them."""
    known = list(known)
    if name in known:
        return name
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"unknown {kind} {name!r}: expected one of {known}{hint}")


def entries(name: str) -> Entry:
    """The entries of a matrix of real symbols: entries("X")(n, d) is X[n, d]."""
    base = sympy.IndexedBase(name, real=True)
    return lambda row, column: base[row, column]


def summed_inputs(X: Entry, W: Entry, sizes: Sizes) -> Entry:
    """a[n, i], the summed input of unit i in case n (paper eq. 1)."""
    return lambda n, i: total(lambda d: W(i, d) * X(n, d), D, sizes.features)


def statistics(method: str, a: Entry, W: Entry, n: Any, i: Any, sizes: Sizes) -> tuple[Any, Any]:
    """mu and sigma^2 by which a method normalizes the summed input a[n, i].

    Raises ValueError for an unknown method.
    """
    form = FORMS[check_name("method", method, METHODS)]
    first = (i - 1) // sizes.group * sizes.group  # the units before i's group
    numbers = {
        "cases": Numbers(lambda m: a(m, i), M, sizes.cases),
        "units": Numbers(lambda j: a(n, j), J, sizes.units),
        "group": Numbers(lambda j: a(n, first + j), J, sizes.group),
        "weights": Numbers(lambda d: W(i, d), D, sizes.features),
    }
    return form.statistics(numbers[form.over])


def normalized(method: str, X: Entry, W: Entry, n: Any, i: Any, sizes: Sizes, eps: Any = 0) -> Any:
    """(a[n, i] - mu) / sqrt(sigma^2 + eps): the output before gain and bias (paper eq. 5).

    Weight normalization has no eps. Raises ValueError for an unknown method.

    >>> x, w = {1: 3, 2: 4}, {(1, 1): 1, (1, 2): 0, (2, 1): 0, (2, 2): 1}
    >>> small = Sizes(cases=1, features=2, units=2, group=2)
    >>> normalized("layer", lambda n, d: x[d], lambda i, d: w[i, d], 1, 2, small)
    1
    """
    a = summed_inputs(X, W, sizes)
    mu, variance = statistics(method, a, W, n, i, sizes)
    eps = eps if FORMS[method].has_eps else 0
    return (a(n, i) - mu) / sympy.sqrt(sympy.sympify(variance) + eps)


def centering(n: Any) -> sympy.MatrixExpr:
    """The matrix I - 1 1^T / n, which subtracts from each of n numbers their mean.

    Raises as `Sizes` for n < 1.

    >>> ones = sympy.OneMatrix(index("H"), 1)
    >>> sympy.expand(centering(index("H")) * ones).doit()
    0
    """
    check_size("n", n)
    return sympy.Identity(n) - sympy.OneMatrix(n, n) / n
