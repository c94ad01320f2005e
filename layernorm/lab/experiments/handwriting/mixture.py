r"""The density of the next point: a mixture of bivariate normals, and whether the pen is lifted.

The network's output of 1 + 6M numbers, $\hat y = (\hat e, \hat\pi, \hat\mu, \hat\sigma, \hat\rho)$,
says with what probability the pen is lifted, and the weights, means, standard deviations and
correlations of M components:

$$ e = \frac{1}{1 + \exp(\hat e)}, \quad \pi = \mathrm{softmax}(\hat\pi), \quad \mu = \hat\mu, \quad
   \sigma = \exp(\hat\sigma), \quad \rho = \tanh(\hat\rho) $$

Everything stays in logarithms. With $a = (x_1 - \mu_1)/\sigma_1$, $b = (x_2 - \mu_2)/\sigma_2$ the
exponent of a component needs no difference of nearly equal numbers as $\rho \to \pm 1$:

$$ \frac{a^2 - 2\rho ab + b^2}{1 - \rho^2}
   = \tfrac14\big[(a+b)^2 (1 + e^{-2\hat\rho}) + (a-b)^2 (1 + e^{2\hat\rho})\big] $$

Source: Graves 2013, Generating sequences with recurrent neural networks, equations (18) to (26),
61 and 62.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

MOST = {"log_sigma": 15.0, "rho": 8.0}  # |σ̂| and |ρ̂| beyond which they count as these


class Mixture(NamedTuple):
    """The parts of an output: logarithms of π and σ, μ, ρ̂ and the logit of a lifted pen."""

    log_pi: Float[Tensor, "*n m"]
    mu: Float[Tensor, "*n m 2"]
    log_sigma: Float[Tensor, "*n m 2"]
    rho: Float[Tensor, "*n m"]
    lift: Float[Tensor, "*n"]


def mixture(y: Float[Tensor, "*n outputs"], bias: float = 0.0) -> Mixture:
    """The mixture of an output; `bias` makes it narrower: σ̂ - bias, π̂ (1 + bias)."""
    m = (y.shape[-1] - 1) // 6
    end, pi, mu, sigma, rho = y.split([1, m, 2 * m, 2 * m, m], -1)
    most = MOST["log_sigma"]
    return Mixture(
        (pi * (1 + bias)).log_softmax(-1),
        mu.unflatten(-1, (m, 2)),
        (sigma.unflatten(-1, (m, 2)) - bias).clamp(-most, most),
        rho.clamp(-MOST["rho"], MOST["rho"]),
        -end.squeeze(-1),
    )


def log_components(given: Mixture, moved: Float[Tensor, "*n 2"]) -> Float[Tensor, "*n m"]:
    """The log-density of each component at an offset."""
    a, b = ((moved.unsqueeze(-2) - given.mu) * (-given.log_sigma).exp()).unbind(-1)
    r = 2 * given.rho
    exponent = ((a + b).square() * (1 + (-r).exp()) + (a - b).square() * (1 + r.exp())) / 8
    log_one_less_square = 2 * math.log(2) + logsigmoid(r) + logsigmoid(-r)  # log(1 - ρ²)
    norm = math.log(2 * math.pi) + given.log_sigma.sum(-1) + log_one_less_square / 2
    return -norm - exponent


def negative_log_likelihood(
    y: Float[Tensor, "*n outputs"], points: Float[Tensor, "*n 3"]
) -> Float[Tensor, "*n"]:
    """In nats, of each point: of its offset, and of the pen's being lifted or not."""
    given = mixture(y)
    moved = (given.log_pi + log_components(given, points[..., :2])).logsumexp(-1)
    lifted = points[..., 2]
    pen = logsigmoid(torch.where(lifted > 0.5, given.lift, -given.lift))
    return -moved - pen


def sample(
    y: Float[Tensor, "n outputs"], bias: float, random: torch.Generator
) -> Float[Tensor, "n 3"]:
    """A point drawn from each output's density."""
    given = mixture(y, bias)
    rows = torch.arange(len(y))
    chosen = torch.multinomial(given.log_pi.exp(), 1, generator=random).squeeze(1)
    mu, sigma = given.mu[rows, chosen], given.log_sigma[rows, chosen].exp()
    rho = given.rho[rows, chosen].tanh()
    one, two = torch.randn(2, len(y), generator=random, dtype=y.dtype)
    two = rho * one + (1 - rho.square()).sqrt() * two
    lifted = torch.rand(len(y), generator=random, dtype=y.dtype) < given.lift.sigmoid()
    return torch.cat([mu + sigma * torch.stack([one, two], -1), lifted[:, None].to(y.dtype)], -1)
