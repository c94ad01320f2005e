"""The cost of a recurrent layer: ours against torch's and against the loops that people write.

On a CPU each case is measured in processes of its own; on a GPU the fused path stands against
cuDNN's layers, and `backend="auto"` decides between neighbors of what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from layernorm.lab.analysis import rounding
from layernorm.lab.benchmarks.measure import gate, memory
from layernorm.lab.benchmarks.measure.case import MEASURED, Case, Row, Trial
from layernorm.lab.benchmarks.measure.process import HUGE_PAGES, ask, measure_apart
from layernorm.lab.benchmarks.measure.words import one_of
from layernorm.lab.benchmarks.recurrent.subjects import (
    BASELINE,
    KINDS,
    LOOPS,
    ON_GPU,
    OURS,
    SUBJECTS,
    Subject,
    fill,
)

MODES = ("training", "inference")
ON_CPU = tuple(name for name in SUBJECTS["gru"] if name != ON_GPU)  # of both kinds
PAIR = (OURS, BASELINE)
EXACT = 1e-11  # error allowed in float64
# Of the analysis of rounding. Norms of many numbers hardly differ from draw to draw, and a GPU that
# is had for minutes waits for each of some ten thousand small kernels.
DRAWS = {"cpu": rounding.DRAWS, "cuda": 2}


@dataclass(frozen=True)
class RecurrentCase(Case):
    """A step of a recurrent layer on sequences of shape (T, B, I, H): steps, sequences, inputs,
    units; "training" (forward and backward with every gradient, that of x too) or "inference".

    The gate: on a CPU an implementation must agree with its definition to 1e-11 in float64; and on
    the very inputs that are timed, it may be off by what rounding does to the definition in that
    type, in whatever order it adds (`layernorm.lab.analysis.rounding`).

    Args:
        operation: "lstm" or "gru".
        threads: of the processes that measure.
        huge_pages: with `THP_MEM_ALLOC_ENABLE`.
        with_memory: also what training takes, for ours and torch's.
    """

    mode: str = "training"
    implementations: tuple[str, ...] = ON_CPU
    rounds: int = 3
    sample_seconds: float = 0.02
    processes: int = 10
    threads: int = 1
    huge_pages: bool = False
    with_memory: bool = False

    MODES: ClassVar[tuple[str, ...]] = MODES
    counts_peak: ClassVar[bool] = False
    benchmark: ClassVar[str] = "recurrent"
    baselines: ClassVar[tuple[str, ...]] = (BASELINE,)

    @property
    def options(self) -> dict[str, Any]:
        pages = "on" if self.huge_pages else "off"
        return {"kind": self.operation, "threads": self.threads, "huge_pages": pages}

    def subjects(self) -> Iterable[str]:
        """All implementations that there are."""
        return SUBJECTS[self.operation]

    def subject(self, name: str) -> Subject:
        return SUBJECTS[self.operation][name]

    def method(self, name: str) -> str:
        return self.subject(name).method

    def check(self) -> None:
        one_of("kind", self.operation, KINDS)
        for name in self.implementations:
            one_of("subjects", name, self.subjects())
        if len(self.shape) != 4 or not all(isinstance(n, int) and n > 0 for n in self.shape):
            raise ValueError(f"shape: expected four positive integers T, B, I, H, got {self.shape}")
        super().check()

    def prepare(self) -> Callable[[str], Trial]:
        owed: dict[tuple, list[gate.Expected]] = {}

        def judged(run: Run, call: Callable) -> gate.Verdict:
            if run.owes not in owed:
                owed[run.owes] = run.expected()
            return self._judged(run, call, owed[run.owes])

        def make(name: str) -> Trial:
            run = self.run(name)
            ours = run.subject is SUBJECTS[self.operation][OURS]
            told = {"path": _path(self.operation)} if ours else {}
            return Trial(run.call, lambda call: judged(run, call), told=told)

        return make

    def run(self, name: str) -> Run:
        return Run(self, name)

    def _judged(self, run: Run, call: Callable, expected: list[gate.Expected]) -> gate.Verdict:
        """In float64, then as it is timed; the verdict of the worse, or of what is wrong."""
        exact = [gate.Expected(e.name, e.value, torch.float64, EXACT) for e in expected]
        verdicts = gate.check(run.double().call(), exact), gate.check(call(), expected)
        return max(verdicts, key=lambda verdict: (bool(verdict.wrong), verdict.error))

    def measured(self) -> list[Row]:
        sizes = {}
        if self.with_memory and self.mode == "training":
            # Before anything is timed: beside a measurement nothing else may run.
            asked = [name for name in PAIR if name in self.implementations]
            sizes = {name: memory_of(self, name) for name in asked}
        rows = measure_apart(self, {HUGE_PAGES: "1"} if self.huge_pages else {})
        return [
            replace(row, held_memory=held, resident_memory=resident)
            if row.status == MEASURED and row.implementation in sizes
            else row
            for row in rows
            for held, resident in (sizes.get(row.implementation, (None, None)),)
        ]

    def training_memory(self, name: str) -> Iterator[tuple[int, int | None]]:
        """As `memory_of`, in this process."""
        small = Run(replace(self, shape=(2, 1, *self.shape[2:])), name)
        run = Run(self, name)
        small.call()  # what is set up once
        del small
        grown = memory.growth(run.call)
        yield memory.held(run.forward, [run.x, *run.module.parameters()]), grown


def memory_of(case: RecurrentCase, name: str) -> tuple[int, int | None]:
    """The memory that training takes, in bytes, seen from a new process that does nothing else.

    What the graph holds for the backward pass (`memory.held`), and by how much the process grows
    at most in three training steps; None where the system does not tell (other than Linux). The
    second counts also what an implementation keeps outside of torch's tensors, and what it needs
    for a moment.

    Raises:
        ChildProcessError: that process failed.
    """
    ((held, grown),) = ask(case, "training_memory", {}, name)
    return held, grown


@dataclass(frozen=True)
class GpuCase(RecurrentCase):
    """The fused path on a GPU against cuDNN's layer, TorchScript and the definition.

    Args:
        tf32: whether products in float32 may be rounded to TF32, in all implementations alike.
    """

    device: str = "cuda"
    rounds: int = 11
    processes: int = 1
    implementations: tuple[str, ...] = (ON_GPU, BASELINE, "script", "definition")
    tf32: bool = False

    counts_peak: ClassVar[bool] = True

    @property
    def options(self) -> dict[str, Any]:
        return {"kind": self.operation, "tf32": self.tf32}

    def subjects(self) -> dict[str, Subject]:
        return SUBJECTS[self.operation] | LOOPS[self.operation]

    def subject(self, name: str) -> Subject:
        return self.subjects()[name]

    def _judged(self, run: Run, call: Callable, expected: list[gate.Expected]) -> gate.Verdict:
        """As it is timed."""
        return gate.check(call(), expected)

    def measured(self) -> list[Row]:
        return Case.measured(self)

    @contextmanager
    def setting(self) -> Iterator[None]:
        """With or without TF32 in cuBLAS and in cuDNN, whatever was set before."""
        places = (torch.backends.cuda.matmul, torch.backends.cudnn)
        before = [place.allow_tf32 for place in places]
        try:
            for place in places:
                place.allow_tf32 = self.tf32
            yield
        finally:
            for place, was in zip(places, before, strict=True):
                place.allow_tf32 = was


class Run:
    """A module with its inputs: what is timed, and what the gate compares."""

    def __init__(self, case: RecurrentCase, name: str):
        steps, batch, inputs, units = case.shape
        self.case, self.name, self.training = case, name, case.mode == "training"
        self.subject: Subject = case.subject(name)
        self.module = self.subject.make(inputs, units).train(self.training)
        fill(self.module, units, case.seed)
        draw = torch.Generator().manual_seed(case.seed)
        self.x = torch.randn(steps, batch, inputs, generator=draw)
        self.grad_y = torch.randn(steps, batch, units, generator=draw)
        self._to(torch.device(case.device), getattr(torch, case.dtype))

    def _to(self, device: torch.device, dtype: torch.dtype) -> None:
        self.module = self.module.to(device, dtype)
        if isinstance(self.module, torch.nn.RNNBase):  # in one piece, as cuDNN wants them
            self.module.flatten_parameters()
        self.x = self.x.detach().to(device, dtype).requires_grad_(self.training)
        self.grad_y = self.grad_y.to(device, dtype)

    @property
    def owes(self) -> tuple[Any, ...]:
        """Runs of which this is the same must give the same values."""
        return self.subject.definition, *(name for name, _ in self.module.named_parameters())

    @property
    def given(self) -> tuple[Tensor, Tensor]:
        """The inputs as a call takes them, and the gradient of its outputs."""
        return self.x, self.grad_y

    def double(self) -> Run:
        """The same module and numbers in float64."""
        other = type(self)(self.case, self.name)
        other._to(self.x.device, torch.float64)
        return other

    def forward(self) -> Tensor:
        return self.module(self.x)[0]

    def call(self) -> tuple[Tensor, ...]:
        """One step as a user makes it: y, and all gradients in training."""
        if not self.training:
            with torch.no_grad():
                return (self.forward(),)
        x, grad_y = self.given
        leaves = [x, *self.module.parameters()]
        for leaf in leaves:
            leaf.grad = None
        y = self.forward()
        y.backward(grad_y)
        return y.detach(), *(leaf.grad for leaf in leaves)

    def expected(self) -> list[gate.Expected]:
        """The definition's values in float64, and how far rounding may take them in the type timed
        (TF32 rounds the factors of products to as many digits as float16 has)."""
        kind, coarse = self.x.dtype, torch.float16 if getattr(self.case, "tf32", False) else None
        exact = self._defined(torch.float64)
        draws = DRAWS[self.x.device.type]
        limits = rounding.allowance(lambda: self._defined(torch.float64), kind, coarse, draws)
        unit = rounding.unit_roundoff(kind)
        leaves = ["x", *(name for name, _ in self.module.named_parameters())]
        owed = ["y", *(f"gradient of {name}" for name in leaves)]
        return [
            gate.Expected(
                name, value, kind, unit + limit / float(value.norm()), gate.relative_distance
            )
            for name, value, limit in zip(owed, exact, limits, strict=False)
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


def _path(kind: str) -> str:
    """The way that ours goes on a CPU: "fused", or why it computes its definition."""
    try:
        SUBJECTS[kind][ON_GPU].make(2, 2)(torch.zeros(1, 1, 2))
    except ValueError as error:
        return str(error)
    return "fused"
