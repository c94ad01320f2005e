"""All that needs a GPU, what was aimed for first: `make bench-gpu`.

    python -m layernorm.lab.benchmarks.gpu --minutes 8 --out DIR

It needs torch, Triton, NumPy and jaxtyping alone. Each result is a file at once, in DIR or
`$LAYERNORM_RUNS`; called again, it goes on where it was. `layernorm records add DIR` publishes.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from layernorm.lab.benchmarks import training
from layernorm.lab.benchmarks.measure.case import MEASURED, NO_DEVICE, Row, machine_of
from layernorm.lab.benchmarks.measure.resume import Plan, run
from layernorm.lab.benchmarks.measure.table import problems, shape
from layernorm.lab.benchmarks.measure.timing import present
from layernorm.lab.benchmarks.measure.words import device_of
from layernorm.lab.benchmarks.norms import plan as norm_plans
from layernorm.lab.benchmarks.norms.implementations import OURS
from layernorm.lab.benchmarks.recurrent import plan as recurrent_plans
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


@dataclass
class Session:
    """One call: where, until when (`time.monotonic()`), and what it found.

    A step adds the rows it has, measured now or before, to `rows`, and the number of cases for
    which there was no time to `left`. `root` is the folder of records (None: as everywhere).
    """

    device: torch.device
    until: float = math.inf
    root: Path | None = None
    again: bool = False
    rows: list[Row] = field(default_factory=list)
    left: int = 0

    def measure(self, plan: Plan) -> None:
        """The cases of a plan, as far as there is time."""
        self.left += len(plan)
        for case, rows in run(plan, self.root, self.again, self.until):
            self.rows += rows
            self.left -= 1
            print(f"{case}: {told(rows)}", flush=True)


def told(rows: Sequence[Row]) -> str:
    """Times of a case on one line, or why there are none."""
    times = [f"{r.implementation} {r.seconds * 1e6:.1f} µs" for r in rows if r.seconds is not None]
    return ", ".join(times) or rows[0].status


Step = Callable[[Session], None]


def large(session: Session) -> None:
    """Layer and RMS normalization where memory decides."""
    names, modes = ("layer", "rms"), ("forward", "backward", "forward+backward")
    session.measure(norm_plans.cases(names, LARGE, TYPES, modes, session.device, profile="targets"))


def small(session: Session) -> None:
    """Where launching decides; and the kernel's own time, from a captured graph."""
    names, modes = ("layer", "rms"), ("forward", "forward+backward")
    for graph in (False, True):
        fields = {"profile": "targets", "graph": graph}
        session.measure(norm_plans.cases(names, SMALL, TYPES, modes, session.device, **fields))


def residual(session: Session) -> None:
    """x + residual and its layer normalization."""
    modes = ("forward", "backward")
    session.measure(
        norm_plans.cases(["residual"], LARGE, TYPES, modes, session.device, profile="targets")
    )


def recurrent(session: Session) -> None:
    """The layer-normalized LSTM and GRU against cuDNN's layers without norms and TorchScript's."""
    session.measure(recurrent_plans.gpu_plan(str(session.device)))


def updates(session: Session) -> None:
    """Whole updates with each method."""
    session.measure(training.plan(None, session.device.type, profile="cuda"))


def tables(session: Session) -> None:
    """What `layernorm bench norms` shows: quickly, then everything."""
    session.measure(norm_plans.plan(quick=True, device=str(session.device)))
    session.measure(norm_plans.plan(device=str(session.device)))


# In this order: what was aimed for first. A step takes a `Session`.
STEPS: list[Step] = [large, small, residual, recurrent, updates, tables]


def verdicts(rows: Iterable[Row]) -> list[str]:
    """How our kernels stand to what was aimed for: a line for each case of `large` and `small`, and
    for each training step that was aimed for."""
    grouped: dict[tuple, dict[str, Row]] = {}
    for row in rows:
        if row.status == MEASURED:
            key = row.options.get("target", row.benchmark), row.mode, row.shape, row.dtype
            grouped.setdefault(key, {})[row.implementation] = row
    lines = []
    for (name, mode, size, dtype), by in grouped.items():
        if ON_GPU in by and size in recurrent_plans.TARGETS and mode == "training":
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


def main(arguments: Sequence[str] | None = None) -> Session:
    names = [step.__name__ for step in STEPS]
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
    if given.out is not None:
        os.environ["LAYERNORM_RUNS"] = str(given.out)
    session = Session(device, time.monotonic() + 60 * given.minutes, given.out, given.again)
    if not present(device):
        print(f"{device}: {NO_DEVICE}")
        return session
    print(f"{machine_of(given.device, torch.get_num_threads())}, torch {torch.__version__}")
    for step in STEPS:
        if step.__name__ in given.steps:
            step(session)
    others = norm_plans.absent(
        norm_plans.cases(["layer", "rms", "residual"], SMALL[:1], TYPES[:1], ["forward"], device)
    )
    print("\n".join([*problems(session.rows), *others, *verdicts(session.rows)]))
    left = (
        f"{session.left} cases are left: the same command goes on" if session.left else "complete"
    )
    print(left)
    return session


if __name__ == "__main__":
    main()
