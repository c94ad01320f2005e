"""All that needs a GPU, what was aimed for first: `make bench-gpu`.

    python -m layernorm.lab.benchmarks.gpu --minutes 8 --out DIR

It needs torch, Triton, NumPy and jaxtyping alone. Each result is a file at once, in DIR or
`$LAYERNORM_RUNS`; called again, it goes on where it was. `layernorm records add DIR` publishes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from layernorm.lab.benchmarks import training
from layernorm.lab.benchmarks.measure.byte_model import MODES
from layernorm.lab.benchmarks.measure.case import MEASURED, NO_DEVICE, Row, machine_of
from layernorm.lab.benchmarks.measure.resume import Plan, run
from layernorm.lab.benchmarks.measure.table import problems, shape
from layernorm.lab.benchmarks.measure.timing import present
from layernorm.lab.benchmarks.measure.words import device_of
from layernorm.lab.benchmarks.norms import plan as norm_plans
from layernorm.lab.benchmarks.norms.case import OperationCase
from layernorm.lab.benchmarks.norms.implementations import OURS
from layernorm.lab.benchmarks.recurrent.plan import TARGETS, gpu_plan
from layernorm.lab.benchmarks.recurrent.subjects import ON_GPU

LARGE = [(count, width) for count in (4096, 16384) for width in (1024, 2048, 4096, 8192, 16384)]
SMALL = [(1, 1024), (16, 1024), (64, 1024), (4, 16384), (512, 128), (2048, 32)]
TYPES = ("bfloat16", "float32")
BANDWIDTH = {"forward": 0.90, "backward": 0.80}  # of the measured roof, at least
SPEED = {"forward": 1.2, "backward": 1.8}  # times torch's own, at least
LEVEL = 1.01  # not behind: at most 1% slower, which is what two equal programs differ by
SMALL_RATIO = 1.1  # to torch's own, at most
BASELINE = "torch"
RECURRENT = {"torch": 1 / 2, "script": 5}  # times the speed of cuDNN's and TorchScript's, at least


def steps(device: torch.device) -> dict[str, Plan]:
    """All that is to be measured, in this order: what was aimed for comes first."""
    norms, launches = ("layer", "rms"), ("forward", "forward+backward")

    def targets(names: Sequence[str], sizes: list, modes: Sequence[str], **fields: bool) -> Plan:
        return norm_plans.cases(names, sizes, TYPES, modes, device, profile="targets", **fields)

    return {
        "large": targets(norms, LARGE, MODES),  # where memory decides
        # where launching decides; and the kernel's own time, from a captured graph
        "small": (
            *targets(norms, SMALL, launches),
            *targets(norms, SMALL, launches, graph=True),
        ),
        "residual": targets(("residual",), LARGE, ("forward", "backward")),
        "recurrent": gpu_plan(str(device)),
        "updates": training.plan(None, device.type, profile="cuda"),
        "tables": (  # what `layernorm bench norms` shows: quickly, then everything
            *norm_plans.plan(quick=True, device=str(device)),
            *norm_plans.plan(device=str(device)),
        ),
    }


def verdicts(rows: Iterable[Row]) -> list[str]:
    """How our kernels stand to what was aimed for: a line for each case of LARGE and SMALL, and
    for each training step that was aimed for."""
    grouped: dict[tuple, dict[str, Row]] = {}
    for row in rows:
        if row.status == MEASURED:
            key = row.options.get("target", row.benchmark), row.mode, row.shape, row.dtype
            grouped.setdefault(key, {})[row.implementation] = row
    lines = []
    for (name, mode, size, dtype), by in grouped.items():
        if ON_GPU in by and size in TARGETS and mode == "training":
            lines.append(f"{name}: {_said(_recurrent(by))}")
        if OURS not in by or name.removesuffix("_graph") not in ("layer", "rms"):
            continue
        checks = _small(by) if size in SMALL else _large(mode, by) if size in LARGE else []
        if checks:
            lines.append(f"{name} {mode} {shape(by[OURS], 'x')} {dtype}: {_said(checks)}")
    return lines


def _said(checks: list[tuple[str, bool]]) -> str:
    return "; ".join(f"{text}{'' if met else ' (missed)'}" for text, met in checks)


def _recurrent(by: dict[str, Row]) -> list[tuple[str, bool]]:
    speeds = {name: _times(by, name, ON_GPU) for name in RECURRENT}
    return [
        (f"{speed:.2f} times {name}'s speed", speed >= RECURRENT[name])
        for name, speed in speeds.items()
        if speed is not None
    ]


def _small(by: dict[str, Row]) -> list[tuple[str, bool]]:
    ratio = _times(by, BASELINE)
    return [] if ratio is None else [(f"{1 / ratio:.2f} of torch's time", 1 / ratio <= SMALL_RATIO)]


def _large(mode: str, by: dict[str, Row]) -> list[tuple[str, bool]]:
    if mode not in BANDWIDTH:
        return []
    ours = by[OURS]
    checks = [(f"{ours.fraction:.0%} of the roof", ours.fraction >= BANDWIDTH[mode])]
    for name in by:
        speed = _times(by, name)
        if name not in (OURS, "definition"):
            least = SPEED[mode] if name == BASELINE else 1 / LEVEL
            checks.append((f"{speed:.2f} times {name}'s speed", speed >= least))
    return checks


def _times(by: dict[str, Row], other: str, ours: str = OURS) -> float | None:
    """How many times as fast as another ours is."""
    return by[other].seconds / by[ours].seconds if other in by else None


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """The rows of what was measured, now or before."""
    names = ("large", "small", "residual", "recurrent", "updates", "tables")
    parser = argparse.ArgumentParser("layernorm.lab.benchmarks.gpu", description=__doc__)
    parser.add_argument("--minutes", type=float, default=8.0, help="begin nothing later")
    parser.add_argument("--out", type=Path, help="folder of records; default $LAYERNORM_RUNS")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", nargs="+", choices=names, default=names)
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
    chosen = [plan for name, plan in steps(device).items() if name in given.steps]
    plan = tuple(case for cases in chosen for case in cases)
    rows, left = [], len(plan)
    for case, found in run(plan, given.out, given.again, time.monotonic() + 60 * given.minutes):
        rows, left = [*rows, *found], left - 1
        print(f"{case}: {told(found)}", flush=True)
    others = norm_plans.absent(tuple(case for case in plan if isinstance(case, OperationCase)))
    print("\n".join([*problems(rows), *others, *verdicts(rows)]))
    print(f"{left} cases are left: the same command goes on" if left else "complete")
    return rows


def told(rows: Sequence[Row]) -> str:
    """Times of a case on one line, or why there are none."""
    times = [f"{r.implementation} {r.seconds * 1e6:.1f} µs" for r in rows if r.seconds is not None]
    return ", ".join(times) or rows[0].status


if __name__ == "__main__":
    main()
