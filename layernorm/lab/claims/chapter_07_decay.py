"""A claim about weight decay on normalized weights, which chapter 07 owns."""

from __future__ import annotations

from itertools import product

from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.checks import below, conditional, largest, proved, seeds, worst
from layernorm.lab.experiments.transformer import untrained as transformers


@claim(
    id="weight-decay-is-a-growing-learning-rate",
    statement="Under plain SGD, weight decay on weights that layer normalization makes "
    "scale-invariant has the same effect as no decay and a learning rate that grows exponentially "
    "(Li and Arora 2019).",
    kind="proof",
    rule="with w = (1 − ηλ)ᵗ w̃ the update w ← (1 − ηλ) w − η g(w) is w̃ ← w̃ − η (1 − ηλ)⁻²ᵗ⁻¹ "
    "g(w̃), since g(c w) = g(w) / c: refuted unless SymPy finds so, and in float64, eps = 0, both "
    "runs have one direction to 1e-10 after 100 updates, η = 0.005 and 0.01, λ = 0.1 and 1, three "
    "seeds (rates that do not amplify rounding errors); proved if with eps = 1e-5, too, and if the "
    "rates stay positive for ηλ = 1.5; else conditional",
    # Mutant: the rate grows as the weights shrink, not as their square.
    sabotage=(
        "layernorm.lab.experiments.transformer.untrained.growing",
        lambda rate, decay, t: rate * (1 - rate * decay) ** -t,
    ),
)
def weight_decay_is_a_growing_learning_rate() -> Finding:
    off, drawn = {}, seeds(3)
    for eps in (0.0, 1e-5):
        runs = product((100,), (0.005, 0.01), (0.1, 1.0), drawn, (eps,))
        pairs = [transformers.decayed(*run) for run in runs]
        off[eps] = worst(*(largest(one - two) for one, two in pairs))
    positive = all(transformers.growing(1.5, 1.0, t) > 0 for t in range(4))
    derived = substituted()
    return conditional(
        derived and off[0.0] < 1e-10,
        off[1e-5] < 1e-10 and positive,
        "eps = 0 and ηλ < 1",
        f"The substitution {'gives' if derived else 'does not give'} the growing rate. The largest "
        f"difference of directions is {below(off[0.0], 1e-10)} with eps = 0 and "
        f"{below(off[1e-5], 1e-10)} with eps = 1e-5; at ηλ = 1.5 the rates "
        f"{'stay positive' if positive else 'change sign'}.",
        holds=proved,
        off=off[0.0],
        with_eps=off[1e-5],
    )


def substituted() -> bool:
    """Check in SymPy that w = (1 − ηλ)ᵗ w̃ turns an update with weight decay into one without."""
    import sympy as sp

    w, g, kept, rate, t = sp.symbols("w g kept eta t", positive=True)  # kept: 1 − ηλ
    after = kept * (kept**t * w) - rate * g / kept**t  # g at kept**t w is g at w over kept**t
    growing = rate * kept ** (-2 * t - 1)
    return sp.simplify(after / kept ** (t + 1) - (w - growing * g)) == 0
