"""The table of methods, read by models, experiments, benchmarks, claims and figures.

Adding a method is one function in `functional.py`, its module in `modules.py` and one row here: in
`METHODS` what runs compute with and how figures draw it, in `FORMS` its symbolic form, which no run
reads: a correction there makes no record stale. A method without a form is no normalization: `none`
does nothing, `dyt` and `derf` compute no statistic. `normalizations` leaves these two out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layernorm import modules


@dataclass(frozen=True)
class Method:
    """One row of the table.

    `norm(features)` builds the module that normalizes the summed inputs of a fully connected
    layer; None where there is none (no normalization, or one that acts on the weights).
    `color` and `marker` tell the methods apart in every figure, also without color vision.
    """

    name: str
    title: str
    averages_over: str
    source: str
    color: str
    marker: str
    norm: Callable[[int], nn.Module] | None = None

    def layer(self, in_features: int, out_features: int) -> nn.Sequential:
        r"""The summed inputs $a = Wx$ of a fully connected layer, normalized by this method.

        Maps (n, in_features) to (n, out_features). The first module holds the weight matrix, the
        others normalize; every method keeps one bias per unit, added last (paper eq. 5). Raises
        `ValueError` for instance normalization, which averages over positions that such a layer
        does not have.
        """
        if self.name == "none":
            return nn.Sequential(nn.Linear(in_features, out_features))
        if self.name == "weight":
            return nn.Sequential(modules.WeightNormLinear(in_features, out_features))
        if self.norm is None:
            raise ValueError(
                f"method {self.name!r} averages over {self.averages_over}, and a fully connected "
                "layer has no positions; use it in a ConvNet, or one of "
                f"{[m.name for m in METHODS.values() if m.dense]} here"
            )
        linear = nn.Linear(in_features, out_features, bias=False)
        norm = self.norm(out_features)
        if getattr(norm, "bias", None) is None:
            return nn.Sequential(linear, norm, Shift(out_features))
        return nn.Sequential(linear, norm)

    @property
    def dense(self) -> bool:
        """Tell whether the method applies to a fully connected layer."""
        return self.norm is not None or self.name in ("none", "weight")


class Shift(nn.Module):
    """Adds the bias b of eq. 5 after a normalization that has none of its own."""

    def __init__(self, features: int):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: Float[Tensor, "n units"]) -> Float[Tensor, "n units"]:
        return x + self.bias


def groups(features: int) -> int:
    """The number of groups of group normalization: at most 8, of at least 8 units each."""
    return max(g for g in range(1, 9) if features % g == 0 and (g == 1 or features >= 8 * g))


METHODS: dict[str, Method] = {
    m.name: m
    for m in [
        Method("none", "no normalization", "nothing", "paper eq. 1", "#6b6b6b", "o"),
        Method(
            "batch",
            "batch normalization",
            "the cases of the batch (and the positions), for each unit",
            "paper eq. 2",
            "#d55e00",
            "s",
            modules.BatchNorm,
        ),
        Method(
            "weight",
            "weight normalization",
            "nothing: it divides each weight vector by its length",
            "paper eq. 5",
            "#009e73",
            "^",
        ),
        Method(
            "layer",
            "layer normalization",
            "the units of the layer, for each case",
            "paper eq. 3",
            "#0072b2",
            "D",
            modules.LayerNorm,
        ),
        Method(
            "rms",
            "RMS normalization",
            "the units of the layer, for each case, without subtracting the mean",
            "Zhang and Sennrich 2019",
            "#cc79a7",
            "v",
            modules.RMSNorm,
        ),
        Method(
            "group",
            "group normalization",
            "a group of units (and the positions), for each case",
            "Wu and He 2018",
            "#56b4e9",
            "P",
            lambda features: modules.GroupNorm(groups(features), features),
        ),
        Method(
            "instance",
            "instance normalization",
            "the positions, for each unit of each case",
            "Ulyanov et al. 2016",
            "#e69f00",
            "X",
        ),
        Method(
            "dyt",
            "dynamic tanh",
            "nothing: it bounds each unit by itself",
            "Zhu et al. 2025",
            "#8c510a",
            "p",
            modules.DynamicTanh,
        ),
        Method(
            "derf",
            "dynamic erf",
            "nothing: it bounds each unit by itself",
            "Chen et al. 2025",
            "#762a83",
            ">",
            modules.DynamicErf,
        ),
    ]
}


@dataclass(frozen=True)
class Form:
    """The symbolic form of a method, y = g (a - mu) / sqrt(sigma^2 + eps) + b: its two statistics.

    Args:
        over: the numbers that share them: the `cases` of a unit (and the positions), the `units` of
            a case, a `group` of these, the `positions` of a unit of a case, or the `weights` of a
            unit; these have no eps.
        statistics: mu and sigma^2 of such numbers, of which it asks `mean(f)` and `total(f)`, the
            mean and the sum of f(a); f left out is the identity.
    """

    over: str
    statistics: Callable[[Any], tuple[Any, Any]]

    @property
    def has_eps(self) -> bool:
        """Tell whether sigma^2 stands beside an eps."""
        return self.over != "weights"


def moments(numbers: Any) -> tuple[Any, Any]:
    """The mean and the biased variance."""
    mu = numbers.mean()
    return mu, numbers.mean(lambda a: (a - mu) ** 2)


FORMS: dict[str, Form] = {
    "batch": Form("cases", moments),  # paper eq. 2
    "weight": Form("weights", lambda w: (0, w.total(lambda k: k**2))),  # as section 5.1 reads eq. 5
    "layer": Form("units", moments),  # paper eq. 3
    "rms": Form("units", lambda a: (0, a.mean(lambda k: k**2))),
    "group": Form("group", moments),
    "instance": Form("positions", moments),
}


def normalizations() -> tuple[Method, ...]:
    """The rows that normalize a fully connected layer, and `none`, to which they are compared."""
    return tuple(m for m in METHODS.values() if m.dense and (m.name in FORMS or m.name == "none"))


def method(name: str) -> Method:
    """The row of that name; `ValueError` names the nearest one for a misspelling."""
    if name in METHODS:
        return METHODS[name]
    from difflib import get_close_matches

    near = get_close_matches(name, METHODS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"unknown method {name!r}: expected one of {list(METHODS)}{hint}")
