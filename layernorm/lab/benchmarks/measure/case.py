"""A case and its measurement: implementations that agree with the definition are timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from layernorm.lab import records
from layernorm.lab.benchmarks.measure import memory
from layernorm.lab.benchmarks.measure.gate import Verdict
from layernorm.lab.benchmarks.measure.roof import copy_bandwidth
from layernorm.lab.benchmarks.measure.row import (
    MEASURED,
    NO_DEVICE,
    Row,
    Shape,
    failure,
    times,
    with_roof,
)
from layernorm.lab.benchmarks.measure.timing import (
    Call,
    CpuTimer,
    Timer,
    alive,
    interleaved,
    present,
    timer_for,
)
from layernorm.lab.benchmarks.measure.words import one_of


class Poisoned(RuntimeError):
    """An error that made the GPU useless to this process; nothing more can be measured in it.

    Args:
        culprit: the implementation that was at work; "" if that is not known.
        status: of its row.
    """

    def __init__(self, culprit: str, status: str):
        super().__init__(f"{culprit or 'something'} made the GPU useless to this process: {status}")
        self.culprit, self.status = culprit, status


@dataclass
class Trial:
    """An implementation made ready.

    Args:
        call: one call as it is timed.
        judge: makes such a call and compares what it gives with the definition's.
        traffic: bytes that one of its computations moves at least, where a byte model tells.
        count: the computations of a call, each on tensors of its own; times are those of one.
        rest: what comes between the last timed call and the one whose memory is counted.
        told: options that the row has besides those of its case.
    """

    call: Call
    judge: Callable[[Call], Verdict]
    traffic: int | None = None
    count: int = 1
    rest: Call = lambda: None
    told: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One operation at one shape, by several implementations.

    A subclass for each kind of benchmark says how an implementation is made ready (`prepare`).

    Args:
        operation: what is computed, in the benchmark's words.
        implementations: in the order in which they are timed.
        profile: of the records; None: nothing is recorded.
        rounds: samples of each implementation in a process; at least 6 if there is one process.
        sample_seconds: least duration of a sample.
        processes: how many measure, one after another; 1, or at least 6.
    """

    operation: str
    shape: Shape
    dtype: str = "float32"
    device: str = "cpu"
    mode: str = "forward"
    implementations: tuple[str, ...] = ()
    profile: str | None = None
    rounds: int = 15
    sample_seconds: float = 1e-3
    processes: int = 1
    seed: int = 0

    MODES: ClassVar[tuple[str, ...]] = ("forward",)
    counts_peak: ClassVar[bool] = True
    graph: ClassVar[bool] = False  # replayed from a captured CUDA graph

    @property
    def benchmark(self) -> str:
        """The name in rows; records are called bench_ and this."""
        return self.operation

    @property
    def baselines(self) -> tuple[str, ...]:
        """Ratios are to the first of these that is measured."""
        raise NotImplementedError

    @property
    def options(self) -> dict[str, Any]:
        """Further choices, which records keep."""
        return {}

    @property
    def threads(self) -> int:
        return torch.get_num_threads()

    def method(self, name: str) -> str:
        """Name of an implementation's method in the table of methods."""
        raise NotImplementedError

    def prepare(self) -> Callable[[str], Trial]:
        """Return a function that makes the implementation of a name ready."""
        raise NotImplementedError

    def measured(self) -> list[Row]:
        """Measure in the process that the case needs."""
        return measure(self)

    def timings(self) -> Iterator[dict[str, list[float]]]:
        """Seconds of each implementation, taken in turns in this process; nothing is judged."""
        with self.setting():
            timer, make = timer_for(torch.device(self.device), self.graph), self.prepare()
            trials = {name: make(name) for name in self.implementations}
            for trial in trials.values():
                trial.call = timer.prepare(trial.call)
            yield _samples(self, timer, trials)

    def setting(self) -> AbstractContextManager:
        """The context in which everything runs."""
        return nullcontext()

    def depends_on(self, name: str) -> tuple[Any, ...]:
        """Functions and classes whose code makes the measurement of an implementation stale."""
        return type(self), f"{__name__}.measure"

    def blank(self, name: str, status: str = MEASURED) -> Row:
        """The row that a measurement fills."""
        machine = machine_of(self.device, self.threads)
        options = {"rounds": self.rounds, "processes": self.processes, "machine": machine}
        return Row(
            self.benchmark, self.method(name), name, self.baselines[0], self.mode, self.shape,
            self.dtype, self.device, self.seed, status, options={**options, **self.options},
        )  # fmt: skip

    def check(self) -> None:
        """Refuse what cannot be measured.

        Raises:
            ValueError: naming the argument, what was expected and what came.
        """
        if torch.device(self.device).type not in ("cpu", "cuda"):
            others = "others have no timer here"
            raise ValueError(f"device: expected cpu or cuda, got {self.device}; {others}")
        one_of("mode", self.mode, self.MODES)
        if self.processes != 1 and self.processes < 6:
            raise ValueError(
                f"processes: expected 1, or at least 6 for a 95% interval; got {self.processes}"
            )
        if self.rounds < (least := 6 if self.processes == 1 else 1):
            why = ", for a 95% interval" if least > 1 else ""
            raise ValueError(f"rounds: expected at least {least}{why}; got {self.rounds}")

    def __str__(self) -> str:
        return f"{self.benchmark} {self.mode} {'x'.join(map(str, self.shape))} {self.dtype}"


def machine_of(device: str, threads: int) -> str:
    """The name of a device in records: measurements of two machines stand side by side."""
    here, where = records.environment(), torch.device(device)
    if where.type == "cpu":
        return f"{here['cpu']}, {threads} threads"
    index = where.index or 0
    return here["gpus"][index] if index < len(here["gpus"]) else NO_DEVICE


def measure(case: Case, timer: Timer | None = None, roof: float | None = None) -> list[Row]:
    """Return one row per implementation.

    Each must first agree with its definition; a wrong one is named and not timed. The others are
    timed in turns, in this process, each sample long enough for the clock, and judged again.

    Args:
        timer: another clock than the device's own.
        roof: bytes per second, if known; measured here otherwise, where there is a byte model.

    Raises:
        ValueError: an argument is out of range; says which and what was expected.
        Poisoned: an implementation made the GPU useless to this process.
    """
    case.check()
    device = torch.device(case.device)
    if not present(device):
        return [case.blank(name, NO_DEVICE) for name in case.implementations]
    timer = timer or timer_for(device, case.graph)
    with case.setting():
        make, rows, trials = case.prepare(), {}, {}
        for name in case.implementations:
            rows[name], trial = _admit(case.blank(name), make, timer)
            trials |= {} if trial is None else {name: trial}
        try:
            moved = max((trial.traffic or 0 for trial in trials.values()), default=0)
            if moved and roof is None:
                roof = copy_bandwidth(device, getattr(torch, case.dtype), moved, timer)
            samples = _samples(case, timer, trials)
        except Exception as error:
            _or_poisoned(error, device, _at_work(timer, trials))
            raise
        for name, trial in trials.items():
            rows[name] = replace(rows[name], **_told(timer, trial, rows[name]))
            if wrong := trial.judge(trial.call).wrong:
                rows[name] = replace(rows[name], status=f"wrong after timing: {wrong}")
                del samples[name]
        baseline = next((name for name in case.baselines if name in samples), case.baselines[0])
        for name, taken in samples.items():
            alone = case.processes == 1 and baseline in samples
            reference = [samples[baseline]] if alone else None
            row = replace(rows[name], **times([taken], reference), baseline=baseline)
            if row.traffic:
                row = with_roof(replace(row, bandwidth=row.traffic / row.seconds, roof=roof))
            if case.counts_peak:
                trials[name].rest()
                row = replace(row, peak_memory=memory.peak(trials[name].call, device))
            rows[name] = row
    return list(rows.values())


def _samples(case: Case, timer: Timer, trials: Mapping[str, Trial]) -> dict[str, list[float]]:
    """Seconds of each trial's computations, taken in turns."""
    calls = {name: trial.call for name, trial in trials.items()}
    taken = interleaved(timer, calls, case.rounds, case.sample_seconds)
    return {name: [s / trials[name].count for s in taken[name]] for name in trials}


def _told(timer: Timer, trial: Trial, row: Row) -> dict[str, Any]:
    """Return what a GPU's clock tells besides times."""
    if isinstance(timer, CpuTimer):
        return {}
    included = timer.launches(trial.call) == "included"
    options = {**row.options, **({"launches": "included"} if included else {})}
    return {"host": timer.host(trial.call) / trial.count, "options": options}


def _at_work(timer: Timer, trials: Mapping[str, Trial]) -> str:
    at = getattr(timer, "at", None)
    return next((name for name, trial in trials.items() if trial.call is at), "")


def _or_poisoned(error: Exception, device: torch.device, name: str) -> None:
    """Raise `Poisoned` if this error was the end of the device here."""
    if not alive(device):
        raise Poisoned(name, failure(error)) from error


def _admit(row: Row, make: Callable[[str], Trial], timer: Timer) -> tuple[Row, Trial | None]:
    """The implementation's row, and what to time if it is right."""
    try:
        trial = make(row.implementation)
        trial.call = timer.prepare(trial.call)
        verdict = trial.judge(trial.call)
    except Exception as error:  # of any kind: a library may not support this shape, type or device
        _or_poisoned(error, torch.device(row.device), row.implementation)
        return replace(row, status=failure(error)), None
    status = f"wrong: {verdict.wrong}" if verdict.wrong else MEASURED
    options = {**row.options, **trial.told}
    row = replace(row, status=status, error=verdict.error, traffic=trial.traffic, options=options)
    return row, None if verdict.wrong else trial
