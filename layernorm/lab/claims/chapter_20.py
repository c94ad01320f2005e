"""Claims about convolutional networks (section 6.7) that the paper's own text decides."""

from dataclasses import replace

from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.checks import held
from layernorm.lab.claims.sources import reported

ALL_AGAINST_BATCH = {
    name: replace(e, compared=("batch", "layer"), winner="layer")
    for name, e in reported.EXPERIMENTS.items()
}


@claim(
    id="paper-beats-batch-normalization-in-all-tests",
    statement="In the paper, layer normalization outperforms batch normalization in all tests.",
    rule="proved if every experiment of the paper compares the two and layer normalization wins "
    "each, else refuted",
    sabotage=("layernorm.lab.claims.sources.reported.EXPERIMENTS", ALL_AGAINST_BATCH),
)
def beats_batch_normalization_in_all_tests() -> Finding:
    full = [e for e in reported.EXPERIMENTS.values() if not e.preliminary]
    both = [e for e in full if {"batch", "layer"} <= set(e.compared)]
    lost = [e.title for e in reported.EXPERIMENTS.values() if e.winner == "batch"]
    return held(
        not (lost or len(both) < len(full)),
        f"Of the {len(full)} tasks, {len(both)} have an arm with batch normalization; layer "
        f"normalization is ahead in {sum(e.winner == 'layer' for e in both)} of these. Batch "
        f"normalization is ahead with {' and '.join(lost) or 'none'}.",
        tasks=len(full),
        compared=len(both),
        lost=len(lost),
    )
