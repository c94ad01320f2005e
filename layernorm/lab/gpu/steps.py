"""The steps of `python -m layernorm.lab.gpu bench`, in their order, and their targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from layernorm.lab.benchmarks import training
from layernorm.lab.benchmarks.measure.byte_model import MODES
from layernorm.lab.benchmarks.measure.case import MEASURED, Case, Row
from layernorm.lab.benchmarks.measure.resume import Plan
from layernorm.lab.benchmarks.measure.table import place
from layernorm.lab.benchmarks.norms import plan as norm_plans
from layernorm.lab.benchmarks.norms.implementations import OURS
from layernorm.lab.benchmarks.norms.operations import COPY
from layernorm.lab.benchmarks.recurrent import peers as recurrent_peers
from layernorm.lab.benchmarks.recurrent.plan import TARGETS, gpu_plan
from layernorm.lab.benchmarks.recurrent.subjects import ON_GPU, PERSISTENT

FIRST = ((4096, 1024), (4096, 4096), (16384, 4096), (4096, 16384))
LARGE = [(count, width) for count in (4096, 16384) for width in (1024, 2048, 4096, 8192, 16384)]
SMALL = [(1, 1024), (16, 1024), (64, 1024), (4, 16384), (512, 128), (2048, 32)]
# What `backend="auto"` may choose at: rows and widths around those of use.
CHOICE = [
    (count, width)
    for width in (512, 1024, 4096, 8192, 16384)
    for count in (16, 256, 4096, 16384, 65536)
    if count * width <= norm_plans.MOST["cuda"]
]
BANDWIDTH = {"forward": 0.95, "backward": 0.85}  # of the measured roof, at least
SPEED = {"forward": 1.2, "backward": 1.8}  # times torch's own, at least
LEVEL = 1.01  # not behind: at most 1% slower, which is what two equal programs differ by
SMALL_RATIO = 1.1  # to torch's own, at most
CUDNN, FIRST_CUDNN = 1.5, 2.0  # times as long as cuDNN's layer without norms, at most; at first
SCRIPT = 5  # times TorchScript's speed, at least
TYPES = ("bfloat16", "float32")
# A call waits some hundred microseconds for Python, and only then takes ten or twenty.
BRIEF = {"rounds": 9, "sample_seconds": 3e-4}


def _targets(
    device: str,
    sizes: Sequence[tuple[int, int]],
    modes: Sequence[str],
    names: Sequence[str] = ("layer", "rms"),
    types: Sequence[str] = TYPES,
    **fields: Any,
) -> Plan:
    fields = {"profile": "targets", "compiled": False, **BRIEF, **fields}
    return norm_plans.cases(names, sizes, types, modes, torch.device(device), **fields)


def _small(device: str) -> Plan:
    """Where launching decides; then the kernel's own time, from a captured graph."""
    modes = ("forward", "forward+backward")
    return _targets(device, SMALL, modes) + _targets(device, SMALL, modes, graph=True)


def _replayed(device: str) -> Plan:
    """A graph of several calls, each on tensors of its own: no launch is in the time. Copies of the
    same size, since a small one does not reach the speed of a large one."""
    fields = {"profile": "targets", **BRIEF, "graph": True}
    return _targets(device, FIRST, MODES[::2], ("layer",), graph=True) + norm_plans.copies(
        FIRST, TYPES, torch.device(device), **fields
    )


def _compiled(device: str, sizes: Sequence[tuple[int, int]]) -> Plan:
    """With torch's compiler, which takes as long as fifty other cases for each of these."""
    names, fields = ("layer", "rms", "residual"), {"compiled": True, "profile": "compile"}
    return _targets(device, sizes, MODES, names, ("bfloat16",), **fields)


def _layers(device: str) -> tuple[Plan, Plan]:
    """The recurrent layers that are aimed for, and the rest of their plan."""
    every = gpu_plan(device)
    first = [
        case
        for case in every
        if case.shape in TARGETS and case.dtype == "bfloat16" and case.mode == "training"
    ]
    return tuple(first), tuple(case for case in every if case not in first)


def _only(plan: Plan, *names: str) -> Plan:
    """The cases with these implementations alone."""
    return tuple(
        replace(case, implementations=tuple(n for n in case.implementations if n in names))
        for case in plan
    )


def _updates(models: str, device: str) -> Plan:
    brief = {"rounds": 11, "sample_seconds": 3e-4}
    return training.plan(models, device.partition(":")[0], profile="cuda", **brief)


STEPS: dict[str, Callable[[str], Plan]] = {  # after the tests; what was aimed for comes first
    "layer": lambda device: _targets(device, FIRST, MODES, ("layer",), ("bfloat16",)),
    "replayed": _replayed,
    "recurrent": lambda device: _layers(device)[0],
    "updates": lambda device: _updates("mlp,lstm", device),
    "large": lambda device: _targets(device, LARGE, MODES),
    "residual": lambda device: _targets(device, LARGE, MODES[:2], ("residual",)),
    "small": _small,
    "choice": lambda device: _only(
        _targets(device, CHOICE, MODES[::2], profile="choice"), "torch", OURS
    ),
    "layers": lambda device: _layers(device)[1],
    "digits": lambda device: _updates("digits", device),
    "methods": lambda device: norm_plans.plan(quick=True, device=device, compiled=False),
    "compile": lambda device: _compiled(device, FIRST),
    "tables": lambda device: norm_plans.plan(device=device, compiled=False),
    "compile_large": lambda device: _compiled(device, [s for s in LARGE if s not in FIRST]),
}


SOON = ("layer", "recurrent", "large", "residual", "small", "layers")  # compiled ahead


def absent(plan: Iterable[Case]) -> list[str]:
    """The implementations that cannot run a plan's operations here, and why."""
    plan = tuple(plan)
    recurrent = any(case.benchmark == "recurrent" for case in plan)
    return [
        *norm_plans.absent(tuple(case for case in plan if hasattr(case, "source"))),
        *(recurrent_peers.absent() if recurrent else []),
    ]


def verdicts(rows: Iterable[Row]) -> list[str]:
    """How our kernels stand to what was aimed for: a line for each case of LARGE and SMALL, and
    for each training step that was aimed for."""
    cases: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row.status == MEASURED and row.benchmark == f"{COPY.name}_graph":
            cases.setdefault(place(replace(row, benchmark="layer_graph")), {})[COPY.name] = row
        elif row.status == MEASURED:
            cases.setdefault(place(row), {})[row.implementation] = row
    lines = []
    for name, by in cases.items():
        said = [f"{text}{'' if met else ' (missed)'}" for text, met in _checks(by)]
        lines += [f"{name}: {'; '.join(said)}"] if said else []
    return lines


def _checks(by: dict[str, Row]) -> Iterator[tuple[str, bool]]:
    """One line about a case, and whether the aim is reached."""
    recurrent = next(iter(by.values())).benchmark == "recurrent"
    ours = by.get(ON_GPU if recurrent else OURS)
    if ours is None:
        return
    mode, speeds = ours.mode, {name: row.seconds / ours.seconds for name, row in by.items()}
    if recurrent:
        if ours.shape in TARGETS and mode == "training":
            if "torch" in speeds:
                ratio = 1 / speeds["torch"]
                first = f", at first {FIRST_CUDNN:g}" if CUDNN < ratio <= FIRST_CUDNN else ""
                yield f"{ratio:.2f} of cuDNN's time, aim {CUDNN:g}{first}", ratio <= CUDNN
            if PERSISTENT in speeds:
                yield f"in one kernel {1 / speeds[PERSISTENT]:.2f} of the time of steps", True
            if "script" in speeds:
                yield f"{speeds['script']:.2f} times script's speed", speeds["script"] >= SCRIPT
    elif ours.benchmark.removesuffix("_graph") not in ("layer", "rms"):
        return
    elif ours.shape in SMALL and "torch" in speeds:
        ratio = 1 / speeds["torch"]
        yield f"{ratio:.2f} of torch's time", ratio <= SMALL_RATIO
    elif ours.shape in LARGE and mode in BANDWIDTH:
        equal = speeds.pop(COPY.name, None)
        share, whose = (equal, "an equal copy's speed") if equal else (ours.fraction, "the roof")
        yield f"{share:.0%} of {whose}", share >= BANDWIDTH[mode]
        for name, speed in speeds.items():
            least = SPEED[mode] if name == "torch" else 1 / LEVEL
            if name not in (OURS, "definition"):
                yield f"{speed:.2f} times {name}'s speed", speed >= least
