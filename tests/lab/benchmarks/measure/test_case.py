"""Cases with implementations of known cost: what is timed, what is refused, what is said."""

from dataclasses import asdict, replace

import pytest
import torch
from lab.benchmarks.benching import CPU, FEW, GPU, Clock

from layernorm.lab.benchmarks import measure as core
from layernorm.lab.benchmarks.measure import byte_model, memory, process, recording, roof
from layernorm.lab.benchmarks.measure.row import quotient, times
from layernorm.lab.benchmarks.measure.timing import CpuTimer
from layernorm.lab.benchmarks.norms.case import Operation, OperationCase


@pytest.fixture
def clock():
    return Clock()


def cube(x, weight):
    return weight * x**3


class Off(torch.autograd.Function):
    """Right forward, and a gradient that is one per mille too large."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return weight * x**3

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return 1.001 * 3 * grad * weight * x**2, (grad * x**3).sum(0)


def benchmark(**implementations):
    return Operation(
        name="cube",
        make_inputs=lambda shape, dtype, device: {
            "x": torch.randn(shape, dtype=dtype, device=device),
            "weight": torch.randn(shape[1:], dtype=dtype, device=device),
        },
        implementations=implementations,
        oracle=cube,
        length=lambda shape: shape[0],
        gradients=("x", "weight"),
    )


def measure(bench, shape=(10, 3), timer=None, roof=None, **fields):
    names = tuple(bench.implementations)
    fields = {**FEW, "baselines": names[:1], "implementations": names} | fields
    rows = core.measure(OperationCase(bench.name, shape, source=bench, **fields), timer, roof)
    return {row.implementation: row for row in rows}


def run(clock, bench, **fields):
    fields = {"sample_seconds": 0.5, "roof": 1e3} | fields
    return measure(bench, timer=CpuTimer(clock), **fields)


def test_known_costs_are_measured(clock):
    bench = benchmark(a=clock.costing("a", 2.0, cube), b=clock.costing("b", 3.0, cube))
    rows = run(clock, bench)
    assert [row.status for row in rows.values()] == ["measured"] * 2
    assert (rows["a"].seconds, rows["a"].p20, rows["a"].p80) == (2, 2, 2)
    assert (rows["b"].seconds, rows["b"].samples) == (3, (3.0,) * 6)
    assert (rows["a"].ratio, rows["b"].ratio) == (1, 1.5)
    assert (rows["b"].ratio_low, rows["b"].ratio_high) == (1.5, 1.5)


def test_of_several_processes_each_counts_once():
    """The ratio of all is the processes' median, however their rounds scatter, and how far they
    are apart is its interval; the ratio of the median times would be another."""
    theirs = [[1.0, 1.0, 9.0]] * 7
    ours = [[k, k, 99.0] for k in (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)]
    found = times(ours, theirs)
    assert (found["ratio"], found["ratio_low"], found["ratio_high"]) == (1.3, 1.0, 1.6)
    assert found["ratios"] == (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)
    assert len(found["samples"]) == 21
    assert times(ours, None).keys() == {"seconds", "p20", "p80", "samples"}
    with pytest.raises(ValueError, match="at least 6 rounds or processes, got 5"):
        times(ours[:5], theirs[:5])
    alone = times([[1.0, 2, 3, 4, 5, 6, 8]], [[1.0] * 7])
    assert (alone["ratio"], alone["ratio_low"], alone["ratio_high"]) == (4, 1, 8)


def test_two_implementations_are_compared_within_each_process():
    """What slows a process slows both; the ends of their intervals allow much more."""
    fields = {"baselines": ("a",), "implementations": ("a",), "source": benchmark(a=cube)}
    blank = OperationCase("cube", (10, 3), **fields).blank("a")
    slowed = [[k, k] for k in (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)]
    one, other = (
        replace(blank, **times([[cost * t for t in taken] for taken in slowed], [[1.0, 1.0]] * 7))
        for cost in (2.0, 1.0)
    )
    assert quotient(one, other) == pytest.approx((2.0, 2.0, 2.0))
    record = recording.record_of(one, "mine")
    assert recording.from_record(record).ratios == pytest.approx(one.ratios)
    alone = [replace(row, ratios=()) for row in (one, other)]
    assert quotient(*alone) == pytest.approx((2.0, 2.0 / 1.6, 2.0 * 1.6))


def test_other_processes_time_what_the_first_found_right(monkeypatch):
    asked = []

    def answers(case, question, variables, *_):
        asked.append((question, case.implementations, dict(variables)))
        if question == "timings":
            return [{"a": [1.0, 1.0], "b": [float(len(asked)), 2.0]}]
        right = {"status": "measured", "samples": (1.0, 1.0), "baseline": "a"}
        rows = [replace(case.blank(name), **right) for name in ("a", "b")]
        return [*map(asdict, rows), asdict(case.blank("c", "wrong: all"))]

    monkeypatch.setattr(process, "ask", answers)
    given = {"implementations": ("a", "b", "c"), "baselines": ("a",), "processes": 6, "rounds": 2}
    case = OperationCase("cube", (10, 3), source=benchmark(a=cube, b=cube, c=cube), **given)
    a, b, c = process.measure_apart(case, {"A": "1"})
    assert asked == [
        ("measure", ("a", "b", "c"), {"A": "1"}), *[("timings", ("a", "b"), {"A": "1"})] * 5
    ]  # fmt: skip
    assert (a.ratio, len(a.samples), c.status, c.ratio) == (1, 12, "wrong: all", None)
    assert (b.ratio_low, b.ratio, b.ratio_high) == (1, 2.75, 4)


def test_ratios_are_to_the_first_baseline_that_is_right(clock):
    bench = benchmark(
        a=clock.costing("a", 1.0, lambda x, weight: x),
        b=clock.costing("b", 2.0, cube),
        c=clock.costing("c", 6.0, cube),
    )
    rows = run(clock, bench, baselines=("a", "b"))
    assert [(row.baseline, row.ratio) for row in rows.values()] == [("a", None), ("b", 1), ("b", 3)]
    assert run(clock, bench, baselines=("c",))["b"].ratio == 2 / 6


def test_a_machine_that_slows_down_changes_the_times_but_no_ratio_within_a_round(clock):
    bench = benchmark(
        a=clock.costing("a", lambda n: 2.0**n, cube),
        b=clock.costing("b", lambda n: 2.0 ** (n + 1), cube),
    )
    rows = run(clock, bench)
    assert rows["b"].p80 > 4 * rows["b"].p20
    assert (rows["b"].ratio, rows["b"].ratio_low, rows["b"].ratio_high) == (2, 2, 2)


def test_without_a_known_roof_it_is_measured():
    row = measure(benchmark(a=cube), sample_seconds=1e-5)["a"]
    assert row.seconds > 0
    assert row.roof > 0
    assert 0 < row.error < 1


WRONG = {
    "value": (lambda x, weight: weight * x**3 * 1.0001, "wrong: output 0 is off by 0.0001"),
    "input": (lambda x, weight: weight * x.pow_(3), "wrong: changes its input x"),
    "error": (lambda x, weight: torch.ones(2, 3) @ x, "failed: RuntimeError: "),
}


@pytest.mark.parametrize(("function", "status"), WRONG.values(), ids=WRONG)
def test_a_wrong_implementation_is_named_and_never_timed(clock, function, status):
    bench = benchmark(
        wrong=clock.costing("wrong", 1.0, function), right=clock.costing("right", 1.0, cube)
    )
    rows = run(clock, bench)
    assert clock.log.count("wrong") == 1
    assert rows["wrong"].seconds is None
    assert rows["wrong"].status.startswith(status)
    assert "\n" not in rows["wrong"].status
    assert rows["right"].status == "measured"
    assert rows["right"].ratio is None  # its baseline is wrong


@pytest.mark.parametrize("mode", byte_model.MODES)
def test_a_wrong_gradient_is_found_in_the_backward_modes_only(clock, mode):
    row = run(clock, benchmark(off=clock.costing("off", 1.0, Off.apply)), mode=mode)["off"]
    if mode == "forward":
        assert row.status == "measured"
    else:
        assert row.status.startswith("wrong: gradient of x is off by 0.001")
        assert row.seconds is None


def test_an_implementation_that_goes_wrong_while_timed_is_named(clock):
    def tiring(x, weight):
        return cube(x, weight) + (clock.log.count("a") > 8)

    rows = run(clock, benchmark(a=clock.costing("a", 1.0, tiring), b=clock.costing("b", 1.0, cube)))
    assert rows["a"].status.startswith("wrong after timing: output 0")
    assert rows["a"].seconds is None
    assert rows["b"].seconds == 1


def test_a_missing_device_is_not_measured_yet(clock):
    bench = benchmark(a=clock.costing("a", 1.0, cube), b=cube)
    rows = measure(bench, device=GPU)
    assert [row.status for row in rows.values()] == ["not measured yet on this device"] * 2
    assert list(rows) == ["a", "b"]
    assert all(row.seconds is None and row.samples == () for row in rows.values())
    assert clock.log == []


def test_inputs_follow_the_seed_and_leave_the_generator_alone():
    seen = []

    def spy(x, weight):
        seen.append(x.clone())
        return cube(x, weight)

    state = torch.random.get_rng_state()
    for seed in (1, 1, 2):
        measure(benchmark(a=spy), seed=seed)
    assert torch.equal(torch.random.get_rng_state(), state)
    first, *others = [x for i, x in enumerate(seen) if i == 0 or not torch.equal(x, seen[i - 1])]
    assert len(others) == 1
    assert not torch.equal(first, others[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "sideways"}, "mode: expected one of forward, backward, .* got 'sideways'"),
        ({"rounds": 5}, "rounds: expected at least 6.* got 5"),
        ({"rounds": 0, "processes": 6}, "rounds: expected at least 1; got 0"),
        ({"processes": 5}, "processes: expected 1, or at least 6 .* got 5"),
        ({"baselines": ("z",)}, "baseline: expected one of a, got 'z'"),
        ({"device": "meta"}, "device: expected cpu or cuda, got meta"),
        ({"graph": True}, "graph: expected False on a CPU"),
        ({"graph": True, "mode": "backward"}, "graph: a backward pass alone is not captured"),
    ],
)
def test_arguments_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        measure(benchmark(a=cube), **options)


def test_a_backward_mode_without_gradients_is_an_error():
    bench = Operation("copy", lambda *_: {"x": torch.ones(2)}, {"a": torch.clone}, torch.clone, len)
    with pytest.raises(ValueError, match=r"mode: expected forward \(copy has no gradients\)"):
        measure(bench, (2,), mode="backward")


@pytest.mark.parametrize(("bytes_per_second", "flagged"), [(125, True), (126, False)])
def test_bandwidth_is_the_byte_model_over_the_time_and_flagged_above_the_roof(
    clock, bytes_per_second, flagged
):
    row = run(clock, benchmark(a=clock.costing("a", 2.0, cube)), roof=float(bytes_per_second))["a"]
    assert row.traffic == 4 * (30 + 3 + 30)
    assert row.bandwidth == row.traffic / 2 == 126
    assert row.fraction == 126 / bytes_per_second
    assert row.note.startswith("above the roof") == flagged


@pytest.mark.parametrize(
    ("tensor", "size"),
    [
        (torch.ones(3, 5, dtype=torch.float16), 30),
        (torch.ones(3, 5, dtype=torch.float64), 120),
        (torch.ones(5).expand(3, 5), 20),
        (torch.ones(6, 5)[::2], 60),
        (torch.ones(5, 3).T, 60),
        (torch.ones(()), 4),
        (torch.ones(()).expand(3), 4),
        (torch.ones(0, 5), 0),
        (torch.ones(3, 1).expand(3, 0), 0),
        (torch.ones(4, dtype=torch.bool), 4),
    ],
)
def test_the_size_of_a_tensor_is_that_of_its_distinct_elements(tensor, size):
    assert byte_model.size(tensor) == size


def test_the_roof_counts_bytes_read_and_written():
    class Second(CpuTimer):
        def seconds(self, call, repeats):
            call()
            return 1.0

    assert roof.copy_bandwidth(CPU, torch.float16, 1000, Second()) == 1000


def test_peak_memory_counts_what_is_held_at_once():
    x, megabytes = torch.ones(1000, 1000), 4_000_000
    assert memory.peak(lambda: x.clone(), CPU) == pytest.approx(megabytes, rel=1e-3)
    assert memory.peak(lambda: x.exp().sin(), CPU) == pytest.approx(2 * megabytes, rel=1e-3)
    assert memory.peak(lambda: x.exp().sin().cos(), CPU) == pytest.approx(2 * megabytes, rel=1e-3)
    assert memory.peak(lambda: x.exp().sin_(), CPU) == pytest.approx(megabytes, rel=1e-3)
    assert memory.peak(lambda: x.add_(1), CPU) < 1000
