"""Claims about permutation-invariant MNIST (section 6.6): what the paper's own text decides, and
what chapter 19 will."""

from dataclasses import replace

from layernorm.claims import Finding, claim, declare
from layernorm.claims.sources import reported

TO_WEIGHT_NORM = {
    name: replace(e, compared=(*e.compared, "weight")) for name, e in reported.EXPERIMENTS.items()
}


@claim(
    id="paper-compares-with-weight-normalization",
    statement="The paper's experiments compare layer normalization with weight normalization, too.",
    said_by="summary C",
    kind="property",
    chapter="19",
    rule="proved if at least one of the paper's experiments has an arm with weight normalization, "
    "else refuted",
    sabotage=("layernorm.claims.sources.reported.EXPERIMENTS", TO_WEIGHT_NORM),
)
def compares_with_weight_normalization() -> Finding:
    experiments = reported.EXPERIMENTS.values()
    count = sum("weight" in e.compared for e in experiments)
    return Finding(
        "proved" if count else "refuted",
        f"{count} of {len(experiments)} experiments have such an arm; the paper compares the two "
        "in its theory alone.",
        numbers={"experiments": count},
    )


for name, statement, said_by in (
    (
        "faster-than-plain",
        "Layer normalization makes the network learn MNIST in fewer updates than none.",
        ("paper section 6.6", "summary A", "summary C"),
    ),
    (
        "faster-than-batch",
        "Layer normalization makes the network learn MNIST in fewer updates than batch "
        "normalization.",
        ("paper section 6.6", "summary A", "summary C"),
    ),
    (
        "better-result-than-plain",
        "Layer normalization gives a lower test error on MNIST than none.",
        ("summary A", "summary C"),
    ),
    (
        "better-result-than-batch",
        "Layer normalization gives a lower test error on MNIST than batch normalization.",
        ("summary A", "summary C"),
    ),
    (
        "robust-to-small-batches",
        "On MNIST, layer normalization is robust to small batches, 4 against 128 cases, where "
        "batch normalization is not.",
        ("paper section 6.6",),
    ),
    (
        "normalized-logits-harm",
        "The last, softmax layer of a classifier should not be layer-normalized.",
        ("paper section 6.6",),
    ),
    (
        "gain-and-bias-help",
        "The learned gain and bias of layer normalization improve what is learned.",
        ("this book",),
    ),
    (
        "centering-matters",
        "Subtracting the mean matters: layer normalization learns better than RMS normalization.",
        ("this book",),
    ),
    (
        "less-drift-causes-the-gain",
        "Layer normalization speeds up learning because it reduces covariate shift.",
        ("paper section 2", "summary A"),
    ),
    (
        "batch-noise-regularizes",
        "The noise of batch statistics regularizes: the gap between training and test is smaller "
        "under batch than under layer normalization.",
        ("paper section 1",),
    ),
    (
        "robust-to-initial-scale",
        "On MNIST, layer normalization makes learning robust to the scale of the initial weights.",
        ("summary C",),
    ),
):
    declare(
        id=f"{name}/mnist", statement=statement, said_by=said_by, kind="experiment", chapter="19"
    )
