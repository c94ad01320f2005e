"""The weights of a network while it learns: how long they are, how far each update turns them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layernorm.lab.analysis import networks

OPTIMIZERS = {
    "gradient descent": (torch.optim.SGD, {"lr": 0.3}),
    "momentum": (torch.optim.SGD, {"lr": 0.03, "momentum": 0.9}),
    "Adam": (torch.optim.Adam, {"lr": 0.003}),
    "weight decay": (torch.optim.SGD, {"lr": 0.3, "weight_decay": 0.03}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.003, "weight_decay": 1.0}),
}


Batches = Iterator[tuple[Tensor, Tensor]]


def network(method: str, sizes=(8, 16, 16, 3), eps: float = 1e-30) -> nn.Sequential:
    """An `mlp` in float64 whose eps is as good as 0 (torch refuses 0 in batch normalization)."""
    net = networks.mlp(list(sizes), method).double()
    for module in net.modules():
        if hasattr(module, "eps"):
            module.eps = eps
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
    return torch.randn(n, features, dtype=torch.float64), torch.randint(classes, (n,))


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


def turning(w: Tensor, g: Tensor) -> float:
    """The speed at which gradient descent turns w: the part of the gradient across w, over ‖w‖."""
    w, g = w.detach().flatten(), g.flatten()
    across = g - (g @ w) / (w @ w) * w
    return (across.norm() / w.norm()).item()


def one_giant_step(net: nn.Sequential, cases: tuple[Tensor, Tensor], rate: float) -> float:
    """tan of the angle of a second step, as a share of its bound c₁/(2c₀); c = ‖W‖‖∇‖.

    Of the first hidden matrix, all others held still, by gradient descent at the given rate.
    """
    w = hidden(net)[0]
    first = gradients(net, cases)[0]
    c0 = (w.norm() * first.norm()).item()
    with torch.no_grad():
        w -= rate * first
    second = gradients(net, cases)[0]
    c1 = (w.norm() * second.norm()).item()
    return rate * turning(w, second) / (c1 / (2 * c0) + 1e-300)  # gradients may vanish
