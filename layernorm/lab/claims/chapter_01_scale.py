"""Claims of chapter 01 about gradients, and about the scale of the initial weights."""

from __future__ import annotations

import torch

from layernorm.lab.analysis import networks, scale
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.chapter_01 import LAYER_NORM, draw, worst

_mlp = networks.mlp  # what a mutant is made of


def centers_only(x, *args, **options):
    """Mutant: subtracts the mean and does not divide."""
    return x - x.mean(-1, keepdim=True)


def without_normalization(sizes, method, activation="tanh"):
    """Mutant: the network without normalization."""
    return _mlp(sizes, "none", activation)


@claim(
    id="gradients-follow-the-layer-below",
    statement="The gradient of a layer's weights depends on the outputs of the layer below; layer "
    "normalization takes away what depends on their length, not on their direction.",
    kind="property",
    chapter="01",
    rule="proved if for 20 random layers and cases the rows of the gradient are parallel to h, "
    "without and with layer normalization, and doubling h doubles the gradient without and leaves "
    "it with layer normalization, all to 1e-10; else refuted",
    sabotage=(LAYER_NORM, centers_only),
)
def gradients_follow_the_layer_below() -> Finding:
    off = 0.0
    for _ in range(20):
        w, h, back = draw(12, 8), draw(8), draw(12)
        for normalize, factor in ((False, 2), (True, 1)):
            gradient = scale.weight_gradient(w, h, back, normalize)
            parallel = torch.outer(gradient @ h, h) / (h @ h)
            doubled = scale.weight_gradient(w, 2 * h, back, normalize)
            off = max(off, worst(gradient - parallel), worst(doubled - factor * gradient))
    return Finding(
        "proved" if off < 1e-10 else "refuted",
        "With and without layer normalization every row of the gradient is parallel to h; doubling "
        f"h doubles it without and leaves it with layer normalization, to "
        f"{'less' if off < 1e-10 else 'more'} than 1e-10.",
        numbers={"off": off},
    )


@claim(
    id="initial-function-ignores-scale",
    statement="At the start, a layer-normalized network computes the same whatever the scale of "
    "its hidden weights.",
    kind="property",
    chapter="01",
    rule="net of 8-16-16-3 units, hidden weights times c: proved if for c = 0.0001 to 1000 the "
    "logits agree to 1e-10 with eps = 1e-5 and with c = -1; conditional if with eps = 0 and c > 0 "
    "only; else refuted",
    sabotage=("layernorm.lab.analysis.networks.mlp", without_normalization),
)
def initial_function_ignores_scale() -> Finding:
    x = draw(50, 8)
    scales = (1e-4, 0.1, 10.0, 1000.0)
    exact, with_eps = (
        max(worst(scale.network(c, eps=eps)(x) - scale.network(eps=eps)(x)) for c in scales)
        for eps in (0.0, 1e-5)
    )
    turned = scale.network()
    turned[0][0].weight.data.neg_()
    turned = worst(turned(x) - scale.network()(x))
    evidence = (
        f"For c from 0.0001 to 1000 the logits agree to {'less' if exact < 1e-10 else 'more'} than "
        f"1e-10 with eps = 0, but differ by up to {with_eps:.1f} with eps = 1e-5, and by up to "
        f"{turned:.1f} for c = -1."
    )
    numbers = {"exact": exact, "eps": with_eps, "turned": turned}
    if exact >= 1e-10:
        return Finding("refuted", evidence, numbers=numbers)
    if max(with_eps, turned) < 1e-10:
        return Finding("proved", evidence, numbers=numbers)
    condition = "eps = 0 and the factor is positive"
    return Finding("conditional", evidence, condition=condition, numbers=numbers)


@claim(
    id="initial-scale-is-a-learning-rate",
    statement="A layer-normalized network whose hidden weights start c times larger learns as if "
    "their learning rate were c² times smaller (SGD) or c times smaller (Adam).",
    kind="property",
    chapter="01",
    rule="proved if after 30 updates from c = 0.1 and c = 10, eps = 0, the logits agree with those "
    "from c = 1 to 1e-8 where the hidden weights' rate is multiplied by c² (SGD) or c (Adam), and "
    "differ by more than 0.01 at the same rate; else refuted",
    sabotage=("layernorm.lab.analysis.networks.mlp", without_normalization),
)
def initial_scale_is_a_learning_rate() -> Finding:
    matched, same = 0.0, []
    for optimizer, power, rate in (("sgd", 2, 0.1), ("adam", 1, 0.01)):
        plain = scale.learn(scale.network(), optimizer, rate, rate)
        for c in (0.1, 10.0):
            moved = scale.learn(scale.network(c), optimizer, rate * c**power, rate)
            matched = max(matched, worst(moved - plain))
            same.append(worst(scale.learn(scale.network(c), optimizer, rate, rate) - plain))
    holds = matched < 1e-8 and min(same) > 0.01
    return Finding(
        "proved" if holds else "refuted",
        f"After 30 updates the logits agree to {'less' if matched < 1e-8 else 'more'} than 1e-8 at "
        f"the matched rate, and differ by {min(same):.1f} or more at the same rate.",
        numbers={"matched": matched, "same": min(same)},
    )
