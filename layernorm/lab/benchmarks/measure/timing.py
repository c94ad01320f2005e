"""Clocks, samples in turns, and their median with its interval."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import comb

import numpy as np
import torch

Call = Callable[[], object]


class CpuTimer:
    """Wall time of calls that follow one another; caches are as warm as these calls leave them."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self.clock = clock

    def prepare(self, call: Call) -> Call:
        return call

    def seconds(self, call: Call, repeats: int) -> float:
        """Seconds per call, averaged over `repeats` calls."""
        begin = self.clock()
        for _ in range(repeats):
            call()
        return (self.clock() - begin) / repeats


FIRST, LONGEST = 1e-4, 0.02  # seconds for which a GPU is kept busy while a call is queued
CYCLES = 2e9  # a second, of a GPU at its fastest: a slower one is busy for longer


class CudaTimer:
    """Time on the GPU between two events around each call, with a cold L2 cache.

    Before each call a buffer of twice the L2's size is overwritten, and then the GPU counts cycles
    while the CPU queues the call: Python and launches have no share in the time. For how long is
    found out by trying. If the first event has passed before a call is queued, the sample is taken
    again with a longer wait, up to `LONGEST`; a call that takes longer to queue is timed with its
    launches (`launches`). With `graph=True` a call is captured in a CUDA graph and replayed.
    """

    def __init__(
        self,
        device: torch.device,
        graph: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.device, self.graph, self.clock = device, graph, clock
        size = 2 * torch.cuda.get_device_properties(device).L2_cache_size
        self.flush = torch.empty(size, dtype=torch.int8, device=device)
        self.holds: dict[Call, float] = {}  # seconds; 0: it cannot be queued in time
        self.at: Call | None = None  # the call that is being timed

    def prepare(self, call: Call) -> Call:
        if not self.graph:
            return call
        with torch.cuda.device(self.device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # capture wants a warm-up on a stream of its own
                for _ in range(3):
                    call()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                output = call()

        def replay() -> object:
            graph.replay()
            return output

        return replay

    def seconds(self, call: Call, repeats: int) -> float:
        """Seconds per call, averaged over `repeats` calls, each with a cold L2."""
        self.at = call
        while True:
            hold = self.holds.setdefault(call, FIRST)
            taken, late = self._sample(call, repeats, hold)
            if not late or not hold:
                return taken
            self.holds[call] = 2 * hold if 2 * hold <= LONGEST else 0.0

    def _sample(self, call: Call, repeats: int, hold: float) -> tuple[float, bool]:
        """Seconds per call, and whether the GPU was done waiting before one was queued."""
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
        late = False
        with torch.cuda.device(self.device):
            for begin, end in events:
                self.flush.zero_()
                if hold:
                    torch.cuda._sleep(round(hold * CYCLES))
                begin.record()
                call()
                end.record()
                late = late or begin.query()
            torch.cuda.synchronize(self.device)
        return sum(begin.elapsed_time(end) for begin, end in events) / 1000 / repeats, late

    def launches(self, call: Call) -> str:
        """The time of queueing a call in its time: "hidden", or "included"."""
        return "hidden" if self.holds.get(call, FIRST) else "included"

    def host(self, call: Call) -> float:
        """Seconds that the CPU takes to queue a call while the GPU has nothing to do: the median of
        nine."""
        taken = []
        for _ in range(9):
            torch.cuda.synchronize(self.device)
            begin = self.clock()
            call()
            taken.append(self.clock() - begin)
        torch.cuda.synchronize(self.device)
        return sorted(taken)[4]


Timer = CpuTimer | CudaTimer


def present(device: torch.device) -> bool:
    """True if the device is there."""
    return device.type == "cpu" or (device.index or 0) < torch.cuda.device_count()


def alive(device: torch.device) -> bool:
    """False if an error, such as an illegal access, has made the device useless to this process."""
    if device.type == "cpu":
        return True
    try:
        torch.cuda.synchronize(device)
    except Exception:  # torch has several classes for it
        return False
    return True


def timer_for(device: torch.device, graph: bool = False) -> Timer:
    """Return the clock of a device."""
    if device.type == "cuda":
        return CudaTimer(device, graph)
    if graph:
        raise ValueError("graph: expected False on a CPU, got True; CUDA graphs need a GPU")
    return CpuTimer()


def calibrate(timer: Timer, call: Call, least: float) -> int:
    """Return how many calls take at least `least` seconds in each of three samples.

    Raises:
        RuntimeError: even a million calls take less time than that by this clock.
    """
    repeats = 1
    while min(timer.seconds(call, repeats) for _ in range(3)) * repeats < least:
        repeats *= 2
        if repeats > 2**20:
            raise RuntimeError(f"2^20 calls take less than {least} s: the clock does not advance")
    return repeats


def interleaved(
    timer: Timer, calls: Mapping[str, Call], rounds: int, least: float
) -> dict[str, list[float]]:
    """Return samples (seconds per call) taken in turns, A B A B, without the first round.

    A machine's speed drifts; in turns, all calls of a round are slowed alike.
    """
    repeats = {name: calibrate(timer, call, least) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    with _no_garbage_collection():
        for _ in range(1 + rounds):
            for name, call in calls.items():
                samples[name].append(timer.seconds(call, repeats[name]))
    return {name: taken[1:] for name, taken in samples.items()}


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True)
class Spread:
    """Median with the 20th and 80th percentile (linear between samples)."""

    median: float
    p20: float
    p80: float


def spread(samples: Sequence[float]) -> Spread:
    """The spread of these samples."""
    p20, median, p80 = np.quantile(samples, [0.2, 0.5, 0.8]).tolist()
    return Spread(median, p20, p80)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """95% confidence interval of the median, whatever the distribution (order statistics).

    The k-th smallest and k-th largest value, with the largest k for which
    2 P(Binomial(n, 1/2) < k) <= 5%. Times have long tails, which a t interval does not survive.

    Raises:
        ValueError: fewer than six values, of which no interval can be made.
    """
    n, k, tail = len(values), 0, 1.0
    while 2 * tail <= 0.05 * 2**n:
        k += 1
        tail += comb(n, k)
    if not k:
        raise ValueError(f"a 95% interval needs at least 6 rounds or processes, got {n}")
    ordered = sorted(values)
    return ordered[k - 1], ordered[n - k]
