"""Cases with implementations of known cost: what is timed, what is refused, what is said."""

import pytest
import torch

from layernorm.lab.benchmarks import measure as core
from layernorm.lab.benchmarks.measure import byte_model, memory, roof
from layernorm.lab.benchmarks.measure.timing import CpuTimer
from layernorm.lab.benchmarks.norms.case import Operation, OperationCase


class Clock:
    """Stands still but for `tick`; `calls` counts how often each implementation ran."""

    def __init__(self):
        self.now, self.calls = 0.0, {}

    def __call__(self):
        return self.now

    def costing(self, name, seconds, function):
        def implementation(**inputs):
            self.calls[name] = self.calls.get(name, 0) + 1
            self.now += seconds(self.calls[name]) if callable(seconds) else seconds
            return function(**inputs)

        return implementation


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


def off_gradient(x, weight):
    return Off.apply(x, weight)


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


def measure(bench, shape, timer=None, roof=None, **fields):
    names = tuple(bench.implementations)
    fields = {"baselines": names[:1], "implementations": names} | fields
    return core.measure(OperationCase(bench.name, shape, source=bench, **fields), timer, roof)


def run(clock, bench, shape=(10, 3), **options):
    options = {"rounds": 6, "sample_seconds": 0.5, "roof": 1e3} | options
    return {row.implementation: row for row in measure(bench, shape, CpuTimer(clock), **options)}


def test_known_costs_are_measured(clock):
    rows = run(clock, benchmark(a=clock.costing("a", 2.0, cube), b=clock.costing("b", 3.0, cube)))
    assert [rows[name].status for name in "ab"] == ["measured"] * 2
    assert (rows["a"].seconds, rows["a"].p20, rows["a"].p80) == (2, 2, 2)
    assert (rows["b"].seconds, rows["b"].samples) == (3, (3.0,) * 6)
    assert (rows["a"].ratio, rows["b"].ratio) == (1, 1.5)
    assert (rows["b"].ratio_low, rows["b"].ratio_high) == (1.5, 1.5)


def test_every_copy_is_made_and_timed_anew(clock):
    bench = benchmark(a=clock.costing("a", 2.0, cube), b=clock.costing("b", 3.0, cube))
    rows = run(clock, bench, copies=3)
    assert [len(row.samples) for row in rows.values()] == [18, 18]
    assert rows["b"].ratio == 1.5
    with pytest.raises(ValueError, match="copies: expected at least 1, got 0"):
        run(clock, bench, copies=0)


def test_where_the_baseline_is_wrong_ratios_are_to_the_next(clock):
    bench = benchmark(
        a=clock.costing("a", 1.0, lambda x, weight: x),
        b=clock.costing("b", 2.0, cube),
        c=clock.costing("c", 6.0, cube),
    )
    rows = run(clock, bench, baselines=("a", "b"))
    assert [(row.baseline, row.ratio) for row in rows.values()] == [("a", None), ("b", 1), ("b", 3)]


def test_the_baseline_can_be_chosen(clock):
    bench = benchmark(a=clock.costing("a", 2.0, cube), b=clock.costing("b", 4.0, cube))
    rows = run(clock, bench, baselines=("b",))
    assert (rows["a"].ratio, rows["b"].ratio) == (0.5, 1)


def test_a_machine_that_slows_down_changes_the_times_but_no_ratio_within_a_round(clock):
    bench = benchmark(
        a=clock.costing("a", lambda n: 2.0**n, cube),
        b=clock.costing("b", lambda n: 2.0 ** (n + 1), cube),
    )
    rows = run(clock, bench)
    assert rows["b"].p80 > 4 * rows["b"].p20
    assert (rows["b"].ratio, rows["b"].ratio_low, rows["b"].ratio_high) == (2, 2, 2)


@pytest.mark.parametrize("mode", byte_model.MODES)
def test_right_implementations_pass_in_every_mode(mode):
    rows = measure(benchmark(a=cube), (10, 3), mode=mode, rounds=6, sample_seconds=1e-5)
    assert [row.status for row in rows] == ["measured"]
    assert rows[0].seconds > 0
    assert rows[0].roof > 0
    assert 0 < rows[0].error < 1


WRONG = {
    "value": (lambda x, weight: weight * x**3 * 1.0001, "output 0 is off by 0.0001"),
    "row": (lambda x, weight: (weight * x**3).index_fill(0, torch.tensor(4), 0), "off by"),
    "nan": (lambda x, weight: weight * x**3 / 0 * 0, "off by inf"),
    "shape": (lambda x, weight: (weight * x**3).T, r"shape \(3, 10\)"),
    "dtype": (
        lambda x, weight: (weight * x**3).double(),
        "is torch.float64, expected torch.float32",
    ),
    "number": (lambda x, weight: (weight * x**3, x), "2 tensors, the oracle gives 1"),
    "input": (lambda x, weight: weight * x.pow_(3), "changes its input x"),
}


@pytest.mark.parametrize(("function", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_implementation_is_named_and_never_timed(clock, function, message):
    bench = benchmark(
        wrong=clock.costing("wrong", 1.0, function), right=clock.costing("right", 1.0, cube)
    )
    rows = run(clock, bench)
    assert clock.calls["wrong"] == 1
    assert rows["wrong"].seconds is None
    assert rows["right"].status == "measured"
    assert rows["right"].ratio is None  # its baseline is wrong
    with pytest.raises(ValueError, match=rf"wrong: .*{message}"):
        raise ValueError(rows["wrong"].status)


@pytest.mark.parametrize("mode", ["backward", "forward+backward"])
def test_a_wrong_gradient_is_found_in_the_backward_modes_only(clock, mode):
    bench = benchmark(off=clock.costing("off", 1.0, off_gradient))
    assert run(clock, bench, mode="forward")["off"].status == "measured"
    row = run(clock, bench, mode=mode)["off"]
    assert row.status.startswith("wrong: gradient of x is off by 0.001")
    assert row.seconds is None


def test_an_implementation_that_goes_wrong_while_timed_is_named(clock):
    def tiring(x, weight):
        return cube(x, weight) + (clock.calls["a"] > 8)

    rows = run(clock, benchmark(a=clock.costing("a", 1.0, tiring), b=clock.costing("b", 1.0, cube)))
    assert rows["a"].status.startswith("wrong after timing: output 0")
    assert rows["a"].seconds is None
    assert rows["b"].seconds == 1


def test_an_implementation_that_raises_is_reported_with_its_error(clock):
    def unsupported(x, weight):
        raise NotImplementedError("no kernel for 3 columns")

    rows = run(clock, benchmark(a=unsupported, b=clock.costing("b", 1.0, cube)))
    assert rows["a"].status == "failed: NotImplementedError: no kernel for 3 columns"
    assert rows["b"].status == "measured"


def test_half_precision_is_judged_against_float64_of_the_rounded_inputs():
    rows = measure(benchmark(a=cube), (64, 3), dtype="bfloat16", rounds=6, sample_seconds=1e-5)
    assert rows[0].status == "measured"
    assert rows[0].error < 1


def test_a_missing_device_is_not_measured_yet(clock):
    device = f"cuda:{torch.cuda.device_count()}"
    bench = benchmark(a=clock.costing("a", 1.0, cube), b=cube)
    rows = measure(bench, (10, 3), device=device)
    assert [row.status for row in rows] == ["not measured yet on this device"] * 2
    assert [row.implementation for row in rows] == ["a", "b"]
    assert all(row.seconds is None and row.samples == () for row in rows)
    assert clock.calls == {}


def test_inputs_follow_the_seed_and_leave_the_generator_alone():
    seen = []

    def spy(x, weight):
        seen.append(x.clone())
        return cube(x, weight)

    state = torch.random.get_rng_state()
    for seed in (1, 1, 2):
        measure(benchmark(a=spy), (4, 3), seed=seed, rounds=6, sample_seconds=1e-5)
    assert torch.equal(torch.random.get_rng_state(), state)
    first, *others = [x for i, x in enumerate(seen) if i == 0 or not torch.equal(x, seen[i - 1])]
    assert len(others) == 1
    assert not torch.equal(first, others[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "sideways"}, "mode: expected one of forward, backward, .* got 'sideways'"),
        ({"rounds": 5}, "rounds: expected at least 6.* got 5"),
        ({"baselines": ("z",)}, "baseline: expected one of a, got 'z'"),
        ({"device": "meta"}, "device: expected cpu or cuda, got meta"),
        ({"graph": True}, "graph: expected False on a CPU"),
        ({"graph": True, "mode": "backward"}, "graph: a backward pass alone is not captured"),
    ],
)
def test_arguments_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        measure(benchmark(a=cube), (4, 3), **options)


def test_a_backward_mode_without_gradients_is_an_error():
    bench = Operation("copy", lambda *_: {"x": torch.ones(2)}, {"a": torch.clone}, torch.clone, len)
    with pytest.raises(ValueError, match=r"mode: expected forward \(copy has no gradients\)"):
        measure(bench, (2,), mode="backward")


def test_bandwidth_is_the_byte_model_over_the_time(clock):
    row = run(clock, benchmark(a=clock.costing("a", 2.0, cube)))["a"]
    assert row.traffic == 4 * (30 + 3 + 30)
    assert row.bandwidth == row.traffic / 2
    assert row.fraction == row.bandwidth / 1e3


@pytest.mark.parametrize(("bytes_per_second", "flagged"), [(125, True), (126, False), (127, False)])
def test_a_value_above_the_roof_is_flagged(clock, bytes_per_second, flagged):
    row = run(clock, benchmark(a=clock.costing("a", 2.0, cube)), roof=float(bytes_per_second))["a"]
    assert row.bandwidth == 126
    assert row.note.startswith("above the roof") == flagged


def test_the_byte_model_of_layer_normalization_is_two_and_three_times_the_rows():
    m, n = 7, 13
    x, weight, bias = torch.randn(m, n), torch.ones(n), torch.zeros(n)
    y = torch.nn.functional.layer_norm(x, (n,), weight, bias)
    inputs, saved = [x, weight, bias], [x, weight]

    def model(mode):
        return byte_model.traffic(mode, inputs, [y], saved, inputs)

    rows, parameter = x.untyped_storage().nbytes(), weight.untyped_storage().nbytes()
    assert (rows, parameter) == (m * n * 4, n * 4)
    assert model("forward") == 2 * rows + 2 * parameter
    assert model("backward") == 3 * rows + 3 * parameter
    assert model("forward+backward") == 5 * rows + 5 * parameter


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

    bandwidth = roof.copy_bandwidth(torch.device("cpu"), torch.float16, 1000, Second())
    assert bandwidth == 1000


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_measured_roof_is_plausible(dtype):
    bandwidth = roof.copy_bandwidth(torch.device("cpu"), dtype, 2**22)
    assert 1e7 < bandwidth < 1e13


def test_peak_memory_counts_what_is_held_at_once():
    x = torch.ones(1000, 1000)
    cpu, megabytes = torch.device("cpu"), 4_000_000
    assert memory.peak(lambda: x.clone(), cpu) == pytest.approx(megabytes, rel=1e-3)
    assert memory.peak(lambda: x.exp().sin(), cpu) == pytest.approx(2 * megabytes, rel=1e-3)
    assert memory.peak(lambda: x.exp().sin().cos(), cpu) == pytest.approx(2 * megabytes, rel=1e-3)
    assert memory.peak(lambda: x.exp().sin_(), cpu) == pytest.approx(megabytes, rel=1e-3)
    assert memory.peak(lambda: x.add_(1), cpu) < 1000
