"""An operation on tensors and its implementations, measured against its definition in float64."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from layernorm.lab.benchmarks.measure import gate
from layernorm.lab.benchmarks.measure.byte_model import MODES, traffic
from layernorm.lab.benchmarks.measure.case import Case, Trial
from layernorm.lab.benchmarks.measure.timing import Call
from layernorm.lab.benchmarks.measure.words import one_of
from layernorm.lab.benchmarks.norms.implementations import KERNELS, NOT_PEERS, OURS, retained_graphs
from layernorm.lab.benchmarks.norms.operations import Function, Operation
from layernorm.lab.benchmarks.norms.peers import MadeAnew

PLACE = "layernorm.lab.benchmarks.norms"
MOVED, MOST = 2**28, 32  # bytes that a replayed graph moves; calls in it
OPERATIONS, PEERS_TABLE = f"{PLACE}.operations.OPERATIONS", f"{PLACE}.peers.PEERS"


@dataclass(frozen=True)
class OperationCase(Case):
    """An operation in mode "forward" (no gradients recorded), "backward" (of one recorded forward
    pass) or "forward+backward". Outputs, and gradients in a backward mode, must agree with the
    definition on the same inputs in float64, and the inputs must stay as they are.

    Args:
        source: the operation with its implementations.
        baselines: ratios are to the first of these that passes the gate. (In half precision torch's
            own norms lose digits of gradients on a CPU, where they keep means and scales in it, and
            a curve of several calls rounds more often than the gate allows.)
        graph: on a GPU, replay a CUDA graph instead of launching kernels one by one (not in
            mode "backward"): `buffers` calls, each with inputs and outputs of its own, so that no
            call finds what another one left in the cache.
    """

    source: Operation = field(default=None, compare=False)
    baselines: tuple[str, ...] = ("torch", "definition")
    graph: bool = False

    MODES = MODES

    @property
    def benchmark(self) -> str:
        """The operation; a replayed graph is another measurement."""
        return f"{self.operation}_graph" if self.graph else self.operation

    def buffers(self, traffic: int) -> int:
        """The calls in a graph: as many as move `MOVED` bytes, at most `MOST`."""
        return min(MOST, max(1, -(-MOVED // max(1, traffic)))) if self.graph else 1

    @property
    def options(self) -> dict[str, bool]:
        return {"graph": True} if self.graph else {}

    def method(self, name: str) -> str:
        return self.source.method

    def depends_on(self, name: str) -> tuple[Any, ...]:
        ours = (KERNELS[self.operation],) if name == OURS else ()
        theirs = () if name in NOT_PEERS else (PEERS_TABLE,)
        return (*super().depends_on(name), OPERATIONS, *ours, *theirs)

    def check(self) -> None:
        super().check()
        if self.mode != "forward" and not self.source.gradients:
            raise ValueError(
                f"mode: expected forward ({self.operation} has no gradients), got {self.mode!r}"
            )
        if self.graph and self.mode == "backward":  # it runs on the stream of the forward pass
            raise ValueError(
                "graph: a backward pass alone is not captured; use mode forward+backward"
            )
        if not set(self.baselines) & set(self.implementations):
            one_of("baseline", self.baselines[0], self.implementations)

    def setting(self) -> AbstractContextManager:
        stack = ExitStack()
        stack.enter_context(torch.set_grad_enabled(self.mode != "forward"))
        stack.enter_context(retained_graphs())
        return stack

    def prepare(self) -> Callable[[str], Trial]:
        return _Prepared(self, getattr(torch, self.dtype), torch.device(self.device)).trial


class ModuleCase(OperationCase):
    """The same for a method whose operation is made of its module (`operations.every`)."""

    def depends_on(self, name: str) -> tuple[Any, ...]:
        return (*super().depends_on(name), "layernorm.methods.METHODS")


class CopyCase(OperationCase):
    """The same for a copy, as large as what a norm reads and writes."""

    def depends_on(self, name: str) -> tuple[Any, ...]:
        return (*super().depends_on(name), f"{PLACE}.operations.COPY")


class _Prepared:
    """Inputs of an operation on a device, and what the definition makes of them."""

    def __init__(self, case: OperationCase, dtype: torch.dtype, device: torch.device):
        self.case, self.operation, self.mode = case, case.source, case.mode
        operation = case.source
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(case.seed)
            self.inputs = operation.make_inputs(case.shape, dtype, device)
            self.exact = {name: _exact(tensor) for name, tensor in self.inputs.items()}
            with torch.no_grad():
                outputs = _tuple(operation.oracle(**self.exact))
            self.grad_outputs = [torch.randn_like(o, dtype=dtype) for o in outputs]
        exact_grads = [grad.double() for grad in self.grad_outputs]
        values = self._call(operation.oracle, self.exact, exact_grads)()
        owed = [(f"output {i}", dtype) for i in range(len(outputs))]
        if self.mode != "forward":
            owed += [(f"gradient of {n}", self.inputs[n].dtype) for n in operation.gradients]
        self.expected = [
            self._owed(name, value, kind) for (name, kind), value in zip(owed, values, strict=True)
        ]
        saved = self.inputs if operation.saved is None else operation.saved
        self.traffic = traffic(
            self.mode,
            self.inputs.values(),
            self.grad_outputs,
            [self.inputs[name] for name in saved],
            [self.inputs[name] for name in operation.gradients],
        )

    def _owed(self, name: str, value: Tensor, kind: torch.dtype) -> gate.Expected:
        """As close as rounding allows; the gradient of a single number is one sum over all x."""
        tolerance, parameter = self.operation.tolerance, name.removeprefix("gradient of ")
        if parameter == name or value.dim():
            return gate.Expected(
                name, value, kind, tolerance(kind, self.operation.length(self.case.shape))
            )
        terms = self._terms(parameter)
        measure = gate.error_of_sum(terms)
        return gate.Expected(name, value, kind, tolerance(kind, terms.numel()), measure)

    def _terms(self, parameter: str) -> Tensor:
        """dy ∂y/∂p of every element of y. Their sum is linear in dy, so its gradient is ∂y/∂p."""
        p = self.exact[parameter].clone().requires_grad_()
        grads = [grad.double().requires_grad_() for grad in self.grad_outputs]
        with torch.enable_grad():
            outputs = _tuple(self.operation.oracle(**{**self.exact, parameter: p}))
            (total,) = torch.autograd.grad(outputs, p, grads, create_graph=True)
        slopes = torch.autograd.grad(total, grads)
        pairs = zip(grads, slopes, strict=True)
        return torch.cat([(grad.detach() * slope).flatten() for grad, slope in pairs])

    def trial(self, name: str) -> Trial:
        """The implementation of a name, made ready."""
        function = self.operation.implementations[name]
        function = function.make() if isinstance(function, MadeAnew) else function
        count = self.case.buffers(self.traffic)
        inputs = [self.inputs, *(self._another() for _ in range(count - 1))]
        calls = [self._call(function, each, self.grad_outputs) for each in inputs]
        call = calls[0] if count == 1 else lambda: [call() for call in calls]
        return Trial(call, self._judge, self.traffic, count)

    def _another(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.inputs.items()}

    def _judge(self, call: Call) -> gate.Verdict:
        """The worst of all calls."""
        try:
            got = call()
            every = got if isinstance(got, list) else [got]
            verdicts = [gate.check(each, self.expected) for each in every]
        finally:
            changed = self._restore()
        verdict = max(verdicts, key=lambda one: (bool(one.wrong), one.error))
        return verdict if verdict.wrong else gate.Verdict(verdict.error, changed)

    def _call(self, function: Function, inputs: dict[str, Tensor], grads: list[Tensor]) -> Call:
        """The call that is timed: () -> outputs, and gradients in a backward mode."""
        if self.mode == "forward":
            return lambda: _tuple(function(**inputs))
        wanted = self.operation.gradients
        leaves = {n: t.detach().requires_grad_(n in wanted) for n, t in inputs.items()}
        sources = [leaves[name] for name in wanted]
        if self.mode == "backward":
            recorded = _tuple(function(**leaves))
            return lambda: (
                *recorded,
                *torch.autograd.grad(recorded, sources, grads, retain_graph=True),
            )

        def both() -> tuple[Tensor, ...]:
            outputs = _tuple(function(**leaves))
            return *outputs, *torch.autograd.grad(outputs, sources, grads)

        return both

    def _restore(self) -> str:
        """Undo what an implementation did to the inputs; says what ("": nothing)."""
        changed = [n for n, t in self.inputs.items() if not torch.equal(_exact(t), self.exact[n])]
        for name in changed:
            self.inputs[name].copy_(self.exact[name])
        return f"changes its input {', '.join(changed)}" if changed else ""


def _exact(tensor: Tensor) -> Tensor:
    """A copy, in float64 if it holds real numbers."""
    dtype = torch.float64 if tensor.is_floating_point() else tensor.dtype
    return tensor.detach().to(dtype, copy=True)


def _tuple(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
