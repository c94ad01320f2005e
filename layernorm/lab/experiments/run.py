"""The one training loop: a configuration in, a record out.

    record = train(get("mnist").config("book", "layer", seed=0))

`train` can be killed at any moment: called again it goes on from the last checkpoint, to the same
`result`, bit for bit, as without the interruption (same machine, device and number of threads).
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from layernorm.lab import records
from layernorm.lab.experiments import checkpoint, get
from layernorm.lab.experiments.data_parallel import Workers
from layernorm.lab.experiments.experiment import Config, Experiment
from layernorm.lab.experiments.machine import device_of, within_memory
from layernorm.lab.experiments.trainer import CHECK_EVERY, Trainer
from layernorm.lab.records.staleness import Root

ALONE = threading.RLock()  # runs in threads of one process share its random number generators
SHARE = 0.1  # of a run's updates, after which it keeps a checkpoint that is not due by time
APART = 2.0  # seconds between two such checkpoints at least

Progress = Callable[[int, dict[str, float]], None]


class Progressed:
    """A run's progress: the update, the curves so far, the losses since the last reading."""

    def __init__(self) -> None:
        self.step, self.seconds = 0, 0.0
        self.steps: list[int] = []
        self.rows: list[dict[str, float]] = []
        self.losses: list[float] = []

    def read(self, metrics: dict[str, float]) -> None:
        """A metric that is not a number is infinite: as bad as can be, and it can be compared."""
        row = {name: math.inf if math.isnan(value) else value for name, value in metrics.items()}
        mean = math.fsum(self.losses) / len(self.losses) if self.losses else math.nan
        self.steps.append(self.step)
        self.rows.append({**row, "batch_loss": mean})
        self.losses = []


def summary(
    experiment: Experiment, done: Progressed, diverged_at: int | None, final: dict[str, float]
) -> dict[str, Any]:
    """A record's `result`, as `train` documents it."""
    names = list(done.rows[0])
    curves = {
        name: {"step": done.steps, "value": [row[name] for row in done.rows]}
        for name in names
        if name != "batch_loss"
    }
    curves["batch_loss"] = {
        "step": done.steps[1:],
        "value": [row["batch_loss"] for row in done.rows[1:]],
    }
    if diverged_at is None:
        last, later = done.rows[-1], done.rows[1:]
    else:
        last, later = dict.fromkeys(names, math.inf), [dict.fromkeys(names, math.inf)]
    best = min(later, key=lambda row: row[experiment.select])
    means = {f"mean_{name}": _mean([row[name] for row in later]) for name in experiment.averaged}
    tests = {f"best_{name}": best[name] for name in names if name.startswith("test_")}
    final = {**last, **means, **tests, **final}
    return {"curves": curves, "final": final, "diverged_at": diverged_at}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def train(
    config: Config,
    *,
    device: str = "auto",
    root: str | Path | None = None,
    save: bool = True,
    checkpoint_seconds: float = 30.0,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> records.Record:
    """Train one configuration and save its record; from its last checkpoint, if it has one.

    The record's `result` holds the curves of `Task.evaluate` and of `batch_loss`, the mean loss of
    the batches since the last reading; as final metrics the last values, those of `Task.final`,
    `mean_…` (the mean of a curve after the start) for the experiment's `averaged`, and
    `best_test_…`, read where the metric `select` was lowest. A loss that is not finite stops the
    run, which is a result too: `diverged_at` is the update, final metrics are infinite.

    With `save=False` nothing is read or written. `progress(step, metrics)` is called at the start,
    at each reading and, with empty metrics, now and then in between. `workers` share the run; the
    first of them reads curves, and reads and writes files.

    Raises:
        OSError: there is no room for the run's files, or its record cannot be written.
        ValueError: as the experiment's task does, for instance if batches exceed the data.
    """
    experiment, on = get(config.experiment), device_of(device)
    workers = workers or Workers()
    document = workers.document(experiment.document(config))
    writes = save and workers.rank == 0
    file = records.path(document, root).with_suffix(".checkpoint") if writes else None
    made_by = trainer_of(experiment, on, workers)
    depends = depends_on(experiment, on, workers)
    code = records.digest(depends, document)
    state = workers.told(checkpoint.left(file, code))
    with ALONE, checkpoint.seeded(config.seed, on), deterministic(on):
        with within_memory(on):
            trainer = made_by(experiment, config, on)
            trainer = workers.share(trainer, config.seed)
            done = Progressed()
        if state is not None:
            try:
                _resume(trainer, done, state)
            except Exception as error:  # whatever its content leads to
                if file is not None:
                    checkpoint.put_aside(file, f"is not one of this run ({error!r})")
                again = {"checkpoint_seconds": checkpoint_seconds, "progress": progress}
                return train(config, device=device, root=root, workers=workers, **again)
        if file is not None:
            weights = trainer.parameters
            tensors = [*trainer.model.state_dict().values(), *weights, *weights]
            checkpoint.check_room(file.parent, tensors)
        keeper = _Keeper(file, checkpoint_seconds, config.options.updates, code)
        diverged_at = _updates(trainer, done, config.options, keeper, progress or _silent)
        reads = diverged_at is None and workers.rank == 0
        final = workers.told(trainer.task.final() if reads else {})
    result = summary(experiment, done, diverged_at, final)
    timing = {"seconds_per_update": done.seconds / max(1, done.step)}
    record = records.new(document, result, timing, depends)
    if file is not None:
        try:
            records.save(record, root)
        except OSError as error:
            onward = "goes on from its checkpoint" if file.exists() else "starts anew"
            raise OSError(
                f"the record of this run cannot be written: {error}; make room and run it again: "
                f"it {onward}"
            ) from error
        file.unlink(missing_ok=True)
        checkpoint.sweep_up(file)
    return record


def depends_on(experiment: Experiment, device: torch.device, workers: Workers) -> list[Root]:
    """The code that a run starts from, and that its digest names."""
    made_by = trainer_of(experiment, device, workers)
    depends = [*ENGINE, experiment.task, *experiment.depends_on]
    depends += [] if made_by in (Trainer, experiment.trainer) else [made_by]
    return depends + ([Workers] if workers.size > 1 else [])


def trainer_of(experiment: Experiment, device: torch.device, workers: Workers) -> Any:
    """The maker of updates: on a GPU, by one process, graphs where a task's shapes allow it."""
    trainer = experiment.trainer or Trainer
    if device.type != "cuda" or workers.size > 1:
        return trainer
    from layernorm.lab.experiments.graphed import Graphed

    return experiment.graphed or (Graphed if trainer is Trainer else trainer)


def _updates(
    trainer: Trainer, done: Progressed, options: Any, keeper: _Keeper, progress: Progress
) -> int | None:
    """All updates that are left; returns the one whose loss was not finite, if one was."""
    at = {round(i * options.updates / options.evaluations) for i in range(options.evaluations + 1)}
    if not done.rows:
        done.read(trainer.evaluate())
        progress(0, done.rows[-1])
    began = time.perf_counter()
    for step in range(done.step + 1, options.updates + 1):
        trainer.update(step)
        if trainer.kept < CHECK_EVERY and step not in at:
            continue
        losses = trainer.look()
        done.seconds += time.perf_counter() - began
        done.step = step
        for ago, loss in zip(range(len(losses) - 1, -1, -1), losses, strict=True):
            if not math.isfinite(loss):
                done.step = step - ago
                return done.step
        done.losses += losses
        if step in at:
            done.read(trainer.evaluate())
        progress(step, done.rows[-1] if step in at else {})
        keeper.keep(trainer, done)
        began = time.perf_counter()
    return None


def _resume(trainer: Trainer, done: Progressed, state: dict[str, Any]) -> None:
    """Go on from a checkpoint's state; an error if it is not that of such a run."""
    kinds = {name: type(value) for name, value in vars(done).items()}
    if {name: type(value) for name, value in state["done"].items()} != kinds:
        raise ValueError("it does not say how far the run has come")
    vars(done).update(state["done"])
    if not 0 < len(done.steps) == len(done.rows):
        raise ValueError("its curves have no readings")
    trainer.restore(state)
    _warn_of_another_setting(state, trainer)


class _Keeper:
    """Writes checkpoints now and then: after some seconds, and after a share of the run, but then
    with at most a twentieth of the time. A full disk costs the checkpoints, not the run."""

    def __init__(self, file: Path | None, seconds: float, updates: int, code: str) -> None:
        self.file, self.seconds, self.updates, self.code = file, seconds, updates, code
        self.last, self.step, self.apart = time.monotonic(), 0, APART

    def keep(self, trainer: Trainer, done: Progressed) -> None:
        began = time.monotonic()
        waited, came = began - self.last, done.step - self.step
        due = waited >= self.seconds or (waited >= self.apart and came >= SHARE * self.updates)
        if self.file is None or not due:
            return
        state = {**trainer.state(), "done": vars(done), **_setting(trainer), "code": self.code}
        try:
            checkpoint.write(self.file, state)
        except OSError as error:
            checkpoint.say(f"no checkpoint of update {done.step}: {error}; the run goes on without")
        self.last, self.step = time.monotonic(), done.step
        self.apart = max(APART, 20 * (self.last - began))


def _setting(trainer: Trainer) -> dict[str, Any]:
    threads, version = torch.get_num_threads(), str(torch.__version__)
    return {"device": trainer.device.type, "threads": threads, "torch": version}


def _warn_of_another_setting(state: dict[str, Any], trainer: Trainer) -> None:
    now = _setting(trainer)
    was = {name: state[name] for name in now}
    if was != now:
        checkpoint.say(
            f"the checkpoint was made with {was}, this is {now}: results may differ in their last "
            "bits from those of an uninterrupted run"
        )


@contextlib.contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """On a GPU, only operations that give the same bits every time."""
    if device.type != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


# Decide a result, besides the task.
ENGINE = (Trainer, Progressed, summary, _updates, checkpoint.seeded, deterministic)


def _silent(step: int, metrics: dict[str, float]) -> None:
    pass
