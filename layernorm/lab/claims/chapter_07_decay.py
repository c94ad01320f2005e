"""A claim about weight decay on normalized weights, which chapter 07 owns."""

from __future__ import annotations

from itertools import product

from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.checks import below, largest, proved, seeds, worst
from layernorm.lab.experiments.transformer import untrained as transformers


@claim(
    id="weight-decay-is-a-growing-learning-rate",
    statement="Under plain SGD, weight decay on weights that layer normalization makes "
    "scale-invariant has the same effect as no decay and a learning rate that grows exponentially "
    "(Li and Arora 2019).",
    kind="proof",
    rule="with w̃ = (1 − ηλ)⁻ᵗ w the update w ← (1 − ηλ) w − η g(w) becomes w̃ ← w̃ − η (1 − "
    "ηλ)⁻²ᵗ⁻¹ g(w̃), since g(w / c) = c g(w). Proved if in float64 with eps = 0 both runs have one "
    "direction to 1e-10 after 100 updates, η = 0.005 and 0.01, λ = 0.1 and 1, three seeds (rates "
    "that do not amplify rounding errors); else refuted",
    # Mutant: the rate grows as the weights shrink, not as their square.
    sabotage=(
        "layernorm.lab.experiments.transformer.untrained.growing",
        lambda rate, decay, t: rate * (1 - rate * decay) ** -t,
    ),
)
def weight_decay_is_a_growing_learning_rate() -> Finding:
    off = 0.0
    for rate, decay, seed in product((0.005, 0.01), (0.1, 1.0), seeds(3)):
        one, two = transformers.decayed(100, rate, decay, seed)
        off = worst(off, largest(one - two))
    return proved(
        off < 1e-10, f"The largest difference of directions is {below(off, 1e-10)}.", off=off
    )
