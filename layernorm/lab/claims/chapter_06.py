"""Claims of chapter 06: Table 1 of the paper, cell by cell, eps, and re-parameterization."""

from __future__ import annotations

from fractions import Fraction

from layernorm.lab.claims import Finding, claim, declare
from layernorm.lab.claims.checks import conditional, proved, spelled

STATISTICS = "layernorm.symbolic.definitions.statistics"

# The paper's Table 1: weight matrix re-scaled and re-centered, weight vector re-scaled, data set
# re-scaled and re-centered, single case re-scaled.
PAPER = {
    "batch": "yes no yes yes yes no",
    "weight": "yes no yes no no no",
    "layer": "yes yes no yes no yes",
}


def swapped(one: str, other: str):
    """Mutant: one method gets the statistics of another."""

    def statistics(method, *rest):
        from layernorm.symbolic.gradients import statistics as original

        return original(other if method == one else method, *rest)

    return statistics


def decided(method: str) -> list:
    from layernorm.symbolic import TRANSFORMATIONS, decide

    return [decide(method, transformation) for transformation in TRANSFORMATIONS]


def unconditional(cells, evidence: str) -> Finding:
    """Proved, or conditional where a proof needs conditions."""
    if needed := " and ".join(dict.fromkeys(c for cell in cells for c in cell.conditions)):
        return Finding("conditional", evidence, condition=needed)
    return Finding("proved", evidence)


def row_is(method: str, expected: str) -> Finding:
    """A row of the table: conditional where a proof needs a condition."""
    cells = decided(method)
    found = " ".join(map(str, cells))
    if found != expected:
        return Finding("refuted", f"The cells are: {found}.")
    yes = sum(cell.invariant for cell in cells)
    return unconditional(
        cells,
        f"The cells are {found}: {yes} with a proof for every size, {6 - yes} with a "
        "counterexample; each re-scaling is by some δ, each re-centering by any vector.",
    )


ROW = "is invariant under the transformations for which Table 1 says yes, and not under the others"
OF_BATCH = "by the statistics of the transformed batch, as in training, "
RULE = (
    "proved if all six cells, decided without knowing the table, are its cells; "
    "conditional if a proof needs a condition that the paper does not state"
)
NO_CENTER = "has the row of layer normalization, but no invariance to re-centered weights"
for name, title, sentence, expected, mutant in (
    ("batch", "Batch", OF_BATCH + ROW, PAPER["batch"], "layer"),
    ("weight", "Weight", ROW, PAPER["weight"], "rms"),
    ("layer", "Layer", ROW, PAPER["layer"], "batch"),
    ("rms", "RMS", NO_CENTER, "yes no no yes no yes", "layer"),
    ("group", "group", "has the row of layer normalization", "yes yes no yes no yes", "rms"),
):
    declare(
        id=f"table-1-row-{name}",
        statement=f"{'' if name in PAPER else 'In Table 1, '}{title} normalization {sentence}.",
        rule=RULE if name in PAPER else "as for the paper's rows: proved, conditional or refuted",
        check=lambda name=name, expected=expected: row_is(name, expected),
        sabotage=(STATISTICS, swapped(name, mutant)),
        kind="proof",
    )


def invariant_under(method: str, *transformations: str) -> Finding:
    """One or several transformations, one after the other."""
    from layernorm.symbolic import decide

    cells = [decide(method, transformation) for transformation in transformations]
    for cell in cells:
        if not cell.invariant:
            return Finding("refuted", f"In integers, {cell.counterexample}.")
    evidence = "Proved for every number of cases, features and units, with gain and bias as before."
    return unconditional(cells, evidence)


@claim(
    id="layer-norm-ignores-scale-and-center-of-weights",
    statement="Layer normalization gives the same outputs where all weights of the layer are "
    "re-scaled by one δ and every weight vector is shifted by one γ.",
    rule="proved if both cells of Table 1 are: the second transformation then keeps what the first "
    "kept; conditional if a proof needs a condition that the paper does not state",
    sabotage=(STATISTICS, swapped("layer", "batch")),
    kind="proof",
)
def layer_norm_ignores_scale_and_center_of_weights() -> Finding:
    return invariant_under("layer", "weight_matrix_rescaling", "weight_matrix_recentering")


@claim(
    id="layer-norm-ignores-scale-of-a-case",
    statement="With layer normalization the output, and so the prediction, does not change where a "
    "single case is re-scaled.",
    rule="proved for every size; conditional if the proof needs a condition that the paper does "
    "not state",
    sabotage=(STATISTICS, swapped("layer", "batch")),
    kind="proof",
)
def layer_norm_ignores_scale_of_a_case() -> Finding:
    return invariant_under("layer", "single_case_rescaling")


@claim(
    id="all-methods-ignore-scale-of-the-data",
    statement="All three normalization methods are invariant to re-scaling the data set.",
    rule="refuted if one of batch, weight and layer normalization has a counterexample; else as "
    "for layer normalization, proved, or conditional where its proof needs a condition",
    sabotage=(STATISTICS, swapped("weight", "layer")),
    kind="proof",
)
def all_methods_ignore_scale_of_the_data() -> Finding:
    findings = {m: invariant_under(m, "dataset_rescaling") for m in PAPER}
    for method, finding in findings.items():
        if finding.verdict == "refuted":
            return Finding("refuted", f"For {method} normalization: {finding.evidence}")
    return findings["layer"]


def all_alike(method, *rest):
    """Mutant: every method is batch normalization."""
    from layernorm.symbolic.gradients import statistics as original

    return original("batch", *rest)


@claim(
    id="no-clear-favorite-in-table-1",
    statement="Table 1 has no clear favorite.",
    rule="refuted if the invariances of one of the three methods contain those of both others",
    sabotage=(STATISTICS, all_alike),
    kind="proof",
)
def no_clear_favorite_in_table_1() -> Finding:
    has = {m: {k for k, cell in enumerate(decided(m)) if cell.invariant} for m in PAPER}
    favorite = [m for m in has if all(has[m] >= has[other] for other in has)]
    counts = ", ".join(f"{m} {len(has[m])}" for m in has)
    return proved(
        not favorite,
        f"Invariances: {counts} of 6; {favorite[0] if favorite else 'none'} has those of both "
        "others.",
    )


def no_growth(self):
    """Mutant: eps does no harm."""
    return 0


@claim(
    id="invariances-hold-exactly",
    statement="The invariances of layer normalization hold exactly.",
    rule="a scale δ > 0 of the weights or of a case, and re-centered weights: conditional if "
    "re-centering is proved for a symbolic eps, and under a scale the outputs change by the share "
    "eps (1 - 1/δ²) / (2σ²) to first order, derived in SymPy and to 1% so by the definition in "
    "float64 at eps = σ²/1000, δ = 2; proved if they do not change; else refuted",
    sabotage=("layernorm.symbolic.invariances.Proof.error_growth", property(no_growth)),
    kind="proof",
)
def invariances_hold_exactly() -> Finding:
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
    unchanged = slope == 0 and abs(measured) < 0.01
    return conditional(
        exact and (unchanged or (same and abs(measured - 1) < 0.01)),
        unchanged,
        "eps = 0, or weights are re-centered and not re-scaled",
        "Under a scale δ > 0 the outputs change, to first order in eps, by the share eps times "
        f"{spelled(slope)}; at eps = σ²/1000 and δ = 2 the definition changes by {measured:.2f} of "
        f"that. Re-centering is {'exact for every eps' if exact else 'not exact'}.",
        proved,
        measured_over_derived=measured,
    )


@claim(
    id="normalizing-before-the-weights-loses-their-invariance",
    statement="Where the inputs are normalized instead of the summed inputs, the output is not "
    "invariant to re-scaled or re-centered weights.",
    rule="proved if the program finds exact counterexamples to both, and none for the "
    "normalization of summed inputs with the same numbers",
    sabotage=("layernorm.lab.claims.chapter_06.before", lambda x, W: after(x, W)),
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
    "middle output is not halfway and all three are positive, so that ReLU changes none: no "
    "weights and biases do that",
    sabotage=("layernorm.lab.claims.chapter_06.layer_output", lambda x: [float(sum(x))] * 3),
    kind="proof",
)
def layer_norm_is_no_reparameterization() -> Finding:
    ends = [[4, 1, 0], [9, 0, 5]]
    middle = [Fraction(p + q, 2) for p, q in zip(*ends, strict=True)]
    first, last = (layer_output(x)[0] for x in ends)
    halfway, got = (first + last) / 2, layer_output(middle)[0]
    return proved(
        abs(got - halfway) > 0.01 and min(first, last, got) > 0,
        f"Between the outputs {first:.3f} for {ends[0]} and {last:.3f} for {ends[1]} an affine "
        f"layer would give {halfway:.3f} halfway; layer normalization gives {got:.3f}.",
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
