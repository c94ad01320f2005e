"""What a recurrent layer costs: ours against torch's and against the loops that people write.

from layernorm.lab.benchmarks import recurrent
recurrent.measure("lstm", (50, 32, 128, 128))          # rows, for T, B, I, H
`layernorm bench recurrent` measures all shapes, in processes of their own (`processes`).
"""

from __future__ import annotations

import difflib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from layernorm.lab.benchmarks import gate, loops
from layernorm.lab.benchmarks.harness import times
from layernorm.lab.benchmarks.report import MEASURED, Row
from layernorm.lab.benchmarks.timing import CpuTimer, Timer, interleaved
from layernorm.recurrent import LayerNormGRU, LayerNormLSTM, cpu

Shape = tuple[int, int, int, int]  # T steps, B sequences, I inputs, H units
MODES = ("training", "inference")
SHAPES: tuple[Shape, ...] = (
    (50, 32, 128, 128),
    (100, 64, 256, 256),
    (100, 8, 400, 400),
    (200, 4, 512, 512),
    (64, 128, 256, 256),
    (784, 32, 1, 100),
    (37, 5, 61, 203),  # awkward: nothing is a multiple of a vector's length
    (300, 1, 300, 130),  # awkward: one sequence, so that threads cannot share the batch
)
OURS, BASELINE = "ours", "torch"
EXACT = 1e-11  # error allowed in float64
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
_PLAIN = "weight_ih weight_hh bias_ih bias_hh"
# "loop" is what people write, "script" the same compiled by TorchScript, "plain loop" a loop
# without norms, written alike: what the norms themselves cost.
SUBJECTS: dict[str, dict[str, Subject]] = {
    "lstm": {
        OURS: Subject(LayerNormLSTM, loops.ln_lstm),
        BASELINE: Subject(nn.LSTM, loops.lstm, "none"),
        "loop": Subject(_looped(loops.written_lstm, 4, _CARRIED), loops.carried_lstm),
        "script": Subject(_looped(loops.written_lstm, 4, _CARRIED, True), loops.carried_lstm),
        "definition": Subject(partial(LayerNormLSTM, backend="reference"), loops.ln_lstm),
        "plain loop": Subject(_looped(loops.lstm, 4, _PLAIN), loops.lstm, "none"),
    },
    "gru": {
        OURS: Subject(LayerNormGRU, loops.ln_gru),
        BASELINE: Subject(nn.GRU, loops.gru, "none"),
        "loop": Subject(_looped(loops.written_gru, 3, _GRU), loops.ln_gru),
        "script": Subject(_looped(loops.written_gru, 3, _GRU, True), loops.ln_gru),
        "definition": Subject(partial(LayerNormGRU, backend="reference"), loops.ln_gru),
        "plain loop": Subject(_looped(loops.gru, 3, _PLAIN), loops.gru, "none"),
    },
}
KINDS = tuple(SUBJECTS)


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


def measure(
    kind: str,
    shape: Sequence[int],
    mode: str = "training",
    subjects: Iterable[str] | None = None,
    *,
    rounds: int = 15,
    sample_seconds: float = 0.02,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    timer: Timer | None = None,
) -> list[Row]:
    """One row for each implementation: those that agree with their definition are timed in turns.

    The gate: in float64 an implementation must agree with its definition to 1e-11; in float32, on
    the very inputs that are timed, to four times the error that the definition's loop makes in
    float32 itself, plus `gate.tolerance`. (The largest of some 100,000 errors scatters: two
    programs whose errors have the same rms differ by up to three in it.) It is asked again after
    the timing.

    Args:
        kind: "lstm" or "gru".
        shape: (T, B, I, H): steps, sequences, inputs, units.
        mode: "training" (forward and backward with every gradient, that of x too) or "inference".
        subjects: names in `SUBJECTS[kind]`; None: all. Ratios are to "torch", if it is among them.
        options: entries added to the rows' options. (Those have `path`: "fused", or why ours ran
            its definition.)

    Raises:
        ValueError: naming the argument, what was expected and what came.
    """
    one_of("kind", kind, KINDS)
    one_of("mode", mode, MODES)
    names = list(SUBJECTS[kind] if subjects is None else subjects)
    for name in names:
        one_of("subjects", name, tuple(SUBJECTS[kind]))
    if len(shape) != 4 or not all(isinstance(n, int) and n > 0 for n in shape):
        raise ValueError(f"shape: expected four positive integers T, B, I, H, got {tuple(shape)}")
    if rounds < 6:
        raise ValueError(f"rounds: expected at least 6, for a 95% interval; got {rounds}")
    shape = tuple(shape)
    expected: dict[loops.Loop, list[gate.Expected]] = {}
    rows, runs = {}, {}
    path = {"path": cpu.refusal(kind, "cpu", torch.float32) or "fused"} if OURS in names else {}
    for name in names:
        subject = SUBJECTS[kind][name]
        rows[name] = Row(
            "recurrent", subject.method, name, BASELINE, mode, shape, "float32", "cpu", seed, "",
            options={"kind": kind, "rounds": rounds, **path, **(options or {})},
        )  # fmt: skip
        try:
            run = _Run(subject, shape, mode, seed)
            if subject.definition not in expected:
                expected[subject.definition] = run.expected()
            verdict = run.judge(expected[subject.definition])
        except Exception as error:  # of any kind: another version of torch may lack something
            rows[name] = replace(rows[name], status=f"failed: {type(error).__name__}: {error}")
            continue
        status = f"wrong: {verdict.wrong}" if verdict.wrong else MEASURED
        rows[name] = replace(rows[name], status=status, error=verdict.error)
        if not verdict.wrong:
            runs[name] = run
    calls = {name: run.call for name, run in runs.items()}
    samples = interleaved(timer or CpuTimer(), calls, rounds, sample_seconds)
    wrong = {name: run.judge(expected[run.subject.definition]).wrong for name, run in runs.items()}
    reference = None if wrong.get(BASELINE, "absent") else samples[BASELINE]
    for name in runs:
        if wrong[name]:
            rows[name] = replace(rows[name], status=f"wrong after timing: {wrong[name]}")
            continue
        rows[name] = replace(rows[name], **times(samples[name], reference))
    return list(rows.values())


class _Run:
    """A module with its inputs: what is timed, and what the gate compares."""

    def __init__(self, subject: Subject, shape: Shape, mode: str, seed: int):
        steps, batch, inputs, units = shape
        self.subject, self.shape, self.training = subject, shape, mode == "training"
        self.module = subject.make(inputs, units).train(self.training)
        fill(self.module, units, seed)
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(steps, batch, inputs, generator=generator)
        self.x = x.requires_grad_(self.training)
        self.grad_y = torch.randn(steps, batch, units, generator=generator)

    def forward(self) -> Tensor:
        return self.module(self.x)[0]

    def call(self) -> tuple[Tensor, ...]:
        """One step as a user makes it: y, and all gradients in training."""
        if not self.training:
            with torch.no_grad():
                return (self.forward(),)
        leaves = [self.x, *self.module.parameters()]
        for leaf in leaves:
            leaf.grad = None
        y = self.forward()
        y.backward(self.grad_y)
        return y.detach(), *(leaf.grad for leaf in leaves)

    def expected(self) -> list[gate.Expected]:
        """The definition's values in float64, and what its loop loses in float32."""
        exact, rounded = self._defined(torch.float64), self._defined(torch.float32)
        leaves = ["x", *(name for name, _ in self.module.named_parameters())]
        owed = ["y", *(f"gradient of {name}" for name in leaves)]
        floor = gate.tolerance(torch.float32, self.shape[0] * self.shape[1])
        return [
            gate.Expected(name, value, value32.dtype, floor + 4 * error)
            for name, value, value32 in zip(owed, exact, rounded, strict=False)
            for error in (gate.relative_error(value32, value),)
        ]

    def _defined(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        x = self.x.detach().to(dtype).requires_grad_(self.training)
        leaves = {
            name: parameter.detach().to(dtype).requires_grad_(self.training)
            for name, parameter in self.module.named_parameters()
        }
        y = self.subject.definition(x, **leaves)
        if not self.training:
            return (y,)
        return y.detach(), *torch.autograd.grad(y, [x, *leaves.values()], self.grad_y.to(dtype))

    def judge(self, expected: list[gate.Expected]) -> gate.Verdict:
        """In float64, then in float32; the verdict of the worse, or of the first that is wrong."""
        double = _Run(self.subject, self.shape, "training" if self.training else "inference", 0)
        double.module = self.subject.make(*self.shape[2:]).double()
        double.module.load_state_dict(self.module.state_dict())
        double.x = self.x.detach().double().requires_grad_(self.training)
        double.grad_y = self.grad_y.double()
        exact = [replace(e, dtype=torch.float64, allowed=EXACT) for e in expected]
        verdicts = gate.check(double.call(), exact), gate.check(self.call(), expected)
        return max(verdicts, key=lambda verdict: (bool(verdict.wrong), verdict.error))


def one_of(argument: str, value: str, known: Iterable[str]) -> str:
    """The value, if it is known.

    Raises:
        ValueError: it is not; the message names what is known, or what was probably meant.
    """
    known = list(known)
    if value not in known:
        near = difflib.get_close_matches(value, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{argument}: expected one of {', '.join(known)}, got {value!r}{hint}")
    return value
