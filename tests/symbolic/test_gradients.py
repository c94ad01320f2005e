"""The derived backward passes are the derivatives of the definitions, and of layernorm's own."""

import numpy
import pytest
import sympy
import torch

from layernorm import functional as F
from layernorm.methods import METHODS as ROWS
from layernorm.symbolic import METHODS, code, derive, function, gradients, recurrent, source
from layernorm.symbolic.gradients import jacobian


def draw(*shape):
    return (2 + 3 * torch.randn(*shape, dtype=torch.float64)).requires_grad_()


def close(ours, theirs):
    assert len(ours) == len(theirs)
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10)


def forward(method, a, gain, bias, eps, groups):
    if method == "group":
        return F.group_norm(a, groups, gain, bias, eps)
    norm = ROWS[method].norm(a.shape[1]).double()
    norm.eps, norm.backend = eps, "reference"
    given = {"weight": gain, "bias": bias}
    given = {name: given[name] for name, _ in norm.named_parameters()}
    return torch.func.functional_call(norm, given, (a,))


def compare(method, backward, cases=5, units=6, groups=2, eps=1e-5):
    """The printed code against autograd through layernorm.functional, on random numbers."""
    torch.manual_seed(0)
    if method == "weight":
        v, g, dw = draw(units, 4), draw(units, 1), draw(units, 4)
        theirs = torch.autograd.grad(F.weight_norm(v, g), (v, g), dw)
        return close(backward(dw, v, g), theirs)
    a, gain, bias, dy = draw(cases, units), draw(units), draw(units), draw(cases, units)
    wanted = (a, gain, bias) if derive(method).mu != 0 else (a, gain)
    theirs = torch.autograd.grad(forward(method, a, gain, bias, eps, groups), wanted, dy)
    close(backward(dy, a, gain, eps, *([groups] if method == "group" else [])), theirs)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cases", [2, 7])
@pytest.mark.parametrize(("units", "groups"), [(1, 1), (2, 1), (6, 3), (31, 1)])
@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_the_printed_code_is_the_gradient(method, cases, units, groups, eps):
    compare(method, function(method), cases, units, groups, eps)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_printed_is_what_runs(method):
    compare(method, code.run(source(method)))
    assert code.run(source(method)).__code__.co_code == function(method).__code__.co_code
    if "mean_c_x_hat" in source(method):
        broken = source(method).replace(" - mean_c_x_hat*x_hat", "")
        with pytest.raises(AssertionError):
            compare(method, code.run(broken))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_for_small_n_it_is_the_jacobian_of_the_definition(method, n):
    """SymPy's own differentiation of the written-out definition, no sums involved; lambdified."""
    v = [float(k * k - 3 * k + 1) for k in range(1, n + 1)]
    symbols = [*sympy.symbols(f"v1:{n + 1}", real=True), gradients.EPS]
    eps = 0.0 if method == "weight" else 0.3
    matrix = sympy.lambdify(symbols, jacobian(method, n), "numpy")(*v, eps)
    row, dy = numpy.array([v]), numpy.array([[float(2 * k + 1) for k in range(n)]])
    if method == "batch":
        got = function(method)(dy.T, row.T, numpy.ones(1), eps)[0].T
    elif method == "weight":
        got = function(method)(dy, row, numpy.ones((1, 1)))[0]
    else:
        got = function(method)(dy, row, numpy.ones(n), eps, *([1] if method == "group" else []))[0]
    numpy.testing.assert_allclose(got[0], dy[0] @ matrix, rtol=1e-12, atol=1e-12)


def test_batch_layer_and_group_have_one_formula():
    assert derive("batch").backward == derive("layer").backward == derive("group").backward
    assert derive("rms").backward != derive("layer").backward


def test_the_jacobian_is_symmetric():
    """The differential along c is the gradient of c: one formula for both directions."""
    for method in METHODS:
        found = derive(method)
        assert found.differential.subs(gradients.U, gradients.C) == found.backward


@pytest.mark.parametrize("method", METHODS)
def test_a_changed_definition_gives_another_gradient(method, monkeypatch):
    """A variance that counts double: nothing of the old gradient is typed in."""
    original = gradients.statistics

    def changed(*arguments):
        mu, variance = original(*arguments)
        return mu, 2 * variance

    monkeypatch.setattr(gradients, "statistics", changed)
    assert derive.__wrapped__(method).backward != derive(method).backward


RECURRENT = {
    "rnn": ("x h w_ih w_hh ln ln", 1),
    "lstm": ("x h c w_ih w_hh b ln_ih ln_ih ln_hh ln_hh ln_c ln_c", 4),
    "gru": ("x h w_ih w_hh b ln_ih ln_ih ln_hh ln_hh", 3),
}


def step(name, arguments, eps):
    x, h, *rest = arguments
    if name == "rnn":
        w_ih, w_hh, gain, bias = rest
        return (F.ln_rnn_step(x, h, w_ih, w_hh, (gain, bias), eps),)
    if name == "lstm":
        c, w_ih, w_hh, b, *pairs = rest
        lns = (pairs[0:2], pairs[2:4], pairs[4:6])
        return F.ln_lstm_step(x, h, c, w_ih, w_hh, b, *map(tuple, lns), eps)
    w_ih, w_hh, b, *pairs = rest
    return (F.ln_gru_step(x, h, w_ih, w_hh, b, tuple(pairs[0:2]), tuple(pairs[2:4]), eps),)


def compare_step(name, backward, n, i, h):
    torch.manual_seed(0)
    names, gates = RECURRENT[name]
    shapes = {"x": (n, i), "h": (n, h), "c": (n, h), "w_ih": (gates * h, i), "ln_c": (h,)}
    shapes |= {"w_hh": (gates * h, h), "b": (gates * h,), "ln": (h,)}
    arguments = [0.3 * draw(*shapes.get(p, (gates * h,))) for p in names.split()]
    outputs = step(name, arguments, 1e-3)
    upstream = [torch.randn_like(y) for y in outputs]
    theirs = torch.autograd.grad(outputs, arguments, upstream)
    close(backward(*upstream, *arguments, 1e-3), theirs)


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize(("n", "i", "h"), [(1, 1, 2), (3, 4, 5), (2, 3, 17)])
def test_recurrent_steps_against_autograd(name, n, i, h):
    compare_step(name, recurrent.function(name), n, i, h)


@pytest.mark.parametrize("name", RECURRENT)
def test_a_step_with_a_changed_piece_has_another_gradient(name, monkeypatch):
    """Twice the output: what is derived follows the step."""
    original = recurrent.STEPS[name]()
    last = original.pieces[-1]
    changed = (*original.pieces[:-1], recurrent.Elementwise(last.out, 2 * last.expression))
    step = recurrent.Step(original.arguments, original.outputs, changed)
    monkeypatch.setitem(recurrent.STEPS, name, lambda: step)
    monkeypatch.setattr(recurrent, "source", recurrent.source.__wrapped__)
    with pytest.raises(AssertionError):
        compare_step(name, recurrent.function.__wrapped__(name), 3, 4, 5)


def test_bad_input_names_the_nearest():
    for ask in (derive, source, function, gradients.eps_of):
        with pytest.raises(ValueError, match=r"unknown method 'layernorm'.*did you mean 'layer'\?"):
            ask("layernorm")
    for ask in (recurrent.source, recurrent.function):
        with pytest.raises(ValueError, match=r"unknown step 'lstn'.*did you mean 'lstm'\?"):
            ask("lstn")
    for n in (0, -1):
        with pytest.raises(ValueError, match=f"n must be an int >= 1.*got {n}"):
            jacobian("layer", n)
    with pytest.raises(TypeError, match=r"n must be an int.*derive\('layer'\) holds for every n"):
        jacobian("layer", sympy.Symbol("H", integer=True, positive=True))
