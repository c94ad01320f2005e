"""The experiments of `python -m layernorm.lab.gpu train`: profiles standard and paper on a GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from layernorm.lab.benchmarks.measure.case import Poisoned
from layernorm.lab.benchmarks.measure.timing import alive

# The shortest first; where graphs hold the updates of all arms, before those that launch some, or
# all, kernel by kernel (`experiments.graphed.why_not` says why, and so does the run).
ORDER = (
    "mnist", "convnet", "transformer", "draw", "order_embeddings", "handwriting",
    "attentive_reader", "skip_thoughts",
)  # fmt: skip
PROFILES = ("standard", "paper")
STEPS = tuple(f"{name}/{profile}" for profile in PROFILES for name in ORDER)
MORE = (  # those that are trained if they are named
    "mnist/paper_tenth", "convnet/trained", "convnet/cifar10", "transformer/data",
    "transformer/optimizer",
)  # fmt: skip
OFTEN = 15.0  # seconds between checkpoints: what is lost where a machine is taken away
TINY = {"updates": 5, "evaluations": 1}  # of a dry run


class OutOfTime(BaseException):
    """Raised within a run to leave it; its checkpoint is where it goes on."""


def here(
    steps: Sequence[str], device: str, runs: Path, until: float, again: bool = False,
    pretend: bool = False,
) -> None:  # fmt: skip
    """Train the missing and the stale runs of these steps in this process, one after another;
    with `again` those that are there, too.

    A run that fails is told and left; the next call tries it again. What cannot be planned, for
    instance because its data are not here, is told and left as well.
    """
    if pretend and device != "cpu":
        from layernorm.lab.gpu import pretended

        pretended.compute_anew()
    for step in steps:
        try:
            _sweep(step, device, runs, until, again, pretend)
        except OutOfTime:
            return
        except Poisoned:
            raise
        except Exception as error:  # of any kind: the other experiments go on
            print(f"{step}: left out: {type(error).__name__}: {error}", flush=True)


def _sweep(step: str, device: str, runs: Path, until: float, again: bool, pretend: bool) -> None:
    from layernorm.lab.experiments import get, planning, run

    sweep = plan_of(step, pretend)
    done = {} if again else planning.finished(sweep.experiment, runs, stale=False)
    failed: set[str] = set()
    while True:
        config = next((one for one in sweep.wanted(done) if one.key() not in failed), None)
        if config is None:
            return
        if time.monotonic() >= until:
            raise OutOfTime

        def look(step: int, metrics: dict[str, float]) -> None:
            if time.monotonic() >= until:
                raise OutOfTime

        name = f"{step} {config.profile} {config.arm} seed {config.seed}"
        try:
            made = run.train(
                config, device=device, root=runs, checkpoint_seconds=OFTEN, progress=look
            )
        except OutOfTime:
            print(f"{name}: out of time, the next call goes on with it", flush=True)
            raise
        except Exception as error:
            failed.add(config.key())
            print(f"{name}: failed: {type(error).__name__}: {error}", flush=True)
            if not alive(run.device_of(device)):
                raise Poisoned("", str(error)) from error
            continue
        done[config.key()] = made
        primary = get(sweep.experiment).primary
        seconds = made.timing["seconds_per_update"]
        print(
            f"{name}: {primary} {made.result['final'][primary]:.4g}, {1e6 * seconds:.0f} µs an "
            "update",
            flush=True,
        )


def plan_of(step: str, pretend: bool = False):
    """The sweep of a step; for a dry run two arms, and a few updates of its profile `book`."""
    from layernorm.lab.experiments import get
    from layernorm.lab.experiments.planning import Sweep

    name, _, profile = step.partition("/")
    if not pretend:
        return Sweep(name, profile)
    arms = tuple(get(name).profile("book").arms or get(name).arms)[:2]
    options = {**TINY, "learning_rate": 1e-3}
    return Sweep(name, "book", arms, get(name).profile("book").seeds[:1], options, by_heart=False)


def told(steps: Sequence[str], device: str, runs: Path, pretend: bool = False) -> Iterator[str]:
    """Lines with the runs missing from each step, as far as is known: tuning decides the rest."""
    from layernorm.lab.experiments import planning

    left = {}
    for step in steps:
        try:
            sweep = plan_of(step, pretend)
            done = planning.finished(sweep.experiment, runs, stale=False)
            left[step] = len(sweep.wanted(done))
        except Exception as error:
            yield f"{step}: left out: {type(error).__name__}: {error}"
    waiting = ", ".join(f"{count} of {step}" for step, count in left.items() if count)
    yield f"left, at least: {waiting}; the same command goes on" if waiting else "complete"
