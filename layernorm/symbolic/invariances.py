"""Table 1 of the paper, decided by the program: every cell has a proof or a counterexample.

A transformation replaces the inputs X or the weights W; a method is invariant if every output
stays what it was. Gain and bias stand after the normalization and are held fixed.

Each cell is decided without knowing the paper's answer. First the program draws small layers of
integers, in exact arithmetic, and looks for an output that changes: a `Counterexample`. If none
changes, it puts the transformed X and W into the definition, with sizes that are symbols, and
collects the sums (`layernorm.symbolic.sums`): a `Proof`, for every number of cases, features and
units, is that deviations and variance have only taken factors p and q,

    a' - mu' = p (a - mu)   and   sigma'^2 = q sigma^2,
    so that   y'/y = p sqrt(sigma^2 + eps) / sqrt(q sigma^2 + eps).

A cell with neither is an error, `Undecided`, not a guess.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy

from layernorm.methods import FORMS
from layernorm.symbolic import definitions
from layernorm.symbolic.definitions import METHODS, Entry, Sizes, check_name, entries
from layernorm.symbolic.sums import collect, index

EPS, VARIANCE = sympy.Symbol("epsilon", positive=True), sympy.Symbol("sigma", positive=True) ** 2
DELTA = sympy.Symbol("delta", real=True, nonzero=True)
EVERY_SIZE = "for every number of cases, features and units"
FEW = Sizes(cases=3, features=2, units=6, group=3)


class Undecided(RuntimeError):
    """Neither a proof nor a counterexample was found."""


@dataclass(frozen=True)
class Transformation:
    """A change of the inputs or the weights, given a scale and a shift, each an array of one
    index: `scale(n)` differs from case to case, `scale(1)` is one number for all."""

    title: str
    formula: str
    inputs: Callable[[Entry, Any, Any], Entry] = lambda X, scale, shift: X
    weights: Callable[[Entry, Any, Any], Entry] = lambda W, scale, shift: W

    @property
    def scales(self) -> bool:
        """Tell whether it multiplies (by delta), so that a sign and eps can matter."""
        return "δ" in self.formula


TRANSFORMATIONS = {
    "weight_matrix_rescaling": Transformation(
        "weight matrix re-scaling",
        "W′ = δW",
        weights=lambda W, scale, shift: lambda i, d: scale(1) * W(i, d),
    ),
    "weight_matrix_recentering": Transformation(
        "weight matrix re-centering",
        "W′ = W + 1γᵀ",
        weights=lambda W, scale, shift: lambda i, d: W(i, d) + shift(d),
    ),
    "weight_vector_rescaling": Transformation(
        "weight vector re-scaling",
        "wᵢ′ = δᵢwᵢ",
        weights=lambda W, scale, shift: lambda i, d: scale(i) * W(i, d),
    ),
    "dataset_rescaling": Transformation(
        "dataset re-scaling",
        "X′ = δX",
        inputs=lambda X, scale, shift: lambda n, d: scale(1) * X(n, d),
    ),
    "dataset_recentering": Transformation(
        "dataset re-centering",
        "X′ = X + 1γᵀ",
        inputs=lambda X, scale, shift: lambda n, d: X(n, d) + shift(d),
    ),
    "single_case_rescaling": Transformation(
        "single training case re-scaling",
        "xₙ′ = δₙxₙ",
        inputs=lambda X, scale, shift: lambda n, d: scale(n) * X(n, d),
    ),
}


@dataclass(frozen=True)
class Proof:
    """The factors p of the deviation a - mu and q of the variance, and what follows from them.

    Both were found for sizes that are symbols. With q = p^2 the output keeps its value where p > 0
    and eps = 0; with p = q = 1 it keeps it whatever eps is.
    """

    method: str
    transformation: str
    deviation_factor: sympy.Expr
    variance_factor: sympy.Expr
    scope: str = EVERY_SIZE

    @property
    def factors(self) -> sympy.Tuple:
        """p and q."""
        return sympy.Tuple(self.deviation_factor, self.variance_factor)

    @property
    def ratio(self) -> sympy.Expr:
        """y'/y, with sigma the standard deviation before; 1 where nothing changes."""
        scales = self.deviation_factor.atoms(sympy.Indexed)
        p, q = (f.subs(dict.fromkeys(scales, DELTA)) for f in self.factors)
        eps = EPS if FORMS[self.method].has_eps else 0
        return p * sympy.sqrt(VARIANCE + eps) / sympy.sqrt(q * VARIANCE + eps)

    @property
    def exact_ratio(self) -> sympy.Expr:
        """y'/y at eps = 0, the sign of delta or 1."""
        return sympy.simplify(self.ratio.subs(EPS, 0))

    @property
    def error_growth(self) -> sympy.Expr:
        """The slope at eps = 0 of y'/y - 1, for delta > 0; 0 where eps does no harm."""
        ratio = self.ratio.subs(DELTA, sympy.Symbol("delta", positive=True))
        return sympy.factor(ratio.diff(EPS).subs(EPS, 0))

    @property
    def conditions(self) -> tuple[str, ...]:
        """Conditions beyond a defined output (sigma > 0) and fixed gain and bias."""
        positive = ("δ > 0",) if self.exact_ratio != 1 else ()
        return (*positive, "ε = 0") if self.error_growth != 0 else positive


@dataclass(frozen=True)
class Counterexample:
    """A layer of integers in which an output changes: y[case, unit] before and after, exact."""

    method: str
    transformation: str
    X: tuple[tuple[int, ...], ...]
    W: tuple[tuple[int, ...], ...]
    scale: tuple[int, ...]
    shift: tuple[int, ...]
    case: int
    unit: int
    before: sympy.Expr
    after: sympy.Expr

    @property
    def scope(self) -> str:
        """One layer is enough for a "no"."""
        return f"{len(self.X)} cases, {len(self.X[0])} features, {len(self.W)} units"

    def __str__(self) -> str:
        return f"y[{self.case}, {self.unit}] goes from {self.before:.3f} to {self.after:.3f}"


@dataclass(frozen=True)
class Cell:
    """One cell; `str` gives "yes" or "no", as the paper's table does."""

    proof: Proof | None = None
    counterexample: Counterexample | None = None

    @property
    def invariant(self) -> bool:
        """Tell whether no output changes, under `conditions`."""
        return self.proof is not None

    @property
    def conditions(self) -> tuple[str, ...]:
        """Those of the proof; none for a "no"."""
        return self.proof.conditions if self.proof else ()

    def __str__(self) -> str:
        return "yes" if self.invariant else "no"


def prove(method: str, transformation: str) -> Proof | None:
    """The proof that a method is invariant, for every size, or None where the argument fails.

    Raises ValueError for an unknown method or transformation.

    >>> prove("layer", "single_case_rescaling").conditions
    ('δ > 0', 'ε = 0')
    >>> prove("layer", "weight_matrix_recentering").conditions
    ()
    """
    move, sizes = _check(method, transformation), Sizes()
    delta = sympy.IndexedBase("delta", real=True, nonzero=True)
    gamma = sympy.IndexedBase("gamma", real=True)
    plain = entries("X"), entries("W")
    moved = _apply(move, *plain, lambda k: delta[k], lambda k: gamma[k])
    n, i = index("n"), index("i")
    before, after = (
        _deviation_and_variance(method, *layer, n, i, sizes) for layer in (plain, moved)
    )
    factors = [_factor(new, old) for new, old in zip(after, before, strict=True)]
    if None in factors or sympy.expand(factors[0] ** 2 - factors[1]) != 0:
        return None
    return Proof(method, transformation, *factors)


def counterexample(
    method: str, transformation: str, sizes: Sizes = FEW, draws: int = 10
) -> Counterexample | None:
    """A layer of small integers in which an output changes although delta > 0 and eps = 0.

    Of the first layer found, the output that changes most; None if none is among the draws. One
    unit, or one case, is re-scaled by 2 where each has its own scale. Layers in which an output is
    not defined (sigma = 0) are passed over.

    Raises ValueError for an unknown method or transformation.

    >>> print(counterexample("weight", "dataset_rescaling"))
    y[2, 1] goes from -2.000 to -4.000
    """
    move, chance = _check(method, transformation), random.Random(0)
    n, i = range(1, sizes.cases + 1), range(1, sizes.units + 1)
    scale = (2,) + (1,) * (max(sizes.cases, sizes.units) - 1)
    for _ in range(draws):
        X = _draw(chance, sizes.cases, sizes.features)
        W = _draw(chance, sizes.units, sizes.features)
        (shift,) = _draw(chance, 1, sizes.features)
        plain = _entries(X), _entries(W)
        moved = _apply(move, *plain, lambda k: scale[k - 1], lambda d, c=shift: c[d - 1])
        outputs = {
            (case, unit): [
                _deviation_and_variance(method, *layer, case, unit, sizes)
                for layer in (plain, moved)
            ]
            for case in n
            for unit in i
        }
        if any(variance == 0 for pair in outputs.values() for _, variance in pair):
            continue
        values = {k: [_quotient(*part) for part in pair] for k, pair in outputs.items()}
        where = max(values, key=lambda k: abs(float(values[k][1] - values[k][0])))
        before, after = values[where]
        if abs(float(after - before)) > 0.1:
            return Counterexample(method, transformation, X, W, scale, shift, *where, before, after)
    return None


def decide(method: str, transformation: str) -> Cell:
    """The cell of one method and one transformation.

    Raises ValueError for an unknown name, Undecided if there is no counterexample and no proof.
    """
    found = counterexample(method, transformation)
    if found is not None:
        return Cell(counterexample=found)
    proof = prove(method, transformation)
    if proof is None:
        raise Undecided(f"{method}, {transformation}: neither a counterexample nor a proof")
    return Cell(proof=proof)


def table1() -> dict[str, dict[str, Cell]]:
    """Table 1 with rows for RMS and group normalization: table1()[method][transformation].

    Every cell holds its proof or its counterexample. Takes a second or two. Raises as `decide`.
    """
    return {m: {t: decide(m, t) for t in TRANSFORMATIONS} for m in METHODS}


def _check(method: str, transformation: str) -> Transformation:
    check_name("method", method, METHODS)
    return TRANSFORMATIONS[check_name("transformation", transformation, TRANSFORMATIONS)]


def _apply(move: Transformation, X: Entry, W: Entry, scale: Any, shift: Any) -> tuple[Entry, Entry]:
    return move.inputs(X, scale, shift), move.weights(W, scale, shift)


def _deviation_and_variance(method: str, X: Entry, W: Entry, n: Any, i: Any, sizes: Sizes) -> tuple:
    a = definitions.summed_inputs(X, W, sizes)
    mu, variance = definitions.statistics(method, a, W, n, i, sizes)
    return a(n, i) - mu, variance


def _factor(new: sympy.Expr, old: sympy.Expr) -> sympy.Expr | None:
    """The factor with new = factor * old for all X and W, or None."""
    new, old = (sympy.expand(collect(e)) for e in (new, old))
    factor = sympy.factor_terms(new) / sympy.factor_terms(old)
    free_of_data = {base.name for base in factor.atoms(sympy.IndexedBase)} <= {"delta"}
    return factor if free_of_data and sympy.expand(new - factor * old) == 0 else None


def _draw(chance: random.Random, rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(chance.randint(-2, 3) for _ in range(columns)) for _ in range(rows))


def _entries(rows: tuple[tuple[int, ...], ...]) -> Entry:
    return lambda row, column: rows[row - 1][column - 1]


def _quotient(deviation: Any, variance: Any) -> sympy.Expr:
    return sympy.sympify(deviation) / sympy.sqrt(sympy.sympify(variance))
