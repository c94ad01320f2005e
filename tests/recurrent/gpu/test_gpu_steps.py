"""The fused steps on the GPU compute what the definition does: values and all gradients."""

import pytest
import torch
from kernels.kernel_cases import ON_GPU
from recurrent.gpu.kernel_recurrent import (
    BF16,
    DEVICE,
    F16,
    F32,
    F64,
    NETS,
    Case,
    agrees,
    as_exact,
    converted,
    results,
    run,
    tensors,
)
from recurrent.recurrent_fused import far_from_zero, leaves, overflow

from layernorm.kernels import launch
from layernorm.recurrent import definition, gpu
from layernorm.recurrent.gpu import sums

pytestmark = ON_GPU
FORMS = pytest.mark.parametrize(("kind", "form"), NETS)
KINDS = pytest.mark.parametrize(("kind", "form"), [("lstm", "paper"), ("gru", "gru")])


@FORMS
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_sequences_of_several_lengths(kind, form, reverse):
    agrees(Case(kind, form, reverse=reverse))


@FORMS
def test_equally_long_sequences(kind, form):
    """And as many units as a block has."""
    agrees(Case(kind, form, (2, 2, 2), units=8, inputs=3))


@FORMS
@pytest.mark.filterwarnings("ignore:(overflow|invalid value):RuntimeWarning")  # numpy's
def test_large_means_and_overflow(kind, form):
    for case in (far_from_zero, overflow):
        assert case(gpu, kind, 7, form, lambda at: converted(at, F64)) < 1e-11


@KINDS
@pytest.mark.parametrize("units", [1, 2, 17])
def test_units(kind, form, units):
    agrees(Case(kind, form, (2, 1), units=units, inputs=1))


@KINDS
def test_one_step(kind, form):
    agrees(Case(kind, form, (3,)))


@FORMS
def test_without_bias(kind, form):
    agrees(Case(kind, form, (2, 1), bias=False))


@KINDS
def test_eps(kind, form):
    agrees(Case(kind, form, (2, 1), eps=0.3))


@FORMS
def test_float32(kind, form):
    as_exact(Case(kind, form, (2, 2, 2), units=13), F32)


@KINDS
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_half_precision(kind, form, dtype):
    """Products are in the half type; statistics and states in float32."""
    as_exact(Case(kind, form, (2, 2, 2), units=13), dtype)


@KINDS
def test_states_are_kept_in_float32(kind, form):
    """Many small changes of a state near 1 would all be rounded away in bfloat16."""
    case = Case(kind, form, (1,) * 12, units=3)
    x, states, w = at = tensors(case, BF16)
    with torch.no_grad():
        for t in (x, w.w_ih, w.w_hh, *w.ln_ih, *w.ln_hh):
            t.zero_()
        gates = w.b.view(-1, 3)
        gates.fill_(-6.0)  # the input gate nearly closed, the candidate near -1
        gates[1] = 6.0  # forget, or update gate: the state nearly stays
        for s in states:
            s.fill_(1.0)
        got = run(gpu, case, *at)[-1].double()
        exact = run(definition, case, *converted(at, F64))[-1]
        low = run(definition, case, *at)[-1].double()
    step = torch.finfo(BF16).eps / 2
    assert float((got - exact).abs().max()) <= step / 2
    assert float((low - exact).abs().max()) > 2 * step


@KINDS
def test_the_same_bits_every_time_and_without_a_graph(kind, form):
    case = Case(kind, form)
    at = tensors(case, F32)
    first, again = results(gpu, case, *at), results(gpu, case, *at)
    with torch.no_grad():
        values = run(gpu, case, *at)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first, values, strict=False))


@KINDS
def test_strides_do_not_matter(kind, form):
    case = Case(kind, form)
    x, states, w = tensors(case)
    expected = results(gpu, case, x, states, w)

    def turned(t):
        return t.detach().t().contiguous().t().requires_grad_()

    gain, b = w.ln_hh
    spread = torch.stack([gain.detach(), gain.detach()], 1)[:, 0].requires_grad_()
    other = w._replace(w_hh=turned(w.w_hh), w_ih=turned(w.w_ih), ln_hh=(spread, b))
    got = results(gpu, case, turned(x), [turned(s) for s in states], other)
    for g, e in zip(got, expected, strict=True):
        torch.testing.assert_close(g, e, rtol=1e-12, atol=1e-12)


@KINDS
def test_a_gradient_of_one_result_only(kind, form):
    """Those of the others are not there at all."""
    case = Case(kind, form, (2, 1))
    at = tensors(case)
    wanted = [at[0], *at[1], *leaves(at[2])]
    for k in range(2 if kind == "gru" else 3):
        got, expected = (
            torch.autograd.grad(
                run(module, case, *at)[k].square().sum(), wanted, materialize_grads=True
            )
            for module in (gpu, definition)
        )
        for g, e in zip(got, expected, strict=True):
            torch.testing.assert_close(g, e, rtol=1e-11, atol=1e-11)


@KINDS
def test_what_needs_no_gradient_gets_none(kind, form):
    case = Case(kind, form, (2, 1))
    x, states, w = tensors(case)
    x.requires_grad_(False)
    run(gpu, case, x, states, w)[0].sum().backward()
    assert x.grad is None
    assert w.w_ih.grad is not None
    with torch.no_grad():
        assert run(gpu, case, x, states, w)[0].grad_fn is None


@KINDS
def test_no_rows(kind, form):
    case = Case(kind, form, (2,))
    x, states, w = tensors(case)
    empty = x.detach()[:0].requires_grad_(), [s.detach()[:0].requires_grad_() for s in states], w
    values = results(gpu, case._replace(sizes=(0,)), *empty)
    count = 2 if kind == "gru" else 3
    assert [tuple(v.shape) for v in values[:count]] == [(0, 7)] * count
    assert not any(g.any() for g in values[count:])


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
