"""What a recurrent layer costs on a GPU: the fused path against cuDNN and the loops people write.

from layernorm.lab.benchmarks import recurrent_gpu
recurrent_gpu.measure("lstm", (100, 64, 512, 512), torch.bfloat16)      # rows, for T, B, I, H
for name, rows in recurrent_gpu.run(): ...                 # all, recorded; the targets come first
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from layernorm.kernels.recurrent import missing
from layernorm.lab import records
from layernorm.lab.benchmarks import gate, loops, memory, recurrent
from layernorm.lab.benchmarks.harness import times
from layernorm.lab.benchmarks.recurrent import Shape, Subject, fill, one_of
from layernorm.lab.benchmarks.report import MEASURED, NO_DEVICE, Row, from_record, to_records
from layernorm.lab.benchmarks.timing import CudaTimer, Timer, interleaved
from layernorm.lab.records.table import own
from layernorm.recurrent import LayerNormGRU, LayerNormLSTM

OURS, BASELINE = "fused", "torch"
PROFILE = "cuda"
# The targets' shapes, then a grid for `backend="auto"`, which decides between measured neighbors.
TARGETS: tuple[Shape, ...] = ((100, 64, 512, 512), (200, 32, 1024, 1024))
GRID: tuple[Shape, ...] = tuple(
    (steps, batch, units, units)
    for units in (64, 512, 1024, 2048)
    for steps, batch in ((10, 4), (100, 64))
)
# Type of the inputs and parameters; whether products in float32 may round to TF32, as cuDNN's do
# unless it is told otherwise. Both sides have the same setting.
PRECISIONS = ((torch.bfloat16, False), (torch.float32, False), (torch.float32, True))
_PARTS = ("", "_compute", "_graphs", "_gru", "_lstm", "_math", "_operator", "_step", "_sums")
DEPENDS = (
    "layernorm.lab.benchmarks.recurrent_gpu",
    "layernorm.lab.benchmarks.recurrent",
    "layernorm.lab.benchmarks.loops",
    "layernorm.recurrent",
    "layernorm.kernels.launch",
    "layernorm.kernels.rows",
    *(f"layernorm.kernels.recurrent{part}" for part in _PARTS),
)
_OTHERS = (BASELINE, "script", "definition")
SUBJECTS: dict[str, dict[str, Subject]] = {
    kind: {OURS: Subject(partial(layer, backend="fused"), definition)}
    | {name: recurrent.SUBJECTS[kind][name] for name in _OTHERS}
    for kind, layer, definition in (
        ("lstm", LayerNormLSTM, loops.ln_lstm),
        ("gru", LayerNormGRU, loops.ln_gru),
    )
}
Target = tuple[str, Callable[[], list[Row]]]


def targets(device: str = "cuda") -> list[Target]:
    """What there is to measure, the most wanted first: a name, and what gives its rows.

    Without the device the rows say "not measured yet on this device".
    """
    wanted: list[tuple] = []
    for kind in ("lstm", "gru"):
        for mode in recurrent.MODES:
            wanted += [
                (kind, shape, dtype, mode, tf32, None)
                for shape in TARGETS
                for dtype, tf32 in PRECISIONS
            ]
    wanted += [
        (kind, shape, dtype, mode, False, (OURS, BASELINE, "definition"))
        for kind in ("lstm", "gru")
        for mode in recurrent.MODES
        for shape in GRID
        for dtype in (torch.bfloat16, torch.float32)
        if shape not in TARGETS
    ]
    return [(_name(*one[:5]), partial(measure, *one, device=device)) for one in wanted]


def run(
    device: str = "cuda",
    root: str | Path | None = None,
    again: bool = False,
    until: float = math.inf,
) -> Iterator[tuple[str, list[Row]]]:
    """Each of the targets with its rows: measured and recorded, or read if their records are there,
    of the same code on the same GPU.

    Args:
        root: of own records; None: `$LAYERNORM_RUNS`, else `./runs`.
        again: measure what was measured before, too.
        until: by `time.monotonic()`; nothing is begun later, and what is left is not yielded.

    Raises:
        RecordError: a record of an earlier run is damaged.
    """
    known: dict[str, list[records.Record]] = {}
    for record in own("bench_recurrent", PROFILE, root):
        known.setdefault(record.config["options"]["target"], []).append(record)
    for name, measured in targets(device):
        if time.monotonic() >= until:
            return
        earlier = known.get(name, [])
        if earlier and not again and _complete(earlier, device):
            yield name, [from_record(record) for record in earlier]
            continue
        rows = [replace(row, options={**row.options, "target": name}) for row in measured()]
        # The baseline last: where its record is, all are.
        last = sorted(rows, key=lambda row: row.implementation == BASELINE)
        for record in to_records(last, PROFILE, [measure]):
            records.save(record, root)
        yield name, rows


def _complete(earlier: list[records.Record], device: str) -> bool:
    here = records.environment()
    gpus, index = here.get("gpus") or [], torch.device(device).index or 0
    machine = gpus[index] if index < len(gpus) else None
    return any(record.config["arm"] == BASELINE for record in earlier) and not any(
        record.config["options"]["machine"] != machine
        or record.environment["versions"]["torch"] != here["versions"]["torch"]
        or records.stale(record)
        for record in earlier
    )


def _name(kind: str, shape: Shape, dtype: torch.dtype, mode: str, tf32: bool) -> str:
    numbers = "tf32" if tf32 else str(dtype).removeprefix("torch.")
    return f"{kind} {mode} {'x'.join(map(str, shape))} {numbers}"


def measure(
    kind: str,
    shape: Sequence[int],
    dtype: torch.dtype = torch.float32,
    mode: str = "training",
    tf32: bool = False,
    subjects: Iterable[str] | None = None,
    *,
    device: str = "cuda",
    rounds: int = 11,
    sample_seconds: float = 0.02,
    seed: int = 0,
    timer: Timer | None = None,
) -> list[Row]:
    """One row for each implementation: those that agree with their definition are timed in turns.

    The gate: outputs and gradients must agree with the definition in float64, on the very numbers
    that are timed, to four times the error that the definition's loop makes in `dtype` itself, plus
    `gate.tolerance`. It is asked again after the timing.

    Args:
        kind: "lstm" or "gru".
        shape: (T, B, I, H): steps, sequences, inputs, units.
        dtype: of inputs, parameters and results.
        mode: "training" (forward and backward with every gradient, that of x too) or "inference".
        tf32: whether products in float32 may be rounded to TF32, in all implementations alike.
        subjects: names in `SUBJECTS[kind]`; None: all. Ratios are to cuDNN's layer, "torch".

    Raises:
        ValueError: naming the argument, what was expected and what came.
    """
    one_of("kind", kind, SUBJECTS)
    one_of("mode", mode, recurrent.MODES)
    names = list(SUBJECTS[kind] if subjects is None else subjects)
    for name in names:
        one_of("subjects", name, SUBJECTS[kind])
    if len(shape) != 4 or not all(isinstance(n, int) and n > 0 for n in shape):
        raise ValueError(f"shape: expected four positive integers T, B, I, H, got {tuple(shape)}")
    if rounds < 6:
        raise ValueError(f"rounds: expected at least 6, for a 95% interval; got {rounds}")
    shape, where = tuple(shape), torch.device(device)
    options = {"kind": kind, "rounds": rounds, "tf32": tf32}
    numbers = str(dtype).removeprefix("torch.")
    rows = {}
    for name in names:
        method = SUBJECTS[kind][name].method
        rows[name] = Row(
            "recurrent", method, name, BASELINE, mode, shape, numbers, device, seed, NO_DEVICE,
            options=options,
        )  # fmt: skip
    if where.type == "cuda" and (where.index or 0) >= torch.cuda.device_count():
        return list(rows.values())
    with _products(tf32):
        return _measured(rows, kind, dtype, where, rounds, sample_seconds, timer)


def _measured(
    rows: dict[str, Row], kind: str, dtype: torch.dtype, device: torch.device, rounds: int,
    sample_seconds: float, timer: Timer | None,
) -> list[Row]:  # fmt: skip
    expected: dict[loops.Loop, list[gate.Expected]] = {}
    runs: dict[str, _Run] = {}
    for name, row in rows.items():
        try:
            if name == OURS and (reason := missing()):
                raise RuntimeError(reason)
            run = _Run(SUBJECTS[kind][name], row, dtype, device)
            if run.subject.definition not in expected:
                expected[run.subject.definition] = run.expected()
            verdict = gate.check(run.call(), expected[run.subject.definition])
        except Exception as error:  # of any kind: a version of torch or a GPU may lack something
            rows[name] = replace(row, status=f"failed: {type(error).__name__}: {error}")
            continue
        status = f"wrong: {verdict.wrong}" if verdict.wrong else MEASURED
        rows[name] = replace(row, status=status, error=verdict.error)
        if not verdict.wrong:
            runs[name] = run
    calls = {name: run.call for name, run in runs.items()}
    samples = interleaved(timer or CudaTimer(device), calls, rounds, sample_seconds)
    wrong = {n: gate.check(r.call(), expected[r.subject.definition]).wrong for n, r in runs.items()}
    reference = None if wrong.get(BASELINE, "absent") else samples[BASELINE]
    for name, run in runs.items():
        if wrong[name]:
            rows[name] = replace(rows[name], status=f"wrong after timing: {wrong[name]}")
            continue
        peak = memory.peak(run.call, device)
        rows[name] = replace(rows[name], **times(samples[name], reference), peak_memory=peak)
    return list(rows.values())


class _Run:
    """A module with its inputs: what is timed, and what the gate compares."""

    def __init__(self, subject: Subject, row: Row, dtype: torch.dtype, device: torch.device):
        steps, batch, inputs, units = row.shape
        self.subject, self.training = subject, row.mode == "training"
        module = subject.make(inputs, units).train(self.training)
        fill(module, units, row.seed)
        self.module = module.to(device, dtype)
        generator = torch.Generator().manual_seed(row.seed)
        x = torch.randn(steps, batch, inputs, generator=generator)
        self.x = x.to(device, dtype).requires_grad_(self.training)
        self.grad_y = torch.randn(steps, batch, units, generator=generator).to(device, dtype)

    def call(self) -> tuple[Tensor, ...]:
        """One step as a user makes it: y, and all gradients in training."""
        if not self.training:
            with torch.no_grad():
                return (self.module(self.x)[0],)
        leaves = [self.x, *self.module.parameters()]
        for leaf in leaves:
            leaf.grad = None
        y = self.module(self.x)[0]
        y.backward(self.grad_y)
        return y.detach(), *(leaf.grad for leaf in leaves)

    def expected(self) -> list[gate.Expected]:
        """The definition's values in float64, and what its loop loses in the type timed."""
        exact, rounded = self._defined(torch.float64), self._defined(self.x.dtype)
        leaves = ["x", *(name for name, _ in self.module.named_parameters())]
        owed = ["y", *(f"gradient of {name}" for name in leaves)]
        floor = gate.tolerance(self.x.dtype, self.x.shape[0] * self.x.shape[1])
        return [
            gate.Expected(name, value, low.dtype, floor + 4 * gate.relative_error(low, value))
            for name, value, low in zip(owed, exact, rounded, strict=False)
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


@contextmanager
def _products(tf32: bool) -> Iterator[None]:
    """With or without TF32 in cuBLAS and in cuDNN, whatever was set before."""
    places = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [place.allow_tf32 for place in places]
    try:
        for place in places:
            place.allow_tf32 = tf32
        yield
    finally:
        for place, was in zip(places, before, strict=True):
            place.allow_tf32 = was
