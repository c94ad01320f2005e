"""The fused steps in half precision, and their sums of columns."""

import pytest
import torch
from kernels.kernel_cases import DEVICE, ON_GPU
from recurrent.recurrent_fused import (
    BF16,
    F16,
    F64,
    NETS,
    Case,
    agrees,
    as_exact,
    converted,
    far_from_zero,
    overflow,
    run,
    tensors,
)

from layernorm.kernels import launch
from layernorm.recurrent import definition, gpu
from layernorm.recurrent.gpu import sums

pytestmark = ON_GPU
KINDS = pytest.mark.parametrize(("kind", "form"), [("lstm", "paper"), ("gru", "gru")])


@pytest.mark.parametrize(("kind", "form"), NETS)
@pytest.mark.filterwarnings("ignore:(overflow|invalid value):RuntimeWarning")  # numpy's
def test_large_means_and_overflow(kind, form):
    for case in (far_from_zero, overflow):
        assert case(gpu, kind, 7, form, lambda at: converted(at, F64, DEVICE)) < 1e-11


@KINDS
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_half_precision(kind, form, dtype):
    """Products are in the half type; statistics and states in float32."""
    for units in (13, 24):  # rows begin anywhere; at multiples of 16 bytes
        as_exact(Case(kind, form, (2, 2, 2), units=units), dtype)


@pytest.mark.parametrize("form", ["paper", "per_gate", "cell_only"])
def test_long_rows_which_are_read_twice(form):
    """Backward, an LSTM's rows of more than 2048 units."""
    agrees(Case("lstm", form, (2, 1), units=2049, inputs=1), 1e-9)


@KINDS
def test_states_are_kept_in_float32(kind, form):
    """Many small changes of a state near 1 would all be rounded away in bfloat16."""
    case = Case(kind, form, (1,) * 12, units=3)
    x, states, w = at = tensors(case, BF16, gpu)
    with torch.no_grad():
        for t in (x, w.w_ih, w.w_hh, *w.ln_ih, *w.ln_hh):
            t.zero_()
        gates = w.b.view(-1, 3)
        gates.fill_(-6.0)  # the input gate nearly closed, the candidate near -1
        gates[1] = 6.0  # forget, or update gate: the state nearly stays
        for s in states:
            s.fill_(1.0)
        got = run(gpu, case, *at)[-1].double()
        exact = run(definition, case, *converted(at, F64, DEVICE))[-1]
        low = run(definition, case, *at)[-1].double()
    step = torch.finfo(BF16).eps / 2
    assert float((got - exact).abs().max()) <= step / 2
    assert float((low - exact).abs().max()) > 2 * step


@pytest.mark.parametrize("programs", [1, 2, 5])
def test_column_sums(programs, monkeypatch):
    """Several tiles, programs that have more than one, tails, rows and columns with gaps."""
    monkeypatch.setattr(launch, "_chip", lambda device: launch.Chip(programs, 0))
    monkeypatch.setattr(sums, "ROWS", 4)
    monkeypatch.setattr(sums, "AT_ONCE", 2)  # for two blocks of columns
    whole = torch.randn(37, 91, dtype=F64, generator=torch.Generator().manual_seed(1))
    whole = whole.to(DEVICE)
    dy, a, stats = whole[:, 3:70], whole[:, 20:87], whole[:, 88:]
    plain, along = sums.column_sums(dy, a, stats[:, :2], stats[:, 2])
    torch.testing.assert_close(plain, dy.sum(0))
    torch.testing.assert_close(along, (dy * (a - stats[:, :2].sum(1, True)) * stats[:, 2:]).sum(0))
    assert torch.equal(sums.column_sums(dy)[0], plain)
