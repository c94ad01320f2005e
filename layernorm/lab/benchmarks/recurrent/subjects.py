"""The implementations that `layernorm bench recurrent` compares, and their parameters."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from layernorm.lab.benchmarks.recurrent import loops, peers
from layernorm.recurrent import LayerNormGRU, LayerNormLSTM, fused
from layernorm.recurrent.gpu.choice import asked

OURS, ON_GPU, BASELINE, WITHOUT = "ours", "fused", "torch", "no norms"
RECURRENT_GAIN = 0.5  # see `fill`


class Looped(nn.Module):
    """A loop of `loops` with parameters of its own for one layer; x -> (y, None)."""

    def __init__(self, loop: loops.Loop, gates: int, names: str, input_size: int, units: int):
        super().__init__()
        self.loop = loop
        for name in names.split():
            rows = units if name.startswith("ln_c") else gates * units
            columns = {"weight_ih": (input_size,), "weight_hh": (units,)}.get(name, ())
            self.register_parameter(f"{name}_l0", nn.Parameter(torch.empty(rows, *columns)))

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return self.loop(x, **self._parameters), None


class WithoutNorms(nn.Module):
    """Our C++ in its form without norms, one bias: x (T, B, I) -> (y (T, B, H), None)."""

    def __init__(self, kind: str, input_size: int, units: int):
        super().__init__()
        gates = {"lstm": 4, "gru": 3}[kind]
        self.kind, self.units = kind, units
        self.weight_ih_l0 = nn.Parameter(torch.empty(gates * units, input_size))
        self.weight_hh_l0 = nn.Parameter(torch.empty(gates * units, units))
        self.bias_ih_l0 = nn.Parameter(torch.empty(gates * units))

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        from layernorm.recurrent.cpu import operators  # registers itself with torch, in a second

        steps, batch, inputs = x.shape
        rows, zeros = x.reshape(steps * batch, inputs), x.new_zeros(batch, self.units)
        weights = self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0
        keep = fused.recorded((rows, *weights))
        if self.kind == "lstm":
            norms, form = [None] * 6, (0.0, "cell_only", False, keep)
            y, *_ = operators.lstm(rows, zeros, zeros, *weights, *norms, None, *form)
        else:
            y, *_ = operators.gru(rows, zeros, *weights, *[None] * 4, None, 0.0, False, keep)
        return y.view(steps, batch, self.units), None


@dataclass(frozen=True)
class Subject:
    """One implementation.

    Args:
        make: (input size, hidden size) -> module, which maps x (T, B, I) to (y, anything).
        definition: the loop it must agree with, called with the module's parameters by name.
        method: name in the table of methods; "none" computes another function, without norms.
    """

    make: Callable[[int, int], nn.Module]
    definition: loops.Loop
    method: str = "layer"


def _looped(loop: loops.Loop, gates: int, names: str, compiled: bool = False) -> Callable:
    def make(input_size: int, units: int) -> nn.Module:
        chosen = loops.script(loop) if compiled else loop
        return Looped(chosen, gates, names, input_size, units)

    return make


_NORMS = "ln_ih_weight ln_ih_bias ln_hh_weight ln_hh_bias"
_CARRIED = f"weight_ih weight_hh {_NORMS} ln_c_weight ln_c_bias"
_GRU = f"weight_ih weight_hh bias_ih {_NORMS}"
_PLAIN = "weight_ih weight_hh bias_ih"
# "loop" is what people write, "script" the same compiled by TorchScript, "plain loop" a loop
# without norms, written alike, with one bias (the norms have their own): what the norms themselves
# cost in a loop. "no norms" is our C++ in its form without any: what they cost in the kernel.
# Peers stand in the same table: a record depends on the row that it measured alone.
SUBJECTS: dict[str, dict[str, Subject]] = {
    "lstm": {
        OURS: Subject(LayerNormLSTM, loops.ln_lstm),
        ON_GPU: Subject(partial(LayerNormLSTM, backend="fused"), loops.ln_lstm),
        BASELINE: Subject(nn.LSTM, loops.lstm, "none"),
        WITHOUT: Subject(partial(WithoutNorms, "lstm"), loops.lstm, "none"),
        "loop": Subject(_looped(loops.written_lstm, 4, _CARRIED), loops.carried_lstm),
        "script": Subject(_looped(loops.written_lstm, 4, _CARRIED, True), loops.carried_lstm),
        "definition": Subject(partial(LayerNormLSTM, backend="reference"), loops.ln_lstm),
        "plain loop": Subject(_looped(loops.lstm, 4, _PLAIN), loops.lstm, "none"),
        "haste": Subject(peers.haste, peers.haste_lstm),
        "flashrnn": Subject(peers.FlashLSTM, loops.lstm, "none"),
    },
    "gru": {
        OURS: Subject(LayerNormGRU, loops.ln_gru),
        ON_GPU: Subject(partial(LayerNormGRU, backend="fused"), loops.ln_gru),
        BASELINE: Subject(nn.GRU, loops.gru, "none"),
        WITHOUT: Subject(partial(WithoutNorms, "gru"), loops.gru, "none"),
        "loop": Subject(_looped(loops.written_gru, 3, _GRU), loops.ln_gru),
        "script": Subject(_looped(loops.written_gru, 3, _GRU, True), loops.ln_gru),
        "definition": Subject(partial(LayerNormGRU, backend="reference"), loops.ln_gru),
        "plain loop": Subject(_looped(loops.gru, 3, _PLAIN), loops.gru, "none"),
        "haste": Subject(peers.haste_norm_gru, peers.haste_gru),
        "flashrnn": Subject(peers.FlashGRU, loops.gru, "none"),
    },
}
KINDS = tuple(SUBJECTS)
PERSISTENT = "persistent"


def _by_loop(layer: type[nn.Module], persistent: bool) -> Callable:
    """The fused path with one of its two loops over time on a GPU."""

    def make(input_size: int, units: int) -> nn.Module:
        module = layer(input_size, units, backend="fused")
        forward = module.forward

        def call(x: Tensor) -> tuple:
            with asked(persistent):
                return forward(x)

        module.forward = call
        return module

    return make


# On a GPU: two launches a step, or all steps in one. A user's layer chooses by records of the two.
LOOPS = {
    kind: {
        ON_GPU: Subject(_by_loop(layer, False), loop),
        PERSISTENT: Subject(_by_loop(layer, True), loop),
    }
    for kind, layer, loop in (
        ("lstm", LayerNormLSTM, loops.ln_lstm),
        ("gru", LayerNormGRU, loops.ln_gru),
    )
}


def fill(module: nn.Module, units: int, seed: int) -> None:
    """Draw all parameters: the same values for the same seed, name and shape, in any module.

    Weights as torch draws them, gains near 1, biases near 0, the gain of LN(W_h h) near 0.5. At
    gain 1 a layer-normalized LSTM with random weights is chaotic: the difference between two
    roundings doubles every few steps, and after some hundred steps of float32 no digit is left
    that could be compared. Times do not depend on it.
    """
    for name, parameter in module.named_parameters():
        generator = torch.Generator().manual_seed(seed + zlib.crc32(name.encode()))
        if name.startswith("weight"):
            value = (2 * torch.rand(parameter.shape, generator=generator) - 1) / units**0.5
        else:
            value = 0.1 * torch.randn(parameter.shape, generator=generator)
            value += float(name.startswith("ln_") and "_weight" in name)
            value *= RECURRENT_GAIN if name.startswith("ln_hh_weight") else 1
        parameter.data.copy_(value)
