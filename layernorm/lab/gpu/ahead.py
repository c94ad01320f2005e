"""Compile the kernels that the steps need, by several processes at once, before anything is timed.

A kernel takes a second or two of one core, a table of norms has hundreds, and they stay in Triton's
cache on this machine. Each process makes every so many-th implementation ready and calls it once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence

import torch

from layernorm.lab.benchmarks.measure.case import Case
from layernorm.lab.benchmarks.norms.implementations import OURS
from layernorm.lab.benchmarks.norms.peers import PEERS
from layernorm.lab.benchmarks.recurrent.subjects import ON_GPU, PERSISTENT
from layernorm.lab.gpu import parts

COMPILED = {OURS, ON_GPU, PERSISTENT, *(peer.name for peer in PEERS)}
PROGRAM = (sys.executable, "-m", __name__)


def wanted(plan: Iterable[Case]) -> list[tuple[Case, str]]:
    """A case for each kernel that a plan needs, with the implementation: how many rows there are,
    and whether a graph is captured, makes no other kernel."""
    found: dict[tuple, tuple[Case, str]] = {}
    for case in plan:
        for name in case.implementations:
            shape = case.shape if case.benchmark == "recurrent" else case.shape[1:]
            if name in COMPILED:
                place = case.operation, name, case.dtype, shape, case.mode
                found.setdefault(place, (case, name))
    return list(found.values())


def carry_out(
    steps: Sequence[str], device: str, until: float, note: Callable[[str], None],
    program: Sequence[str] = PROGRAM,
) -> None:  # fmt: skip
    """Compile what these steps need, as far as there is time."""
    count, began = max(1, (os.cpu_count() or 1) - 1), time.monotonic()
    commands = {str(n): [*program, str(n), str(count), device, *steps] for n in range(count)}
    for done in parts.side_by_side(commands, count, until):
        for line in done.printed.splitlines():
            note(line)
    note(f"compiled ahead by {count} processes in {time.monotonic() - began:.0f} s")


def main(number: int, count: int, device: str, steps: Sequence[str]) -> None:
    """A process's share. What does not compile is told, and measured as failed later."""
    from layernorm.lab.gpu.steps import STEPS

    plan = [case for step in steps for case in STEPS[step](device)]
    for case, name in wanted(plan)[number::count]:
        try:
            with case.setting():
                make = case.run if case.benchmark == "recurrent" else case.prepare()
                make(name).call()
            torch.cuda.synchronize(device)
        except Exception as error:  # of any kind, as in a measurement
            print(f"{case} {name}: {type(error).__name__}: {error}"[:300], flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
