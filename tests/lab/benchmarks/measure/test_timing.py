"""Clocks and their reading, with a clock that only advances when a call says so."""

import gc
from contextlib import nullcontext
from math import comb
from types import SimpleNamespace

import pytest
import torch
from lab.benchmarks.benching import Clock

from layernorm.lab.benchmarks.measure import timing
from layernorm.lab.benchmarks.measure.timing import CpuTimer


def test_the_cpu_timer_averages_over_the_calls():
    clock = Clock()
    seconds = CpuTimer(clock).seconds(clock.costing("a", lambda n: n * 1.0), 4)
    assert seconds == (1 + 2 + 3 + 4) / 4
    assert clock.log == ["a"] * 4


@pytest.mark.parametrize(
    ("cost", "repeats"),
    [(2.0, 1), (0.5, 2), (0.1, 16), (0.001, 1024), (lambda n: 100.0 if n == 1 else 0.25, 4)],
)
def test_calibration_repeats_until_a_sample_is_long_enough(cost, repeats):
    """A slow first call does not mislead it."""
    clock = Clock()
    assert timing.calibrate(CpuTimer(clock), clock.costing("a", cost), 1.0) == repeats


def test_a_clock_that_stands_still_is_an_error(monkeypatch):
    class Still(CpuTimer):
        def seconds(self, call, repeats):
            return 0.0

    with pytest.raises(RuntimeError, match="the clock does not advance"):
        timing.calibrate(Still(), lambda: None, 1e-3)


def test_samples_are_taken_in_turns_after_a_warm_up_round():
    clock = Clock()
    costs = {"a": 1.0, "b": 0.5, "c": 3.0}
    calls = {name: clock.costing(name, seconds) for name, seconds in costs.items()}
    samples = timing.interleaved(CpuTimer(clock), calls, rounds=4, least=1.0)
    assert samples == {"a": [1.0] * 4, "b": [0.5] * 4, "c": [3.0] * 4}
    calibration = 3 + (3 + 6) + 3
    assert clock.log[calibration:] == ["a", "b", "b", "c"] * (1 + 4)


def test_the_warm_up_round_is_not_counted():
    clock = Clock()
    call = clock.costing("a", lambda n: 1.0 if n != 4 else 50.0)  # three calls calibrate
    assert timing.interleaved(CpuTimer(clock), {"a": call}, 3, 1.0) == {"a": [1.0] * 3}
    call = clock.costing("b", lambda n: 1.0 if n != 5 else 50.0)
    assert timing.interleaved(CpuTimer(clock), {"b": call}, 3, 1.0) == {"b": [50.0, 1.0, 1.0]}


def test_garbage_collection_waits_and_comes_back():
    seen, clock = [], Clock()

    def call():
        seen.append(gc.isenabled())
        clock.now += 1.0

    timing.interleaved(CpuTimer(clock), {"a": call}, 2, 1.0)
    assert seen == [True] * 3 + [False] * 3
    assert gc.isenabled()


def test_percentiles_by_hand():
    assert timing.spread([5.0, 1.0, 3.0, 2.0, 4.0, 6.0]) == timing.Spread(3.5, 2.0, 5.0)
    spread = timing.spread([10.0, 20.0, 30.0, 40.0])
    assert (spread.median, spread.p20, spread.p80) == pytest.approx((25.0, 16.0, 34.0))


@pytest.mark.parametrize(
    ("n", "k"), [(6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6), (25, 8), (30, 10)]
)
def test_the_interval_of_the_median_is_the_tabulated_sign_test_interval(n, k):
    values = [float(v) for v in range(n, 0, -1)]
    assert timing.median_interval(values) == (k, n + 1 - k)
    assert 1 - 2 * sum(comb(n, i) for i in range(k)) / 2**n >= 0.95
    assert 1 - 2 * sum(comb(n, i) for i in range(k + 1)) / 2**n < 0.95


def test_five_values_have_no_interval():
    with pytest.raises(ValueError, match=r"rounds: .* at least 6 of them, got 5"):
        timing.median_interval([1.0] * 5)


def test_the_gpu_clock_flushes_before_each_call_and_leaves_the_flush_out(monkeypatch):
    """The order of what is queued, with torch.cuda replaced by a log: this runs without a GPU."""
    log, now = [], iter(range(1000))

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("record")
            self.at = next(now)

        def elapsed_time(self, end):
            assert log[-1] == "synchronize"
            return 1000.0 * (end.at - self.at)  # milliseconds

    class Flush:
        def zero_(self):
            log.append("flush")
            next(now)

    def call():
        log.append("call")
        next(now)

    cuda = SimpleNamespace(
        get_device_properties=lambda device: SimpleNamespace(L2_cache_size=500),
        Event=Event,
        device=lambda device: nullcontext(),
        synchronize=lambda device: log.append("synchronize"),
    )
    monkeypatch.setattr(timing.torch, "cuda", cuda)
    timer = timing.CudaTimer(torch.device("cpu"))
    assert timer.flush.nbytes == 1000
    timer.flush = Flush()
    assert timer.seconds(call, 3) == 2.0
    assert log == ["flush", "record", "call", "record"] * 3 + ["synchronize"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("graph", [False, True])
def test_the_gpu_clock_flushes_and_times_what_runs_on_the_gpu(graph):
    device = torch.device("cuda")
    timer = timing.timer_for(device, graph)
    assert timer.flush.numel() >= 2 * torch.cuda.get_device_properties(device).L2_cache_size
    x = torch.ones(2**28, device=device)
    call = timer.prepare(lambda: x.mul(2))
    assert call()[5] == 2
    seconds = timer.seconds(call, 5)
    assert 2 * 2**30 / seconds < 20e12  # one GiB read and one written, slower than any GPU's memory
    assert timer.seconds(call, 5) == pytest.approx(seconds, rel=0.5)
