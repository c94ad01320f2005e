"""Claims of chapter 06: Table 1 of the paper, cell by cell, and what its text makes of it."""

from __future__ import annotations

from layernorm.lab.claims import Finding, claim, declare
from layernorm.lab.claims.checks import proved

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
RULE = (
    "proved if all six cells, decided without knowing the table, are its cells; "
    "conditional if a proof needs a condition that the paper does not state"
)
NO_CENTER = "is layer normalization without the invariance to re-centered weights"
for name, title, sentence, expected, mutant in (
    ("batch", "Batch", ROW, PAPER["batch"], "layer"),
    ("weight", "Weight", ROW, PAPER["weight"], "rms"),
    ("layer", "Layer", ROW, PAPER["layer"], "batch"),
    ("rms", "RMS", NO_CENTER, "yes no no yes no yes", "layer"),
    ("group", "Group", "has the row of layer normalization", "yes yes no yes no yes", "rms"),
):
    declare(
        id=f"table-1-row-{name}",
        statement=f"{'' if name in PAPER else 'In Table 1, '}{title} normalization {sentence}.",
        rule=RULE if name in PAPER else "as for the rows of the paper's table",
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
    rule="refuted if one of batch, weight and layer normalization has a counterexample",
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
