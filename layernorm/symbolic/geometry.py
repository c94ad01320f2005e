r"""The geometry of learning: KL divergence and Fisher information of generalized linear models.

Equations (8) to (14) and (32) to (35) of the paper, as SymPy expressions for concrete sizes; the
same matrices by automatic differentiation are in `layernorm.lab.analysis.fisher`. Everything rests
on one chain rule, which holds for every size and every method: if the natural parameters of a case
are s(θ) with the Jacobian J = ∂s/∂θ, then

    F = E[Jᵀ Cov[y|x] J] / φ².

A normalization changes J and nothing else. The paper's (13) is this formula with a J that has one
block for each unit, `GLM.paper_jacobian`; `GLM.jacobian` differentiates and leaves nothing out.

Parameters are ordered unit by unit: w_i, b_i and, where there is a normalization, g_i.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import sympy as sp
import torch
from jaxtyping import Float
from sympy.matrices import ImmutableMatrix
from sympy.matrices import MatrixBase as Matrix

from layernorm.methods import FORMS
from layernorm.symbolic import definitions
from layernorm.symbolic.definitions import Sizes, check_name, check_size, statistics

METHODS = ("none", *(m for m in definitions.METHODS if m != "group"))  # one group here: a layer


@dataclass(frozen=True)
class Family:
    """A generalized linear model's distribution, eq. (10), of H outputs y given s = a + b.

        log P(y | s) = (s·y − η(s)) / φ + c(y, φ)

    η is `log_partition` and φ `dispersion`; c is `base`. The mean is ∇η and the covariance φ∇∇η,
    eq. (11).
    """

    name: str
    log_partition: Callable[[Matrix], sp.Expr]
    dispersion: sp.Expr = sp.S.One

    def base(self, y: Matrix) -> sp.Expr:
        if self.name != "gaussian":
            return sp.S.Zero
        phi = self.dispersion
        return -y.dot(y) / (2 * phi) - len(y) * sp.log(2 * sp.pi * phi) / 2

    def log_probability(self, s: Matrix, y: Matrix) -> sp.Expr:
        """Eq. (10)."""
        return (s.dot(y) - self.log_partition(s)) / self.dispersion + self.base(y)

    def expectation(self, s: Matrix, of: Callable[[Matrix], sp.Expr]) -> sp.Expr:
        """E[of(y)] under s: a sum over all outcomes; for Gaussians `of` must be a polynomial."""
        if self.name == "gaussian":
            noise = sp.Matrix(sp.symbols(f"e:{len(s)}", cls=sp.Dummy, real=True))
            value = sp.expand(of(s + sp.sqrt(self.dispersion) * noise))
            return sp.expand(_gaussian_moments(value, list(noise)))
        if self.name == "categorical":
            outcomes = [sp.Matrix(sp.eye(len(s))[:, k]) for k in range(len(s))]
        else:
            outcomes = [sp.Matrix(y) for y in product((0, 1), repeat=len(s))]
        return sp.Add(*(sp.exp(self.log_probability(s, y)) * of(y) for y in outcomes))

    def mean(self, s: Matrix) -> Matrix:
        """E[y] = ∇η(s), eq. (11)."""
        z = _symbols("z", len(s))
        return sp.Matrix([self.log_partition(z).diff(k) for k in z]).subs(_pairs(z, s))

    def covariance(self, s: Matrix) -> Matrix:
        """Cov[y] = φ∇∇η(s), eq. (11); for H = 1 the variance."""
        z = _symbols("z", len(s))
        return (self.dispersion * sp.hessian(self.log_partition(z), list(z))).subs(_pairs(z, s))

    def kl(self, s: Matrix, t: Matrix) -> sp.Expr:
        """KL[P(y|s) ‖ P(y|t)] from its definition, the expectation of a log ratio."""
        return self.expectation(
            s, lambda y: self.log_probability(s, y) - self.log_probability(t, y)
        )

    def bregman(self, s: Matrix, t: Matrix) -> sp.Expr:
        """The same KL divergence in closed form, (η(t) − η(s) − ∇η(s)·(t − s)) / φ."""
        eta = self.log_partition
        return (eta(t) - eta(s) - self.mean(s).dot(t - s)) / self.dispersion


FAMILIES: dict[str, Family] = {
    f.name: f
    for f in (
        Family("bernoulli", lambda s: sp.Add(*(sp.log(1 + sp.exp(k)) for k in s))),
        Family("gaussian", lambda s: s.dot(s) / 2, sp.Symbol("phi", positive=True)),
        Family("categorical", lambda s: sp.log(sp.Add(*(sp.exp(k) for k in s)))),
    )
}


class GLM:
    """A (normalized) generalized linear model with symbols for its weights, cases and parameters.

    s_i = g_i (a_i − μ_i)/σ_i + b_i with a = Wx, eqs. (5) and (10); for `none` s = a + b. The μ and
    σ are those of the method: over the cases for each unit (`batch`: the data are all the cases
    there are), over the units (`layer`, `rms`), or 0 and ‖w_i‖ (`weight`).

    Args:
        family: `bernoulli`, `gaussian` or `categorical`.
        method: one of `METHODS`.
        units, features, cases: how many; batch normalization needs two cases, layer normalization
            two units.

    Raises:
        ValueError: an unknown family or method, a size below 1, or a standard deviation of one.
        TypeError: a size that is not an int.

    >>> GLM("bernoulli", "weight", units=1, features=1).natural(0)
    Matrix([[b0 + g0*w0_0*x0_0/Abs(w0_0)]])
    """

    def __init__(self, family="bernoulli", method="none", units=2, features=2, cases=1):
        check_name("family", family, FAMILIES)
        check_name("method", method, METHODS)
        for name, value in (("units", units), ("features", features), ("cases", cases)):
            check_size(name, value)
        self.family, self.method = FAMILIES[family], method
        self.units, self.features, self.cases = units, features, cases
        self.w = ImmutableMatrix(units, features, lambda i, d: sp.Symbol(f"w{i}_{d}", real=True))
        self.x = ImmutableMatrix(cases, features, lambda n, d: sp.Symbol(f"x{n}_{d}", real=True))
        self.b, self.g = (ImmutableMatrix(_symbols(name, units)) for name in "bg")
        if 0 in self.statistics(0)[1]:
            one = "case" if FORMS[method].over == "cases" else "unit"
            raise ValueError(f"with a single {one}, {method} normalization has σ = 0: take two")

    @cached_property
    def a(self) -> Matrix:
        """The summed inputs, one row a case."""
        return self.x * self.w.T

    def statistics(self, n: int) -> tuple[Matrix, Matrix]:
        """(μ, σ) of case n, one entry a unit."""
        mu, sigma = sp.zeros(self.units, 1), sp.ones(self.units, 1)
        if self.method != "none":
            a, w = (lambda m, i: self.a[m - 1, i - 1]), (lambda i, d: self.w[i - 1, d - 1])
            sizes = Sizes(self.cases, self.features, self.units, self.units)
            for i in range(self.units):
                mu[i], variance = statistics(self.method, a, w, n + 1, i + 1, sizes)
                sigma[i] = sp.sqrt(variance)
        return mu, sigma

    def standardized(self, n: int) -> Matrix:
        """(a_i − μ_i)/σ_i for case n."""
        mu, sigma = self.statistics(n)
        return sp.Matrix([(self.a[n, i] - mu[i]) / sigma[i] for i in range(self.units)])

    def natural(self, n: int) -> Matrix:
        """The natural parameters s of case n."""
        if self.method == "none":
            return sp.Matrix(self.a.row(n).T + self.b)
        return sp.Matrix(self.g.multiply_elementwise(self.standardized(n)) + self.b)

    def parameters_of(self, i: int) -> list[sp.Symbol]:
        """w_i, b_i and g_i."""
        gain = [] if self.method == "none" else [self.g[i]]
        return [*self.w.row(i), self.b[i], *gain]

    @property
    def parameters(self) -> list[sp.Symbol]:
        return [p for i in range(self.units) for p in self.parameters_of(i)]

    def jacobian(self, n: int) -> Matrix:
        """∂s/∂θ of case n, every entry: a weight vector may move other units' outputs."""
        return self.natural(n).jacobian(self.parameters)

    def chi(self, n: int, i: int) -> Matrix:
        """χ_i = x − ∂μ_i/∂w_i − (a_i − μ_i)/σ_i ∂σ_i/∂w_i, eq. (14)."""
        mu, sigma = self.statistics(n)
        ratio = (self.a[n, i] - mu[i]) / sigma[i]
        own = self.w.row(i)
        return sp.Matrix(
            [
                x - mu[i].diff(w) - ratio * sigma[i].diff(w)
                for x, w in zip(self.x.row(n), own, strict=True)
            ]
        )

    def paper_jacobian(self, n: int) -> Matrix:
        """∂s/∂θ as eqs. (12) and (13) have it: one block (g_i χ_i/σ_i, 1, ā_i) a unit."""
        if self.method == "none":
            return sp.diag(*[sp.Matrix([[*self.x.row(n), 1]])] * self.units)
        sigma, standard = self.statistics(n)[1], self.standardized(n)
        blocks = []
        for i in range(self.units):
            weights = self.g[i] * self.chi(n, i) / sigma[i]
            blocks.append(sp.Matrix([[*weights, 1, standard[i]]]))
        return sp.diag(*blocks)

    def fisher(self, paper: bool = False) -> Matrix:
        """E[Jᵀ Cov J]/φ² over the cases, with ∂s/∂θ or (`paper`) with the J of eq. (13)."""
        total = sp.zeros(len(self.parameters))
        for n in range(self.cases):
            j = self.paper_jacobian(n) if paper else self.jacobian(n)
            total += j.T * self.family.covariance(self.natural(n)) * j
        return total / self.cases / self.family.dispersion**2

    def kronecker_fisher(self) -> Matrix:
        """Eq. (12) as it is printed, for the standard model: E[Cov/φ² ⊗ [[xxᵀ, x], [xᵀ, 1]]]."""
        if self.method != "none":
            raise ValueError(f"eq. (12) is for method 'none', this model has {self.method!r}")
        total = sp.zeros(len(self.parameters))
        for n in range(self.cases):
            one = sp.Matrix([*self.x.row(n), 1])
            cov = self.family.covariance(self.natural(n)) / self.family.dispersion**2
            total += sp.kronecker_product(cov, one * one.T)
        return total / self.cases

    def magnitude_metric(self) -> Matrix:
        """The metric along the gains or, in the standard model, along the lengths of the weights.

        E[Cov · m_i m_j]/φ², where m_i is ∂s_i/∂g_i or the derivative of s_i along w_i/‖w_i‖:
        (a_i − μ_i)/σ_i as in eq. (33), a_i/‖w_i‖ in eqs. (34) and (35).
        """
        along = sp.zeros(len(self.parameters), self.units)
        size = len(self.parameters) // self.units
        for i in range(self.units):
            if self.method == "none":
                length = sp.sqrt(sp.Add(*(v**2 for v in self.w.row(i))))
                along[i * size : (i + 1) * size - 1, i] = self.w.row(i).T / length
            else:
                along[(i + 1) * size - 1, i] = 1
        return along.T * self.fisher() * along

    def mean_covariance(self) -> Matrix:
        """E[Cov]/φ² over the cases: the gain's metric by eq. (32), for batch normalization."""
        total = sp.zeros(self.units)
        for n in range(self.cases):
            total += self.family.covariance(self.natural(n))
        return total / self.cases / self.family.dispersion**2

    def evaluate(
        self,
        expression: Matrix,
        w: Float[Tensor, "units features"],
        b: Float[Tensor, " units"],
        g: Float[Tensor, " units"],
        x: Float[Tensor, "cases features"],
        phi: float = 1.0,
    ) -> Float[Tensor, "rows columns"]:
        """The float64 value of a matrix of expressions."""
        symbols = [*self.w, *self.b, *self.g, *self.x, FAMILIES["gaussian"].dispersion]
        numbers = [k for t in (w, b, g, x) for k in t.double().flatten().tolist()]
        return torch.tensor(
            sp.lambdify(symbols, expression, "numpy", cse=True)(*numbers, phi), dtype=torch.float64
        )


def _symbols(name: str, n: int) -> Matrix:
    return sp.Matrix(sp.symbols(f"{name}:{n}", real=True))


def _pairs(z: Matrix, s: Matrix) -> dict:
    return dict(zip(z, s, strict=True))


def _gaussian_moments(value: sp.Expr, noise: list[sp.Symbol]) -> sp.Expr:
    """E over independent standard normals of a polynomial in them: E[e^k] = (k − 1)!! or 0."""
    terms = sp.Poly(value, *noise).terms()
    total = sp.S.Zero
    for powers, coefficient in terms:
        if all(k % 2 == 0 for k in powers):
            total += coefficient * sp.Mul(*(sp.factorial2(k - 1) for k in powers))
    return total
