"""The scale of a normalized network's weights: its effect at the start and on learning."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from layernorm import functional as F
from layernorm.lab.analysis import networks


def weight_gradient(w: Tensor, h: Tensor, back: Tensor, normalize: bool) -> Tensor:
    """The gradient of `back`·(normalized) summed inputs with respect to W, for one case h."""
    w = w.clone().requires_grad_()
    a = w @ h
    return torch.autograd.grad(
        (F.layer_norm(a, a.shape[-1:], eps=0.0) if normalize else a) @ back, w
    )[0]


OPTIMIZERS = {"sgd": (torch.optim.SGD, {}), "adam": (torch.optim.Adam, {"eps": 0.0})}


def network(
    scale: float = 1.0, method: str = "layer", eps: float = 0.0, seed: int = 1
) -> nn.Sequential:
    """A net of 8-16-16-3 units in float64, from the draw of a seed, hidden weights scaled."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = networks.mlp([8, 16, 16, 3], method).double()
    networks.redraw_(net, scale=scale)
    for module in net.modules():
        if hasattr(module, "eps"):
            module.eps = eps
    return net


def learn(net: nn.Sequential, optimizer: str, hidden_rate: float, rate: float) -> Tensor:
    """The logits of 50 cases, always the same, after 30 full-batch updates on them.

    `hidden_rate` is the learning rate of the hidden weight matrices, `rate` that of all else.
    """
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(50, 8, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (50,), generator=generator)
    hidden = [layer[0].weight for layer in net[:-1:2]]
    others = [p for p in net.parameters() if all(p is not w for w in hidden)]
    kind, options = OPTIMIZERS[optimizer]
    groups = [{"params": hidden, "lr": hidden_rate}, {"params": others, "lr": rate}]
    updates = kind(groups, lr=rate, **options)
    for _ in range(30):
        updates.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        updates.step()
    return net(x).detach()
