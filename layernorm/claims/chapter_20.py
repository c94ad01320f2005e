"""Claims about convolutional networks (section 6.7): what the paper's own text decides, and what
chapter 20 will."""

from dataclasses import replace

from layernorm.claims import Finding, claim, declare
from layernorm.claims.sources import reported

ALL_AGAINST_BATCH = {
    name: replace(e, compared=("batch", "layer"), winner="layer")
    for name, e in reported.EXPERIMENTS.items()
}


@claim(
    id="paper-beats-batch-normalization-in-all-tests",
    statement="In the paper, layer normalization outperforms batch normalization in all tests.",
    said_by="summary A",
    kind="property",
    chapter="20",
    rule="proved if every experiment of the paper compares the two and layer normalization wins "
    "each, else refuted",
    sabotage=("layernorm.claims.sources.reported.EXPERIMENTS", ALL_AGAINST_BATCH),
)
def beats_batch_normalization_in_all_tests() -> Finding:
    full = [e for e in reported.EXPERIMENTS.values() if not e.preliminary]
    both = [e for e in full if {"batch", "layer"} <= set(e.compared)]
    lost = [e.title for e in reported.EXPERIMENTS.values() if e.winner == "batch"]
    return Finding(
        "refuted" if lost or len(both) < len(full) else "proved",
        f"Of the {len(full)} tasks, {len(both)} have an arm with batch normalization; layer "
        f"normalization is ahead in {sum(e.winner == 'layer' for e in both)} of these. Batch "
        f"normalization is ahead with {' and '.join(lost) or 'none'}.",
        numbers={"tasks": len(full), "compared": len(both), "lost": len(lost)},
    )


for name, statement, said_by in (
    (
        "batch-beats-layer",
        "In a convolutional network batch normalization does better than layer normalization.",
        ("paper section 6.7", "summary B", "summary E"),
    ),
    (
        "layer-beats-none",
        "In a convolutional network layer normalization is faster than no normalization.",
        ("paper section 6.7", "summary B", "summary E"),
    ),
    (
        "border-units-differ",
        "Units near the border of the image are rarely active, so that the units of a "
        "convolutional layer have very different statistics.",
        ("paper section 6.7",),
    ),
):
    declare(
        id=f"{name}/convnet", statement=statement, said_by=said_by, kind="experiment", chapter="20"
    )
