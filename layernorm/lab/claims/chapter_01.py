"""Claims that chapter 01 decides about summed inputs: their moments, correlation and scale."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from layernorm import functional as F
from layernorm.lab.analysis import activations, networks, scale
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import (
    BATCH_NORM,
    LAYER_NORM,
    conditional,
    draw,
    held,
    largest,
    less,
    seeds,
    size,
    worst,
)

EDGE = 2.18  # where the slope of tanh falls below 5% of its largest
_layer_norm, _mlp = F.layer_norm, networks.mlp  # what mutants are made of


def bare(a: Tensor, eps: float = 0.0) -> Tensor:
    """Layer normalization over the last dimension, without gain, bias and, at first, eps."""
    return F.layer_norm(a, a.shape[-1:], eps=eps)


def as_it_is(x, *args, **options):
    """Mutant: does not normalize."""
    return x


def never_centers(x, *args, **options):
    """Mutant: divides by the root mean square."""
    return x / x.square().mean(-1, keepdim=True).sqrt()


def without_normalization(sizes, method, activation="tanh"):
    """Mutant: the network without normalization."""
    return _mlp(sizes, "none", activation)


@claim(
    id="inactive-region-avoided",
    statement="Normalization keeps the input of the activation function out of its inactive "
    "region.",
    rule=f"tanh, inactive beyond |a| = {EDGE}: held if no case has more than 1/{EDGE}² of its "
    "units there, whatever the gain; conditional if so at gain 1 and bias 0 only; else refuted "
    "(random cases of 100 units, with common means and scales up to 100, the worst case, and the "
    "adversary's rows)",
    sabotage=(LAYER_NORM, as_it_is),
)
def inactive_region_avoided() -> Finding:
    worst_case = torch.tensor([1.0] * 10 + [-1.0] * 10 + [0.0] * 80).double()
    cases = [draw(100, 100) * s + m for s in (0.01, 1, 100) for m in (0, 100)]
    hard = bare(torch.cat([*adversary.rows(100).values()]), eps=1e-5)
    normalized = torch.cat([bare(torch.cat([*cases, worst_case[None]])), hard])
    shares = [(gain * normalized.abs() > EDGE).double().mean(1).max().item() for gain in (1, 10)]
    bound = 1 / EDGE**2
    return conditional(
        shares[0] <= bound,
        shares[1] <= bound,
        "the gain is 1 and the bias 0: then at most a share 1/c² of a layer's units lies more than "
        "c standard deviations from the mean",
        f"At gain 1 and bias 0 at most {shares[0]:.0%} of the units of a case lie beyond {EDGE} "
        f"(Chebyshev allows {bound:.0%}); at gain 10 up to {shares[1]:.0%} do.",
        gain_1=shares[0],
        gain_10=shares[1],
    )


def off_standard(values: Tensor, dim: int) -> float:
    """How far means from 0 and variances from 1 are, along a dimension."""
    return largest(values.mean(dim), values.var(dim, correction=0) - 1)


@claim(
    id="layer-inputs-standardized",
    statement="Normalization gives the input of each layer mean 0 and variance 1, the same for "
    "every mini-batch.",
    rule="summed inputs whose units differ in mean and scale, two batches of 64 cases, 32 units, "
    "and the adversary's rows that vary: "
    "held if after layer (batch) normalization the moments over units and over cases are 0 and "
    "1 to 1e-9, also after gain and bias and after ReLU; conditional if over units (cases) before "
    "gain and bias only, all else off by more than 0.1; else refuted",
    sabotage=(LAYER_NORM, never_centers),
)
def layer_inputs_standardized() -> Finding:
    own, other = 0.0, []
    for _ in range(2):
        a = draw(64, 32) * (1 + draw(32).abs()) + 3 * draw(32)
        layer = bare(a)
        batch = F.batch_norm(a, None, None, training=True, eps=0.0)
        own = max(own, off_standard(layer, 1), off_standard(batch, 0))
        other += [off_standard(layer, 0), off_standard(batch, 1)]
        other += [off_standard(2 * layer + 1, 1), off_standard(layer.relu(), 1)]
    for a in filter(adversary.varies, adversary.rows(32).values()):
        batch = F.batch_norm(a.T, None, None, training=True, eps=0.0).T
        own = max(own, *(off_standard(y, 1) / adversary.conditioning(a) for y in (bare(a), batch)))
    return conditional(
        own < 1e-9 and (min(other) > 0.1 or max(other) < 1e-9),
        max(other) < 1e-9,
        "it means the summed inputs before gain, bias and activation, over the units of each case "
        "(layer) or the cases of the batch for each unit (batch), and these do not all agree",
        f"Over the units of a case (layer) or the cases of a batch (batch) the moments are off by "
        f"{less(own, 1e-9)}; the other way round, after gain and bias or after ReLU always by "
        f"{less(min(other), 0.1)}.",
        own=own,
        other=min(other),
    )


@claim(
    id="covariate-shift-is-correlation",
    statement="Covariate shift is high correlation in the summed inputs to different units.",
    rule="refuted if summed inputs can drift by 3 standard deviations with mean squared "
    "correlations below 0.01, and have ones above 0.5 without drift (below 1e-9); else held",
    sabotage=(
        "layernorm.lab.analysis.activations.drift",
        lambda a, start: activations.squared_correlation(a),
    ),
)
def covariate_shift_is_correlation() -> Finding:
    def standardized(a):
        return (a - a.mean(0)) / a.std(0, correction=0)

    start = standardized(draw(1000, 16))
    cases = start + 3, standardized(start + 3 * start[:, :1])  # shifted, correlated
    drifts = [activations.drift(a, start) for a in cases]
    squares = [activations.squared_correlation(a) for a in cases]
    apart = drifts[0] >= 2.999 and squares[0] < 0.01 and drifts[1] < 1e-9 and squares[1] > 0.5
    return held(
        not apart,
        f"Either occurs without the other: a drift of {drifts[0]:.1f} standard deviations at a "
        f"mean squared correlation of {squares[0]:.3f}, and one of {squares[1]:.1f} at a drift of "
        f"{drifts[1]:.1f}.",
        drift=drifts[0],
        correlation=squares[1],
    )


@claim(
    id="removes-correlation",
    statement="Layer normalization removes the correlation of summed inputs to different units.",
    rule="64 units with a common cause, of correlation 0.9: held if the mean squared correlation "
    "falls below 0.01 when the cause moves all units alike and when it moves half of them up and "
    "half down; conditional if in the first case only; else refuted",
    sabotage=(LAYER_NORM, as_it_is),
)
def removes_correlation() -> Finding:
    alternating = torch.tensor([1.0, -1.0] * 32).double()
    left = {}
    for name, along in (("alike", torch.ones(64).double()), ("up_and_down", alternating)):
        a = 3 * draw(4000, 1) * along + draw(4000, 64)
        left[name] = activations.squared_correlation(bare(a))
    return conditional(
        left["alike"] < 0.01,
        left["up_and_down"] < 0.01,
        "what the units have in common moves all of them alike",
        f"Of a mean squared correlation of 0.8 there remain {left['alike']:.2f} where the cause "
        f"moves all units alike, and {left['up_and_down']:.2f} where it moves half of them up and "
        "half down.",
        **left,
    )


@claim(
    id="layer-normalization-cannot-decorrelate",
    statement="Without gain and bias, the outputs of layer normalization are never uncorrelated: "
    "in every case the products of two different ones average to -1/(H - 1).",
    rule="held if so to 1e-12 (times largest entry over spread) for 100 random cases of each H "
    "from 2 to 65 units and for the adversary's rows at 2, 3 and 65; conditional if only rows "
    "that do not vary break it",
    sabotage=(LAYER_NORM, never_centers),
)
def layer_normalization_cannot_decorrelate() -> Finding:
    def off(a: Tensor) -> Tensor:
        y, units = bare(a), a.shape[1]
        products = (y.sum(1).square() - y.square().sum(1)) / (units * (units - 1))
        return size(products + 1 / (units - 1)) / adversary.conditioning(a.detach())

    return adversary.searched(
        1e-12,
        "For H = 2 to 65 the average product is -1/(H - 1) to 1e-12.",
        off,
        [(draw(100, units) * 3 + draw(100, 1),) for units in range(2, 66)],
        {f"{k} (H = {h})": (a,) for h in (2, 3, 65) for k, a in adversary.rows(h).items()},
        only_if=(adversary.VARIES, adversary.varies),
    )


@claim(
    id="per-unit-methods-keep-correlations",
    statement="Batch and weight normalization leave every correlation of two summed inputs as it "
    "is.",
    rule="held if the correlation matrices of 500 cases of 16 units agree to 1e-12, for 20 random "
    "layers and the adversary's weights without a unit that never varies",
    # Mutant: averages over the units of a case.
    sabotage=(BATCH_NORM, lambda x, *_, **options: _layer_norm(x, x.shape[1:])),
)
def per_unit_methods_keep_correlations() -> Finding:
    def off(v: Tensor) -> float:
        batch = F.batch_norm(x @ v.T, None, None, training=True, eps=0.0)
        weight = x @ F.weight_norm(v, torch.ones(16, 1).double()).T
        if not all(y.std(0).all() for y in (batch, weight)):
            return math.inf  # no correlation
        before = activations.correlation(x @ v.T)
        return largest(*(activations.correlation(y) - before for y in (batch, weight)))

    x = draw(500, 8)
    hard = {k: (v,) for k, v in adversary.matrices(16, 8).items() if v.any(1).all()}
    layers = [(draw(16, 8),) for _ in range(20)]
    return adversary.searched(1e-12, "All correlations agree to 1e-12.", off, layers, hard)


@claim(
    id="gradients-follow-the-layer-below",
    statement="The gradient of a layer's weights depends on the outputs of the layer below; layer "
    "normalization takes away what depends on their length, not on their direction.",
    rule="held if for 20 random layers and cases the rows of the gradient are parallel to h, "
    "without and with layer normalization, and doubling h doubles the gradient without and leaves "
    "it with layer normalization, all to 1e-10; conditional if only adversarial weights for which "
    "the summed inputs all agree break it; else refuted",
    # Mutant: subtracts the mean and does not divide.
    sabotage=(LAYER_NORM, lambda x, *args, **options: x - x.mean(-1, keepdim=True)),
)
def gradients_follow_the_layer_below() -> Finding:
    def off(w: Tensor, h: Tensor, back: Tensor) -> float:
        found = []
        for normalize, factor in ((False, 2), (True, 1)):
            gradient, doubled = (scale.weight_gradient(w, c * h, back, normalize) for c in (1, 2))
            parallel = torch.outer(gradient @ h, h) / (h @ h)
            violation = largest(gradient - parallel, doubled - factor * gradient)
            found.append(violation / max(1.0, largest(gradient)))
        return worst(*found)

    return adversary.searched(
        1e-10,
        "With and without layer normalization every row of the gradient is parallel to h; doubling "
        "h doubles it without and leaves it with layer normalization, to 1e-10.",
        off,
        [(draw(12, 8), draw(8), draw(12)) for _ in range(20)],
        {name: (w, draw(8), draw(12)) for name, w in adversary.matrices(12, 8).items()},
        only_if=(adversary.VARIES, lambda w, h, _: adversary.varies(w @ h)),
    )


@claim(
    id="initial-function-ignores-scale",
    statement="At the start, a layer-normalized network computes the same whatever the scale of "
    "its hidden weights.",
    rule="five nets of 8-16-16-3 units, hidden weights times c: held if for c = 0.0001 to 1000 the "
    "logits agree to 1e-10 with eps = 1e-5 and with c = -1; conditional if with eps = 0 and c > 0 "
    "only; else refuted",
    sabotage=("layernorm.lab.analysis.networks.mlp", without_normalization),
)
def initial_function_ignores_scale() -> Finding:
    exact = with_eps = turned = 0.0
    for seed in seeds(5):
        x, found = draw(50, 8), []
        for eps in (0.0, 1e-5):
            base = scale.network(eps=eps, seed=seed)(x)
            others = (scale.network(c, eps=eps, seed=seed)(x) for c in (1e-4, 0.1, 10.0, 1000.0))
            found.append(largest(*(other - base for other in others)))
        exact, with_eps = max(exact, found[0]), max(with_eps, found[1])
        net = scale.network(seed=seed)
        net[0][0].weight.data.neg_()
        turned = max(turned, largest(net(x) - scale.network(seed=seed)(x)))
    return conditional(
        exact < 1e-10,
        max(with_eps, turned) < 1e-10,
        "eps = 0 and the factor is positive",
        f"For c from 0.0001 to 1000 the logits agree to {less(exact, 1e-10)} with eps = 0, but "
        f"differ by up to {with_eps:.1f} with eps = 1e-5, and by up to {turned:.1f} for c = -1.",
        exact=exact,
        eps=with_eps,
        turned=turned,
    )


@claim(
    id="initial-scale-is-a-learning-rate",
    statement="A layer-normalized network whose hidden weights start c times larger learns as if "
    "their learning rate were c² times smaller (SGD) or c times smaller (Adam).",
    rule="three networks, each with data of its own: held if after 30 updates from c = 0.1 and "
    "c = 10, eps = 0, the logits agree with those from c = 1 to 1e-8 where the rate of the hidden "
    "weights is multiplied by c² (SGD) or c (Adam), and differ by more than 0.01 at the same rate; "
    "else refuted",
    sabotage=("layernorm.lab.analysis.networks.mlp", without_normalization),
)
def initial_scale_is_a_learning_rate() -> Finding:
    matched, same = 0.0, []
    for seed in seeds(3):
        for optimizer, power, rate in (("sgd", 2, 0.1), ("adam", 1, 0.01)):

            def logits(c: float, factor: float, rate=rate, optimizer=optimizer, seed=seed):
                net = scale.network(c, seed=seed)
                return scale.learn(net, optimizer, rate * factor, rate, seed=seed)

            plain = logits(1.0, 1.0)
            for c in (0.1, 10.0):
                matched = max(matched, largest(logits(c, c**power) - plain))
                same.append(largest(logits(c, 1.0) - plain))
    return held(
        matched < 1e-8 and min(same) > 0.01,
        f"After 30 updates the logits agree to {less(matched, 1e-8)} at the matched rate, and "
        f"differ by {min(same):.1f} or more at the same rate.",
        matched=matched,
        same=min(same),
    )
