"""Claims that chapter 07 decides about large learning rates: what σ makes of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layernorm.lab.analysis import networks
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.chapter_07_norms import (
    MLP,
    gradients,
    hidden,
    network,
    some_cases,
    turning,
    without,
)


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


@claim(
    id="a-giant-step-tames-itself",
    statement="However large the learning rate, after one step of gradient descent the next turns "
    "a normalized weight matrix by an angle whose tangent is at most c₁/(2c₀), c = ‖W‖‖∇‖ before "
    "either step.",
    kind="property",
    chapter="07",
    rule="10 layer-normalized networks, rates from 0.001 to 1,000,000: proved if the bound holds "
    "everywhere to 1e-9, and is reached to 10% somewhere; else refuted",
    sabotage=(MLP, without),
)
def a_giant_step_tames_itself() -> Finding:
    shares = []
    for _ in range(10):
        cases = some_cases()
        for power in range(-3, 7):
            shares.append(one_giant_step(network("layer"), cases, 10.0**power))
    holds = 0.9 < max(shares) < 1 + 1e-9
    return Finding(
        "proved" if holds else "refuted",
        f"Over 100 first steps the second one reaches at most "
        f"{f'{max(shares):.0%}' if holds else 'more than 100%'} of the bound.",
        numbers={"largest": max(shares)},
    )


def at_hidden_rate(
    x: Tensor, y: Tensor, arm: str, rate: float, seed: int, updates: int = 150
) -> float:
    """The training loss after gradient descent on batches of 64 with that rate for hidden weights.

    All else learns at rate 0.1. `arm` is a method, or `rescaled`: the control without
    normalization whose weights are scaled to unit-variance summed inputs at the start.
    """
    torch.manual_seed(seed)
    net = networks.mlp([x.shape[1], 32, 32, 10], "none" if arm == "rescaled" else arm).double()
    if arm == "rescaled":
        networks.rescale_(net, x)
    others = [p for p in net.parameters() if all(p is not w for w in hidden(net))]
    groups = [{"params": hidden(net), "lr": rate}, {"params": others, "lr": 0.1}]
    stepper = torch.optim.SGD(groups)
    for _ in range(updates):
        rows = torch.randint(len(x), (64,))
        stepper.zero_grad()
        cross_entropy(net(x[rows]), y[rows]).backward()
        stepper.step()
    with torch.no_grad():
        return cross_entropy(net(x), y).item()


@claim(
    id="sigma-makes-learning-stable",
    statement="The normalization scalar σ makes learning more stable.",
    kind="property",
    chapter="07",
    rule="digits, gradient descent with a rate of 100 for hidden weights (0.1 for the rest), 3 "
    "seeds: proved if the mean training loss with layer normalization is less than half of that "
    "without and of the rescaled control's, on the digits as they are and on centered ones; "
    "conditional if on the digits as they are; else refuted",
    sabotage=(MLP, without),
)
def sigma_makes_learning_stable() -> Finding:
    from layernorm.lab import data

    train = data.digits().train
    raw = train.x.flatten(1).double()
    loss, holds = {}, {}
    for name, x in (("raw", raw), ("centered", raw - raw.mean(0))):
        for arm in ("layer", "none", "rescaled"):
            runs = [at_hidden_rate(x, train.y, arm, 100.0, seed) for seed in range(3)]
            loss[name, arm] = sum(runs) / len(runs)
        holds[name] = 2 * loss[name, "layer"] < min(loss[name, "none"], loss[name, "rescaled"])
    told = {
        name: f"{loss[name, 'layer']:.1f} with layer normalization, {loss[name, 'none']:.1f} "
        f"without, {loss[name, 'rescaled']:.1f} rescaled"
        for name in holds
    }
    evidence = f"Loss on the digits as they are: {told['raw']}; centered: {told['centered']}."
    numbers = {f"{name} {arm}": value for (name, arm), value in loss.items()}
    if not holds["raw"]:
        return Finding("refuted", evidence, numbers=numbers)
    if holds["centered"]:
        return Finding("proved", evidence, numbers=numbers)
    condition = "the data are not centered"
    return Finding("conditional", evidence, condition=condition, numbers=numbers)
