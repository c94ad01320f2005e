"""The recurrent layers that `layernorm bench recurrent` compares, as loops over time.

Each loop says, in a line or two per step, what a fast layer must compute; in float64 it is the
oracle of the benchmark's gate. Parameters are passed by the names that torch's modules give them.
The initial state is zero, gates stand in torch's order.
"""

import inspect
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from layernorm import functional

Loop = Callable[..., Tensor]


def ln_lstm(x: Tensor, weight_ih_l0, weight_hh_l0, bias_ih_l0, **norms: Tensor) -> Tensor:
    """LN-LSTM, eqs. (20)-(22): `functional.ln_lstm_step`, T times."""
    h = c = x.new_zeros(x.shape[1], weight_hh_l0.shape[1])
    pairs = [(norms[f"ln_{n}_weight_l0"], norms[f"ln_{n}_bias_l0"]) for n in ("ih", "hh", "c")]
    outputs = []
    for x_t in x:
        h, c = functional.ln_lstm_step(x_t, h, c, weight_ih_l0, weight_hh_l0, bias_ih_l0, *pairs)
        outputs.append(h)
    return torch.stack(outputs)


def ln_gru(x: Tensor, weight_ih_l0, weight_hh_l0, bias_ih_l0, **norms: Tensor) -> Tensor:
    """LN-GRU, eqs. (26)-(28), z as in torch: `functional.ln_gru_step`, T times."""
    h = x.new_zeros(x.shape[1], weight_hh_l0.shape[1])
    pairs = [(norms[f"ln_{n}_weight_l0"], norms[f"ln_{n}_bias_l0"]) for n in ("ih", "hh")]
    outputs = []
    for x_t in x:
        h = functional.ln_gru_step(x_t, h, weight_ih_l0, weight_hh_l0, bias_ih_l0, *pairs)
        outputs.append(h)
    return torch.stack(outputs)


def lstm(x: Tensor, weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0=None) -> Tensor:
    """The LSTM without norms, eqs. (17)-(19) with h' = o tanh(c'): what `nn.LSTM` computes;
    its second bias may be left out."""
    h = c = x.new_zeros(x.shape[1], weight_hh_l0.shape[1])
    outputs = []
    for x_t in x:
        gates = F.linear(x_t, weight_ih_l0, bias_ih_l0) + F.linear(h, weight_hh_l0, bias_hh_l0)
        i, f, g, o = gates.chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs)


def gru(x: Tensor, weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0=None) -> Tensor:
    """The GRU without norms, reset after the product: what `nn.GRU` computes; its second bias
    may be left out."""
    h = x.new_zeros(x.shape[1], weight_hh_l0.shape[1])
    outputs = []
    for x_t in x:
        r_x, z_x, n_x = F.linear(x_t, weight_ih_l0, bias_ih_l0).chunk(3, dim=-1)
        r_h, z_h, n_h = F.linear(h, weight_hh_l0, bias_hh_l0).chunk(3, dim=-1)
        z = torch.sigmoid(z_x + z_h)
        n = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
        h = (1 - z) * n + z * h
        outputs.append(h)
    return torch.stack(outputs)


def carried_lstm(x: Tensor, weight_ih_l0, weight_hh_l0, **norms: Tensor) -> Tensor:
    """The LN-LSTM of PyTorch's TorchScript example: no bias outside the norms, and the normalized
    cell is the state (variant `carried`): c' = LN(f c + i g), h' = o tanh(c')."""
    h = c = x.new_zeros(x.shape[1], weight_hh_l0.shape[1])

    def norm(name: str, a: Tensor) -> Tensor:
        gain, bias = norms[f"ln_{name}_weight_l0"], norms[f"ln_{name}_bias_l0"]
        return functional.layer_norm(a, a.shape[-1:], gain, bias)

    outputs = []
    for x_t in x:
        gates = norm("ih", x_t @ weight_ih_l0.T) + norm("hh", h @ weight_hh_l0.T)
        i, f, g, o = gates.chunk(4, dim=-1)
        c = norm("c", torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g))
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs)


def written_lstm(
    x: Tensor,
    weight_ih_l0: Tensor,
    weight_hh_l0: Tensor,
    ln_ih_weight_l0: Tensor,
    ln_ih_bias_l0: Tensor,
    ln_hh_weight_l0: Tensor,
    ln_hh_bias_l0: Tensor,
    ln_c_weight_l0: Tensor,
    ln_c_bias_l0: Tensor,
) -> Tensor:
    """`carried_lstm` as people write it, with torch's own norm, step by step: the layer of
    pytorch's `benchmarks/fastrnns/custom_lstms.py`, in our words. TorchScript can compile it."""
    gates, hidden = weight_hh_l0.size(0), weight_hh_l0.size(1)
    h = torch.zeros([x.size(1), hidden], dtype=x.dtype, device=x.device)
    c = h
    outputs = []
    for x_t in x.unbind(0):
        a_x = torch.mm(x_t, weight_ih_l0.t())
        a_h = torch.mm(h, weight_hh_l0.t())
        a = torch.layer_norm(a_x, [gates], ln_ih_weight_l0, ln_ih_bias_l0) + torch.layer_norm(
            a_h, [gates], ln_hh_weight_l0, ln_hh_bias_l0
        )
        i, f, g, o = a.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        c = torch.layer_norm(c, [hidden], ln_c_weight_l0, ln_c_bias_l0)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs)


def written_gru(
    x: Tensor,
    weight_ih_l0: Tensor,
    weight_hh_l0: Tensor,
    bias_ih_l0: Tensor,
    ln_ih_weight_l0: Tensor,
    ln_ih_bias_l0: Tensor,
    ln_hh_weight_l0: Tensor,
    ln_hh_bias_l0: Tensor,
) -> Tensor:
    """`ln_gru`, written like `written_lstm`."""
    hidden = weight_hh_l0.size(1)
    both = 2 * hidden
    h = torch.zeros([x.size(1), hidden], dtype=x.dtype, device=x.device)
    outputs = []
    for x_t in x.unbind(0):
        a_x = torch.mm(x_t, weight_ih_l0.t())
        a_h = torch.mm(h, weight_hh_l0.t())
        r, z = (
            torch.layer_norm(a_x[:, :both], [both], ln_ih_weight_l0[:both], ln_ih_bias_l0[:both])
            + torch.layer_norm(a_h[:, :both], [both], ln_hh_weight_l0[:both], ln_hh_bias_l0[:both])
            + bias_ih_l0[:both]
        ).chunk(2, 1)
        n_x = torch.layer_norm(
            a_x[:, both:], [hidden], ln_ih_weight_l0[both:], ln_ih_bias_l0[both:]
        )
        n_h = torch.layer_norm(
            a_h[:, both:], [hidden], ln_hh_weight_l0[both:], ln_hh_bias_l0[both:]
        )
        n = torch.tanh(n_x + bias_ih_l0[both:] + torch.sigmoid(r) * n_h)
        z = torch.sigmoid(z)
        h = (1 - z) * n + z * h
        outputs.append(h)
    return torch.stack(outputs)


def script(function: Loop) -> Loop:
    """Compiled by TorchScript, which newer versions of torch call deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        return torch.jit.script(inspect.unwrap(function))
