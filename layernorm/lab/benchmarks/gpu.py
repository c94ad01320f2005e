"""All that needs a GPU, what was aimed for first: `make bench-gpu`.

    python -m layernorm.lab.benchmarks.gpu --minutes 8 --out DIR

It needs torch, Triton, NumPy and jaxtyping alone. Each result is a file at once, in DIR or
`$LAYERNORM_RUNS`; called again, it goes on where it was. `layernorm records add DIR` publishes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch

from layernorm.lab.benchmarks import training
from layernorm.lab.benchmarks.measure.byte_model import MODES
from layernorm.lab.benchmarks.measure.case import MEASURED, NO_DEVICE, Row, machine_of
from layernorm.lab.benchmarks.measure.resume import Plan, run
from layernorm.lab.benchmarks.measure.table import place, problems, progress
from layernorm.lab.benchmarks.measure.timing import present
from layernorm.lab.benchmarks.measure.words import device_of
from layernorm.lab.benchmarks.norms import plan as norm_plans
from layernorm.lab.benchmarks.norms.case import OperationCase
from layernorm.lab.benchmarks.norms.implementations import OURS
from layernorm.lab.benchmarks.recurrent.plan import TARGETS, gpu_plan
from layernorm.lab.benchmarks.recurrent.subjects import ON_GPU

LARGE = [(count, width) for count in (4096, 16384) for width in (1024, 2048, 4096, 8192, 16384)]
SMALL = [(1, 1024), (16, 1024), (64, 1024), (4, 16384), (512, 128), (2048, 32)]
BANDWIDTH = {"forward": 0.90, "backward": 0.80}  # of the measured roof, at least
SPEED = {"forward": 1.2, "backward": 1.8}  # times torch's own, at least
LEVEL = 1.01  # not behind: at most 1% slower, which is what two equal programs differ by
SMALL_RATIO = 1.1  # to torch's own, at most
RECURRENT = {"torch": 1 / 2, "script": 5}  # times the speed of cuDNN's and TorchScript's, at least


def _targets(
    device: str, sizes: list, modes: Sequence[str], names=("layer", "rms"), **fields: bool
) -> Plan:
    types, on = ("bfloat16", "float32"), torch.device(device)
    return norm_plans.cases(names, sizes, types, modes, on, profile="targets", **fields)


def _small(device: str) -> Plan:
    """Where launching decides; then the kernel's own time, from a captured graph."""
    modes = ("forward", "forward+backward")
    return _targets(device, SMALL, modes) + _targets(device, SMALL, modes, graph=True)


STEPS: dict[str, Callable[[str], Plan]] = {  # in this order: what was aimed for comes first
    "large": lambda device: _targets(device, LARGE, MODES),  # where memory decides
    "small": _small,
    "residual": lambda device: _targets(device, LARGE, ("forward", "backward"), ("residual",)),
    "recurrent": gpu_plan,
    "updates": lambda device: training.plan(None, device.partition(":")[0], profile="cuda"),
    "tables": lambda device: (  # what `layernorm bench norms` shows: quickly, then everything
        norm_plans.plan(quick=True, device=device) + norm_plans.plan(device=device)
    ),
}


def verdicts(rows: Iterable[Row]) -> list[str]:
    """How our kernels stand to what was aimed for: a line for each case of LARGE and SMALL, and
    for each training step that was aimed for."""
    cases: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row.status == MEASURED:
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
            for name, least in RECURRENT.items():
                if name in speeds:
                    yield f"{speeds[name]:.2f} times {name}'s speed", speeds[name] >= least
    elif ours.benchmark.removesuffix("_graph") not in ("layer", "rms"):
        return
    elif ours.shape in SMALL and "torch" in speeds:
        ratio = 1 / speeds["torch"]
        yield f"{ratio:.2f} of torch's time", ratio <= SMALL_RATIO
    elif ours.shape in LARGE and mode in BANDWIDTH:
        yield f"{ours.fraction:.0%} of the roof", ours.fraction >= BANDWIDTH[mode]
        for name, speed in speeds.items():
            least = SPEED[mode] if name == "torch" else 1 / LEVEL
            if name not in (OURS, "definition"):
                yield f"{speed:.2f} times {name}'s speed", speed >= least


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """The rows of what was measured, now or before."""
    parser = argparse.ArgumentParser("layernorm.lab.benchmarks.gpu", description=__doc__)
    parser.add_argument("--minutes", type=float, default=8.0, help="begin nothing later")
    parser.add_argument("--out", type=Path, help="folder of records; default $LAYERNORM_RUNS")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--again", action="store_true", help="measure what is recorded, too")
    given = parser.parse_args(arguments)
    if not given.minutes > 0:
        parser.error(f"--minutes: expected more than 0, got {given.minutes}")
    try:
        device = device_of(given.device)
    except ValueError as error:
        parser.error(str(error))
    if not present(device):
        print(f"{device}: {NO_DEVICE}")
        return []
    print(f"{machine_of(str(device), torch.get_num_threads())}, torch {torch.__version__}")
    plan = [case for name in STEPS if name in given.steps for case in STEPS[name](str(device))]
    rows, left = [], len(plan)
    for _, found in run(plan, given.out, given.again, time.monotonic() + 60 * given.minutes):
        rows, left = [*rows, *found], left - 1
        print(progress(found), flush=True)
    others = norm_plans.absent(tuple(case for case in plan if isinstance(case, OperationCase)))
    print("\n".join([*problems(rows), *others, *verdicts(rows)]))
    print(f"{left} cases are left: the same command goes on" if left else "complete")
    return rows


if __name__ == "__main__":
    main()
