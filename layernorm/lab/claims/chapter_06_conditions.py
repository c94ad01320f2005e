"""Claims of chapter 06 beyond Table 1: eps, where the normalization stands, re-parameterization."""

from __future__ import annotations

from fractions import Fraction

from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.chapter_06 import swapped
from layernorm.lab.claims.checks import proved


def no_growth(self):
    """Mutant: eps does no harm."""
    return 0


@claim(
    id="eps-breaks-invariance-to-scale",
    statement="With eps > 0 layer normalization is only nearly invariant to a scale δ: the outputs "
    "change by the share eps (1 - 1/δ²) / (2σ²), to first order. Invariance to re-centered weights "
    "stays exact.",
    rule="proved if the derived slope at eps = 0 is that, the proof of re-centering holds for a "
    "symbolic eps, and the definition in float64 has that slope to 1% at eps = σ²/1000, δ = 2",
    sabotage=("layernorm.symbolic.invariances.Proof.error_growth", property(no_growth)),
    kind="proof",
)
def eps_breaks_invariance_to_scale() -> Finding:
    import sympy
    import torch

    from layernorm import functional as F
    from layernorm.symbolic.invariances import VARIANCE, prove

    delta = sympy.Symbol("delta", positive=True)
    slope = prove("layer", "single_case_rescaling").error_growth
    same = sympy.simplify(slope - (1 - 1 / delta**2) / (2 * VARIANCE)) == 0
    exact = prove("layer", "weight_matrix_recentering").conditions == ()
    a = torch.randn(16).double()
    eps = a.var(correction=0).item() / 1000
    ratio = F.layer_norm(2 * a, (16,), eps=eps) / F.layer_norm(a, (16,), eps=eps)
    measured = (ratio.mean().item() - 1) / (0.75 / 2 / 1000)
    return proved(
        same and exact and abs(measured - 1) < 0.01,
        f"The derived slope is {slope}; at eps = σ²/1000 and δ = 2 the definition changes by "
        f"{measured:.2f} of it; re-centering is {'exact for every eps' if exact else 'not exact'}.",
        measured_over_derived=measured,
    )


@claim(
    id="normalizing-before-the-weights-loses-their-invariance",
    statement="Where the inputs are normalized instead of the summed inputs, the output is not "
    "invariant to re-scaled or re-centered weights.",
    rule="proved if the program finds exact counterexamples to both, and none for the "
    "normalization of summed inputs with the same numbers",
    sabotage=("layernorm.lab.claims.chapter_06_conditions.before", lambda x, W: after(x, W)),
    kind="proof",
)
def normalizing_before_the_weights_loses_their_invariance() -> Finding:
    x, W, gamma = [1, 2, 6], [[1, 0, 2], [3, 1, -1], [0, 2, 1]], [1, -2, 4]
    scaled = [[2 * w for w in row] for row in W]
    shifted = [[w + c for w, c in zip(row, gamma, strict=True)] for row in W]
    changes = [before(x, moved) != before(x, W) for moved in (scaled, shifted)]
    stays = all(after(x, moved) == after(x, W) for moved in (scaled, shifted))
    words = ["changes" if change else "keeps" for change in changes]
    return proved(
        all(changes) and stays,
        f"In integers, re-scaled weights: normalizing before {words[0]} the output; re-centered: "
        f"it {words[1]} it; normalizing the summed inputs {'keeps' if stays else 'changes'} it.",
    )


def normal(row, W=None):
    """Signed squares, which are rational, of a standardized row, or of what weights make of it."""
    mean = sum(row) * Fraction(1, len(row))
    deviations = [r - mean for r in row]
    variance = sum(d * d for d in deviations) / len(row)
    outputs = deviations if W is None else products(deviations, W)
    return [y * abs(y) / variance for y in outputs]


def products(x, W):
    return [sum(w * e for w, e in zip(row, x, strict=True)) for row in W]


def after(x, W):
    """Layer normalization of the summed inputs."""
    return normal(products(x, W))


def before(x, W):
    """The weights applied to the layer-normalized input."""
    return normal(x, W)


def second_derivative(method: str):
    """The second derivative of an output along a line of inputs X + t U.

    Statistics of the data are constants for batch normalization (expected statistics). It is 0 for
    every X and U if the layer is affine in its input.
    """
    import sympy

    from layernorm.symbolic import definitions
    from layernorm.symbolic.definitions import Sizes, entries
    from layernorm.symbolic.sums import collect, index

    n, i, t, sizes = index("n"), index("i"), sympy.Symbol("t", real=True), Sizes()
    X, U, W = entries("X"), entries("U"), entries("W")
    a = definitions.summed_inputs(lambda n, d: X(n, d) + t * U(n, d), W, sizes)
    if method == "batch":
        mu, sigma = (sympy.IndexedBase(name, real=True) for name in ("mu", "sigma"))
        y = (a(n, i) - mu[i]) / sigma[i]
    else:
        mu, variance = definitions.statistics(method, a, W, n, i, sizes)
        y = (a(n, i) - mu) / sympy.sqrt(variance)
    return sympy.expand(collect(y.diff(t, 2)))


@claim(
    id="weight-and-batch-norm-are-reparameterizations",
    statement="Weight normalization, and batch normalization with expected statistics, are "
    "re-parameterizations: with other weights and biases, the network without them computes the "
    "same.",
    rule="proved if, for every size, the second derivative of each output along every line of "
    "inputs is 0, so that the layer is w'x + b'",
    sabotage=("layernorm.symbolic.definitions.statistics", swapped("weight", "rms")),
    kind="proof",
)
def weight_and_batch_norm_are_reparameterizations() -> Finding:
    straight = {method: second_derivative(method) == 0 for method in ("weight", "batch")}
    answers = ", ".join(f"{m}: {'yes' if yes else 'no'}" for m, yes in straight.items())
    return proved(
        all(straight.values()), f"Is the output affine in the input, for every size? {answers}."
    )


@claim(
    id="layer-norm-is-no-reparameterization",
    statement="Layer normalization is not a re-parameterization of the network without it.",
    rule="proved if the program finds three inputs on a line, the middle one halfway, where the "
    "middle output is not halfway: no weights and biases do that",
    sabotage=(
        "layernorm.lab.claims.chapter_06_conditions.layer_output",
        lambda x: [float(sum(x))] * 3,
    ),
    kind="proof",
)
def layer_norm_is_no_reparameterization() -> Finding:
    ends = [[0, 1, 5], [4, 1, 0]]
    middle = [Fraction(p + q, 2) for p, q in zip(*ends, strict=True)]
    first, last = (layer_output(x)[0] for x in ends)
    halfway, got = (first + last) / 2, layer_output(middle)[0]
    return proved(
        abs(got - halfway) > 0.01,
        f"Between outputs {first:.3f} and {last:.3f} an affine layer would give {halfway:.3f} "
        f"halfway; layer normalization gives {got:.3f}.",
    )


def layer_output(x):
    """Layer normalization of three summed inputs that are the features themselves (W = I)."""
    from layernorm.symbolic.definitions import Sizes, normalized

    sizes = Sizes(cases=1, features=3, units=3, group=3)
    units = range(1, 4)
    return [
        float(normalized("layer", lambda n, d: x[d - 1], lambda i, d: int(i == d), 1, i, sizes))
        for i in units
    ]
