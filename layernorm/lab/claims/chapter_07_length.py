"""Claims that chapter 07 decides about the length of weights and σ: what they do to learning."""

from __future__ import annotations

import numpy as np

from layernorm.lab.analysis import networks, weights
from layernorm.lab.analysis.fisher import draw
from layernorm.lab.analysis.statistics import interval
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import below, conditional, held
from layernorm.lab.experiments import judged

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
    rule="10 networks of two hidden layers, 50 cases, and the adversary's cases (for batch "
    "normalization those whose features vary), eps as good as 0: held if every |cosine| of a "
    "vector (batch, weight) and of a matrix (layer) with its gradient is below 1e-12, and layer "
    "normalization's vectors have some above 0.01; else refuted",
    sabotage=(MLP, without),
)
def gradient_orthogonal_to_weights() -> Finding:
    free, bound = [], []
    for _ in range(10):
        cases = weights.some_cases()
        free += [weights.along(weights.network(m), cases, False) for m in ("batch", "weight")]
        layer = weights.network("layer")
        free.append(weights.along(layer, cases, whole=True))
        bound.append(weights.along(layer, cases, whole=False))
    hard = adversary.matrices(50, 8, huge=1e6)
    for name, x in hard.items():
        methods = ("batch",) * (name in ("one-hot", "huge", "tiny")) + ("weight", "layer")
        for m in methods:
            free.append(weights.along(weights.network(m), (x, cases[1]), whole=m == "layer"))
    return held(
        max(free) < 1e-12 and min(bound) > 0.01,
        f"The cosines are {below(max(free), 1e-12)}, for 10 draws and the adversary's {len(hard)} "
        f"data sets; those of single vectors under layer normalization reach {max(bound):.1f}.",
        free=max(free),
        bound=min(bound),
    )


@claim(
    id="norm-is-a-learning-rate",
    statement="The norm of a weight vector controls its learning rate: a long one is harder to "
    "turn.",
    rule="10 networks: by what factor gradient descent turns weights more slowly once they are "
    "c = 10 times as long. Refuted unless it is c² to 1e-6 for each vector under batch and weight "
    "normalization and for the matrix under layer normalization; held if for a single vector "
    "under layer normalization, too; else conditional",
    sabotage=(MLP, without),
)
def norm_is_a_learning_rate() -> Finding:
    methods = ("batch", "weight", "layer")
    own = [weights.slowed(m, whole=m == "layer") for _ in range(10) for m in methods]
    single = [weights.slowed("layer", whole=False) for _ in range(10)]
    off = max(abs(k - 100) for k in own)
    return conditional(
        off <= 1e-4,
        all(abs(k - 100) < 1e-4 for k in single),
        "the step is that of gradient descent, and under layer normalization the norm is that of "
        "the whole weight matrix",
        f"Ten times as long, a vector (batch, weight) or a matrix (layer) turns "
        f"{sum(own) / len(own):.0f} times more slowly; a single vector under layer normalization "
        f"{min(single):.0f} to {max(single):.0f} times.",
        off=off,
        single_least=min(single),
        single_most=max(single),
    )


@claim(
    id="norm-grows-during-training",
    statement="Normalized weights grow longer with every update.",
    rule="3 layer-normalized networks, 60 updates of rate 0.001: held if the norm of every "
    "hidden matrix grows at every update with gradient descent, momentum, Adam, weight decay and "
    "AdamW; conditional if with gradient descent and momentum; else refuted",
    sabotage=(MLP, without),
)
def norm_grows_during_training() -> Finding:
    shrank = dict.fromkeys(weights.OPTIMIZERS, 0)
    for _ in range(3):
        cases = weights.repeat(weights.some_cases())
        for name in weights.OPTIMIZERS:
            norms, _ = weights.follow(weights.network("layer"), name, cases, 60, lr=0.001)
            shrank[name] += int((norms.diff(dim=0) < 0).sum())
    always = [name for name, count in shrank.items() if count == 0]
    return conditional(
        {"gradient descent", "momentum"} <= set(always),
        len(always) == len(weights.OPTIMIZERS),
        "the optimizer is gradient descent, with momentum or without, and nothing decays",
        f"Over 60 updates the norm never shrinks with {' and '.join(always) or 'any'}; it does "
        f"with {', '.join(name for name in shrank if name not in always) or 'none'}.",
        **shrank,
    )


@claim(
    id="angle-per-update-shrinks",
    statement="Normalization slows learning down by itself, as a falling learning rate or early "
    "stopping would: each update turns the weights less than those before.",
    rule="a layer-normalized network of which the hidden weights learn, at 10 times the rates of "
    "OPTIMIZERS, and labels drawn afresh at every update, so that gradients do not fall for "
    "another reason; 400 updates: held if the mean angle of the last 50 is below 0.8 times that "
    "of updates 101 to 150 for all five optimizers; conditional if for gradient descent; else "
    "refuted. The evidence adds gradient descent without normalization",
    sabotage=("layernorm.lab.analysis.weights.OPTIMIZERS", DECAYING),
)
def angle_per_update_shrinks() -> Finding:
    def late_to_early(method: str, name: str) -> float:
        net = weights.only_hidden(weights.network(method, (8, 16, 3)))
        rate = 10 * weights.OPTIMIZERS[name][1]["lr"]
        _, angles = weights.follow(net, name, weights.noise(draw(200, 8)), 400, lr=rate)
        return (angles[350:].mean() / angles[100:150].mean()).item()

    ratio = {name: late_to_early("layer", name) for name in weights.OPTIMIZERS}
    control = late_to_early("none", "gradient descent")
    shrinks = [name for name, r in ratio.items() if r < 0.8]
    kept = [name for name in ratio if name not in shrinks]
    return conditional(
        "gradient descent" in shrinks,
        not kept,
        "no weight decay holds the norm where it is",
        f"Late updates turn the weights less than early ones with {', '.join(shrinks) or 'none'}; "
        f"not so with {', '.join(kept) or 'none'}. By gradient descent they do "
        f"{'so, too,' if control < 0.8 else 'not'} without normalization.",
        **ratio,
    )


@claim(
    id="a-giant-step-tames-itself",
    statement="However large the learning rate, after one step of gradient descent the next turns "
    "a normalized weight matrix by an angle whose tangent is at most c₁/(2c₀), c = ‖W‖‖∇‖ before "
    "either step.",
    rule="10 layer-normalized networks, and the adversary's cases of rank one and one-hot, rates "
    "from 0.001 to 1,000,000: held if the bound holds everywhere to 1e-9, and is reached to 10% "
    "somewhere; else refuted",
    sabotage=(MLP, without),
)
def a_giant_step_tames_itself() -> Finding:
    data = [weights.some_cases() for _ in range(10)]
    hard = {k: adversary.matrices(50, 8)[k] for k in ("equal rows", "rank one", "one-hot")}
    data += [(x, data[0][1]) for x in hard.values()]
    shares = [
        weights.one_giant_step(weights.network("layer"), cases, 10.0**power)
        for cases in data
        for power in range(-3, 7)
    ]
    most = max(shares)
    return held(
        0.9 < most < 1 + 1e-9,
        f"Over {len(shares)} first steps, {10 * len(hard)} of them against the adversary, the "
        "second one reaches at most "
        f"{f'{most:.0%}' if 0.9 < most < 1 + 1e-9 else 'more than 100%'} of the bound.",
        largest=most,
    )


@claim(
    id="sigma-makes-learning-stable",
    statement="The normalization scalar σ makes learning more stable.",
    kind="experiment",
    rule="digits as they are, gradient descent with rates of 1, 10 and 100 for hidden weights (0.1 "
    "for the rest), 3 seeds: the training loss with layer normalization is lower by more than the "
    "margin, a factor of 2, than without and than the rescaled control's, at every rate; Student's "
    "intervals of logarithms, paired by seed, six comparisons share 5%",
)
def sigma_makes_learning_stable() -> Finding:
    from layernorm.lab import data

    train = data.digits().train
    x, found, said, numbers = train.x.flatten(1).double(), [], [], {}
    for rate in (1.0, 10.0, 100.0):
        loss = {
            arm: np.log([weights.at_hidden_rate(x, train.y, arm, rate, s) for s in range(3)])
            for arm in ("layer", "none", "rescaled")
        }
        for other in ("none", "rescaled"):
            d = interval(loss["layer"] - loss[other], 1 - 0.05 / 6)
            found.append(judged.verdict(d.low, d.high, np.log(2)))
            said.append(f"rate {rate:g}, layer over {other} {np.exp(d.mean):.2g}: {found[-1]}")
            numbers[f"{rate:g} {other}"] = d.mean
    verdict = judged.together(found)
    open_ = verdict in (judged.INCONCLUSIVE, judged.DEPENDS)
    return Finding(
        verdict,
        f"Ratio of training losses, 3 seeds, intervals at {1 - 0.05 / 6:.2%}: {'; '.join(said)}.",
        reason="The rates are not all decided, or not alike." if open_ else None,
        numbers=numbers,
    )
