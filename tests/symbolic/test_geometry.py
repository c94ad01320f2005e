"""KL divergence and Fisher matrices: symbolic, from the definition and by automatic derivatives."""

import math

import pytest
import sympy as sp
import torch

from layernorm.lab.analysis import fisher
from layernorm.symbolic.geometry import FAMILIES, GLM, METHODS

DISTRIBUTIONS = {
    "bernoulli": lambda s, phi: torch.distributions.Bernoulli(logits=s),
    "gaussian": lambda s, phi: torch.distributions.Normal(s, math.sqrt(phi)),
    "categorical": lambda s, phi: torch.distributions.Categorical(logits=s),
}
PHI = {"gaussian": 0.7}  # the dispersion of the others is 1
each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))


def numbers(units, features, cases, seed=0):
    """w, b, g, x; gains of both signs, cases that are not centered."""
    torch.manual_seed(seed)
    w, b, g = torch.randn(units, features), torch.randn(units), torch.randn(units)
    return [t.double() for t in (w, b, g, 1 + torch.randn(cases, features))]


def natural_numbers(family, *values):
    """Replaces s0, s1, …, t0, … and φ by numbers."""
    symbols = [*sp.symbols("s:3 t:3", real=True), FAMILIES["gaussian"].dispersion]
    return dict(zip(symbols, [*values, PHI.get(family.name, 1.0)], strict=True))


def symbols(name, units=3):
    return sp.Matrix(sp.symbols(f"{name}:{units}", real=True))


# The families, eqs. (8), (10), (11)


@each_family
def test_log_probability_is_torchs(family):
    s = torch.tensor([0.3, -1.2, 0.8]).double()
    y = torch.tensor([0.0, 1.0, 0.0]).double()
    torchs = DISTRIBUTIONS[family.name](s, PHI.get(family.name))
    wanted = torchs.log_prob(y.argmax() if family.name == "categorical" else y).sum()
    ours = family.log_probability(symbols("s"), sp.Matrix([0, 1, 0]))
    ours = ours.subs(natural_numbers(family, *s.tolist(), 0, 0, 0))
    assert float(ours) == pytest.approx(wanted.item(), abs=1e-14)


@each_family
def test_probabilities_sum_to_one(family):
    total = family.expectation(symbols("s"), lambda y: sp.S.One)
    assert float(total.subs(natural_numbers(family, 0.3, -1.2, 0.8, 0, 0, 0))) == pytest.approx(1)


@each_family
def test_kl_is_torchs_and_its_closed_form(family):
    s, t = torch.tensor([0.3, -1.2, 0.8]).double(), torch.tensor([-0.4, 0.1, 2.0]).double()
    make, phi = DISTRIBUTIONS[family.name], PHI.get(family.name)
    wanted = torch.distributions.kl_divergence(make(s, phi), make(t, phi)).sum().item()
    at = natural_numbers(family, *s.tolist(), *t.tolist())
    for kl in (family.kl, family.bregman):
        assert float(kl(symbols("s"), symbols("t")).subs(at)) == pytest.approx(wanted, abs=1e-14)


@each_family
@pytest.mark.parametrize("units", [1, 2])
def test_moments_are_derivatives_of_the_log_partition(family, units):
    s = symbols("s", units)
    mean, covariance = family.mean(s), family.covariance(s)
    for i in range(units):
        assert sp.simplify(family.expectation(s, lambda y, i=i: y[i]) - mean[i]) == 0
        for j in range(units):
            product = family.expectation(s, lambda y, i=i, j=j: y[i] * y[j])
            assert sp.simplify(product - mean[i] * mean[j] - covariance[i, j]) == 0


@each_family
def test_kl_has_the_covariance_as_curvature(family):
    s, t = symbols("s", 2), symbols("t", 2)
    curvature = sp.hessian(family.kl(s, t), list(t)).subs(dict(zip(t, s, strict=True)))
    wanted = family.covariance(s) / family.dispersion**2
    assert sp.simplify(curvature - wanted) == sp.zeros(2)


# Fisher matrices, eqs. (9), (12)-(14)

SIZES = [(2, 2, 3), (3, 2, 2)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("method", METHODS)
@each_family
def test_symbolic_fisher_is_autograds(family, method, size):
    if family.name == "categorical":
        size = (2, 2, 2)  # otherwise SymPy takes seconds
    phi, at = PHI.get(family.name, 1.0), numbers(*size)
    model = GLM(family.name, method, *size)
    ours = model.evaluate(model.fisher(), *at, phi)
    score = fisher.by_definition(family.name, method, *at, phi)
    curvature = fisher.by_curvature(family.name, method, *at, phi)
    assert ours.abs().max() > 0.01
    torch.testing.assert_close(ours, score, rtol=0, atol=1e-13)
    torch.testing.assert_close(curvature, score, rtol=0, atol=1e-13)


@each_family
def test_equation_12_as_printed(family):
    model = GLM(family.name, "none", 2, 2, 2)
    assert model.jacobian(0) == model.paper_jacobian(0)
    at = numbers(2, 2, 2)
    printed = model.evaluate(model.kronecker_fisher(), *at)
    torch.testing.assert_close(printed, model.evaluate(model.fisher(), *at), rtol=0, atol=1e-14)


@pytest.mark.parametrize("method", ["batch", "weight"])
def test_equation_13_is_exact_where_a_unit_has_its_own_statistics(method):
    model = GLM("bernoulli", method, 2, 2, 2)
    difference = model.jacobian(1) - model.paper_jacobian(1)
    assert difference.applyfunc(lambda k: sp.simplify(sp.together(k))) == sp.zeros(2, 8)


@pytest.mark.parametrize(("method", "centered"), [("layer", 1), ("rms", 0)])
def test_what_equation_13_leaves_out_where_units_share_their_statistics(method, centered):
    """∂s_j/∂w_i = −g_j (1 + ā_i ā_j) x / (Hσ) for j ≠ i under layer normalization."""
    model = GLM("bernoulli", method, 3, 1, 1)
    a, sigma = model.standardized(0), model.statistics(0)[1][0]
    left_out = model.jacobian(0) - model.paper_jacobian(0)
    for j in range(3):
        for i in range(3):
            block = left_out[j, 3 * i : 3 * i + 1]
            factor = 0 if i == j else -model.g[j] * (centered + a[i] * a[j]) / (3 * sigma)
            wanted = factor * model.x.row(0)
            assert (block - wanted).applyfunc(sp.simplify) == sp.zeros(1, 1)
            assert left_out[j, 3 * i + 1 : 3 * i + 3] == sp.zeros(1, 2)


# The metric along the gain, eqs. (32)-(35)


@pytest.mark.parametrize("method", ["none", "batch", "weight", "layer"])
def test_magnitude_metric_is_the_curvature_of_the_kl_divergence(method):
    """Against KL by torch, where the gains (or the lengths of the weights) have moved by δ."""
    w, b, g, x = numbers(2, 2, 2)
    model = GLM("bernoulli", method, 2, 2, 2)
    ours = model.evaluate(model.magnitude_metric(), w, b, g, x)
    s = fisher.natural(method, w, b, g, x)

    def kl(delta):
        longer = w + delta[:, None] * w / w.norm(dim=1, keepdim=True)
        moved = (longer, b, g) if method == "none" else (w, b, g + delta)
        t = fisher.natural(method, *moved, x)
        old, new = (torch.distributions.Bernoulli(logits=k) for k in (s, t))
        return torch.distributions.kl_divergence(old, new).sum(1).mean()

    wanted = torch.autograd.functional.hessian(kl, torch.zeros(2).double())
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-13)


def test_equation_32_holds_for_gaussians_one_output_at_a_time():
    model = GLM("gaussian", "batch", 1, 1, 3)
    exact, printed = model.magnitude_metric(), model.mean_covariance()
    assert (exact - printed).applyfunc(sp.simplify) == sp.zeros(1)


def test_equation_32_is_wrong_for_bernoulli_outputs():
    w, b, g, _ = numbers(1, 1, 3)
    x = torch.tensor([[-1.0], [0.0], [1.0]]).double()
    model = GLM("bernoulli", "batch", 1, 1, 3)
    ratio = model.evaluate(model.magnitude_metric(), w, 0 * b, g.sign(), x)
    ratio = (ratio / model.evaluate(model.mean_covariance(), w, 0 * b, g.sign(), x)).item()
    p = 1 / (1 + math.exp(-math.sqrt(1.5)))
    by_hand = p * (1 - p) * 1.5 * 2 / (2 * p * (1 - p) + 0.25)
    assert ratio == pytest.approx(by_hand, abs=1e-12)
    assert ratio < 0.9


# The mutants: what the comparisons above must not let pass


def test_a_wrong_covariance_is_noticed():
    model = GLM("bernoulli", "layer", 2, 2, 1)
    at = numbers(2, 2, 1)
    gaussian = GLM("gaussian", "layer", 2, 2, 1)
    wrong = gaussian.evaluate(gaussian.fisher(), *at)
    right = fisher.by_definition("bernoulli", "layer", *at)
    assert model.evaluate(model.fisher(), *at).sub(right).abs().max() < 1e-13
    assert wrong.sub(right).abs().max() > 0.01


def test_gaussian_points_have_the_models_moments():
    s = torch.randn(4, 3).double()
    y, p = fisher.outcomes("gaussian", s, 0.7)
    mean = (p[..., None] * y).sum(1)
    torch.testing.assert_close(mean, s)
    off = y - s[:, None]
    covariance = torch.einsum("nk,nki,nkj->nij", p, off, off)
    torch.testing.assert_close(covariance, 0.7 * torch.eye(3).double().expand(4, 3, 3))


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "poisson"}, "unknown family 'poisson': expected one of"),
        ({"method": "group"}, "unknown method 'group': expected one of"),
        ({"units": 0}, "units must be an int >= 1 or .* got 0"),
        ({"features": 0}, "features must be an int >= 1"),
        ({"method": "layer", "units": 1}, "with a single unit, layer normalization has σ = 0"),
        ({"method": "batch"}, "with a single case, batch normalization has σ = 0"),
    ],
)
def test_models_that_do_not_exist_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GLM(**options)


def test_equation_12_is_refused_for_a_normalized_model():
    with pytest.raises(ValueError, match=r"eq. \(12\) is for method 'none'"):
        GLM(method="layer").kronecker_fisher()


def test_bad_numbers_are_refused():
    s = torch.zeros(1, 11).double()
    with pytest.raises(ValueError, match="at most 10 Bernoulli outputs can be enumerated, got 11"):
        fisher.outcomes("bernoulli", s)
    with pytest.raises(ValueError, match="family must be one of bernoulli"):
        fisher.log_partition("poisson", s)
    with pytest.raises(ValueError, match="method must be one of none, batch"):
        fisher.natural("group", *numbers(2, 2, 2))


ONES = {"w": torch.ones(2, 3), "b": torch.ones(2), "g": torch.ones(2), "x": torch.ones(4, 3)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.ones(0, 3)}, r"x \(0, 3\)"),
        ({"w": torch.ones(2, 0), "x": torch.ones(4, 0)}, r"w \(2, 0\)"),
        ({"phi": 0.0}, "phi must be positive"),
        ({"phi": float("nan")}, "phi must be positive"),
    ],
)
@pytest.mark.parametrize("matrix", [fisher.by_definition, fisher.by_curvature])
def test_sizes_that_do_not_fit_and_a_dispersion_that_is_none_are_refused(matrix, change, message):
    with pytest.raises(ValueError, match=message):
        matrix("gaussian", "layer", **{**ONES, **change})
