"""A sweep carried out, by worker processes of this machine, each with its share of the threads, or
by an executor that is handed in, of a cluster for instance."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from layernorm.lab import records
from layernorm.lab.experiments import checkpoint, get, lock, machine, run
from layernorm.lab.experiments.experiment import Config
from layernorm.lab.experiments.left import Left
from layernorm.lab.experiments.planning import Sweep, finished
from layernorm.lab.records import staleness
from layernorm.lab.records.files import runs_folder


def rates(name: str, profile: str = "book", arms: Sequence[str] = ()) -> dict[str, float]:
    """Each arm's learning rate, as the published tuning runs choose it.

    Raises `ValueError` if an arm has none.
    """
    sweep = Sweep(name, profile, tuple(arms), by_heart=False)
    with records.published_only():
        there = finished(name)
    found = {arm: sweep.rate(there, arm) for arm in sweep.arms}
    if missing := [arm for arm, rate in found.items() if rate is None]:
        raise ValueError(
            f"{name} has no published tuning of {', '.join(missing)}; run "
            f"`layernorm sweep {name} --profile {profile}` and `layernorm records add`"
        )
    return found


def live(
    name: str,
    profile: str = "book",
    *,
    arms: Sequence[str] = (),
    seeds: Sequence[int] = (),
    workers: int | None = 1,
    **options: Any,
) -> list[records.Record]:
    """The runs of some arms and seeds (default: the plan's), arm by arm, made now and kept nowhere.

    Each arm has the learning rate of the published tuning; `options` override that, and the plan.
    They are made in this process, with more `workers` in as many others (None: one for each core).
    """
    from tqdm import tqdm

    sweep = Sweep(name, profile, tuple(arms), tuple(seeds), options, by_heart=False)
    if "learning_rate" in options:
        rate = dict.fromkeys(sweep.arms, options["learning_rate"])
    else:
        rate = rates(name, profile, sweep.arms)
    configs = [sweep.config(arm, seed, rate[arm]) for arm in sweep.arms for seed in sweep.seeds]
    work = partial(run.train, device="cpu", save=False)
    if workers == 1:
        return [work(config) for config in tqdm(configs, desc=name, disable=None, leave=False)]
    with _pool(workers or machine.cores(), 1) as pool:
        return list(pool.map(work, configs))


@dataclass
class Outcome:
    """The outcome of a sweep: all runs that are done, by key, and why the others are not."""

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
    workers: int | Executor | None = None,
    threads: int = 1,
    device: str = "auto",
    root: str | Path | None = None,
    anew: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> Outcome:
    """Run what the sweep still wants; what is done already, own or published, is skipped, but with
    `anew` only if the code it depends on has not changed since.

    A run that fails is reported and the rest finished. A run that another process is at is left
    for last and waited for. `workers` default to as many processes as the cores hold with `threads`
    threads each, on a GPU to one; they end when this process does, however it ends. Or they are an
    executor, as `concurrent.futures` has them: it gets all runs that can be started, and stays
    open; its futures must end. `progress(ended, known, name)` is called after each run: how many
    ended, and are known to be needed (tuning may ask for more).

    Raises:
        ValueError: workers or threads are too few or too many, or the device is not here.
        RuntimeError: no worker process can start: the script that calls this has no main guard.
    """
    if isinstance(workers, int):
        machine.check_number("workers", workers)
    machine.check_number("threads", threads)
    if workers is None:
        one = machine.device_of(device).type == "cuda"
        workers = 1 if one else max(1, machine.cores() // threads)
    if not isinstance(workers, int):
        root = runs_folder(root).absolute()  # its processes may be in other folders
    staleness.code()  # as it is now, whatever is edited while the sweep goes on
    outcome = Outcome(finished(sweep.experiment, root, stale=not anew))
    left = Left(sweep, outcome.done, outcome.failed.keys())
    ended = 0
    work = partial(_work, device=device, root=root, threads=threads, anew=anew)

    def note(key: str, future: Future) -> None:
        nonlocal ended
        config = left.at_work[key]
        try:
            record = future.result()
            if not isinstance(record, records.Record):
                raise TypeError(f"its executor returned {record!r} where a record was expected")
            if not _there(record, root):
                records.save(record, root)  # its worker has another disk
            outcome.done[key] = record
        except Exception as error:  # _Failed, or the record or the log could not be written
            outcome.failed[key] = Failure(config, _reason(error), _log(config, root))
        left.ended(key)
        ended += 1
        if progress is not None:
            progress(ended, ended + len(left), f"{config.arm} seed {config.seed}")

    def busy(config: Config) -> bool:
        return lock.busy(lock.place(config, root))

    if not isinstance(workers, int):
        _run_all(workers, None, work, left, note, busy)
    while left:
        with _pool(workers, threads) as pool:
            _run_all(pool, workers, work, left, note, busy)
        for key, config in dict(left.at_work).items():  # each by itself, to see which one it was
            with _pool(1, threads) as pool:
                note(key, pool.submit(work, config))
    return outcome


def _there(record: records.Record, root: str | Path | None) -> bool:
    path = records.path(record.config, root)
    try:
        return path.exists() and records.read(path) == record
    except records.RecordError:  # a damaged one
        return False


def _reason(error: Exception) -> str:
    if isinstance(error, BrokenExecutor):
        return "its worker process died"
    if isinstance(error, CancelledError):
        return "its executor cancelled it"
    return str(error) or repr(error)


def _run_all(pool, at_most, work, left, note, busy) -> None:
    """Keeps the pool busy until nothing is left; or, if there is a limit `at_most` and so the pool
    is our own, until a worker dies: those that were then at work stay noted so."""
    futures: dict[str, Future] = {}
    ended: SimpleQueue[str] = SimpleQueue()
    elsewhere: set[str] = set()  # another process was at them when they were handed out
    try:
        while left:
            for key, config, taken in left.start(at_most, busy):
                futures[key] = _submitted(pool, work, config)
                futures[key].add_done_callback(lambda _, key=key: ended.put(key))
                elsewhere |= {key} if taken else set()
            if elsewhere and left.at_work.keys() <= elsewhere:
                checkpoint.say(f"waiting for runs that another process is at: {len(left.at_work)}")
            key = ended.get()
            if at_most is not None and isinstance(futures[key].exception(), BrokenExecutor):
                return
            note(key, futures.pop(key))
    finally:
        for future in futures.values():
            future.cancel()


def _submitted(pool, work: Callable, config: Config) -> Future:
    try:
        return pool.submit(work, config)
    except Exception as error:  # it is broken, or shut down
        refused: Future = Future()
        refused.set_exception(error)
        return refused


@contextlib.contextmanager
def _pool(workers: int, threads: int) -> Iterator[ProcessPoolExecutor]:
    """New processes, not forks: torch's threads and CUDA do not survive a fork.

    They hold the reading end of a pipe, and end when its other end is closed: by an error here, or
    by the end of this process.
    """
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    with reader, writer, ProcessPoolExecutor(workers, context, _begin, (threads, reader)) as pool:
        try:
            started = [pool.submit(os.getpid) for _ in range(workers)]
            if isinstance(started[0].exception(), BrokenProcessPool):
                raise RuntimeError(
                    "no worker process could start. A worker imports the script that was started: "
                    "what starts a sweep must stand there under `if __name__ == '__main__':`, or "
                    "each worker starts the sweep again"
                )
            yield pool
        except BaseException:
            writer.close()
            raise


def _begin(threads: int, parent: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
    torch.set_num_threads(threads)
    staleness.code()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        parent.recv_bytes()
    os._exit(1)


_fetched: set[str] = set()  # experiments whose data this process has found here


def _fetch(config: Config) -> None:
    """Get a run's data; one process of this machine downloads them, the others wait for it."""
    place = Path(tempfile.gettempdir(), f"layernorm-{config.experiment}.lock")
    others = lock.busy(place)
    with lock.held(place):
        if not others:
            get(config.experiment).document(config)
    _fetched.add(config.experiment)


def _log(config: Config, root: str | Path | None) -> Path:
    return records.path(get(config.experiment).document(config), root).with_suffix(".log")


class _Log(io.TextIOBase):
    """A file that is made when something is written to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, text: str) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            return file.write(text)


def _work(
    config: Config, device: str, root: str | Path | None, threads: int, anew: bool
) -> records.Record:
    """One run in a worker, unless another process has made it meanwhile. What it says goes to a
    log."""
    if config.experiment not in _fetched:
        _fetch(config)
    log = _log(config, root)
    alone = lock.held(lock.place(config, root))
    with alone, run.ALONE, contextlib.redirect_stderr(_Log(log)):
        if (file := log.with_suffix(".json")).exists():
            made = records.read(file)
            if not (anew and records.stale(made)):
                return made
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return run.train(config, device=device, root=root)
        except Exception as error:
            traceback.print_exc()
            raise _Failed(f"{type(error).__name__}: {error}") from None
        finally:
            torch.set_num_threads(before)
