"""Measure, and train, on a GPU that is had for a short while, in pieces, and keeps nothing.

    make bench-gpu PYTHON=python3 OUT=out MINUTES=9               the first piece
    make bench-gpu PYTHON=python3 OUT=out MINUTES=9 FROM=gpu.tar.gz   each one after it
    make experiments-gpu PYTHON=python3 OUT=out MINUTES=9 FROM=gpu.tar.gz
    python -m layernorm.lab.gpu bench --pretend --runs DIR        a dry run, without a GPU

`bench` needs torch, Triton, NumPy and jaxtyping alone; the tests, pytest besides; `train` needs
pydantic, PyYAML, pandas, SciPy, scikit-learn and tqdm as well, from wheels brought along if need
be, and the data sets in $LAYERNORM_DATA. Nothing is fetched.

What it writes: every result is a file at once, under --runs ($LAYERNORM_RUNS, else ./runs). All of
them, with markers and logs, are one file in --out, gpu.tar.gz, at most 15.5 MB, written anew every
20 seconds and at the end, also when the process is told to stop. That file is all that has to be
brought home. With --from it goes in again, and everything goes on where it was: what is measured is
not measured again, what failed is tried again, last.

What to run on a machine that is had for a quarter of an hour or more, in calls of at most ten
minutes, one GPU; in brackets what it took on an H200 with 16 cores:

    call 1   bench. In this order: the tests that need a GPU (35 s where all ran side by side; at
             most a third of the call), now the norms' kernels and the loop over time in one kernel
             before the others; the kernels are compiled ahead, on all cores (40 s; likewise); layer
             normalization, bfloat16, at four shapes, forward and backward, without torch's compiler
             (20 s); the same replayed from graphs, without the time of launching, beside copies of
             the same size; training steps of LSTM and GRU against cuDNN's and their definitions at
             the two shapes that are aimed for (100 s without the definitions' own time, most of it
             for the gate in float64); whole updates of the MLP and the LSTM, recurrent batch
             normalization among them; all large shapes with RMS (a second each); residuals. These
             are the first numbers wanted. Then it widens: small shapes; what backend="auto" may
             choose at (widths from 512, rows to 65,536).
    between  read gpu.tar.gz at home: what the tests say, and what is wrong or missed. If a kernel
             is wrong, mend it before the second call; its cases are measured again by themselves.
    call 2   bench --from: what is left of the above, then the recurrent layers between whose sizes
             backend="auto" chooses (training, inference, TF32), the small network's updates, all
             methods, torch.compile at four shapes, then the tables' grid.
    call 3   train --from, where there is more time: the experiments, profile standard, the shortest
             first, then paper. What a graph cannot hold is launched kernel by kernel, and says so.
             Steps can be named: --steps mnist/paper convnet/cifar10 attentive_reader/paper. By an
             estimate of 0.25 ms an update, which no record backs yet, a run of mnist/paper takes
             seven seconds and its plan 15 minutes.

torch.compile has a profile of its own: a case of it takes as long as fifty others. Its larger
shapes come last of all. A step that matters more now is named first: --steps residual choice.

Each step runs in a process of its own, with a marker beside each case. An illegal access ends that
process alone: the marker keeps which implementation did it, another process measures the others
without it, and the case's records say so. A process that hangs is ended a minute after the call's
time. At home:

    tar xzf gpu.tar.gz -C runs
    layernorm records add runs/bench_*              publishes
    python -m layernorm.lab.benchmarks.speeds       writes the file that backend="auto" reads;
                                                    --drop: also if it loses entries by that
    make book                                       chapters 11 to 13 then have the numbers
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from layernorm.lab.gpu import archive, parts
from layernorm.lab.records.files import runs_folder

ARCHIVE, LOG = "gpu.tar.gz", "gpu.log"
TESTS, AHEAD = "tests", "ahead"  # the steps before all others: tests, and what is compiled ahead
SHARE = 1 / 3  # of a call that each of them may take


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or `parts.USELESS`."""
    given = _given(arguments)
    if given.pretend:
        from layernorm.lab.gpu import pretended

        pretended.install()
    runs, until = runs_folder(given.runs).absolute(), time.monotonic() + 60 * given.minutes
    if given.here:
        return _here(given, runs, until)
    for file in given.earlier:
        print(f"{archive.unpack(file, runs)} files of {file}")
    return _apart(given, runs, until)


def _given(arguments: Sequence[str] | None) -> argparse.Namespace:
    from layernorm.lab.gpu import steps, training

    parser = argparse.ArgumentParser(
        "layernorm.lab.gpu", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("what", choices=("bench", "train"))
    parser.add_argument("--minutes", type=float, default=9.0, help="begin nothing later")
    parser.add_argument("--runs", type=Path, help="folder of results; default $LAYERNORM_RUNS")
    parser.add_argument("--out", type=Path, help=f"folder of the archive, {ARCHIVE}")
    parser.add_argument(
        "--from", type=Path, nargs="*", default=[], dest="earlier", help="archives to go on from"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", nargs="+", metavar="STEP", help="those alone, in this order")
    parser.add_argument("--again", action="store_true", help="measure what is recorded, too")
    parser.add_argument("--pretend", action="store_true", help="a dry run, without a GPU")
    parser.add_argument("--here", action="store_true", help="in this process, without tests")
    given = parser.parse_args(arguments)
    if not given.minutes > 0:
        parser.error(f"--minutes: expected more than 0, got {given.minutes}")
    usual = [TESTS, AHEAD, *steps.STEPS] if given.what == "bench" else list(training.STEPS)
    known = usual + (list(training.MORE) if given.what == "train" else [])
    given.steps = given.steps or usual
    for step in given.steps:
        if step not in known:
            parser.error(f"--steps: expected some of {', '.join(known)}, got {step!r}")
    return given


def _here(given: argparse.Namespace, runs: Path, until: float) -> int:
    """The steps, one after another, in this process."""
    from layernorm.lab.benchmarks.measure.case import Poisoned
    from layernorm.lab.gpu import bench, training

    made = bench if given.what == "bench" else training
    names = [name for name in given.steps if name not in (TESTS, AHEAD)]
    try:
        made.here(names, given.device, runs, until, again=given.again, pretend=given.pretend)
    except Poisoned as error:
        print(error, flush=True)
        return parts.USELESS
    return 0


def _apart(given: argparse.Namespace, runs: Path, until: float) -> int:
    """Each step in a process of its own; the archive is written now and then, and at the end."""
    from layernorm.lab.gpu import ahead, bench, steps, tests, training

    made = bench if given.what == "bench" else training
    runs.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))
    with (runs / LOG).open("a", encoding="utf-8", buffering=1) as log:

        def note(line: str) -> None:
            print(line, flush=True)
            log.write(f"{line}\n")

        def look() -> None:
            if given.out is not None:
                left_out = archive.pack(runs, given.out / ARCHIVE)
                if left_out:
                    note(f"no room in the archive for {len(left_out)} checkpoints")

        try:
            note(bench.hello(given.device))
            for name in given.steps:
                if time.monotonic() >= until:
                    break
                note(f"== {name}")
                note(f"{until - time.monotonic():.0f} s left")
                most = time.monotonic() + SHARE * (until - time.monotonic())
                if name == TESTS and not given.pretend:
                    tests.carry_out(runs, most, note)
                elif name == AHEAD and not given.pretend:
                    some = [step for step in given.steps if step in steps.SOON]
                    ahead.carry_out(some, given.device, most, note)
                elif name not in (TESTS, AHEAD):
                    parts.carry_out(_arguments(given, name, runs), until, note, look)
                look()
            for line in made.told(given.steps, given.device, runs, given.pretend):
                note(line)
        finally:
            look()
    return 0


def _arguments(given: argparse.Namespace, step: str, runs: Path) -> list[str]:
    flags = [f"--{name}" for name in ("again", "pretend") if getattr(given, name)]
    return [given.what, "--here", "--steps", step, "--device", given.device, "--runs", str(runs),
            *flags]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
