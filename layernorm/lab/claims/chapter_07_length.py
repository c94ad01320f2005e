"""Claims that chapter 07 decides about the length of weights and what it does to learning."""

from __future__ import annotations

import torch

from layernorm.lab.analysis import networks, weights
from layernorm.lab.analysis.fisher import draw
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.chapter_07 import worst

MLP = "layernorm.lab.analysis.networks.mlp"
_mlp = networks.mlp
DECAYING = weights.OPTIMIZERS | {"gradient descent": weights.OPTIMIZERS["weight decay"]}  # a mutant


def without(sizes, method, activation="tanh"):
    """Mutant: the network without normalization."""
    return _mlp(sizes, "none", activation)


@claim(
    id="gradient-orthogonal-to-weights",
    statement="The gradient is orthogonal to the weights that a normalization makes scale-free: "
    "to each weight vector under batch and weight normalization, to each weight matrix under layer "
    "normalization.",
    kind="property",
    chapter="07",
    rule="10 networks of two hidden layers, 50 cases, eps as good as 0: proved if every |cosine| "
    "of a vector (batch, weight) and of a matrix (layer) with its gradient is below 1e-12, and "
    "layer normalization's vectors have some above 0.01; else refuted",
    sabotage=(MLP, without),
)
def gradient_orthogonal_to_weights() -> Finding:
    free, bound = 0.0, []
    for _ in range(10):
        cases = weights.some_cases()
        free = max(
            free,
            *(weights.along(weights.network(m), cases, m == "layer") for m in ("batch", "weight")),
        )
        layer = weights.network("layer")
        free = max(free, weights.along(layer, cases, whole=True))
        bound.append(weights.along(layer, cases, whole=False))
    holds = free < 1e-12 and min(bound) > 0.01
    return Finding(
        "proved" if holds else "refuted",
        f"The cosines are {'below' if free < 1e-12 else 'above'} 1e-12; those of single vectors "
        f"under layer normalization reach {max(bound):.1f}.",
        numbers={"free": free, "bound": min(bound)},
    )


@claim(
    id="norm-is-a-learning-rate",
    statement="The norm of a weight vector controls its learning rate: a long one is harder to "
    "turn.",
    kind="property",
    chapter="07",
    rule="10 networks: by what factor gradient descent turns weights more slowly once they are "
    "c = 10 times as long. Refuted unless it is c² to 1e-6 for each vector under batch and weight "
    "normalization and for the matrix under layer normalization; proved if for a single vector "
    "under layer normalization, too; else conditional",
    sabotage=(MLP, without),
)
def norm_is_a_learning_rate() -> Finding:
    own = [
        weights.slowed(m, whole=m == "layer")
        for _ in range(10)
        for m in ("batch", "weight", "layer")
    ]
    single = torch.tensor([weights.slowed("layer", whole=False) for _ in range(10)])
    off = max(abs(k - 100) for k in own)
    evidence = (
        f"Ten times as long, a vector (batch, weight) or a matrix (layer) turns "
        f"{sum(own) / len(own):.0f} times more slowly; a single vector under layer normalization "
        f"{single.min():.0f} to {single.max():.0f} times."
    )
    numbers = {"off": off, "single_least": single.min(), "single_most": single.max()}
    if off > 1e-4:
        return Finding("refuted", evidence, numbers=numbers)
    if worst(single - 100) < 1e-4:
        return Finding("proved", evidence, numbers=numbers)
    condition = (
        "the step is that of gradient descent, and under layer normalization the norm is that of "
        "the whole weight matrix"
    )
    return Finding("conditional", evidence, condition=condition, numbers=numbers)


@claim(
    id="norm-grows-during-training",
    statement="Normalized weights grow longer with every update.",
    kind="property",
    chapter="07",
    rule="3 layer-normalized networks, 60 updates of rate 0.001: proved if the norm of every "
    "hidden matrix grows at every update with gradient descent, momentum, Adam, weight decay and "
    "AdamW; conditional if with gradient descent and momentum; else refuted",
    sabotage=(MLP, without),
)
def norm_grows_during_training() -> Finding:
    shrank = dict.fromkeys(weights.OPTIMIZERS, 0)
    for _ in range(3):
        cases = weights.some_cases()
        for name in weights.OPTIMIZERS:
            norms, _ = weights.follow(
                weights.network("layer"), name, weights.repeat(cases), 60, lr=0.001
            )
            shrank[name] += int((norms.diff(dim=0) < 0).sum())
    always = [name for name, count in shrank.items() if count == 0]
    evidence = (
        f"Over 60 updates the norm never shrinks with {' and '.join(always) or 'any'}; it does "
        f"with {', '.join(name for name in shrank if name not in always) or 'none'}."
    )
    if len(always) == len(weights.OPTIMIZERS):
        return Finding("proved", evidence, numbers=shrank)
    if not {"gradient descent", "momentum"} <= set(always):
        return Finding("refuted", evidence, numbers=shrank)
    condition = "the optimizer is gradient descent, with momentum or without, and nothing decays"
    return Finding("conditional", evidence, condition=condition, numbers=shrank)


@claim(
    id="angle-per-update-shrinks",
    statement="Normalization slows learning down by itself, as a falling learning rate or early "
    "stopping would: each update turns the weights less than those before.",
    kind="property",
    chapter="07",
    rule="a layer-normalized network of which the hidden weights learn, at 10 times the rates of "
    "OPTIMIZERS, and labels drawn afresh at every update, so that gradients do not fall for "
    "another reason; 400 updates: proved if the mean angle of the last 50 is below 0.8 times that "
    "of updates 101 to 150 for all five optimizers; conditional if for gradient descent; else "
    "refuted. The evidence adds gradient descent without normalization",
    sabotage=("layernorm.lab.analysis.weights.OPTIMIZERS", DECAYING),
)
def angle_per_update_shrinks() -> Finding:
    def late_to_early(method: str, name: str) -> float:
        net, rate = (
            weights.only_hidden(weights.network(method, (8, 16, 3))),
            10 * weights.OPTIMIZERS[name][1]["lr"],
        )
        _, angles = weights.follow(net, name, weights.noise(draw(200, 8)), 400, lr=rate)
        return (angles[350:].mean() / angles[100:150].mean()).item()

    ratio = {name: late_to_early("layer", name) for name in weights.OPTIMIZERS}
    control = late_to_early("none", "gradient descent")
    shrinks = [name for name, r in ratio.items() if r < 0.8]
    kept = [name for name in ratio if name not in shrinks]
    evidence = (
        f"Late updates turn the weights less than early ones with {', '.join(shrinks) or 'none'}; "
        f"not so with {', '.join(kept) or 'none'}. By gradient descent they do "
        f"{'so, too,' if control < 0.8 else 'not'} without normalization."
    )
    if not kept:
        return Finding("proved", evidence, numbers=ratio)
    if "gradient descent" not in shrinks:
        return Finding("refuted", evidence, numbers=ratio)
    condition = "no weight decay holds the norm where it is"
    return Finding("conditional", evidence, condition=condition, numbers=ratio)
