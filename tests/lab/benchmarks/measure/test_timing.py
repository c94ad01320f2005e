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


def test_a_clock_that_stands_still_is_an_error():
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
    with pytest.raises(ValueError, match="at least 6 rounds or processes, got 5"):
        timing.median_interval([1.0] * 5)


class Gpu:
    """A GPU that does one thing after another while the host goes on, in place of torch.cuda."""

    def __init__(self, monkeypatch):
        self.now = self.free = 0.0  # of the host; when the GPU has done all that is queued
        self.log = []
        gpu = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                gpu.log.append("record")
                self.at = max(gpu.free, gpu.now)

            def query(self):
                return gpu.now >= self.at

            def elapsed_time(self, end):
                assert gpu.now >= gpu.free  # synchronized
                return 1000.0 * (end.at - self.at)  # milliseconds

        def synchronize(device):
            self.now = max(self.now, self.free)

        cuda = SimpleNamespace(
            get_device_properties=lambda device: SimpleNamespace(L2_cache_size=500),
            Event=Event,
            device=lambda device: nullcontext(),
            synchronize=synchronize,
            _sleep=lambda cycles: self.launch("hold", 0, cycles / timing.CYCLES),
        )
        monkeypatch.setattr(timing.torch, "cuda", cuda)
        self.timer = timing.CudaTimer(torch.device("cpu"), clock=lambda: self.now)
        assert self.timer.flush.nbytes == 1000
        flush = SimpleNamespace(zero_=lambda: self.launch("flush", 0, 1e-6))
        self.timer.flush = flush

    def launch(self, name, host, seconds):
        self.log.append(name)
        self.now += host
        self.free = max(self.free, self.now) + seconds

    def call(self, host, seconds):
        return lambda: self.launch("call", host, seconds)


def test_the_gpu_clock_flushes_and_holds_before_each_call_and_leaves_both_out(monkeypatch):
    gpu = Gpu(monkeypatch)
    assert gpu.timer.seconds(gpu.call(1e-6, 3e-6), 3) == pytest.approx(3e-6)
    assert gpu.log == ["flush", "hold", "record", "call", "record"] * 3


@pytest.mark.parametrize(
    ("host", "launches"), [(5e-6, "hidden"), (9e-3, "hidden"), (0.3, "included")]
)
def test_the_gpu_is_busy_until_a_call_is_queued(monkeypatch, host, launches):
    """However long Python takes, up to a limit, beyond which its time is included and told."""
    gpu = Gpu(monkeypatch)
    call = gpu.call(host, 2e-6)
    for _ in range(2):
        expected = 2e-6 + (host if launches == "included" else 0)
        assert gpu.timer.seconds(call, 3) == pytest.approx(expected, rel=1e-4)
        assert gpu.timer.launches(call) == launches
    assert gpu.timer.host(call) == pytest.approx(host)
    assert gpu.timer.launches(gpu.call(0, 1)) == "hidden"  # each call has a hold of its own


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
