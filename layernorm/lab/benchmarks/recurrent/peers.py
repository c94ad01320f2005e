"""Other people's recurrent layers on GPUs, each through its public interface; none is required.

Written against haste 0.4 (`haste_pytorch.LayerNormLSTM` and `LayerNormGRU`, in float32 and float64)
and FlashRNN 1.0 (`flashrnn.flashrnn`, LSTM and GRU without norms in bfloat16). Where another
version has other signatures, the row says what it raised; where it computes something else, the
gate says so.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from layernorm import functional

MODULES = {"haste": "haste_pytorch", "flashrnn": "flashrnn"}
NOT_INSTALLED = "not installed"


def haste_lstm(
    x: Tensor, kernel: Tensor, recurrent_kernel: Tensor, bias: Tensor, gamma: Tensor,
    gamma_h: Tensor, beta_h: Tensor,
) -> Tensor:  # fmt: skip
    """The LN-LSTM of haste: the paper's equations with gains alone inside the gates, which stand in
    the order i, g, f, o; weights are transposed."""
    h = c = x.new_zeros(x.shape[1], gamma_h.shape[0])
    outputs = []
    for x_t in x:
        a_x, a_h = x_t @ kernel, h @ recurrent_kernel
        a = functional.layer_norm(a_x, a_x.shape[-1:], gamma[0])
        a = a + functional.layer_norm(a_h, a_h.shape[-1:], gamma[1]) + bias
        i, g, f, o = a.chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(functional.layer_norm(c, c.shape[-1:], gamma_h, beta_h))
        outputs.append(h)
    return torch.stack(outputs)


def haste_gru(
    x: Tensor, kernel: Tensor, recurrent_kernel: Tensor, bias: Tensor, recurrent_bias: Tensor,
    gamma: Tensor,
) -> Tensor:  # fmt: skip
    """The LN-GRU of haste: each term is normalized over all three gates, which stand in the order
    z, r, n, with gains alone; weights are transposed."""
    h = x.new_zeros(x.shape[1], recurrent_kernel.shape[0])
    outputs = []
    for x_t in x:
        a_x, a_h = x_t @ kernel, h @ recurrent_kernel
        a_x = functional.layer_norm(a_x, a_x.shape[-1:], gamma[0]) + bias
        a_h = functional.layer_norm(a_h, a_h.shape[-1:], gamma[1]) + recurrent_bias
        z_x, r_x, n_x = a_x.chunk(3, dim=-1)
        z_h, r_h, n_h = a_h.chunk(3, dim=-1)
        z = torch.sigmoid(z_x + z_h)
        h = z * h + (1 - z) * torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
        outputs.append(h)
    return torch.stack(outputs)


def haste(input_size: int, units: int) -> nn.Module:
    from haste_pytorch import LayerNormLSTM

    return LayerNormLSTM(input_size, units, forget_bias=0.0)


def haste_norm_gru(input_size: int, units: int) -> nn.Module:
    from haste_pytorch import LayerNormGRU

    return LayerNormGRU(input_size, units)


class FlashLSTM(nn.LSTM):
    """torch's parameters, computed by FlashRNN with one head."""

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        from flashrnn import flashrnn

        (_, batch, _), units = x.shape, self.hidden_size
        gates = F.linear(x, self.weight_ih_l0, self.bias_ih_l0).transpose(0, 1)
        states, _ = flashrnn(
            gates.unflatten(-1, (4, 1, units)).contiguous(),
            self.weight_hh_l0.view(4, 1, units, units),
            self.bias_hh_l0.view(4, 1, units),
            states=x.new_zeros(2, batch, 1, 1, units),
            function="lstm",
            backend="cuda_fused",
        )
        return states[0, :, :, 0].transpose(0, 1), None


class FlashGRU(nn.GRU):
    """The same for the GRU: FlashRNN's inputs stand in the order r, z, n, its products with the
    state in the order n, r, z, and r and z have one bias each."""

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        from flashrnn import flashrnn

        (_, batch, _), units = x.shape, self.hidden_size
        gates = F.linear(x, self.weight_ih_l0).transpose(0, 1).unflatten(-1, (3, 1, units))
        (b_r, b_z, b_n), (c_r, c_z, c_n) = self.bias_ih_l0.chunk(3), self.bias_hh_l0.chunk(3)
        states, _ = flashrnn(
            gates.contiguous(),
            self.weight_hh_l0.roll(units, 0).view(3, 1, units, units),
            torch.cat([c_n, b_r + c_r, b_z + c_z, b_n]).view(4, 1, units),
            states=x.new_zeros(1, batch, 1, 1, units),
            function="gru",
            backend="cuda",
        )
        return states[0, :, :, 0].transpose(0, 1), None


def installed() -> tuple[str, ...]:
    """The peers that are here."""
    return tuple(name for name, module in MODULES.items() if find_spec(module) is not None)


def absent() -> list[str]:
    """The peers that are not here, each with the reason."""
    return [f"{name}: {NOT_INSTALLED}" for name in MODULES if name not in installed()]
