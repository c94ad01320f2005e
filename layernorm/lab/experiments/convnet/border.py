"""The units of a convolutional layer by their distance to the border of the image."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from layernorm.lab.experiments.convnet.model import activated

RINGS = 7  # distances 0, 1, ...; the last one stands for all that are larger, too


def distance(height: int, width: int) -> Int[Tensor, "height width"]:
    """The number of positions between each one and the nearest border: 0 at the border.

    >>> distance(3, 4)
    tensor([[0, 0, 0, 0],
            [0, 1, 1, 0],
            [0, 0, 0, 0]])
    """
    y, x = torch.arange(height)[:, None], torch.arange(width)
    return torch.minimum(torch.minimum(y, height - 1 - y), torch.minimum(x, width - 1 - x))


def rings(height: int, width: int) -> list[Bool[Tensor, "height width"]]:
    """For each distance the positions that have it; the last ring has the larger ones, too."""
    at = distance(height, width).clamp(max=RINGS - 1)
    return [at == d for d in range(int(at.max()) + 1)]


@torch.no_grad()
def profile(model: nn.Module, x: Float[Tensor, "n c h w"]) -> dict[str, float]:
    """Measure the units of each layer over the cases x, by distance d to the border.

    Of layer k, counted from 1, among those with a ReLU right behind them:

    - `active_k_d`: the share of cases for which a unit is on, the mean over the units there;
    - `input_mean_k_d`, `input_variance_k_d`: mean and variance over the cases of a unit's summed
      input, before normalization, gain and bias; the means over the units there;
    - `border_active`, `border_variance`: the same at the border (d = 0) as a share of the same over
      all other units of the layer; the mean over the layers that have both. Left out if a layer's
      other units are never on, or never vary.

    In the mode (training or evaluation) that the model is in.
    """
    found, ratios = {}, {"active": [], "input_variance": []}
    for k, (a, y) in enumerate(_seen(model, x), 1):
        a = a.double()
        maps = {
            "active": (y > 0).double().mean(0),
            "input_mean": a.mean(0),
            "input_variance": a.var(0, correction=0),
        }
        border = distance(*a.shape[2:]) == 0
        for name, values in maps.items():
            for d, ring in enumerate(rings(*a.shape[2:])):
                found[f"{name}_{k}_{d}"] = _rounded(_over(values, ring))
            if name in ratios and not border.all():
                ratios[name].append((_over(values, border), _over(values, ~border)))
    for name, pairs in ratios.items():
        if pairs and all(rest > 0 for _, rest in pairs):
            share = sum(at / rest for at, rest in pairs) / len(pairs)
            found[f"border_{name.removeprefix('input_')}"] = _rounded(share)
    return found


def _seen(model: nn.Module, x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """For each layer with a ReLU its summed inputs over x, and what the ReLU gets."""
    seen: list[tuple[Tensor, Tensor]] = []
    hooks = [
        unit.norm.register_forward_hook(lambda _, a, y: seen.append((a[0], y)))
        for unit in activated(model)
    ]
    try:
        model(x)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _over(values: Float[Tensor, "c h w"], positions: Bool[Tensor, "h w"]) -> float:
    return float(values[:, positions.to(values.device)].mean())


def _rounded(value: float) -> float:
    """To five digits: 80 of these numbers are in each record."""
    return float(f"{value:.5g}")
