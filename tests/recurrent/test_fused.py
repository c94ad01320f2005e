"""The two fused paths must do alike, C++ on CPUs and Triton's kernels on GPUs, here interpreted
where there is no GPU."""

from importlib.util import find_spec

import pytest
import torch
from recurrent.recurrent_fused import (
    F32,
    NETS,
    Case,
    agrees,
    as_exact,
    draw,
    leaves,
    results,
    run,
    tensors,
    threads,
)

from layernorm.recurrent import cpu, definition, gpu

PATHS = [
    pytest.param(cpu, marks=pytest.mark.skipif(bool(cpu.missing()), reason=str(cpu.missing())))
]
if find_spec("triton"):
    from kernels.kernel_cases import ON_GPU

    PATHS.append(pytest.param(gpu, marks=ON_GPU))

pytestmark = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__[20:])
FORMS = pytest.mark.parametrize(("kind", "form"), NETS)
KINDS = pytest.mark.parametrize(("kind", "form"), [("lstm", "paper"), ("gru", "gru")])


@FORMS
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_sequences_of_several_lengths(path, kind, form, reverse):
    agrees(Case(kind, form, reverse=reverse), path=path)


@FORMS
def test_equally_long_sequences(path, kind, form):
    """And as many units as a block of a kernel has."""
    agrees(Case(kind, form, (2, 2, 2), units=8, inputs=3), path=path)


@KINDS
@pytest.mark.parametrize(
    "case",
    [
        {"units": 1, "inputs": 1},
        {"units": 2, "inputs": 1},
        {"units": 17, "inputs": 1},
        {"sizes": (3,)},
        {"eps": 0.3},
    ],
    ids=str,
)
def test_units_steps_and_eps(path, kind, form, case):
    agrees(Case(kind, form, **{"sizes": (2, 1), **case}), path=path)


@FORMS
def test_without_bias(path, kind, form):
    agrees(Case(kind, form, (2, 1), bias=False), path=path)


@FORMS
def test_float32(path, kind, form):
    """On a CPU by two threads, which share 101 units."""
    with threads(2):
        units = 101 if path is cpu and form in ("paper", "gru") else 13
        as_exact(Case(kind, form, (2, 2, 2), units=units), F32, path)


@KINDS
def test_the_same_bits_every_time_and_without_a_graph(path, kind, form):
    case = Case(kind, form, units=70 if path is cpu else 7)
    at = tensors(case, F32, path)
    with threads(2):
        first, *again = (results(path, case, *at) for _ in range(3))
        with torch.no_grad():
            values = run(path, case, *at)
    for other in again:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first, values, strict=False))


@KINDS
def test_strides_do_not_matter(path, kind, form):
    case = Case(kind, form)
    x, states, w = tensors(case, path=path)
    expected = results(path, case, x, states, w)

    def turned(t):
        return t.detach().t().contiguous().t().requires_grad_()

    gain, b = w.ln_hh
    spread = torch.stack([gain.detach(), gain.detach()], 1)[:, 0].requires_grad_()
    other = w._replace(w_hh=turned(w.w_hh), w_ih=turned(w.w_ih), ln_hh=(spread, b))
    got = results(path, case, turned(x), [turned(s) for s in states], other)
    for g, e in zip(got, expected, strict=True):
        torch.testing.assert_close(g, e, rtol=1e-12, atol=1e-12)


@KINDS
def test_a_sign_that_is_kept_beside_the_numbers(path, kind, form):
    """As the imaginary part of a conjugate has it: inputs, states, and gradients that arrive."""
    case = Case(kind, form)
    x, states, w = tensors(case, path=path)
    expected = results(path, case, x, states, w)

    def tangled(t):
        return torch._neg_view(-t.detach())

    y = run(path, case, tangled(x).requires_grad_(), [*map(tangled, states)], w)
    slopes = [tangled(draw(*v.shape, seed=30 + k).to(v)) for k, v in enumerate(y)]
    assert all(t.is_neg() for t in (tangled(x), *slopes))
    got = [*y, *torch.autograd.grad(y, leaves(w), slopes)]
    for g, e in zip(got, expected[: len(y)] + expected[len(y) + 1 + len(states) :], strict=True):
        torch.testing.assert_close(g, e, rtol=0, atol=0)


@KINDS
def test_a_gradient_of_one_result_only(path, kind, form):
    """Those of the others are not there at all."""
    case = Case(kind, form, (2, 1))
    at = tensors(case, path=path)
    wanted = [at[0], *at[1], *leaves(at[2])]
    for k in range(2 if kind == "gru" else 3):
        losses = (run(module, case, *at)[k].square().sum() for module in (path, definition))
        found = (torch.autograd.grad(loss, wanted, materialize_grads=True) for loss in losses)
        for g, e in zip(*found, strict=True):
            torch.testing.assert_close(g, e, rtol=1e-11, atol=1e-11)


@KINDS
@pytest.mark.parametrize("frozen", ["x", "weights"])
def test_what_needs_no_gradient_gets_none(path, kind, form, frozen):
    case = Case(kind, form, (2, 1))
    x, states, w = tensors(case, path=path)
    still, free = ([x], leaves(w)) if frozen == "x" else (leaves(w), [x])
    for t in still:
        t.requires_grad_(False)
    found = [run(m, case, x, states, w)[0].square().sum() for m in (path, definition)]
    for g, e in zip(*(torch.autograd.grad(loss, free) for loss in found), strict=False):
        torch.testing.assert_close(g, e, rtol=1e-11, atol=1e-11)
    with torch.no_grad():
        assert run(path, case, x, states, w)[0].grad_fn is None


@KINDS
def test_no_rows(path, kind, form):
    """Empty batches give empty outputs; gradients of the weights are zero."""
    case = Case(kind, form, (2,))
    x, states, w = tensors(case, path=path)
    empty = x.detach()[:0].requires_grad_(), [s.detach()[:0].requires_grad_() for s in states], w
    values = results(path, case._replace(sizes=(0,)), *empty)
    count = 2 if kind == "gru" else 3
    assert [tuple(v.shape) for v in values[:count]] == [(0, 7)] * count
    assert not any(g.any() for g in values[count:])


@pytest.mark.parametrize(("kind", "form"), [("lstm", "joint"), ("gru", "gru")])
def test_the_registered_operator_computes_the_same(path, kind, form, monkeypatch):
    case = Case(kind, form, (2, 1))
    at, found = tensors(case, path=path), []
    for registered in (False, True):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda answer=registered: answer)
        found.append(results(path, case, *at))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, w: (x[:, :-1], w), r"w_ih must (be contiguous|have shape \(12, 1\))"),
        (lambda x, w: (x, w._replace(w_hh=w.w_hh[:-1])), r"w_hh must (be con|have shape \(12, 3)"),
        (lambda x, w: (x, w._replace(b=w.b[:-1])), r"bias must (be con|have .* got \(11,\))"),
        (
            lambda x, w: (x, w._replace(ln_c=(w.ln_c[0][:2], w.ln_c[1]))),
            "gain_c must (be|have sha)",
        ),
        (lambda x, w: (x[:-1], w), "batch_sizes must not .* x's 2 rows"),
        (lambda x, w: (x.expand(2, 3, 2).reshape(6, 2), w), "batch_sizes must not .* x's 6 rows"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(path, change, message):
    """The C++ trusts its pointers, so nothing reaches it unchecked."""
    case = Case("lstm", "paper", (2, 1), units=3, inputs=2)
    x, states, w = tensors(case, path=path)
    x, w = change(x, w)
    with pytest.raises(ValueError, match=message):
        run(path, case, x, states, w)


@pytest.mark.parametrize("sizes", [(1, 2), (2, 0, 1), (1, 1, 1), (3,), (2,), (2, 1, 0)])
def test_steps_that_do_not_fit_are_refused(path, sizes):
    x, states, w = tensors(Case("gru", "gru", (2, 1), units=3, inputs=2), path=path)
    with pytest.raises(ValueError, match="batch_sizes must not increase"):
        path.gru(x, torch.tensor(sizes), *states, w)
    with pytest.raises(ValueError, match=r"x must have T \* 2 rows"):
        path.gru(x, None, *states, w)
