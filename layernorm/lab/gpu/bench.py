"""The benchmarks of `python -m layernorm.lab.gpu bench`: their steps, run here or reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from layernorm.lab import records
from layernorm.lab.benchmarks.measure.case import NO_DEVICE, Row, machine_of
from layernorm.lab.benchmarks.measure.resume import Plan, known, run
from layernorm.lab.benchmarks.measure.table import problems, progress
from layernorm.lab.benchmarks.measure.timing import present
from layernorm.lab.benchmarks.measure.words import device_of
from layernorm.lab.gpu.steps import STEPS, absent, verdicts


def plan_of(step: str, device: str, pretend: bool = False) -> Plan:
    """The cases of a step; for a dry run small ones."""
    plan = STEPS[step](device)
    if pretend:
        from layernorm.lab.gpu import pretended

        plan = pretended.small(plan)
    return plan


def here(
    steps: Sequence[str], device: str, runs: Path, until: float, again: bool = False,
    pretend: bool = False,
) -> list[Row]:  # fmt: skip
    """Measure these steps in this process; returns the rows, measured now or before.

    Raises:
        Poisoned: the GPU is useless to this process.
        ValueError: there is no such kind of device.
    """
    if not present(device_of(device)):
        print(f"{device}: {NO_DEVICE}")
        return []
    rows: list[Row] = []
    for step in steps:
        for _, found in run(plan_of(step, device, pretend), runs, again, until):
            rows += found
            print(progress(found), flush=True)
    return rows


def hello(device: str) -> str:
    """The machine, in a line."""
    on, versions = device_of(device), records.environment()["versions"]
    name = machine_of(str(on), torch.get_num_threads()) if present(on) else NO_DEVICE
    return f"{device}: {name}, torch {versions['torch']}, Python {versions['python']}"


def told(steps: Sequence[str], device: str, runs: Path, pretend: bool = False) -> Iterator[str]:
    """The lines at the end: what went wrong, who is absent, how our kernels stand to what was aimed
    for, and what is left."""
    if not present(device_of(device)):
        yield f"{device}: {NO_DEVICE}"
        return
    rows, left = [], {}
    plan = {step: plan_of(step, device, pretend) for step in steps if step in STEPS}
    for step, cases in plan.items():
        found = known(cases, runs)
        rows += [row for each in found for row in each]
        if missing := len(cases) - sum(map(bool, found)):
            left[step] = missing
    yield from problems(rows)
    yield from absent(case for cases in plan.values() for case in cases)
    yield from verdicts(rows)
    told = ", ".join(f"{count} of {step}" for step, count in left.items())
    yield f"left: {told}; the same command goes on" if left else "complete"
