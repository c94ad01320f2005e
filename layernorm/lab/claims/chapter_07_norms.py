"""Claims that chapter 07 decides about the length of weights and what it does to learning."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layernorm.lab.analysis import networks
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.chapter_07 import draw, worst

MLP = "layernorm.lab.analysis.networks.mlp"
_mlp = networks.mlp
OPTIMIZERS = {
    "gradient descent": (torch.optim.SGD, {"lr": 0.3}),
    "momentum": (torch.optim.SGD, {"lr": 0.03, "momentum": 0.9}),
    "Adam": (torch.optim.Adam, {"lr": 0.003}),
    "weight decay": (torch.optim.SGD, {"lr": 0.3, "weight_decay": 0.03}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.003, "weight_decay": 1.0}),
}
DECAYING = OPTIMIZERS | {"gradient descent": OPTIMIZERS["weight decay"]}  # a mutant
Batches = Iterator[tuple[Tensor, Tensor]]


def without(sizes, method, activation="tanh"):
    """Mutant: the network without normalization."""
    return _mlp(sizes, "none", activation)


def network(method: str, sizes=(8, 16, 16, 3)) -> nn.Sequential:
    """An `mlp` in float64 whose eps is as good as 0 (torch refuses 0 in batch normalization)."""
    net = networks.mlp(list(sizes), method).double()
    for module in net.modules():
        if hasattr(module, "eps"):
            module.eps = 1e-30
    return net


def hidden(net: nn.Sequential) -> list[Tensor]:
    """The hidden weight matrices of an `mlp`; of weight normalization, the directions v."""
    firsts = [layer[0] for layer in net[:-1:2]]
    return [first.weight_v if hasattr(first, "weight_v") else first.weight for first in firsts]


def only_hidden(net: nn.Sequential) -> nn.Sequential:
    """The same network, of which only the hidden weight matrices learn."""
    for p in net.parameters():
        p.requires_grad_(any(p is w for w in hidden(net)))
    return net


def turned(old: Tensor, new: Tensor) -> float:
    """The angle between two arrays of weights, each as one vector, in degrees."""
    chord = (new / new.norm() - old / old.norm()).norm()
    return torch.rad2deg(2 * torch.asin((chord / 2).clamp(max=1))).item()


def follow(
    net: nn.Sequential, optimizer: str, batches: Batches, updates: int, **options: float
) -> tuple[Tensor, Tensor]:
    """(norms, angles) of the hidden matrices along a run, (updates + 1, layers) and one row less.

    An angle is by how many degrees an update turns a matrix. `options` replace the optimizer's.
    """
    kind, usual = OPTIMIZERS[optimizer]
    stepper = kind(net.parameters(), **(usual | options))
    norms, angles = [[w.norm().item() for w in hidden(net)]], []
    for _ in range(updates):
        x, y = next(batches)
        stepper.zero_grad()
        cross_entropy(net(x), y).backward()
        old = [w.detach().clone() for w in hidden(net)]
        stepper.step()
        new = [w.detach() for w in hidden(net)]
        norms.append([w.norm().item() for w in new])
        angles.append([turned(a, b) for a, b in zip(old, new, strict=True)])
    return torch.tensor(norms), torch.tensor(angles)


def some_cases(n: int = 50, features: int = 8, classes: int = 3) -> tuple[Tensor, Tensor]:
    return draw(n, features), torch.randint(classes, (n,))


def repeat(cases: tuple[Tensor, Tensor]) -> Batches:
    """The same cases at every update."""
    while True:
        yield cases


def noise(x: Tensor, classes: int = 3, size: int = 50) -> Batches:
    """Cases of x with labels drawn afresh at every update: there is nothing to learn."""
    while True:
        rows = torch.randint(len(x), (size,))
        yield x[rows], torch.randint(classes, (size,))


def gradients(net: nn.Sequential, cases: tuple[Tensor, Tensor]) -> list[Tensor]:
    """The gradient of the mean cross-entropy with respect to every hidden weight matrix."""
    x, y = cases
    return list(torch.autograd.grad(cross_entropy(net(x), y), hidden(net)))


def along(net: nn.Sequential, cases: tuple[Tensor, Tensor], whole: bool) -> float:
    """The largest |cosine| between weights and gradient, by matrix (`whole`) or by vector."""
    cosines = []
    for w, g in zip(hidden(net), gradients(net, cases), strict=True):
        rows = (t.detach().reshape(1 if whole else len(w), -1) for t in (w, g))
        cosines.append(torch.nn.functional.cosine_similarity(*rows).abs().max().item())
    return max(cosines)


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
        cases = some_cases()
        free = max(free, *(along(network(m), cases, m == "layer") for m in ("batch", "weight")))
        layer = network("layer")
        free = max(free, along(layer, cases, whole=True))
        bound.append(along(layer, cases, whole=False))
    holds = free < 1e-12 and min(bound) > 0.01
    return Finding(
        "proved" if holds else "refuted",
        f"The cosines are {'below' if free < 1e-12 else 'above'} 1e-12; those of single vectors "
        f"under layer normalization reach {max(bound):.1f}.",
        numbers={"free": free, "bound": min(bound)},
    )


def turning(w: Tensor, g: Tensor) -> float:
    """How fast gradient descent turns w: the part of the gradient across w, over ‖w‖."""
    w, g = w.detach().flatten(), g.flatten()
    across = g - (g @ w) / (w @ w) * w
    return (across.norm() / w.norm()).item()


def slowed(method: str, whole: bool, c: float = 10.0) -> float:
    """By what factor a vector (or a whole matrix) turns more slowly once it is c times as long."""
    net, cases = network(method), some_cases()
    part = slice(None) if whole else slice(0, 1)
    before = turning(hidden(net)[0][part], gradients(net, cases)[0][part])
    with torch.no_grad():
        hidden(net)[0][part] *= c
    return before / turning(hidden(net)[0][part], gradients(net, cases)[0][part])


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
    own = [slowed(m, whole=m == "layer") for _ in range(10) for m in ("batch", "weight", "layer")]
    single = torch.tensor([slowed("layer", whole=False) for _ in range(10)])
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
    shrank = dict.fromkeys(OPTIMIZERS, 0)
    for _ in range(3):
        cases = some_cases()
        for name in OPTIMIZERS:
            norms, _ = follow(network("layer"), name, repeat(cases), 60, lr=0.001)
            shrank[name] += int((norms.diff(dim=0) < 0).sum())
    always = [name for name, count in shrank.items() if count == 0]
    evidence = (
        f"Over 60 updates the norm never shrinks with {' and '.join(always) or 'any'}; it does "
        f"with {', '.join(name for name in shrank if name not in always) or 'none'}."
    )
    if len(always) == len(OPTIMIZERS):
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
    sabotage=("layernorm.lab.claims.chapter_07_norms.OPTIMIZERS", DECAYING),
)
def angle_per_update_shrinks() -> Finding:
    def late_to_early(method: str, name: str) -> float:
        net, rate = only_hidden(network(method, (8, 16, 3))), 10 * OPTIMIZERS[name][1]["lr"]
        _, angles = follow(net, name, noise(draw(200, 8)), 400, lr=rate)
        return (angles[350:].mean() / angles[100:150].mean()).item()

    ratio = {name: late_to_early("layer", name) for name in OPTIMIZERS}
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
