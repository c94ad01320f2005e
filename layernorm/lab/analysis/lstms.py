"""Batch- and layer-normalized LSTMs at their start: their terms, and their gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from layernorm import BatchNormLSTM, LayerNormLSTM

TERMS = {"ih": "input term", "hh": "recurrent term", "c": "cell"}


def bn_lstm(inputs: int = 8, hidden: int = 32, **options) -> BatchNormLSTM:
    """A layer in float64 at its start, with gains of 1 unless told."""
    options = {"max_length": 60, "gain": 1.0, "dtype": torch.float64} | options
    return BatchNormLSTM(inputs, hidden, **options)


@torch.no_grad()
def at_start(method: str, gain: float, hidden: int = 32, forget_bias: float = 0.0) -> nn.Module:
    """A batch- or layer-normalized LSTM at its start, all gains the same."""
    if method == "batch":
        layer = bn_lstm(hidden=hidden, gain=gain)
    else:
        layer = LayerNormLSTM(8, hidden, dtype=torch.float64, backend="reference")
    for name, parameter in layer.named_parameters():
        if name.startswith("ln") and "weight" in name:
            parameter.fill_(gain)
    layer.bias_ih_l0.chunk(4)[1].fill_(forget_bias)
    return layer


def equal_steps(k: int) -> Tensor:
    """Inputs (k + 5, 16, 8), the same for all cases at the first k steps."""
    x = torch.randn(k + 5, 16, 8, dtype=torch.float64)
    x[:k] = x[:k, :1]
    return x


def input_gradients(layer: nn.Module, x: Tensor) -> Tensor:
    """Norm of the gradient of a random linear loss of the last state, for each step's inputs."""
    x = x.clone().requires_grad_()
    h = layer(x)[1][0][0]
    (gradient,) = torch.autograd.grad((h * torch.randn_like(h)).sum(), x)
    return gradient.norm(dim=(1, 2))


def weight_gradient(layer: nn.Module, x: Tensor) -> float:
    """Norm of the gradient of a random linear loss of the last state, for the input weights."""
    h = layer(x)[1][0][0]
    (gradient,) = torch.autograd.grad((h * torch.randn_like(h)).sum(), layer.weight_ih_l0)
    return gradient.norm().item()
