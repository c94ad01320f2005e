"""`backend="auto"`: a kernel of ours only where `speeds.json` says it is as fast as torch's."""

import json
import sys

import pytest
import torch

import layernorm
from layernorm import kernels
from layernorm.kernels import speeds

GPU = "Made-up GPU"


def entry(shape=(4096, 1024), ratio=0.5, operation="layer_norm", **changes) -> dict:
    asked = {"operation": operation, "device": GPU, "dtype": "float32", "gradient": False}
    return asked | {"shape": list(shape), "ratio_high": ratio} | changes


@pytest.fixture
def known(tmp_path, monkeypatch):
    """Write the file that is read; tensors look as if they were on the made-up GPU."""

    def write(*entries: dict) -> None:
        (tmp_path / "speeds.json").write_text(json.dumps({"schema": 1, "entries": entries}))
        speeds.entries.cache_clear()
        speeds.ratios.cache_clear()

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: GPU)
    monkeypatch.setattr(speeds, "FILE", tmp_path / "speeds.json")
    write()
    yield write
    speeds.entries.cache_clear()
    speeds.ratios.cache_clear()


def test_the_published_file_has_its_form():
    published = json.loads(speeds.FILE.read_text())
    assert published["schema"] == 1
    for one in published["entries"]:
        assert {name: type(value) for name, value in one.items()} == {
            name: type(value) for name, value in entry().items()
        }
        layer = one["operation"].partition("_")[0] in ("lstm", "gru")
        assert len(one["shape"]) == (4 if layer else 2)
        assert one["ratio_high"] > 0


def test_which_entries_count(known):
    others = [
        entry(operation="rms_norm"),
        entry(dtype="bfloat16"),
        entry(gradient=True),
        entry(device="Another GPU"),
    ]
    known(*others)
    assert speeds.ratios("layer_norm", GPU, "float32", False) == {}
    layers = [entry((5, 3, 7, 64), ratio, "lstm") for ratio in (0.9, 1.2, 0.8)]
    known(*others, entry(), entry((16, 128), 0.9), entry((16, 1024), 1.2), *layers)
    found = {1024: {4096: 0.5, 16: 1.2}, 128: {16: 0.9}}
    assert speeds.ratios("layer_norm", GPU, "float32", False) == found
    for case in (("float32", True), ("bfloat16", False)):
        assert speeds.ratios("layer_norm", GPU, *case) == {1024: {4096: 0.5}}
    # T B rows of H units; measured several times: the slowest
    assert speeds.ratios("lstm", GPU, "float32", False) == {64: {15: 1.2}}


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
    assert speeds.decide(GRID, count, width, itemsize=4) is expected
    assert not speeds.decide({}, count, width, itemsize=4)  # nothing measured


def test_an_unknown_number_of_rows_asks_for_all_that_were_measured(known):
    def faster(width):
        return speeds.faster("layer_norm", torch.device("cuda"), torch.float32, False, None, width)

    assert not faster(1024)
    known(*(entry(shape) for shape in ((16, 1024), (4096, 1024), (16, 2048), (4096, 2048))))
    assert faster(1024)
    assert faster(1536)
    known(*(entry(shape) for shape in ((16, 1024), (4096, 1024), (16, 2048), (8192, 2048))))
    assert not faster(1024)  # 8192 rows of this width were not measured
    known(entry((16, 1024)), entry((4096, 1024), 1.2))
    assert not faster(1024)


class OnGpu(torch.Tensor):
    is_cuda = True


@pytest.mark.parametrize("operation", ["layer_norm", "rms_norm"])
def test_auto_asks_for_the_speeds(known, monkeypatch, operation):
    used = []
    for name in ("layer_norm", "rms_norm"):
        monkeypatch.setitem(kernels._TORCH, name, lambda *a: used.append("torch") or a[0])
    monkeypatch.setattr(
        kernels, "_kernel", lambda name: lambda *a: used.append(f"triton {name}") or a[0]
    )
    args = (None, None, 1e-5) if operation == "layer_norm" else (None, 1e-5)

    def chosen(x, *arguments):
        kernels.run(operation, "auto", x, (8,), *(arguments or args))
        return used.pop()

    x = torch.zeros(4, 8).as_subclass(OnGpu)
    assert chosen(x) == "torch"  # nothing was measured
    fast = entry((4, 8), 0.7, operation)
    known(fast)
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
    known(fast, fast | {"gradient": True})
    assert chosen(x, weight, *args[1:]) == f"triton {operation}"
    known(fast, entry((4, 8), 1.3, operation))  # measured twice: the slower
    assert chosen(x) == "torch"
    assert not used


def test_neither_records_nor_the_current_directory_are_read(known, monkeypatch, tmp_path):
    """Files in ./runs, or in $LAYERNORM_RUNS, make no difference."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kernels, "_kernel", lambda name: lambda *a: a[0])
    touched, watching = [], True

    def watch(event, args):
        if watching and event in ("open", "os.listdir", "os.scandir"):
            touched.append(str(args[0]))

    sys.addaudithook(watch)  # for good; it sees every way to open a file
    layernorm.LayerNorm(8)(torch.zeros(4, 8).as_subclass(OnGpu))
    watching = False
    assert touched == [str(speeds.FILE)]
