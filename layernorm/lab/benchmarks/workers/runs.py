"""Runs of one update, handed by a sweep to the executors that `carry_out` takes."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from layernorm.lab import records
from layernorm.lab.benchmarks.measure.case import Case, Row, Trial
from layernorm.lab.benchmarks.measure.gate import Verdict
from layernorm.lab.benchmarks.measure.process import measure_apart
from layernorm.lab.benchmarks.measure.words import one_of
from layernorm.lab.experiments import run, sweep
from layernorm.lab.experiments.planning import Sweep
from layernorm.lab.experiments.studies import batch_size

ALONE = "alone"  # one after another in this process, without a sweep
RUNS = 16
SIZES = (1, 2)  # runs at once
FIRST = 2000  # the first seed
SMALL = {"updates": 1, "evaluations": 1, "learning_rate": 1e-3, "hidden": [8]}


@contextlib.contextmanager
def joblib(workers: int) -> Iterator[Executor]:
    """A pool of its own: a process has one that is reused. A worker imports what runs need before
    its first, since one whose memory grows from then on is replaced."""
    from joblib.externals.loky import ProcessPoolExecutor

    begin = partial(importlib.import_module, sweep.__name__)
    with ProcessPoolExecutor(workers, initializer=begin) as pool:
        yield pool


@contextlib.contextmanager
def dask(workers: int) -> Iterator[Executor]:
    from dask.distributed import Client, LocalCluster

    place = {"host": "127.0.0.1", "dashboard_address": None}
    nodes = LocalCluster(n_workers=workers, threads_per_worker=1, **place)
    with nodes, Client(nodes) as client:
        yield client.get_executor()


@contextlib.contextmanager
def ray(workers: int) -> Iterator[Executor]:
    """One node of this machine, since a process has one connection. Of its CPUs each run takes as
    many as leave room for so many runs at once. Its workers wait for runs as long as other engines
    have their turn; by default those that wait for a second are stopped."""
    import ray as engine

    from layernorm.lab.experiments.cluster import RayExecutor

    little = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    kept = {"idle_worker_killing_time_threshold_ms": 3_600_000}
    own = not engine.is_initialized()
    if own:
        space = {"num_cpus": max(SIZES), "object_store_memory": 80_000_000}
        engine.init(**space, **little, _system_config=kept)
    try:
        with RayExecutor(threads=max(SIZES) // workers) as cluster:
            yield cluster
    finally:
        if own:
            engine.shutdown()


@dataclass(frozen=True)
class Engine:
    """A kind of executor: the package that it needs, and how so many processes are opened."""

    package: str
    open: Callable[[int], contextlib.AbstractContextManager[Executor]]


ENGINES = {
    "pool": Engine("concurrent", lambda workers: sweep._pool(workers, 1)),
    "joblib": Engine("joblib", joblib),
    "dask": Engine("distributed", dask),
    "ray": Engine("ray", ray),
}
NAMES = (ALONE, *(f"{engine}/{n}" for engine in ENGINES for n in SIZES))


def here() -> tuple[str, ...]:
    """The implementations whose package is installed."""

    def installed(name: str) -> bool:
        engine = ENGINES.get(name.partition("/")[0])
        return engine is None or importlib.util.find_spec(engine.package) is not None

    return tuple(filter(installed, NAMES))


@dataclass(frozen=True)
class RunsCase(Case):
    """A sweep of `shape[0]` runs of one update each, by executors of one or two processes that are
    there already, each measuring process having its own; `alone` makes the same runs without a
    sweep. All must give the same results, bit for bit. Times are those of the whole sweep."""

    mode: str = "sweep"
    rounds: int = 3
    sample_seconds: float = 0.1
    processes: int = 10
    opened: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    MODES: ClassVar[tuple[str, ...]] = ("sweep",)
    counts_peak: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "implementations", self.implementations or here())

    @property
    def benchmark(self) -> str:
        return "sweeps"

    @property
    def baselines(self) -> tuple[str, ...]:
        return (ALONE,)

    @property
    def threads(self) -> int:
        return 1

    def depends_on(self, name: str) -> tuple[Any, ...]:
        return *super().depends_on(name), f"{batch_size.__name__}.EXPERIMENT"

    def measured(self) -> list[Row]:
        return super().measured() if self.processes == 1 else measure_apart(self, {})

    def method(self, name: str) -> str:
        return "none"

    def check(self) -> None:
        if len(self.shape) != 1 or not 0 < self.shape[0] <= 10_000:
            raise ValueError(f"shape: expected (runs,), from 1 to 10,000 of them, got {self.shape}")
        for name in self.implementations:
            one_of("implementations", name, NAMES)
        super().check()

    @property
    def sweep(self) -> Sweep:
        seeds = tuple(range(FIRST, FIRST + self.shape[0]))
        return Sweep("batch_size", "book", ("none-128",), seeds, SMALL, by_heart=False)

    @contextlib.contextmanager
    def setting(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            self.opened.update(stack=stack, folder=Path(folder))
            yield
        self.opened.clear()

    def prepare(self) -> Callable[[str], Trial]:
        configs = self.sweep.wanted({})
        results: dict[str, Any] = {}

        def trial(name: str) -> Trial:
            pool = None
            if name != ALONE:
                kind, _, workers = name.partition("/")
                pool = self.opened["stack"].enter_context(ENGINES[kind].open(int(workers)))

            def call() -> None:
                root = Path(tempfile.mkdtemp(dir=self.opened["folder"]))
                with records.only_own(root):
                    if pool is None:
                        done = {c.key(): run.train(c, device="cpu", root=root) for c in configs}
                    else:
                        made = sweep.carry_out(self.sweep, workers=pool, device="cpu", root=root)
                        done = made.done
                results[name] = {key: record.result for key, record in done.items()}

            def judge(call: Callable[[], object]) -> Verdict:
                call()
                results.setdefault("", results[name])  # those of the first one, `alone`
                if results[name] == results[""] and len(results[name]) == len(configs):
                    return Verdict()
                return Verdict(float("inf"), "its runs have other results than those made alone")

            return Trial(call, judge)

        return trial
