"""Claims about the Fisher matrix that chapter 07 decides: eqs. (8), (12), (13) and the norm in it.

Those on the metric along the gain are in `chapter_07_gain.py`, those on what norms do while
a network learns in `chapter_07_length.py`, those on the scale of the first weights in
`chapter_07_scale.py`.
"""

from __future__ import annotations

from itertools import product

import torch
from torch.autograd.functional import jacobian

from layernorm import functional as F
from layernorm.lab.analysis import fisher
from layernorm.lab.analysis.fisher import draw
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import below, conditional, held, largest, less, proved, worst

GEOMETRY = "layernorm.symbolic.geometry"
NATURAL = "layernorm.lab.analysis.fisher.natural"
PHI = {"bernoulli": 1.0, "gaussian": 0.5, "categorical": 1.0}
_natural = fisher.natural  # what mutants are made of


def mean_instead(family, s):
    """Mutant: takes the mean for the variance."""
    import sympy

    return sympy.diag(*family.mean(s))


def curvature_of_any_family(units: int) -> bool:
    """Check every step of the derivation, in SymPy, for a log-partition function η of which nothing
    is known.

    log P(y|s) − log P(y|t) is linear in y and E[y] = ∇η(s), so the KL divergence is its value at
    ∇η(s), (η(t) − η(s) − ∇η(s)·(t − s))/φ. At t = s its gradient is 0 and its Hessian ∇∇η/φ. Each
    entry of them has at most two natural parameters, so their number does not matter.
    """
    import sympy as sp

    from layernorm.symbolic.geometry import Family

    phi = sp.Symbol("phi", positive=True)
    family = Family("any", lambda s: sp.Function("eta")(*s), phi)
    s, t, y = (sp.Matrix(sp.symbols(f"{n}:{units}", real=True)) for n in "sty")
    ratio = family.log_probability(s, y) - family.log_probability(t, y)
    kl = ratio.subs(dict(zip(y, family.mean(s), strict=True)))
    left = [*sp.hessian(ratio, list(y)), kl - family.bregman(s, t)]
    at = dict(zip(t, s, strict=True))
    left += [kl.diff(k).subs(at) for k in t]
    left += [*(sp.hessian(kl, list(t)).subs(at) - family.covariance(s) / phi**2)]
    return all(sp.simplify(k) == 0 for k in left)


@claim(
    id="fisher-is-the-curvature-of-kl",
    statement="For a small change δ of the parameters the KL divergence of the model's output is "
    "½ δᵀFδ, with the Fisher matrix F.",
    kind="proof",
    rule="refuted unless a derivation for any log-partition function, each step of which SymPy "
    "checks (H = 1 to 4), gives the KL divergence gradient 0 and Hessian Cov/φ² in the natural "
    "parameters s; as the gradient is 0, it is JᵀCov J/φ² in parameters θ with ∂s/∂θ = J, which is "
    "E[∇log P ∇log Pᵀ] since ∇log P = Jᵀ(y − E[y])/φ. Proved if SymPy also finds E[y] = ∇η and "
    "this KL divergence from the definitions of Bernoulli, Gaussian and categorical outputs, H = 1 "
    "and 2, and, for H = 3 and all normalizations, both matrices agree to 1e-12 in float64",
    sabotage=(f"{GEOMETRY}.Family.covariance", mean_instead),
)
def fisher_is_the_curvature_of_kl() -> Finding:
    import sympy as sp

    from layernorm.symbolic.geometry import FAMILIES

    derived = all(map(curvature_of_any_family, range(1, 5)))
    left = []
    for family, units in product(FAMILIES.values(), (1, 2)):
        s, t = (sp.Matrix(sp.symbols(f"{n}:{units}", real=True)) for n in "st")
        means = [family.expectation(s, lambda y, i=i: y[i]) for i in range(units)]
        left += [family.kl(s, t) - family.bregman(s, t), *(sp.Matrix(means) - family.mean(s))]
    exact, off = all(sp.simplify(k) == 0 for k in left), 0.0
    for pair in product(fisher.FAMILIES, fisher.METHODS):
        p = fisher.model(3, 2, 4)
        off = worst(off, largest(fisher.by_definition(*pair, *p) - fisher.by_curvature(*pair, *p)))
    return proved(
        derived and exact and off < 1e-12,
        f"The derivation {'holds' if derived else 'does not hold'} for any log-partition function; "
        f"the three families {'have' if exact else 'do not have'} its mean and KL divergence for "
        f"H = 1 and 2. In float64, for {len(fisher.METHODS)} methods and H = 3, the two matrices "
        f"differ by {less(off, 1e-12)}.",
        off=off,
    )


@claim(
    id="fisher-of-the-standard-model",
    statement="The Fisher matrix of a generalized linear model is E[Cov[y|x]/φ² ⊗ [[xxᵀ, x], "
    "[xᵀ, 1]]].",
    kind="proof",
    rule="SymPy: ∂s/∂θ = I ⊗ (xᵀ, 1) for H = 1 to 4 and 1 to 3 features, from which (12) follows "
    "by the chain rule for every family; and (12) equals E[∇log P ∇log Pᵀ] by autograd to 1e-12 "
    "for the three families, Gaussian with φ = ½: proved if both, else refuted",
    # Mutant: the model forgets its bias.
    sabotage=(NATURAL, lambda method, w, b, g, x: _natural(method, w, 0 * b, g, x)),
)
def fisher_of_the_standard_model() -> Finding:
    from layernorm.symbolic.geometry import GLM

    models = [GLM("bernoulli", "none", *sizes) for sizes in product(range(1, 5), range(1, 4))]
    same = all(glm.jacobian(0) == glm.paper_jacobian(0) for glm in models)
    off = 0.0
    for family in fisher.FAMILIES:
        glm, numbers, phi = GLM(family, "none", 2, 2, 3), fisher.model(2, 2, 3), PHI[family]
        printed = glm.evaluate(glm.kronecker_fisher(), *numbers, phi)
        off = worst(off, largest(printed - fisher.by_definition(family, "none", *numbers, phi)))
    return proved(
        same and off < 1e-12,
        f"∂s/∂θ {'is' if same else 'is not'} I ⊗ (xᵀ, 1) for H = 1 to 4; against the definition, "
        f"for three families, the difference is {below(off, 1e-12)}.",
        off=off,
    )


@claim(
    id="fisher-of-the-normalized-model",
    statement="The Fisher matrix of a normalized generalized linear model has the blocks "
    "E[Cov[yᵢ, yⱼ|x]/φ² · M], M made of gᵢχᵢ/σᵢ, 1 and (aᵢ − μᵢ)/σᵢ.",
    kind="proof",
    rule="three units, two features, three cases: refuted unless for batch and weight "
    "normalization no wᵢ occurs in the SymPy expression of another unit's output, (13) with (14) "
    "agrees with E[∇log P ∇log Pᵀ] by autograd to 1e-12 (Bernoulli, Gaussian with φ = ½, "
    "categorical), and the weights' part of each matrix has an entry above 1e-6; proved if for "
    "layer normalization, too; else conditional. The evidence adds, for layer normalization, what "
    "both say of the step δ = W, which changes no output",
    # Mutant: layer normalization, whatever was asked for.
    sabotage=(NATURAL, lambda method, w, b, g, x: _natural("layer", w, b, g, x)),
)
def fisher_of_the_normalized_model() -> Finding:
    from layernorm.symbolic.geometry import GLM

    off, printed_along, true_along = dict.fromkeys(("batch", "weight", "layer"), 0.0), 0.0, 0.0
    of_weights = []
    for family, phi in PHI.items():
        numbers = fisher.model(3, 2, 3)
        w, b, g = numbers[:3]
        step = torch.cat([w, 0 * b[:, None], 0 * g[:, None]], 1).flatten()
        for method in off:
            glm = GLM(family, method, 3, 2, 3)
            printed = glm.evaluate(glm.fisher(paper=True), *numbers, phi)
            true = fisher.by_definition(family, method, *numbers, phi)
            shared = glm.natural(0)[0].has(*glm.w.row(1), *glm.w.row(2))
            off[method] = worst(off[method], largest(printed - true), float(shared))
            of_weights.append(largest(true.view(3, 4, 3, 4)[:, :2, :, :2]))
        printed_along += (step @ printed @ step).item()
        true_along += (step @ true @ step).item()
    exact = [method for method, value in off.items() if value < 1e-12]
    return conditional(
        {"batch", "weight"} <= set(exact) and min(of_weights) > 1e-6,
        "layer" in exact,
        "every unit has its own μ and σ, as under batch and weight normalization",
        f"(13) agrees with the definition to 1e-12 for {', '.join(exact) or 'no'} normalization. "
        "Under layer normalization the step δ = W changes no output, and its curvature, summed "
        f"over the models of three families, is {abs(true_along):.2f}; (13) says "
        f"{printed_along:.2f}.",
        holds=proved,
        **off,
        weights=min(of_weights),
    )


@claim(
    id="missing-terms-shrink-with-width",
    statement="Under layer normalization equation (13) leaves out the share 2/(H + 1) of the trace "
    "of the weights' Fisher matrix, for independent Gaussian summed inputs and independent outputs "
    "of equal variance.",
    rule="held if for H = 3, 4, 8, 32 and 128 units (20,000 cases for each, 2,000 for the widest) "
    "the share is 2/(H + 1) to 0.5%, seven standard errors at H = 4, and σ ∂ā/∂a by autograd is "
    "I − (11ᵀ + āāᵀ)/H to 1e-12 (times largest entry over σ), also for the adversary's rows that "
    "vary; else refuted",
    # Mutant: the derivative of the mean alone.
    sabotage=(
        "layernorm.lab.analysis.fisher.sensitivity",
        lambda a: torch.eye(a.shape[1], dtype=a.dtype).expand(len(a), -1, -1) - 1 / a.shape[1],
    ),
)
def missing_terms_shrink_with_width() -> Finding:
    ratio = {
        h: fisher.missing_share(draw(20_000 if h < 100 else 2_000, h)) * (h + 1) / 2
        for h in (3, 4, 8, 32, 128)
    }
    off = 0.0
    for units in (2, 3, 8, 32):
        for a in filter(adversary.varies, (draw(1, units), *adversary.rows(units).values())):
            true = jacobian(lambda a: F.layer_norm(a, a.shape[1:], eps=0.0), a)[0, :, 0]
            gap = largest(true * a.std(correction=0) - fisher.sensitivity(a)[0])
            off = worst(off, gap / adversary.conditioning(a))
    holds = all(abs(r - 1) < 0.005 for r in ratio.values()) and off < 1e-12
    return held(
        holds,
        f"For H = 3 to 128 the share is 2/(H + 1) {'to' if holds else 'but not to'} 0.5%, "
        f"from {ratio[3] / 2:.0%} to {ratio[128] * 2 / 129:.1%}; the formula behind it agrees with "
        f"autograd to {less(off, 1e-12)}.",
        **{str(h): r for h, r in ratio.items()},
    )


@claim(
    id="doubling-the-norm-halves-the-curvature",
    statement="When the norm of a weight vector doubles, the curvature with respect to it (its "
    "block of F; along w itself it is 0) changes by a factor of ½, since σ doubles.",
    rule="the block (wᵢ, wᵢ) of the Fisher matrix by autograd before and after wᵢ doubles, batch "
    "and weight normalization, 5 models: held if every entry is multiplied by ½ to 1e-9; else "
    "refuted, and the evidence gives the factor, that of the block (wᵢ, wⱼ), layer "
    "normalization's for one vector and for all of W, and the curvature along wᵢ",
    # Mutant: divides by the root of the length of each weight vector.
    sabotage=(
        NATURAL,
        lambda m, w, *p: _natural("none", w / w.norm(dim=1, keepdim=True).sqrt(), *p),
    ),
)
def doubling_the_norm_halves_the_curvature() -> Finding:
    one, every = slice(0, 1), slice(None)
    own, cross, single, matrix, along = [], [], [], [], 0.0
    for _ in range(5):
        for method in ("batch", "weight"):
            factors = fisher.doubling(method, one)
            own.append(factors[0])
            cross.append(factors[1])
            w, *rest = fisher.model(3, 3, 5)
            block = fisher.by_definition("gaussian", method, w, *rest)[:3, :3]
            along = worst(along, abs((w[0] @ block @ w[0]).item()))
        single.append(fisher.doubling("layer", one)[0])
        matrix.append(fisher.doubling("layer", every)[0])
    own, cross, single, matrix = (torch.stack(t).flatten() for t in (own, cross, single, matrix))
    many = single.max() - single.min() > 0.1
    return held(
        largest(own - 0.5) < 1e-9,
        f"The block (wᵢ, wᵢ) is multiplied by {own.median():.2f} and (wᵢ, wⱼ) by "
        f"{cross.median():.2f}; under layer normalization (wᵢ, wᵢ) by "
        f"{'many different factors' if many else 'one factor'} if one vector doubles and "
        f"by {matrix.median():.2f} if all of W does. Along wᵢ itself the curvature is "
        f"{'0' if along < 1e-12 else 'not 0'} to 1e-12.",
        factor=own.median(),
        along=along,
    )
