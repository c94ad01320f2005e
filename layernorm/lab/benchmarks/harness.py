"""Measure implementations of one operation against each other, against an oracle and a roof."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from layernorm.lab.benchmarks import gate, memory
from layernorm.lab.benchmarks.byte_model import MODES, traffic
from layernorm.lab.benchmarks.report import MEASURED, NO_DEVICE, Row
from layernorm.lab.benchmarks.roof import copy_bandwidth
from layernorm.lab.benchmarks.timing import (
    Call,
    Timer,
    interleaved,
    median_interval,
    spread,
    timer_for,
)

Shape = tuple[int, ...]
Function = Callable[..., Tensor | tuple[Tensor, ...]]


@dataclass(frozen=True)
class Benchmark:
    """One thing to measure.

    Args:
        name: lower-case letters, digits and underscores.
        make_inputs: (shape, dtype, device) -> {name: tensor}, drawn from torch's seeded generator.
        implementations: {name: function of these inputs by name, returning a tensor or a tuple};
            the first is what the others' times are divided by, unless `measure` is told otherwise.
        oracle: the definition; it is called with the inputs in float64.
        length: shape -> how many terms the longest sum has, which scales the tolerance.
        gradients: inputs whose gradients are taken and checked in the backward modes.
        saved: inputs that the backward pass must read (byte model); None: all.
        method: name in the table of methods, for records.
        tolerance: (dtype, length) -> relative error that passes the gate.
    """

    name: str
    make_inputs: Callable[[Shape, torch.dtype, torch.device], dict[str, Tensor]]
    implementations: Mapping[str, Function]
    oracle: Function
    length: Callable[[Shape], int]
    gradients: tuple[str, ...] = ()
    saved: tuple[str, ...] | None = None
    method: str = "none"
    tolerance: gate.Tolerance = gate.tolerance


def measure(
    benchmark: Benchmark,
    shape: Shape,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    mode: str = "forward",
    *,
    baseline: str | None = None,
    rounds: int = 20,
    sample_seconds: float = 1e-3,
    graph: bool = False,
    seed: int = 0,
    timer: Timer | None = None,
    roof: float | None = None,
) -> list[Row]:
    """One row per implementation; a wrong one is named as such and not timed.

    First each implementation's outputs, and gradients in a backward mode, must agree with the
    oracle on the same inputs in float64, and must leave the inputs as they are. Those that pass
    are timed in turns, `rounds` times, each sample long enough for the clock, and checked again.

    Args:
        mode: "forward" (no gradients recorded), "backward" (of one recorded forward pass) or
            "forward+backward".
        baseline: the implementation whose time the others' are divided by.
        rounds: samples of each implementation, at least 6.
        sample_seconds: least duration of a sample.
        graph: on a GPU, replay a CUDA graph instead of launching kernels one by one (not in
            mode "backward").
        timer: another clock than the device's own.
        roof: bytes per second, if known; measured here otherwise.

    Raises:
        ValueError: an argument is out of range; says which and what was expected.
    """
    device = torch.device(device)
    baseline = baseline or next(iter(benchmark.implementations))
    _check(benchmark, device, mode, baseline, rounds, graph)
    blank = Row(
        benchmark.name,
        benchmark.method,
        "",
        baseline,
        mode,
        tuple(shape),
        str(dtype).removeprefix("torch."),
        str(device),
        seed,
        NO_DEVICE,
    )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        return [replace(blank, implementation=name) for name in benchmark.implementations]
    timer = timer or timer_for(device, graph)
    with torch.set_grad_enabled(mode != "forward"):
        bench = _Prepared(benchmark, blank, dtype, device, seed)
        rows, calls = {}, {}
        for name, function in benchmark.implementations.items():
            rows[name], calls[name] = bench.admit(name, function, timer)
        calls = {name: call for name, call in calls.items() if call is not None}
        roof = roof or copy_bandwidth(device, dtype, bench.traffic, timer)
        samples = interleaved(timer, calls, rounds, sample_seconds)
        for name, call in list(calls.items()):
            if wrong := bench.judge(call()).wrong:
                rows[name] = replace(rows[name], status=f"wrong after timing: {wrong}")
                del calls[name], samples[name]
        for name, call in calls.items():
            rows[name] = replace(
                rows[name],
                **times(samples[name], samples.get(baseline)),
                **_bandwidth(bench.traffic, samples[name], roof),
                peak_memory=memory.peak(call, device),
            )
    return list(rows.values())


class _Prepared:
    """Inputs of a benchmark on a device, and what the oracle makes of them."""

    def __init__(
        self,
        benchmark: Benchmark,
        blank: Row,
        dtype: torch.dtype,
        device: torch.device,
        seed: int,
    ):
        self.benchmark, self.blank, self.mode = benchmark, blank, blank.mode
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            self.inputs = benchmark.make_inputs(blank.shape, dtype, device)
            self.exact = {name: _exact(tensor) for name, tensor in self.inputs.items()}
            with torch.no_grad():
                outputs = _tuple(benchmark.oracle(**self.exact))
            self.grad_outputs = [torch.randn_like(o, dtype=dtype) for o in outputs]
        exact_grads = [grad.double() for grad in self.grad_outputs]
        values = self._call(benchmark.oracle, self.exact, exact_grads)()
        owed = [(f"output {i}", dtype) for i in range(len(outputs))]
        if self.mode != "forward":
            owed += [(f"gradient of {n}", self.inputs[n].dtype) for n in benchmark.gradients]
        length = benchmark.length(blank.shape)
        self.expected = [
            gate.Expected(name, value, kind, benchmark.tolerance(kind, length))
            for (name, kind), value in zip(owed, values, strict=True)
        ]
        saved = self.inputs if benchmark.saved is None else benchmark.saved
        self.traffic = traffic(
            self.mode,
            self.inputs.values(),
            self.grad_outputs,
            [self.inputs[name] for name in saved],
            [self.inputs[name] for name in benchmark.gradients],
        )

    def admit(self, name: str, function: Function, timer: Timer) -> tuple[Row, Call | None]:
        """The implementation's row, and what to time if it is right."""
        row = replace(self.blank, implementation=name)
        try:
            call = timer.prepare(self._call(function, self.inputs, self.grad_outputs))
            verdict = self.judge(call())
        except Exception as error:  # of any kind: a library may not support this shape or dtype
            return replace(row, status=f"failed: {type(error).__name__}: {error}"), None
        finally:
            changed = self._restore()
        wrong = verdict.wrong or changed
        row = replace(
            row,
            status=f"wrong: {wrong}" if wrong else MEASURED,
            error=verdict.error,
            traffic=self.traffic,
        )
        return row, None if wrong else call

    def judge(self, got: tuple[Tensor, ...]) -> gate.Verdict:
        return gate.check(got, self.expected)

    def _call(self, function: Function, inputs: dict[str, Tensor], grads: list[Tensor]) -> Call:
        """What is timed: () -> outputs, and gradients in a backward mode."""
        if self.mode == "forward":
            return lambda: _tuple(function(**inputs))
        wanted = self.benchmark.gradients
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


def times(samples: list[float], reference: list[float] | None) -> dict:
    """The fields of a `Row` that samples fill; ratios to the reference's, if there are any."""
    taken = spread(samples)
    times = {"seconds": taken.median, "p20": taken.p20, "p80": taken.p80, "samples": tuple(samples)}
    if reference:
        low, high = median_interval([a / b for a, b in zip(samples, reference, strict=True)])
        ratio = taken.median / spread(reference).median
        times |= {"ratio": ratio, "ratio_low": low, "ratio_high": high}
    return times


def _bandwidth(moved: int, samples: list[float], roof: float) -> dict:
    bandwidth = moved / spread(samples).median
    note = "above the roof: the bytes, the roof or the time is not what it seems; find out why"
    return {
        "bandwidth": bandwidth,
        "roof": roof,
        "fraction": bandwidth / roof,
        "note": note if bandwidth > roof else "",
    }


def _check(
    benchmark: Benchmark,
    device: torch.device,
    mode: str,
    baseline: str,
    rounds: int,
    graph: bool,
) -> None:
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device: expected cpu or cuda, got {device}; others have no timer here")
    if mode not in MODES:
        raise ValueError(f"mode: expected one of {', '.join(MODES)}, got {mode!r}")
    if mode != "forward" and not benchmark.gradients:
        raise ValueError(
            f"mode: expected forward ({benchmark.name} has no gradients), got {mode!r}"
        )
    if graph and mode == "backward":  # autograd runs it on the stream of the forward pass
        raise ValueError("graph: a backward pass alone is not captured; use mode forward+backward")
    if baseline not in benchmark.implementations:
        known = ", ".join(benchmark.implementations)
        raise ValueError(f"baseline: expected one of {known}, got {baseline!r}")
    if rounds < 6:
        raise ValueError(f"rounds: expected at least 6, for a 95% interval; got {rounds}")
