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
# Of a dry run: its updates, more than a graph waits for; sizes of networks, batches and generated
# data, at most; and the data that would have to be fetched, in whose place it has those of `book`.
TINY = {"updates": 5, "evaluations": 1, "learning_rate": 1e-3}
MOST = {
    "batch_size": 8, "hidden": 24, "channels": 8, "stages": 8, "depth": 2, "heads": 4,
    "context": 16, "embedding": 8, "units": 8, "latent": 4, "glimpses": 3, "components": 3,
    "windows": 2, "vocabulary": 200, "points": 30, "lines": 16, "writers": 8, "scenes": 40,
    "entities": 6, "verbs": 4, "objects": 4, "fillers": 8, "filled": 1,
    "held_out": 20, "watched": 20, "weighted": 4, "samples": 2,
}  # fmt: skip
FETCHED = ("mnist", "cifar10", "novels")
DATA = ("dataset", "data", "text")  # the options that name data


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
    on = "".join(f", on {data}" for data in (stand_ins(step).values() if pretend else ()))
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

        name = f"{step} {config.profile} {config.arm} seed {config.seed}{on}"
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
    """The sweep of a step; for a dry run two arms, one of them with layer normalization if the
    profile has one, and a few updates of small networks."""
    from layernorm.lab.experiments import get
    from layernorm.lab.experiments.planning import Sweep

    name, _, profile = step.partition("/")
    if not pretend:
        return Sweep(name, profile)
    experiment, scale = get(name), get(name).profile(profile)
    first, *others = scale.arms
    layer = (arm for arm in others if experiment.arms[arm].get("method") == "layer")
    options = {**TINY, **_small(step, first), **stand_ins(step)}
    arms = (first, next(layer, others[0]))
    return Sweep(name, profile, arms, scale.seeds[:1], options, by_heart=False)


def _small(step: str, arm: str) -> dict[str, object]:
    """The sizes of a step's profile, each at most as in `MOST`."""
    found: dict[str, object] = {}
    for name, value in _options(step, arm).items():
        if name in MOST and isinstance(value, tuple):
            found[name] = tuple(min(size, MOST[name]) for size in value)
        elif name in MOST and value is not None:
            found[name] = min(value, MOST[name])
    return found


def stand_ins(step: str) -> dict[str, object]:
    """The data of a dry run, by option, where those of the step would have to be fetched."""
    own, book = _options(step), _options(f"{step.partition('/')[0]}/book")
    return {name: book[name] for name in DATA if own.get(name) in FETCHED}


def _options(step: str, arm: str | None = None) -> dict[str, object]:
    """The options of a step's arm, by default its first one."""
    from layernorm.lab.experiments import get

    name, _, profile = step.partition("/")
    arm = arm or get(name).profile(profile).arms[0]
    return get(name).config(profile, arm, 0).options.model_dump()


def told(steps: Sequence[str], device: str, runs: Path, pretend: bool = False) -> Iterator[str]:
    """Lines with the runs missing from each step, as far as is known: tuning decides the rest."""
    from layernorm.lab.experiments import planning

    left, out = {}, []
    for step in steps:
        try:
            sweep = plan_of(step, pretend)
            done = planning.finished(sweep.experiment, runs, stale=False)
            left[step] = len(sweep.wanted(done))
        except Exception as error:
            out.append(step)
            yield f"{step}: left out: {type(error).__name__}: {error}"
    waiting = ", ".join(f"{count} of {step}" for step, count in left.items() if count)
    whole = f"complete but for {', '.join(out)}" if out else "complete"
    yield f"left, at least: {waiting}; the same command goes on" if waiting else whole
