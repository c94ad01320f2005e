"""A sweep as large as a machine room, on paper: `python tools/at_scale.py` prints two tables,
and `--ray 10000` how many empty runs Ray schedules in a second.

What one run asks of the storage is counted on runs that are really made, empty ones. Whole sweeps
are then carried out by the engine's own code on nodes that are simulated: a clock of their own says
when a run ends or its node fails, at random, and nothing is trained. The processor's time that the
engine takes, its memory and its operations on the folder of runs are those of this machine.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import functools
import heapq
import io
import itertools
import multiprocessing
import os
import pickle
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import torch
from torch import nn

from layernorm.lab import experiments, records
from layernorm.lab.experiments import checkpoint, lock, run, sweep
from layernorm.lab.experiments.cluster import RETRIES
from layernorm.lab.experiments.experiment import Config, Experiment, Profile
from layernorm.lab.experiments.options import Options
from layernorm.lab.experiments.planning import Sweep

CALLS = {os: "stat open replace unlink mkdir fsync scandir rmdir statvfs", io: "open"}
SEEDS = 10_000  # the first one: none is a seed of the tuning
CURVES = ("train_nll", "validation_nll", "test_nll")
RATES = (0.001, 0.003, 0.01)


class Empty:
    """A task with one weight, which learns nothing."""

    def __init__(self, options: Options, seed: int, device: torch.device) -> None:
        self.model, self.drawn = nn.Linear(1, 1, bias=False).to(device), random.Random(seed)

    def loss(self, step: int) -> torch.Tensor:
        return 0 * self.model.weight.sum()

    def evaluate(self) -> dict[str, float]:
        return {name: self.drawn.random() for name in CURVES}

    def final(self) -> dict[str, float]:
        return {}


def register(arms: int) -> None:
    """Make the experiment `empty` known, with so many arms."""
    names = {f"arm{i}": {"method": "layer"} for i in range(arms)}
    small = {"updates": 20, "evaluations": 20}
    sys.modules["layernorm.lab.experiments.empty.plan"] = sys.modules[__name__]
    experiments.NAMES = tuple(dict.fromkeys((*experiments.NAMES, "empty")))
    globals()["EXPERIMENT"] = Experiment(
        name="empty",
        question="What does the engine take?",
        options=Options,
        arms=names,
        profiles={"book": Profile(tuple(names), small, seeds=(0,), learning_rates=RATES)},
        task=Empty,
        data=lambda options: "0" * 64,
        primary="mean_test_nll",
        select="validation_nll",
        averaged=("validation_nll", "test_nll"),
    )


@dataclass
class Cluster(Executor):
    """Simulated nodes, one run each, with a clock that stands while the engine computes.

    Runs take `seconds` on average (log-normal, with a standard deviation of the logarithm of 0.5).
    A node fails after `between` seconds of work on average (exponential) and is back after
    `repair`; its run goes on elsewhere from its last checkpoint, at most `RETRIES` times.
    """

    nodes: int
    seconds: float
    between: float
    repair: float = 1800.0
    every: float = 30.0  # seconds between two checkpoints
    start: float = 10.0  # of a worker, again after each failure
    now: float = 0.0
    worked: float = 0.0
    lost: float = 0.0
    failures: int = 0
    given_up: int = 0
    spent: float = 0.0  # seconds that the simulation itself took
    events: list = field(default_factory=list)
    waiting: collections.deque = field(default_factory=collections.deque)

    def __post_init__(self) -> None:
        self.free, self.draw, self.order = self.nodes, random.Random(0), itertools.count()

    def submit(self, work: Callable, config: Config) -> Future:
        future, need = Future(), self.draw.lognormvariate(0, 0.5) * self.seconds / 1.133
        self.waiting.append((future, config, need, 0))
        return future

    def step(self) -> None:
        """Start runs on free nodes; then let the next thing happen."""
        began = time.process_time()
        while self.free and self.waiting:
            self.free -= 1
            future, config, need, failed = self.waiting.popleft()
            until = self.draw.expovariate(1 / self.between)
            took = min(self.start + need, until)
            ends = None if took < until else (until, failed + 1)
            self._at(took, functools.partial(self._end, future, config, need, took, failed, ends))
        self.now, _, happens = heapq.heappop(self.events)
        ended = happens()
        self.spent += time.process_time() - began
        if ended is not None:
            future, record = ended
            future.set_result(record) if record else future.set_exception(
                RuntimeError("nodes died")
            )

    def _at(self, delay: float, happens: Callable) -> None:
        heapq.heappush(self.events, (self.now + delay, next(self.order), happens))

    def _end(self, future, config, need, took, failed, broken) -> tuple | None:
        self.worked += took
        if broken is None:
            self.free += 1
            return future, made_up(config)
        self.failures += 1
        self._at(self.repair, self._repaired)
        kept = self.every * (max(0.0, took - self.start) // self.every)
        self.lost += took - kept
        if failed == RETRIES:
            self.given_up += 1
            return future, None
        self.waiting.appendleft((future, config, need - kept, failed + 1))
        return None

    def _repaired(self) -> None:
        self.free += 1


class Answers:
    """The engine's queue of runs that have ended; to wait lets the cluster's clock go on."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.ended = cluster, collections.deque()
        self.put = self.ended.append

    def get(self) -> str:
        while not self.ended:
            self.cluster.step()
        return self.ended.popleft()


@functools.cache
def _sent() -> bytes:
    """A record as a worker sends it, of curves with 101 readings."""
    curves = {n: {"step": list(range(101)), "value": [0.5 + i for i in range(101)]}
              for n in (*CURVES, "batch_loss")}  # fmt: skip
    final = {name: 0.5 for n in CURVES for name in (n, f"mean_{n}", f"best_{n}")}
    result = {"curves": curves, "final": final, "diverged_at": None}
    config = EXPERIMENT.config("book", "arm0", SEEDS, learning_rate=0.01)
    of = EXPERIMENT.document(config)
    made = records.Record(of, result, {"seconds_per_update": 1e-3}, records.environment(), "0" * 64)
    return pickle.dumps(made)


def made_up(config: Config) -> records.Record:
    """The record of a run, with metrics drawn at random."""
    record, chance = pickle.loads(_sent()), random.Random(config.key())
    record.config.update(EXPERIMENT.document(config))
    record.result["final"].update({name: chance.random() for name in record.result["final"]})
    return record


@contextlib.contextmanager
def counted(folder: str) -> Iterator[collections.Counter]:
    """Count operations on files of this folder, by name, while it lasts."""
    counts: collections.Counter = collections.Counter()

    def counting(name: str, function: Callable) -> Callable:
        def call(*args, **kwargs):
            of_a_file = name in ("fsync", "flock")  # that is open
            counts[name] += of_a_file or str(args[0]).startswith(folder)
            return function(*args, **kwargs)

        return call

    with contextlib.ExitStack() as stack:
        for module, names in CALLS.items():
            for name in filter(functools.partial(hasattr, module), names.split()):
                new = counting(name, getattr(module, name))
                stack.enter_context(mock.patch.object(module, name, new))
        if lock.fcntl is not None:
            new = counting("flock", lock.fcntl.flock)
            stack.enter_context(mock.patch.object(lock.fcntl, "flock", new))
        yield counts


def of_one_run() -> dict[str, collections.Counter]:
    """The operations of a run's worker, of one checkpoint, and of reading a run that is done."""
    register(1)
    work = functools.partial(sweep._work, device="cpu", threads=1, anew=False)
    plan = Sweep("empty", "book", (), tuple(range(SEEDS, SEEDS + 3)), by_heart=False)
    first, config, other = (plan.config("arm0", seed, 0.01) for seed in plan.seeds)
    found = {}
    with tempfile.TemporaryDirectory() as root:
        work(first, root=root)  # imports, and looks for the commit
        with counted(root) as found["a run"]:
            work(config, root=root)
        trainer = run.Trainer(EXPERIMENT, other, torch.device("cpu"))
        file = Path(root, f"{other.key()}.checkpoint")
        with counted(root) as found["a checkpoint"]:
            checkpoint.write(file, {**trainer.state(), "code": ""})
        with counted(root) as found["a run that is done, read again"]:
            records.read(records.path(EXPERIMENT.document(config), root))
    return found


@dataclass
class Found:
    """One sweep: its runs, the engine's seconds, megabytes and operations, and its cluster."""

    runs: int
    failed: int
    seconds: float
    megabytes: float
    operations: int
    cluster: Cluster


def of_a_sweep(arms: int, seeds: int, cluster: Cluster) -> Found:
    """A sweep that tunes its arms and runs them, carried out on the cluster."""
    register(arms)
    before = _peak()
    plan = Sweep("empty", "book", (), tuple(range(SEEDS, SEEDS + seeds)), by_heart=False)
    with tempfile.TemporaryDirectory() as root, counted(root) as operations:
        elsewhere = mock.patch.object(records, "save")
        queue = mock.patch.object(sweep, "SimpleQueue", return_value=Answers(cluster))
        with elsewhere, queue:  # the worker's operations are counted apart
            began = time.process_time()
            outcome = sweep.carry_out(plan, workers=cluster, root=root)
            took = time.process_time() - began - cluster.spent
    runs, failed = len(outcome.done), len(outcome.failed)
    return Found(runs, failed, took, _peak() - before, operations.total(), cluster)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _back(config: Config) -> records.Record:
    """An empty run on a node: its record is there already."""
    if "EXPERIMENT" not in globals():
        register(1)
    return pickle.loads(_sent())


def of_ray(runs: int) -> tuple[float, float, float]:
    """Hand empty runs to a cluster of this machine, all at once as a sweep does.

    Returns the runs that end in a second, the seconds of the processor that the command takes for
    one, and the megabytes that it grows by.
    """
    import ray

    from layernorm.lab.experiments.cluster import RayExecutor

    register(1)
    config = EXPERIMENT.config("book", "arm0", SEEDS, learning_rate=0.01)
    before = _peak()
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(**quiet)
    try:
        with RayExecutor() as cluster:
            concurrent.futures.wait([cluster.submit(_back, config) for _ in range(100)])  # starts
            began, spent = time.perf_counter(), time.process_time()
            ended = [cluster.submit(_back, config) for _ in range(runs)]
            for future in ended:
                future.result()
            took, spent = time.perf_counter() - began, time.process_time() - spent
    finally:
        ray.shutdown()
    return runs / took, spent / runs, _peak() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10, help="of a run, on average")
    parser.add_argument("--days", type=float, default=30, help="between two failures of a node")
    parser.add_argument("--every", type=float, default=30, help="seconds between checkpoints")
    parser.add_argument("--sweeps", default="10x100,10x1000,100x100,10x10000,100x1000")
    parser.add_argument("--ray", type=int, metavar="RUNS", help="measure Ray with empty runs, only")
    args = parser.parse_args()
    if args.ray:
        rate, each, megabytes = of_ray(args.ray)
        print(
            f"{args.ray} empty runs by Ray: {rate:.0f} a second, {1e3 * each:.2f} ms of the "
            f"command's processor for each, {1e3 * megabytes / args.ray:.1f} MB/1000 runs"
        )
        return
    print("storage operations")
    for what, counts in of_one_run().items():
        told = ", ".join(f"{name} {n}" for name, n in counts.most_common())
        print(f"  {what:<32} {counts.total():>3}: {told}")
    print("\narms x seeds   runs  engine ms/run  operations/run  MB/1000 runs  hours  busy"
          "  failures  lost h  given up")  # fmt: skip
    for shape in args.sweeps.split(","):
        cluster = Cluster(args.nodes, 60 * args.minutes, 86400 * args.days, every=args.every)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as own:  # own peak
            of = own.submit(of_a_sweep, *map(int, shape.split("x")), cluster).result()
        cluster = of.cluster
        each, hours = 1e3 / of.runs, cluster.now / 3600
        cells = [f"{shape:<12}", f"{of.runs:>6}", f"{each * of.seconds:>13.2f}"]
        cells += [f"{of.operations / of.runs:>14.1f}", f"{each * of.megabytes:>12.1f}"]
        cells += [f"{hours:>5.1f}", f"{cluster.worked / cluster.nodes / cluster.now:>4.0%}"]
        cells += [f"{cluster.failures:>8}", f"{cluster.lost / 3600:>6.1f}"]
        print("  ".join([*cells, f"{cluster.given_up:>8}"]), flush=True)


if __name__ == "__main__":
    from at_scale import main as begin  # records look for the task's code under its module's name

    begin()
