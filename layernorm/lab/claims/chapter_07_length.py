"""Claims that chapter 07 decides about the length of weights: what it does to learning.

How angles fall and which rates are borne are the studies `angles` and `hidden_rates`.
"""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from layernorm import functional as F
from layernorm.lab.analysis import networks, weights
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import (
    LAYER_NORM,
    below,
    conditional,
    draw,
    held,
    largest,
    proved,
    worst,
)

MLP = "layernorm.lab.analysis.networks.mlp"
_mlp = networks.mlp


def without(sizes, method, activation="tanh"):
    """Mutant: the network without normalization."""
    return _mlp(sizes, "none", activation)


def has_direction(net: torch.nn.Sequential, cases: tuple[Tensor, Tensor], varying: bool) -> bool:
    """Tell whether each hidden matrix has a gradient that is more than rounding errors and, if
    `varying`, each hidden unit varies over the cases."""
    units = networks.summed_inputs(net, cases[0], normalized=False)[:-1]
    pairs = zip(weights.hidden(net), weights.gradients(net, cases), strict=True)
    moves = all(w.norm() * g.norm() > 1e-9 for w, g in pairs)
    vary = all(adversary.varies(a.T) and adversary.conditioning(a.T) < 1e9 for a in units)
    return moves and (vary or not varying)


@claim(
    id="gradient-orthogonal-to-weights",
    statement="The gradient is orthogonal to the weights that a normalization makes scale-free: "
    "to each weight vector under batch and weight normalization, to each weight matrix under layer "
    "normalization.",
    rule="10 networks of two hidden layers, 50 cases, and the adversary's data sets: refuted "
    "unless with eps as good as 0 every |cosine| of a vector (batch, weight) and of a matrix "
    "(layer) with its gradient is below 1e-12 wherever there is a gradient (|w||gradient| above "
    "1e-9) and, for batch normalization, every unit varies (entries below 1e9 standard "
    "deviations), and layer normalization's vectors have some above 0.01; held if everywhere, "
    "and with eps = 1e-5, too; else conditional",
    sabotage=(MLP, without),
)
def gradient_orthogonal_to_weights() -> Finding:
    free, bound, with_eps, broken = [], [], [], []
    for _ in range(10):
        cases = weights.some_cases()
        with_eps += [
            weights.along(weights.network(m, eps=1e-5), cases, whole=m == "layer")
            for m in ("batch", "layer")
        ]
        free += [weights.along(weights.network(m), cases, False) for m in ("batch", "weight")]
        layer = weights.network("layer")
        free.append(weights.along(layer, cases, whole=True))
        bound.append(weights.along(layer, cases, whole=False))
    hard = adversary.matrices(50, 8, huge=1e6)
    met = dict.fromkeys(("batch", "weight", "layer"), 0)
    for (name, x), m in product(hard.items(), met):
        net, given = weights.network(m), (x, cases[1])
        cosine = weights.along(net, given, whole=m == "layer")
        if has_direction(net, given, varying=m == "batch"):
            free.append(cosine)
            met[m] += 1
        elif not cosine < 1e-12:
            broken.append(f"{name} ({m})")
    return conditional(
        worst(*free) < 1e-12 and min(bound) > 0.01,
        worst(*with_eps) < 1e-12 and not broken,
        "eps = 0, there is a gradient and, under batch normalization, every unit varies",
        f"The cosines are {below(worst(*free), 1e-12)}, for 10 draws and, of the adversary's "
        f"{len(hard)} data sets, {', '.join(f'{n} ({m})' for m, n in met.items())}; in the others "
        "there is no gradient but rounding errors, or under batch normalization a unit does not "
        f"vary, and it is broken by {', '.join(broken) or 'none'}. The cosines of single vectors "
        f"under layer normalization reach {max(bound):.1f}. With eps = 1e-5 the largest is "
        f"{below(worst(*with_eps), 1e-12)}.",
        free=worst(*free),
        bound=min(bound),
    )


def slowed(method: str, w: Tensor, x: Tensor, head: Tensor, whole=False, step=torch.Tensor.clone):
    """By what factor a vector of one layer (or the whole matrix) turns more slowly once it is ten
    times as long; NaN where units do not vary, or there is no gradient.

    `step`: the direction of an update, from the gradient.
    """
    part, speeds = slice(None if whole else 1), []
    longer = w.clone()
    longer[part] *= 10
    for k in (w, longer):
        k = k.clone().requires_grad_()
        a = x @ (F.weight_norm(k, torch.ones(len(k), 1).to(k)) if method == "weight" else k).T
        varying = {"batch": a.T[part], "layer": a}.get(method, x.T)
        if method == "batch":
            a = F.batch_norm(a, None, None, training=True, eps=0.0)
        elif method == "layer":
            a = F.layer_norm(a, a.shape[1:], eps=0.0)
        loss = cross_entropy(torch.tanh(a) @ head, torch.arange(len(x)) % head.shape[1])
        (gradient,) = torch.autograd.grad(loss, k)
        speeds.append(weights.turning(k[part], step(gradient[part])))
    moves = speeds[0] * largest(w[part].square().sum()) > 1e-9
    defined = moves and adversary.varies(varying) and adversary.conditioning(varying) < 1e9
    return speeds[0] / max(1e-300, speeds[1]) if defined else math.nan


@claim(
    id="norm-is-a-learning-rate",
    statement="The norm of a weight vector controls its learning rate: a long one is harder to "
    "turn.",
    rule="by what factor gradient descent turns the weights of a layer of tanh units more slowly "
    "once they are c = 10 times as long, eps = 0: 10 layers, climbs and the adversary's inputs, "
    "weights and sizes. Refuted unless it is c² to 1e-6 for each vector under batch and weight "
    "normalization and for the matrix under layer normalization, wherever there is a gradient "
    "and units vary (|w||gradient| above 1e-9, entries below 1e9 standard deviations); held if "
    "for a single vector under layer normalization, and for a step along the gradient's signs, "
    "too; else conditional",
    # Mutant: layer normalization does nothing.
    sabotage=(LAYER_NORM, lambda x, *args, **options: x),
)
def norm_is_a_learning_rate() -> Finding:
    methods = ("batch", False), ("weight", False), ("layer", True)
    draws = [(draw(16, 8), draw(50, 8), draw(16, 3)) for _ in range(10)]
    w, x, head = draws[0]
    hard = [(w, k, head) for k in adversary.matrices(50, 8, huge=1e6).values()]
    hard += [(k, x, head) for k in adversary.matrices(16, 8, huge=1e6).values()]
    hard += [(draw(n, 8), x, draw(n, 3)) for n in adversary.SIZES]
    hard += [(w, x[:2], head), (w, 1e3 + x, head)]
    own = [slowed(method, *case, whole) for method, whole in methods for case in draws]
    found = [slowed(method, *case, whole) for method, whole in methods for case in hard]
    met = [k for k in found if not math.isnan(k)]
    off = worst(*(abs(k / 100 - 1) for k in (*own, *met)))
    for method, whole in methods:

        def violation(*case: Tensor, at=(method, whole)) -> float:
            return abs(slowed(at[0], *case, at[1]) / 100 - 1)

        def meets(*case: Tensor, violation=violation) -> bool:
            return not math.isnan(violation(*case))

        off = worst(off, adversary.climb(violation, draws[0], meets))
    single = [slowed("layer", *case) for case in draws]
    signs = [slowed(method, *draws[0], whole, torch.sign) for method, whole in methods]
    return conditional(
        off < 1e-6,
        all(abs(k - 100) < 1e-4 for k in (*single, *signs)),
        "eps = 0, no gradient and nothing that is divided by is 0, the step is that of gradient "
        "descent, and under layer normalization the norm is that of the whole weight matrix",
        f"Ten times as long, a vector (batch, weight) or a matrix (layer) turns "
        f"{sum(own) / len(own):.0f} times more slowly in 30 draws, a climb from each method's "
        f"first and {len(met)} of the adversary's {len(found)} cases; in the others it has no "
        f"gradient, or units do not vary. A single vector under layer normalization turns "
        f"{min(single):.0f} to {max(single):.0f} times more slowly. Steps along the gradient's "
        f"signs, as Adam's first, turn them {sum(signs) / len(signs):.0f} times more slowly.",
        off=off,
        single_least=min(single),
        single_most=max(single),
    )


def momentum_step(w, v, gradient, rate, momentum):
    """One step of gradient descent with momentum: the next weights and the next velocity."""
    return w - rate * v, momentum * v + gradient


def decayed(w, v, gradient, rate, momentum):
    """Mutant: the weights also decay."""
    return (1 - rate) * w - rate * v, momentum * v + gradient


def grows_with_momentum() -> bool:
    """Check that every step of the derivation holds, in SymPy, for three weights.

    With L(cw) = L(w) the gradient is orthogonal to w. So w·v is 0 at the start, and each later one
    is m times (the one before - η‖v‖²), never positive: ‖w - ηv‖² - ‖w‖² = η²‖v‖² - 2η w·v >= 0.
    All terms are inner products, so the number of weights does not matter; m = 0 is gradient
    descent.
    """
    import sympy as sp

    w, v, g = (sp.Matrix(sp.symbols(f"{name}:3", real=True)) for name in "wvg")
    rate, momentum = sp.symbols("eta m", positive=True)
    loss = sp.Function("L")(*(w / sp.sqrt(w.dot(w))))
    orthogonal = sp.simplify(sum(k * loss.diff(k) for k in w).doit()) == 0
    later, velocity = momentum_step(w, v, g, rate, momentum)
    inner = momentum * (w.dot(v) - rate * v.dot(v)) + later.dot(g)  # and later·g = 0
    growth = rate**2 * v.dot(v) - 2 * rate * w.dot(v)
    left = later.dot(velocity) - inner, later.dot(later) - w.dot(w) - growth
    return orthogonal and all(sp.expand(k) == 0 for k in left)


def shortened() -> int:
    """The number of vectors of a layer-normalized network's first matrix that a step of gradient
    descent makes shorter."""
    net = weights.network("layer")
    w = weights.hidden(net)[0].detach()
    stepped = w - 0.1 * weights.gradients(net, weights.some_cases())[0]
    return int((stepped.norm(dim=1) < w.norm(dim=1)).sum())


@claim(
    id="norm-grows-during-training",
    statement="Normalized weights grow longer with every update.",
    kind="proof",
    rule="a loss that depends on the direction of the weights alone. Refuted unless a derivation, "
    "each step of which SymPy checks, shows that the norm never shrinks under gradient descent "
    "with momentum (0 or more); proved if in 50 updates of two weights no step of momentum, Adam, "
    "weight decay or AdamW shortens them by more than 1e-12, nor a step of gradient descent a "
    "single vector of 10 layer-normalized networks; conditional if only the last three do, or that",
    sabotage=("layernorm.lab.claims.chapter_07_length.momentum_step", decayed),
)
def norm_grows_during_training() -> Finding:
    shrinks = []
    for name, (kind, options) in weights.OPTIMIZERS.items():
        w = torch.tensor([10.0, 2.0]).double().requires_grad_()
        stepper, norms = kind([w], **options), []
        for _ in range(50):
            norms.append(w.detach().norm())
            stepper.zero_grad()
            (-torch.atan2(w[1], w[0])).backward()
            stepper.step()
        if (torch.stack(norms).diff() < -1e-12).any():
            shrinks.append(name)
    derived, shorter = grows_with_momentum(), sum(shortened() for _ in range(10))
    return conditional(
        derived and not {"gradient descent", "momentum"} & set(shrinks),
        not shrinks and not shorter,
        "eps = 0, the length is that of all weights which share one scale (under layer "
        "normalization the whole matrix), the optimizer is gradient descent, with momentum or "
        "without, and nothing decays",
        f"The derivation {'holds' if derived else 'does not hold'} for gradient descent with any "
        "momentum; two weights that turn at a constant slope become shorter in some update with "
        f"{', '.join(shrinks) or 'none'}. Of single vectors under layer normalization, one step of "
        f"gradient descent makes {'some' if shorter else 'none'} shorter.",
        holds=proved,
    )


@claim(
    id="a-giant-step-tames-itself",
    statement="However large the learning rate, after one step of gradient descent the next step "
    "turns a normalized weight matrix by an angle whose tangent is at most c₁/(2c₀); c₀ and c₁ are "
    "‖W‖‖∇‖ before the first and before the second step.",
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
    most = worst(*shares)
    return held(
        0.9 < most < 1 + 1e-9,
        f"Over {len(shares)} first steps, {10 * len(hard)} of them against the adversary, the "
        "second one reaches at most "
        f"{f'{most:.0%}' if 0.9 < most < 1 + 1e-9 else 'more than 100%'} of the bound.",
        largest=most,
    )
