"""An independent recurrent net: one sequence, one vector, one gate at a time, written from the
paper's equations with torch's own layer norm. Slow, differentiable, without padding or batches."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import layernorm
from layernorm.recurrent import cpu
from layernorm.recurrent.variants import VARIANTS

LAYERS = {
    "lstm": layernorm.LayerNormLSTM,
    "gru": layernorm.LayerNormGRU,
    "rnn": layernorm.LayerNormRNN,
}
TORCHS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


def backends(kind: str, projection: bool = False) -> tuple[str, ...]:
    """Those that compute such a net, wherever their library can be built."""
    unsupported = cpu.unsupported(kind, "cpu", torch.float64, projection)
    return ("reference",) if unsupported else ("reference", "fused")


def usable(backend: str) -> str:
    """The backend; the test is skipped where the fused path's library cannot be built."""
    if backend == "fused" and cpu.missing():
        pytest.skip(cpu.missing())
    return backend


NETS = [(kind, backend) for kind in LAYERS for backend in backends(kind)]


def shaken(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module with every parameter drawn anew: gains and biases that do something."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            gain = name.startswith("ln_") and "_weight" in name
            noise = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            p.copy_(float(gain) + 0.4 * noise)
    return module


class Vectors:
    """The parameters of one layer and direction, and the norms by name."""

    def __init__(self, parameters: dict[str, Tensor], suffix: str, eps: float) -> None:
        self.parameters, self.suffix, self.eps = parameters, suffix, eps

    def get(self, name: str) -> Tensor:
        return self.parameters[name + self.suffix]

    def has(self, name: str) -> bool:
        return name + self.suffix in self.parameters

    def norm(self, a: Tensor, name: str, start: int = 0) -> Tensor:
        """LN of the vector a with the gains and biases from `start` on."""
        end = start + len(a)
        gain = self.get(f"{name}_weight")[start:end]
        bias = self.get(f"{name}_bias")[start:end] if self.has(f"{name}_bias") else None
        return F.layer_norm(a, (len(a),), gain, bias, self.eps)


def lstm_step(x, h, c, p: Vectors, variant: str):
    size = len(c)
    a_x, a_h = p.get("weight_ih") @ x, p.get("weight_hh") @ h
    b = p.get("bias_ih") if p.has("bias_ih") else torch.zeros_like(a_x)
    if variant in ("paper", "carried"):
        a = p.norm(a_x, "ln_ih") + p.norm(a_h, "ln_hh")
    elif variant == "joint":
        a = p.norm(a_x + a_h, "ln_hh")
    elif variant == "per_gate":
        summed = a_x + a_h
        starts = range(0, 4 * size, size)
        a = torch.cat([p.norm(summed[k : k + size], "ln_hh", k) for k in starts])
    else:
        a = a_x + a_h
    i, f, g, o = ((a + b)[k * size : (k + 1) * size] for k in range(4))
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    normalized = p.norm(c, "ln_c")
    h = o.sigmoid() * normalized.tanh()
    if p.has("weight_hr"):
        h = p.get("weight_hr") @ h
    return h, (normalized if variant in ("carried", "per_gate") else c)


def gru_step(x, h, p: Vectors, variant: str = "paper"):
    size = len(h)
    a_x, a_h = p.get("weight_ih") @ x, p.get("weight_hh") @ h
    b = p.get("bias_ih") if p.has("bias_ih") else torch.zeros_like(a_x)
    cut = 2 * size
    if variant == "joint":
        a = p.norm(a_x + a_h, "ln_hh")
        r, z = (a[k : k + size] + b[k : k + size] for k in (0, size))
        n = (a[cut:] * r.sigmoid() + b[cut:]).tanh()
        return (n + z.sigmoid() * (h - n),)
    if variant == "per_gate":
        r, z = (p.norm((a_x + a_h)[k : k + size], "ln_hh", k) + b[k : k + size] for k in (0, size))
        n = p.norm(a_x[cut:] + r.sigmoid() * a_h[cut:], "ln_hh", cut) + b[cut:]
        return (n.tanh() + z.sigmoid() * (h - n.tanh()),)
    if variant == "stacked":
        u, v = p.norm(a_h, "ln_hh"), p.norm(a_x, "ln_ih") + b
        r, z = (u + v)[:size].sigmoid(), (u + v)[size:cut].sigmoid()
        n = (v[cut:] + r * u[cut:]).tanh()
        return (n + z * (h - n),)
    gates = p.norm(a_x[:cut], "ln_ih") + p.norm(a_h[:cut], "ln_hh") + b[:cut]
    r, z = gates[:size].sigmoid(), gates[size:].sigmoid()
    n = p.norm(a_x[cut:], "ln_ih", cut) + b[cut:] + r * p.norm(a_h[cut:], "ln_hh", cut)
    return (n.tanh() + z * (h - n.tanh()),)


def rnn_step(x, h, p: Vectors, nonlinearity: str):
    a = p.norm(p.get("weight_ih") @ x + p.get("weight_hh") @ h, "ln")
    return (a.tanh() if nonlinearity == "tanh" else a.clamp(min=0),)


def net(module: nn.Module, sequences: list[Tensor], initial: list[Tensor]):
    """All layers and directions over each sequence (T, I) by itself, without dropout.

    `initial`: a tensor (L D, B, ...) for each state. Returns the outputs, one (T, D P) for each
    sequence, and the last states, stacked like `initial`."""
    parameters = dict(module.named_parameters())
    step = {
        4: lambda x, s, p: lstm_step(x, *s, p, module.variant),
        3: lambda x, s, p: gru_step(x, *s, p, getattr(module, "variant", "paper")),
        1: lambda x, s, p: rnn_step(x, *s, p, module.nonlinearity),
    }[module.gates]
    directions = ("", "_reverse") if module.bidirectional else ("",)
    outputs, last = [], []
    for b, rows in enumerate(sequences):
        ends = []
        for layer, rev in itertools.product(range(module.num_layers), range(len(directions))):
            if rev == 0:
                below, rows = rows, []
            p = Vectors(parameters, f"_l{layer}{directions[rev]}", module.eps)
            states = tuple(s[len(ends), b] for s in initial)
            seen = []
            for x in reversed(list(below)) if rev else below:
                states = step(x, states, p)
                seen.append(states[0])
            rows.append(torch.stack(seen[::-1] if rev else seen))
            ends.append(states)
            if rev == len(directions) - 1:
                rows = torch.cat(rows, 1)
        outputs.append(rows)
        last.append([torch.stack(s) for s in zip(*ends, strict=True)])
    return outputs, [torch.stack(s, 1) for s in zip(*last, strict=True)]


__all__ = ["LAYERS", "NETS", "TORCHS", "VARIANTS", "backends", "net", "shaken", "usable"]
