r"""Measures of summed inputs: saturation, drift, correlation.

`a` is always a matrix of summed inputs, one row a case and one column a unit. Chapter 01 explains
the measures; `Watch` reads them along a run of `layernorm.lab.experiments.studies`.
"""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

SLOPES = {
    "tanh": lambda a: 1 - torch.tanh(a) ** 2,
    "sigmoid": lambda a: 4 * torch.sigmoid(a) * torch.sigmoid(-a),
    "relu": lambda a: (a > 0).to(a.dtype),
}


def slope(a: Float[Tensor, "*shape"], activation: str) -> Float[Tensor, "*shape"]:
    r"""The slope $f'(a)$ of an activation function, as a share (0 to 1) of its largest slope.

    Raises `ValueError` for an unknown activation.

    >>> slope(torch.tensor([0.0, 2.0]), "tanh")
    tensor([1.0000, 0.0707])
    """
    if activation not in SLOPES:
        raise ValueError(f"activation must be one of {list(SLOPES)}, got {activation!r}")
    return SLOPES[activation](a)


def saturated(a: Float[Tensor, "*shape"], activation: str, below: float = 0.05) -> float:
    """The share (0 to 1) of summed inputs at which the slope is below 5 % of the largest slope.

    For tanh that is |a| > 2.18, for the sigmoid |a| > 4.36, for ReLU a ≤ 0. Raises `ValueError` for
    an unknown activation.

    >>> saturated(torch.tensor([0.0, 2.0, 3.0, -3.0]), "tanh")
    0.5
    """
    return float((slope(a, activation) < below).double().mean())


@torch.no_grad()
def drift(a: Float[Tensor, "n units"], start: Float[Tensor, "n units"]) -> float:
    r"""The distance of each unit's distribution of summed inputs from that at the start.

    With means $\mu_i$ and standard deviations $\sigma_i$ of unit $i$ over the cases,

    $$ \sqrt{\tfrac1H\sum_i\,[(\mu_i-\mu_i^0)^2+(\sigma_i-\sigma_i^0)^2]}
       \;\Big/\; \sqrt{\tfrac1H\sum_i (\sigma_i^0)^2}, $$

    the Wasserstein distance between Gaussians with these moments, in units of the starting standard
    deviation: 1 means that a typical unit has moved by as much as it varies over the cases.

    Raises `ValueError` if the starting summed inputs do not vary over the cases.

    >>> a = torch.tensor([[-1.0, -2.0], [1.0, 2.0]])
    >>> drift(a + 3, a) == drift(3 - a, a) == 3 / 2.5**0.5
    True
    """
    scale = start.double().var(0, correction=0).mean()
    if not scale > 0:
        raise ValueError("start must vary over its cases (rows), got equal rows")
    moments = [
        torch.stack([x.double().mean(0), x.double().std(0, correction=0)]) for x in (a, start)
    ]
    return float(((moments[0] - moments[1]).square().sum(0).mean() / scale).sqrt())


@torch.no_grad()
def correlation(a: Float[Tensor, "n units"]) -> Float[Tensor, "units units"]:
    """The correlation coefficients of every two units over the cases, in float64.

    Raises `ValueError` if a unit does not vary: it has no correlation.
    """
    if not (a.double().std(0, correction=0) > 0).all():
        raise ValueError("every unit (column of a) must vary over the cases, got a constant one")
    return torch.corrcoef(a.double().T)


@torch.no_grad()
def squared_correlation(a: Float[Tensor, "n units"]) -> float:
    r"""The mean of $r_{ij}^2$ over all pairs of different units: 0 if none are correlated.

    n independent cases of uncorrelated units give about 1/(n − 1). Raises as `correlation` does.

    >>> squared_correlation(torch.tensor([[1.0, 2.0, 1.0], [2.0, 4.0, 0.0], [3.0, 6.0, 1.0]]))
    0.3333333333333333
    """
    units = a.shape[1]
    r = correlation(a)
    return float((r.square().sum() - units) / (units * (units - 1)))


@torch.no_grad()
def directions(d: Float[Tensor, "n units"]) -> float:
    r"""The effective number of directions of the rows of d, from 1 to the number of units.

    The participation ratio $(\sum_k\lambda_k)^2/\sum_k\lambda_k^2$ of the eigenvalues of
    $d^\top d$: all rows along one line give 1, k equally strong directions give k. Raises
    `ValueError` if d is zero.

    >>> directions(torch.tensor([[1.0, 0.0], [0.0, -1.0], [2.0, 0.0], [0.0, 2.0]]))
    2.0
    """
    moments = d.double().T @ d.double()
    if not moments.trace() > 0:
        raise ValueError("d must not be zero everywhere; there is no direction to count")
    return float(moments.trace() ** 2 / moments.square().sum())


@torch.no_grad()
def varied_directions(d: Float[Tensor, "n units"]) -> float:
    """The effective number of directions in which the rows of d vary about their mean.

    Any data with a mean have about one direction if they are not centered, noise too. Raises
    `ValueError` if all rows are equal.

    >>> varied_directions(torch.tensor([[11.0, 9.0], [10.0, 8.0], [12.0, 9.0], [11.0, 10.0]]))
    1.6
    """
    return directions(d.double() - d.double().mean(0))


@torch.no_grad()
def absorbed(d: Float[Tensor, "n units"], a: Float[Tensor, "n units"]) -> float:
    r"""The share of a change d of summed inputs a that layer normalization takes away.

    To first order its output ignores, in every case, a change along $\mathbf 1$ (all units shift
    alike) and along $a-\mu$ (all deviations grow alike), and nothing else: two of H directions.
    This is the share of the sum of squares of d in those two; a change in a random direction gives
    2/H. Raises `ValueError` if d is zero.

    >>> absorbed(torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([[0.0, 1.0, 5.0]]))
    1.0
    """
    total = d.double().square().sum()
    if not total > 0:
        raise ValueError("d must not be zero everywhere; there is no change to take apart")
    centered = a.double() - a.double().mean(1, keepdim=True)
    radius = nn.functional.normalize(centered, dim=1)
    along = (d.double() * radius).sum(1).square().sum()
    return float((d.double().mean(1).square().sum() * d.shape[1] + along) / total)


class Watch:
    """The summed inputs of the second hidden layer of a `networks.mlp`, on fixed cases x.

    What is watched is what the activation function gets, after normalization, gain and bias; batch
    normalization takes its statistics over x. `curve` gives numbers at any time, `final` those that
    need a change since the start. Networks that are passed are left as they are.

    - `drift`: of the summed inputs since the start (`drift`);
    - `drift_below`: the part the layers below cause: the watched layer keeps its starting
      parameters. This is the internal covariate shift of Ioffe and Szegedy (2015);
    - `saturated`, `correlation`: `saturated` and `squared_correlation`, now;
    - `change_directions`, `change_absorbed`: `directions` and `absorbed` of the change that the
      layers below cause in the summed inputs before normalization.
    """

    def __init__(self, net: nn.Sequential, x: Float[Tensor, "n features"], activation: str):
        if len(net) < 5:
            raise ValueError("net must have at least two hidden layers; there is no second one")
        self.x, self.activation = x, activation
        self.layer = copy.deepcopy(net[2]).train()
        h, self.start = self._read(net)
        self.weighted = self.layer[0](h).detach()

    @torch.no_grad()
    def _read(self, net: nn.Sequential) -> tuple[Tensor, Tensor]:
        """The outputs of the first hidden layer, and the summed inputs of the second."""
        net = copy.deepcopy(net[:3]).train()
        h = net[:2](self.x)
        return h, net[2](h)

    @torch.no_grad()
    def curve(self, net: nn.Sequential) -> dict[str, float]:
        h, a = self._read(net)
        return {
            "drift": drift(a, self.start),
            "drift_below": drift(self.layer(h), self.start),
            "saturated": saturated(a, self.activation),
            "correlation": squared_correlation(a),
        }

    @torch.no_grad()
    def final(self, net: nn.Sequential) -> dict[str, float]:
        change = self.layer[0](self._read(net)[0]) - self.weighted
        return {
            "change_directions": directions(change),
            "change_absorbed": absorbed(change, self.weighted),
        }
