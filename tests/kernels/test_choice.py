"""`backend="auto"`: a kernel of ours only where records say that it is as fast as torch's."""

import pytest
import torch

import layernorm
from layernorm import functional, kernels
from layernorm.kernels import measured
from layernorm.lab import records
from layernorm.lab.records import Record

GPU = "Made-up GPU"
DEPENDS = ["layernorm.functional"]


def record(
    shape=(4096, 1024, 1), ratio=0.5, *, arm="triton", dtype="float32", mode="forward",
    machine=GPU, baseline="torch", experiment="bench_layer", digest="",
) -> Record:  # fmt: skip
    options = {"shape": list(shape), "dtype": dtype, "mode": mode, "machine": machine,
               "baseline": baseline}  # fmt: skip
    config = {"experiment": experiment, "profile": "quick", "arm": arm, "method": "layer",
              "seed": 0, "options": options}  # fmt: skip
    made = records.new(config, {"final": {"error": 0.1}}, {"ratio_high": ratio}, DEPENDS)
    return Record(config, made.result, made.timing, digest=digest) if digest else made


def test_which_records_count():
    others = [
        record(arm="definition"),
        record(dtype="bfloat16"),
        record(mode="forward+backward"),
        record(machine="Another GPU"),
        record(baseline="definition"),
        record(digest="layer_norm 0"),  # of code that has changed
    ]
    assert measured.ratios(others, GPU, "float32", False) == {}
    found = [*others, record(), record((16, 8, 128), 0.9), record((16, 1024, 1), 1.2)]
    assert measured.ratios(found, GPU, "float32", False) == {1024: {4096: 0.5, 16: 1.2}}
    assert measured.ratios(found, GPU, "float32", True) == {1024: {4096: 0.5}}
    assert measured.ratios(found, GPU, "bfloat16", False) == {1024: {4096: 0.5}}


GRID = {
    1024: {16: 0.8, 256: 1.05, 4096: 0.5},
    4096: {16: 1.06, 256: 0.9, 4096: 0.4},
    1023: {16: 0.5, 4096: 0.5},
}


@pytest.mark.parametrize(
    ("count", "width", "expected"),
    [
        (16, 1024, True),
        (256, 1024, True),  # slower by no more than 5%
        (100, 1024, True),
        (4096, 4096, True),
        (16, 4096, False),  # measured, and slower
        (100, 4096, False),  # one neighbor is
        (1000, 2048, True),
        (100, 2048, False),
        (15, 1024, False),  # beyond what was measured, in each direction
        (4097, 1024, False),
        (256, 512, False),
        (256, 8192, False),
        (256, 1023, True),
        (256, 1025, False),  # rows that begin anywhere: a neighbor below only
    ],
)
def test_neighbors_decide(count, width, expected):
    assert measured.decide(GRID, count, width, itemsize=4) is expected


def test_nothing_measured():
    assert not measured.decide({}, 4096, 1024, 4)


@pytest.fixture
def on_gpu(monkeypatch):
    """Tensors look as if they were on the made-up GPU, whose records are those in the list."""
    found: list[Record] = []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: GPU)
    monkeypatch.setattr(
        records, "runs", lambda name: [r for r in found if r.config["experiment"] == name]
    )
    measured._ratios.cache_clear()
    yield found
    measured._ratios.cache_clear()


class OnGpu(torch.Tensor):
    is_cuda = True


@pytest.mark.parametrize(
    ("operation", "experiment"), [("layer_norm", "bench_layer"), ("rms_norm", "bench_rms")]
)
def test_auto_reads_the_records(on_gpu, monkeypatch, operation, experiment):
    used = []
    for name in ("layer_norm", "rms_norm"):
        monkeypatch.setitem(kernels._TORCH, name, lambda *a: used.append("torch") or a[0])
    monkeypatch.setattr(
        kernels, "_kernel", lambda name: lambda *a: used.append(f"triton {name}") or a[0]
    )
    args = (None, None, 1e-5) if operation == "layer_norm" else (None, 1e-5)

    def chosen(x, *arguments):
        kernels.run(operation, "auto", x, (8,), *(arguments or args))
        measured._ratios.cache_clear()
        return used.pop()

    x = torch.zeros(4, 8).as_subclass(OnGpu)
    assert chosen(x) == "torch"  # no record
    on_gpu.append(record((4, 8, 1), 0.7, experiment=experiment))
    assert chosen(x) == f"triton {operation}"
    assert chosen(torch.zeros(4, 8)) == "torch"
    assert chosen(torch.zeros(5, 8).as_subclass(OnGpu)) == "torch"
    assert chosen(torch.zeros(0, 8).as_subclass(OnGpu)) == "torch"
    assert chosen(torch.zeros(2, 2, 8).as_subclass(OnGpu)) == f"triton {operation}"
    assert chosen(x.double()) == "torch"
    # a gradient is wanted, and only forward passes were measured
    weight = torch.ones(8, requires_grad=True)
    assert chosen(x, weight, *args[1:]) == "torch"
    with torch.no_grad():
        assert chosen(x, weight, *args[1:]) == f"triton {operation}"
    on_gpu.append(record((4, 8, 1), 0.7, experiment=experiment, mode="forward+backward"))
    assert chosen(x, weight, *args[1:]) == f"triton {operation}"
    on_gpu.append(record((4, 8, 1), 1.3, experiment=experiment))  # measured twice: the slower
    assert chosen(x) == "torch"
    assert not used


def test_damaged_records_are_no_records(on_gpu, monkeypatch):
    def damaged(name):
        raise records.RecordError("damaged")

    monkeypatch.setattr(records, "runs", damaged)
    x = torch.randn(4, 8).as_subclass(OnGpu)
    assert not measured.faster("layer_norm", x, 1, gradient=False)


def test_on_a_cpu_auto_is_pytorchs_own():
    x = torch.randn(4, 8)
    y = layernorm.LayerNorm(8, bias=False)(x)
    assert torch.equal(y, torch.nn.functional.layer_norm(x, (8,), torch.ones(8)))
    torch.testing.assert_close(y, functional.layer_norm(x, (8,)))
