r"""Fisher matrices of generalized linear models by automatic differentiation.

The models of the paper's section 5.2: H outputs y whose natural parameters are the (normalized)
summed inputs, s_i = g_i (a_i − μ_i)/σ_i + b_i, and

    log P(y | s) = (s·y − η(s)) / φ + c(y, φ),                                              eq. (10)

for Bernoulli and categorical outputs (φ = 1) and Gaussian ones (φ is their variance). Nothing here
knows equations (12) to (14): the matrices come from the definitions (8) and (9) and those of
`layernorm.functional`. `layernorm.symbolic.geometry` derives the same in SymPy.

Parameters are ordered unit by unit: w_i, b_i and, where there is a normalization, g_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from layernorm import functional as F
from layernorm import methods

FAMILIES = ("bernoulli", "gaussian", "categorical")
# Those of a fully connected layer; the few units here would be one group, a layer.
METHODS = tuple(m.name for m in methods.normalizations() if m.name != "group")


def natural(
    method: str,
    w: Float[Tensor, "units features"],
    b: Float[Tensor, " units"],
    g: Float[Tensor, " units"],
    x: Float[Tensor, "cases features"],
) -> Float[Tensor, "cases units"]:
    """The natural parameters s of every case (eps = 0); `none` has no gain and ignores g.

    They are what the method's layer gives with these weights, gains and biases. Raises `ValueError`
    for an unknown method, or sizes that do not fit.
    """
    _known("method", method, METHODS)
    _check_sizes(w, b, g, x)
    with torch.random.fork_rng(devices=[]):  # its own start, drawn at random, is not used
        layer = methods.METHODS[method].layer(x.shape[1], len(w)).to(x)
    for module in layer:
        module.eps, module.backend = 0.0, "reference"
    own = {"0.weight": w, "0.weight_v": w, "0.weight_g": g[:, None]}
    given = {
        name: own.get(name, b if name.endswith("bias") else g)
        for name, _ in layer.named_parameters()
    }
    return torch.func.functional_call(layer, given, (x,))


def log_partition(family: str, s: Float[Tensor, "*n units"]) -> Float[Tensor, "*n"]:
    """η(s); raises `ValueError` for an unknown family."""
    _known("family", family, FAMILIES)
    if family == "bernoulli":
        return torch.nn.functional.softplus(s).sum(-1)
    return s.square().sum(-1) / 2 if family == "gaussian" else s.logsumexp(-1)


def outcomes(
    family: str, s: Float[Tensor, "cases units"], phi: float = 1.0
) -> tuple[Float[Tensor, "cases k units"], Float[Tensor, "cases k"]]:
    """Outcomes y of every case and their probabilities: all there are, at most 2¹⁰.

    For Gaussians 2H points with the mean s and the covariance φI, which is all that the Fisher
    matrix asks for, since the score is linear in y. Raises `ValueError` for an unknown family, a
    phi that is not positive, or more than ten Bernoulli outputs.
    """
    _known("family", family, FAMILIES)
    _check_phi(phi)
    cases, units = s.shape
    if family == "gaussian":
        steps = math.sqrt(units * phi) * torch.cat([torch.eye(units), -torch.eye(units)]).to(s)
        return s[:, None] + steps, s.new_full((cases, 2 * units), 1 / (2 * units))
    if family == "categorical":
        return torch.eye(units).to(s).expand(cases, units, units), s.softmax(-1)
    if units > 10:
        raise ValueError(f"at most 10 Bernoulli outputs can be enumerated, got {units}")
    y = torch.tensor(list(product((0.0, 1.0), repeat=units))).to(s).expand(cases, -1, -1)
    probability = torch.where(y > 0, torch.sigmoid(s)[:, None], torch.sigmoid(-s)[:, None])
    return y, probability.prod(-1)


def by_definition(
    family: str, method: str, w: Tensor, b: Tensor, g: Tensor, x: Tensor, phi: float = 1.0
) -> Float[Tensor, "p p"]:
    """The Fisher matrix by its definition, eq. (9): E[∇log P ∇log Pᵀ], y drawn from the model.

    w, b, g and x are those of `natural`.
    """
    _check_sizes(w, b, g, x)
    theta, read = _flat(method, w, b, g)
    y, probability = outcomes(family, natural(method, w, b, g, x), phi)

    def log_probabilities(theta: Tensor) -> Tensor:
        s = natural(method, *read(theta), x)
        return (((y * s[:, None]).sum(-1) - log_partition(family, s)[:, None]) / phi).flatten()

    score = torch.autograd.functional.jacobian(log_probabilities, theta)
    return score.T @ (score * probability.reshape(-1, 1)) / len(x)


def by_curvature(
    family: str, method: str, w: Tensor, b: Tensor, g: Tensor, x: Tensor, phi: float = 1.0
) -> Float[Tensor, "p p"]:
    """The Hessian of KL[P(θ) ‖ P(θ + δ)] at δ = 0, eq. (8), averaged over the cases."""
    _check_phi(phi)
    _check_sizes(w, b, g, x)
    theta, read = _flat(method, w, b, g)
    at = natural(method, w, b, g, x).detach().requires_grad_()
    (mean,) = torch.autograd.grad(log_partition(family, at).sum(), at)

    def kl(theta: Tensor) -> Tensor:  # up to a constant
        s = natural(method, *read(theta), x)
        return (log_partition(family, s) - (mean * s).sum(-1)).mean() / phi

    return torch.autograd.functional.hessian(kl, theta)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def model(units: int, features: int, cases: int) -> list[Tensor]:
    """Random w, b, g and data that are not centered."""
    return [draw(units, features), draw(units), draw(units), 1 + draw(cases, features)]


def sensitivity(a: Tensor) -> Tensor:
    """σ ∂ā/∂a of layer normalization for each case (row of a): I − (11ᵀ + āāᵀ)/H."""
    units = a.shape[1]
    y = F.layer_norm(a, (units,), eps=0.0)
    shared = (1 + y[:, :, None] * y[:, None, :]) / units
    return torch.eye(units, dtype=a.dtype) - shared


def missing_share(a: Tensor, x: Tensor | None = None) -> float:
    """The share of the trace of the weights' Fisher matrix that (13) leaves out, over the cases a.

    For independent outputs of equal variance and gains 1. A case's derivatives have the factor
    ‖x‖/σ, so it counts with the weight ‖x‖²/σ²; without inputs x all cases count alike.
    """
    p = sensitivity(a)
    every = p.square().sum((1, 2))
    own = p.diagonal(dim1=1, dim2=2).square().sum(1)
    weight = 1 if x is None else x.square().sum(1) / a.var(1, correction=0)
    return 1 - ((weight * own).sum() / (weight * every).sum()).item()


def _block(matrix: Tensor, i: int, j: int, features: int) -> Tensor:
    """The part of a normalized model's Fisher matrix that belongs to w_i and w_j."""
    p = features + 2
    return matrix[i * p : i * p + features, j * p : j * p + features]


def doubling(method: str, rows: slice, units: int = 3, features: int = 3) -> list[Tensor]:
    """The factors by which blocks (w₀, w₀) and (w₀, w₁) change when the weights of `rows` double.

    The first for Gaussian outputs, the second for categorical ones, which depend on each other.
    """
    w, b, g, x = model(units, features, 5)
    twice = w.clone()
    twice[rows] *= 2
    factors = []
    for family, i, j in (("gaussian", 0, 0), ("categorical", 0, 1)):
        both = (by_definition(family, method, v, b, g, x) for v in (w, twice))
        before, after = (_block(m, i, j, features) for m in both)
        factors.append(after / before)
    return factors


def along_gain(family: str, method: str, w: Tensor, b: Tensor, g: Tensor, x: Tensor) -> Tensor:
    """The metric along the gains or, for `none`, along the unit vectors w_i/‖w_i‖: (H, H)."""
    units, features = w.shape
    full = by_definition(family, method, w, b, g, x)
    step = w.new_zeros(units, len(full) // units, units)
    for i in range(units):
        if method == "none":
            step[i, :features, i] = w[i] / w[i].norm()
        else:
            step[i, -1, i] = 1
    step = step.reshape(len(full), units)
    return step.T @ full @ step


def mean_covariance(family: str, method: str, *parameters: Tensor) -> Tensor:
    """E[Cov[y|x]] over the cases: by eq. (32) the whole metric along the gains."""
    y, p = outcomes(family, natural(method, *parameters))
    off = y - (p[..., None] * y).sum(1, keepdim=True)
    return torch.einsum("nk,nki,nkj->ij", p, off, off) / len(y)


def _flat(method: str, w: Tensor, b: Tensor, g: Tensor) -> tuple[Tensor, Callable]:
    """The parameters as one vector, unit by unit, and how to read (w, b, g) out of one."""
    columns = [w, b[:, None]] + ([] if method == "none" else [g[:, None]])

    def read(theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows = theta.view(len(w), -1)
        features = w.shape[1]
        return rows[:, :features], rows[:, features], g if method == "none" else rows[:, -1]

    return torch.cat(columns, 1).flatten(), read


def _check_phi(phi: float) -> None:
    if not (math.isfinite(phi) and phi > 0):
        raise ValueError(f"phi must be positive and finite, got {phi}")


def _check_sizes(w: Tensor, b: Tensor, g: Tensor, x: Tensor) -> None:
    shapes = {name: tuple(t.shape) for name, t in (("w", w), ("b", b), ("g", g), ("x", x))}
    if w.dim() == 2 and 0 not in w.shape and len(x) >= 1:
        units, features = w.shape
        if b.shape == g.shape == (units,) and x.shape == (len(x), features):
            return
    raise ValueError(
        "w must be (units, features), b and g (units,), x (cases, features), each at least 1; got "
        + ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    )


def _known(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
