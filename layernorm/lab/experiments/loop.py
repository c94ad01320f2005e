"""The one training loop: a configuration in, a record out.

    record = train(get("mnist").config("book", "layer", seed=0))

`train` can be killed at any moment: called again it goes on from the last checkpoint, to the same
`result`, bit for bit, as without the interruption (same machine, device and number of threads).
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from layernorm.lab import records
from layernorm.lab.experiments import checkpoint
from layernorm.lab.experiments.experiment import Config
from layernorm.lab.experiments.trainer import CHECK_EVERY, Progressed, Trainer, summary

Progress = Callable[[int, dict[str, float]], None]


def device_of(name: str) -> torch.device:
    """`auto` is the GPU if there is one. Raises `ValueError` for a device that is not here."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda, got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device 'cuda' is not here: torch finds no GPU; use auto or cpu")
    return torch.device(name)


def train(
    config: Config,
    *,
    device: str = "auto",
    root: str | Path | None = None,
    save: bool = True,
    checkpoint_seconds: float = 30.0,
    progress: Progress | None = None,
) -> records.Record:
    """Train one configuration and save its record; from its last checkpoint, if it has one.

    The record's `result` holds the curves of `Task.evaluate` and of `batch_loss`, the mean loss of
    the batches since the last reading; as final metrics the last values, those of `Task.final`,
    `mean_…` (the mean of a curve after the start) for the experiment's `averaged`, and
    `best_test_…`, read where the metric `select` was lowest. A loss that is not finite stops the
    run, which is a result too: `diverged_at` is the update, final metrics are infinite.

    With `save=False` nothing is read or written. `progress(step, metrics)` is called at the start,
    at each reading and, with empty metrics, now and then in between.

    Raises:
        OSError: there is no room for the run's files, or its record cannot be written.
        ValueError: as the experiment's task does, for instance if batches exceed the data.
    """
    from layernorm.lab.experiments import get

    experiment, on = get(config.experiment), device_of(device)
    document = config.document()
    file = records.path(document, root).with_suffix(".checkpoint") if save else None
    depends = [*ENGINE, experiment.task, *experiment.depends_on]
    keeper = _Keeper(file, checkpoint_seconds, depends, document)
    state = keeper.state()
    with checkpoint.seeded(config.seed, on), _deterministic(on):
        trainer, done = Trainer(experiment, config, on), Progressed()
        if state is not None:
            trainer.restore(state)
            vars(done).update(state["done"])
            _warn_of_another_setting(state, trainer)
        if file is not None:
            _check_room(file.parent, trainer)
        diverged_at = _updates(trainer, done, config.options, keeper, progress or _silent)
        final = trainer.task.final() if diverged_at is None else {}
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


ENGINE = (Trainer, Progressed, summary, _updates)  # decide a result, besides the task


class _Keeper:
    """Writes checkpoints now and then; a full disk costs the checkpoints, not the run."""

    def __init__(
        self, file: Path | None, seconds: float, depends: list[Any], document: dict[str, Any]
    ) -> None:
        self.file, self.seconds = file, seconds
        self.digest = "" if file is None else records.digest(depends, document)
        self.last = time.monotonic()

    def state(self) -> dict[str, Any] | None:
        """The run's checkpoint, if there is one that today's code wrote; another is put aside."""
        if self.file is None or not self.file.exists():
            return None
        try:
            state = checkpoint.read(self.file)
            if state.get("code") == self.digest:
                return state
            why = "was written by other code"
        except ValueError as error:
            why = str(error)
        aside = self.file.with_suffix(".checkpoint.old")
        self.file.replace(aside)
        _say(f"the checkpoint {why}; it is now {aside.name}, and the run starts anew")
        return None

    def keep(self, trainer: Trainer, done: Progressed) -> None:
        if self.file is None or time.monotonic() - self.last < self.seconds:
            return
        state = {
            **trainer.state(),
            "done": vars(done),
            **_setting(trainer),
            "code": self.digest,
        }
        try:
            checkpoint.write(self.file, state)
        except OSError as error:
            _say(f"no checkpoint of update {done.step}: {error}; the run goes on without")
        self.last = time.monotonic()


def _setting(trainer: Trainer) -> dict[str, Any]:
    threads, version = torch.get_num_threads(), str(torch.__version__)
    return {"device": trainer.device.type, "threads": threads, "torch": version}


def _warn_of_another_setting(state: dict[str, Any], trainer: Trainer) -> None:
    now = _setting(trainer)
    was = {name: state[name] for name in now}
    if was != now:
        _say(
            f"the checkpoint was made with {was}, this is {now}: results may differ in their last "
            "bits from those of an uninterrupted run"
        )


def _check_room(folder: Path, trainer: Trainer) -> None:
    """Raises `OSError` if the folder cannot be written to, or has no room for two checkpoints."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(
            f"runs cannot be kept in {folder}: {error.strerror}; make it a folder that can be "
            "written to, or set LAYERNORM_RUNS to another one"
        ) from error
    tensors = [*trainer.model.state_dict().values(), *trainer.parameters, *trainer.parameters]
    need = 2 * sum(t.numel() * t.element_size() for t in tensors) + 2**20
    free = shutil.disk_usage(folder).free
    if free < need:
        raise OSError(
            f"{folder} has {free / 2**20:.0f} MiB of free space, this run needs "
            f"{need / 2**20:.0f} MiB; make room or set LAYERNORM_RUNS to another folder"
        )


@contextlib.contextmanager
def _deterministic(device: torch.device) -> Iterator[None]:
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


def _silent(step: int, metrics: dict[str, float]) -> None:
    pass


def _say(sentence: str) -> None:
    print(f"layernorm: {sentence}", file=sys.stderr)
