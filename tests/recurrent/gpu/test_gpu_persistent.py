"""The loop over time in one kernel against the definition, and when it is chosen.

The interpreter runs what lies between two waits as a launch of its own; on a GPU it is one launch.
The largest products come first: where a GPU is had for minutes, they decide.
"""

import pytest
import torch
from kernels.kernel_cases import ON_GPU
from recurrent.recurrent_fused import BF16, F16, NETS, Case, agrees, as_exact, run, tensors

from layernorm.kernels import launch, speeds
from layernorm.recurrent import definition, gpu
from layernorm.recurrent.gpu import persistent
from layernorm.recurrent.gpu.choice import asked

pytestmark = ON_GPU
KINDS = pytest.mark.parametrize(("kind", "form"), [("lstm", "paper"), ("gru", "gru")])


@pytest.fixture(autouse=True)
def in_one_kernel():
    with asked(persistent=True):
        yield


@pytest.fixture
def launched(monkeypatch):
    """The loops that were taken."""
    taken = []
    for name in ("forward", "backward"):
        really = getattr(persistent, name)

        def count(*given, name=name, really=really):
            taken.append(name)
            return really(*given)

        monkeypatch.setattr(persistent, name, count)
    return taken


@KINDS
def test_the_depth_in_two_pieces(kind, form, monkeypatch):
    """Where all of a factor does not fit on chip."""
    monkeypatch.setattr(launch, "_chip", lambda device: launch.Chip(8, 60_000))
    monkeypatch.setattr(persistent, "CHIP", launch.Chip(8, 60_000))
    case = Case(kind, form, (2, 2), units=64)
    w = tensors(case, path=gpu)[2].w_hh
    assert persistent._cut(w, 2, *w.shape).pieces == 2
    agrees(case)


@KINDS
def test_several_tiles_of_rows_and_columns(kind, form):
    """18 rows and 36 or 27 columns, by fewer programs than there are tiles; backwards in time."""
    agrees(Case(kind, form, (18, 18), units=9, reverse=True))


@KINDS
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_half_precision(kind, form, dtype):
    as_exact(Case(kind, form, (2, 2, 2), units=13), dtype)


@pytest.mark.parametrize(("kind", "form"), NETS)
def test_values_and_gradients(kind, form, launched):
    agrees(Case(kind, form, (2, 2, 2), units=5, bias=form != "paper"))
    assert launched == ["forward", "backward"]


@KINDS
def test_one_row_and_one_step(kind, form):
    agrees(Case(kind, form, (1,), units=3))


@KINDS
def test_without_a_gradient(kind, form):
    case = Case(kind, form, (3, 3))
    at = tensors(case, path=gpu)
    with torch.no_grad():
        for got, expected in zip(run(gpu, case, *at), run(definition, case, *at), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)


def test_what_is_impossible_is_refused():
    case = Case("lstm", "paper", (3, 2))
    with pytest.raises(ValueError, match="one length, got steps of 2 to 3 rows"):
        run(gpu, case, *tensors(case, path=gpu))
    many = torch.zeros(1).expand(4 * 1040, 1040)
    assert "cannot hold the recurrent weights of 1040 units in float32" in persistent.unsupported(
        many, (2, 2)
    )


@pytest.mark.parametrize("interpreted", [True, False])
def test_a_record_decides(interpreted, monkeypatch):
    """Sequences of one length, on a GPU, where the records say that it is as fast."""

    class OnGpu(torch.Tensor):
        is_cuda = True

    monkeypatch.setattr(launch, "INTERPRETED", interpreted)
    monkeypatch.setattr(launch, "_chip", lambda device: launch.Chip(132, 227 * 1024))
    monkeypatch.setattr(persistent, "_least", lambda device: 2)
    w, told = torch.zeros(20, 5).as_subclass(OnGpu), []
    monkeypatch.setattr(speeds, "faster", lambda *case: told.append(case) or len(told) == 1)
    with asked(persistent=False):
        assert not persistent.chosen("lstm", w, (2, 2), True)
    with asked(persistent=None):
        assert persistent.chosen("lstm", w, (2, 2), True)
        assert not persistent.chosen("lstm", w, (2, 2), False)
        assert not persistent.chosen("lstm", w, (2, 1), True)
        assert not persistent.chosen("lstm", torch.zeros(20, 5), (2, 2), True)
    assert [case[0] for case in told] == ["lstm_persistent"] * 2
    assert told[0][2:] == (torch.float32, True, 4, 5)


def test_weights_of_1024_units_fit_on_an_h100_and_not_on_a_t4():
    h100, t4 = launch.Chip(132, 227 * 1024), launch.Chip(40, 64 * 1024)
    for units, chip, fits in ((1024, h100, True), (512, t4, False), (128, t4, True)):
        cuts = [
            persistent.cut(64, *shape, 2, chip)
            for shape in ((units, 4 * units), (4 * units, units))
        ]
        assert all(cuts) == fits, units
        for cut in filter(None, cuts):
            assert cut.programs <= chip.multiprocessors


def test_a_t4_multiplies_half_precision_in_float32(monkeypatch):
    """So it has room for half as many units; tests/kernels/test_targets.py compiles them for it."""
    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(launch, "_chip", lambda device: launch.Chip(40, 64 * 1024))
    monkeypatch.setattr(persistent, "_least", persistent._least.__wrapped__)
    capability = [(7, 5)]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability[0])
    weights = {n: torch.zeros(1, dtype=F16).expand(4 * n, n) for n in (128, 256)}
    assert persistent.unsupported(weights[128], (64, 64)) is None
    refused = persistent.unsupported(weights[256], (64, 64))
    assert refused == "this GPU cannot hold the recurrent weights of 256 units in float16"
    capability[0] = (8, 0)
    assert persistent.unsupported(weights[256], (64, 64)) is None
    too_many = persistent.unsupported(weights[256], (2**21, 2**21))
    assert too_many == f"a step of {2**21} rows of 1024 numbers has more than {2**31 - 1}"
    assert persistent.unsupported(weights[256], (2**21 - 1,) * 2) is None
