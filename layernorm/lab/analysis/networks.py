"""The networks that chapters and experiments share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layernorm.methods import method as method_row

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "sigmoid": nn.Sigmoid}


def mlp(sizes: Sequence[int], method: str = "none", activation: str = "tanh") -> nn.Sequential:
    r"""A fully connected network: $h^{l+1} = f(\mathrm{norm}(W^l h^l))$, the logits plain.

    `sizes` runs from the inputs over the hidden layers to the logits. The summed inputs of hidden
    layer k (counted from 0) are the output of module 2k. As in the paper (section 6.6), the logits
    are never normalized. Weights start as torch's `nn.Linear` starts them. Maps (n, sizes[0]) to
    (n, sizes[-1]). Raises `ValueError` for fewer than two sizes, a size below 1, an unknown
    method or activation.
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(f"sizes must be at least two numbers ≥ 1, got {list(sizes)}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"unknown activation {activation!r}: expected one of {list(ACTIVATIONS)}")
    row = method_row(method)
    stack: list[nn.Module] = []
    for a, b in pairwise(sizes[:-1]):
        stack += [row.layer(a, b), ACTIVATIONS[activation]()]
    return nn.Sequential(*stack, nn.Linear(sizes[-2], sizes[-1]))


def summed_inputs(
    model: nn.Sequential, x: Float[Tensor, "n features"], normalized: bool = True
) -> list[Float[Tensor, "n units"]]:
    """The summed inputs of every hidden layer of an `mlp` given x, and last the logits.

    `normalized=False` gives them as the weights produce them, before normalization and shift.
    The model stays in the mode (training or evaluation) it is in.
    """
    out, h = [], x
    for module in model:
        after = module(h)
        if isinstance(module, nn.Sequential):
            out.append(after if normalized else module[0](h))
        h = after
    return [*out, h]


@torch.no_grad()
def redraw_(
    model: nn.Sequential,
    scale: float = 1.0,
    spread: float = 0.0,
    shift: float = 0.0,
    gains: bool = True,
    seed: int = 0,
) -> None:
    r"""Draw every hidden weight matrix of an `mlp` anew by another initialization scheme.

    $W \leftarrow$ `scale` $\cdot\,10^{u_i}\,(W +$ `shift` $\cdot\,\mathrm{rms}(W))$: one factor
    for all weights, one for each unit's weight vector ($u_i$ uniform in $\pm$ `spread`), one
    constant added to all. Biases and logits stay. Weight normalization starts from the same
    weights, its gain being their length, as in `WeightNormLinear`; with `gains=False` the gain
    stays, and only the direction is redrawn.

    Raises `ValueError` unless scale is positive and spread not negative.
    """
    if not scale > 0 or not spread >= 0:
        raise ValueError(f"scale must be > 0 and spread >= 0, got {scale} and {spread}")
    generator = torch.Generator().manual_seed(seed)
    for module in model[:-1:2]:
        linear = module[0]
        normed = hasattr(linear, "weight_v")
        w = linear.weight_v if normed else linear.weight
        u = spread * (2 * torch.rand(len(w), 1, generator=generator, dtype=w.dtype) - 1)
        w.add_(shift * w.square().mean().sqrt()).mul_(scale * 10**u)
        if normed and gains:
            linear.weight_g.copy_(w.norm(dim=1, keepdim=True))


@torch.no_grad()
def rescale_(model: nn.Sequential, x: Float[Tensor, "n features"]) -> None:
    """Scale each weight matrix so that the summed inputs over `x` start with unit variance.

    This is the control arm `rescaled`: what it explains is conditioning, not normalization. One
    factor a layer, from the data, first layer first; biases are set to zero. For models without
    normalization only. Raises `ValueError`
    if a layer's summed inputs do not vary over x.
    """
    h = x
    for module in model:
        linear = module[0] if isinstance(module, nn.Sequential) else module
        if isinstance(linear, nn.Linear):
            linear.bias.zero_()
            spread = linear(h).std()
            if not spread > 0:
                raise ValueError("the summed inputs do not vary over x; give more varied cases")
            linear.weight.div_(spread)
        h = module(h)


@torch.no_grad()
def rescale_lstm_(lstm: nn.LSTM, x: Tensor, rounds: int = 20) -> None:
    """Scales both weight matrices so that W_x x and W_h h have unit variance on x, over all units,
    steps and cases.

    The state depends on its own weights, so its matrix is scaled again and again; what is left
    after the rounds is checked. Raises `RuntimeError` where that does not settle within 1 %.
    """
    lstm.weight_ih_l0 /= (x @ lstm.weight_ih_l0.T).std()
    for _ in range(rounds):
        lstm.weight_hh_l0 /= _recurrent_spread(lstm, x)
    if abs(spread := _recurrent_spread(lstm, x).item() - 1) > 0.01:
        raise RuntimeError(
            f"the recurrent summed inputs' standard deviation is {1 + spread:.3f} after {rounds} "
            "rounds of scaling, not 1; use more rounds"
        )


def _recurrent_spread(lstm: nn.LSTM, x: Tensor) -> Tensor:
    return (lstm(x)[0][:-1] @ lstm.weight_hh_l0.T).std()
