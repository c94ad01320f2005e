"""A sweep carried out on this machine: worker processes, each with its share of the threads."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from layernorm.lab import records
from layernorm.lab.experiments import loop
from layernorm.lab.experiments.experiment import Config
from layernorm.lab.experiments.planning import Sweep, finished


@dataclass
class Outcome:
    """What a sweep came to: all runs that are done, by key, and why the others are not."""

    done: dict[str, records.Record]
    failed: dict[str, Failure] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    config: Config
    reason: str
    log: Path


class _Failed(Exception):
    """A run's own error, in one line; its traceback is in the log."""


def carry_out(
    sweep: Sweep,
    *,
    workers: int | None = None,
    threads: int = 1,
    device: str = "auto",
    root: str | Path | None = None,
    done: Mapping[str, records.Record] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Outcome:
    """Run what the sweep wants until nothing is left; what is done already is skipped.

    A run that fails is reported and the rest finished. `workers` default to as many as the cores
    hold with `threads` threads each, on a GPU to one. `done`: what counts as done, by key; default
    all own and published runs. `progress(ended, known, name)` is called after each run: how many
    ended, and are known to be needed (tuning may ask for more).

    Raises `ValueError` for workers or threads below 1, and as `loop.device_of` does.
    """
    for name, value in (("workers", workers), ("threads", threads)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if workers is None:
        one = loop.device_of(device).type == "cuda"
        workers = 1 if one else max(1, _cores() // threads)
    outcome = Outcome(dict(finished(sweep.experiment, root) if done is None else done))
    ended: set[str] = set()
    work = partial(_work, device=device, root=root)

    def note(key: str, config: Config, future: Future) -> None:
        try:
            outcome.done[key] = future.result()
        except BrokenProcessPool:
            outcome.failed[key] = Failure(config, "its worker process died", _log(config, root))
        except Exception as error:  # _Failed, or the log itself could not be written
            outcome.failed[key] = Failure(config, str(error), _log(config, root))
        ended.add(key)
        if progress is not None:
            known = len(ended) + len(_left(sweep, outcome))
            progress(len(ended), known, f"{config.arm} seed {config.seed}")

    while _left(sweep, outcome):
        with _pool(workers, threads) as pool:
            suspects = _run_all(pool, workers, work, sweep, outcome, note)
        for key, config in suspects.items():  # each by itself, to see which one it was
            with _pool(1, threads) as pool:
                note(key, config, pool.submit(work, config))
    return outcome


def live(sweep: Sweep, workers: int | None = None) -> list[records.Record]:
    """The sweep's runs, made now and kept nowhere, at the published learning rates: for chapters.

    Raises `RuntimeError` if a run failed.
    """
    sweep = replace(sweep, by_heart=False)
    with records.published_only():
        there = finished(sweep.experiment)
    tuning = {k: run for k, run in there.items() if run.config["profile"] != sweep.profile}
    with tempfile.TemporaryDirectory() as folder:
        outcome = carry_out(sweep, workers=workers, device="cpu", root=folder, done=tuning)
    for failure in outcome.failed.values():
        raise RuntimeError(f"{failure.config.arm} seed {failure.config.seed}: {failure.reason}")
    return sweep.runs(outcome.done)


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _left(sweep: Sweep, outcome: Outcome) -> dict[str, Config]:
    wanted = {config.key(): config for config in sweep.wanted(outcome.done)}
    return {key: config for key, config in wanted.items() if key not in outcome.failed}


def _run_all(pool, workers, work, sweep, outcome, note) -> dict[str, Config]:
    """Keeps the pool busy until nothing is left, or until a worker dies: those then at work."""
    at_work: dict[Future, tuple[str, Config]] = {}
    died = False
    while not died:
        busy = {key for key, _ in at_work.values()}
        for key, config in _left(sweep, outcome).items():
            if key not in busy and len(at_work) < workers:
                try:
                    at_work[pool.submit(work, config)] = (key, config)
                except BrokenProcessPool:
                    died = True
                    break
        if not at_work:
            break
        for future in wait(at_work, return_when=FIRST_COMPLETED).done:
            if isinstance(future.exception(), BrokenProcessPool):
                died = True
            else:
                note(*at_work.pop(future), future)
    return dict(at_work.values())


def _pool(workers: int, threads: int) -> ProcessPoolExecutor:
    """New processes, not forks: torch's threads and CUDA do not survive a fork."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, context, torch.set_num_threads, (threads,))


def _log(config: Config, root: str | Path | None) -> Path:
    return records.path(config.document(), root).with_suffix(".log")


def _work(config: Config, device: str, root: str | Path | None) -> records.Record:
    """One run in a worker. What it says goes to a log; an empty one is dropped."""
    log = _log(config, root)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file, contextlib.redirect_stderr(file):
        try:
            record = loop.train(config, device=device, root=root)
        except Exception as error:
            traceback.print_exc()
            raise _Failed(f"{type(error).__name__}: {error}") from None
    if not log.stat().st_size:
        log.unlink()
    return record
