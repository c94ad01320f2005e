"""Checks of the three recurrent steps: against an independent net, and against torch's cells."""

import torch
from library.oracle import assert_close, assert_no_zeros, assert_rounded, draw
from recurrent.recurrent_reference import Vectors, gru_step, lstm_step, rnn_step
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

from checks.registry import check
from layernorm import functional

STEPS = {"ln_rnn_step": 1, "ln_lstm_step": 4, "ln_gru_step": 3}  # gates
EPS = 0.01


def _arguments(name: str, batch=(2,), inputs=3, hidden=5) -> list:
    """Every argument of a step before eps; gains and biases of all norms differ."""
    gates = STEPS[name]
    rows = gates * hidden
    states = [draw(*batch, hidden, seed=s) for s in ((2, 3) if gates == 4 else (2,))]
    weights = [draw(rows, inputs, seed=4), draw(rows, hidden, seed=5)]

    def ln(size: int, seed: int) -> tuple[Tensor, Tensor]:
        return draw(size, seed=seed, mean=1.0, std=0.5), draw(size, seed=seed + 1, std=0.5)

    x = draw(*batch, inputs, seed=1)
    if gates == 1:
        return [x, *states, *weights, ln(hidden, 10)]
    norms = [ln(rows, 10), ln(rows, 20)] + ([ln(hidden, 30)] if gates == 4 else [])
    return [x, *states, *weights, draw(rows, seed=6), *norms]


def _outputs(result) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def _vectors(arguments: list) -> Vectors:
    """Weights, b and norms of a step by the names that the reference has for them."""
    named = dict(zip(("weight_ih", "weight_hh", "bias_ih"), arguments, strict=False))
    norms = [a for a in arguments if isinstance(a, tuple)]
    if len(norms) == 1:
        del named["bias_ih"]
    names = ("ln_ih", "ln_hh", "ln_c") if len(norms) > 1 else ("ln",)
    for name, pair in zip(names, norms, strict=False):
        named |= {f"{name}_weight": pair[0], f"{name}_bias": pair[1]}
    return Vectors(named, "", EPS)


@check(*STEPS)
def agrees_with_the_reference(f, name):
    """One vector at a time, one gate at a time, with torch's own layer norm."""
    reference = {
        "ln_rnn_step": lambda x, h, *rest: rnn_step(x, h, _vectors(rest), "tanh"),
        "ln_lstm_step": lambda x, h, c, *rest: lstm_step(x, h, c, _vectors(rest), "paper"),
        "ln_gru_step": lambda x, h, *rest: gru_step(x, h, _vectors(rest)),
    }[name]
    for inputs, hidden in ((3, 5), (1, 7), (4, 1)):
        arguments = _arguments(name, batch=(), inputs=inputs, hidden=hidden)
        results = zip(_outputs(f(*arguments, EPS)), reference(*arguments), strict=True)
        for got, expected in results:
            assert_close(got, expected, 1e-12)


@check(*STEPS)
def every_case_by_itself(f, name):
    """Any batch dimensions; three steps of a batch are those of its cases alone."""
    states = 2 if name == "ln_lstm_step" else 1
    x, *rest = _arguments(name, batch=(2, 3))
    whole, cases = rest[:states], [[s[1, 2] for s in rest[:states]]]
    alone = cases[0]
    for _ in range(3):
        whole = _outputs(f(x, *whole, *rest[states:], EPS))
        alone = _outputs(f(x[1, 2], *alone, *rest[states:], EPS))
    for got, expected in zip(whole, alone, strict=True):
        assert_close(got[1, 2], expected, 1e-12)
    empty = _arguments(name, batch=(0,))
    assert all(t.shape == (0, 5) for t in _outputs(f(*empty, EPS)))


@check(*STEPS)
def is_torchs_cell_when_gains_and_biases_undo_the_norms(f, name):
    """With gain sigma and bias mu of the very vector that is normalized, LN changes nothing and
    the step is torch's cell: this fixes gate order, update gate, and where b stands."""
    torch.manual_seed(0)
    cell = {"ln_rnn_step": nn.RNNCell, "ln_lstm_step": nn.LSTMCell, "ln_gru_step": nn.GRUCell}
    cell = cell[name](3, 5, dtype=torch.float64)
    x, *states = _arguments(name, batch=())[: 3 if name == "ln_lstm_step" else 2]
    b = draw(STEPS[name] * 5, seed=6)
    nn.init.zeros_(cell.bias_hh)
    with torch.no_grad():
        cell.bias_ih.copy_(b)
        state = tuple(states) if len(states) > 1 else states[0]
        expected = _outputs(cell(x, state))

        def undo(a: Tensor, *sizes: int) -> tuple[Tensor, Tensor]:
            parts = a.split(sizes or [a.numel()])
            gain = [p.std(correction=0).expand_as(p) for p in parts]
            return torch.cat(gain), torch.cat([p.mean().expand_as(p) for p in parts])

        a_h, a_x = cell.weight_hh @ states[0], cell.weight_ih @ x
        weights = (cell.weight_ih, cell.weight_hh)
        if name == "ln_rnn_step":
            gain, mean = undo(a_h + a_x)
            got = f(x, *states, *weights, (gain, mean + b), 0.0)
        elif name == "ln_lstm_step":
            got = f(x, *states, *weights, b, undo(a_x), undo(a_h), undo(expected[1]), 0.0)
        else:
            got = f(x, *states, *weights, b, undo(a_x, 10, 5), undo(a_h, 10, 5), 0.0)
    for mine, torchs in zip(_outputs(got), expected, strict=True):
        assert_close(mine, torchs, 1e-12)


@check(*STEPS)
def large_means_change_nothing(f, name):
    """Summed inputs 2^55 + 8 k are exact, and normalized as 8 k."""
    arguments = _arguments(name, inputs=2, hidden=7)
    w_ih = 3 if name == "ln_lstm_step" else 2
    steps = 8.0 * (torch.arange(len(arguments[w_ih])) * 3 % 5).double()
    arguments[1] = torch.zeros_like(arguments[1])
    arguments[w_ih] = torch.stack([torch.ones_like(steps), steps], 1)
    results = []
    for mean in (0.0, 2.0**55):
        arguments[0] = torch.tensor([[mean, 1.0], [mean, -1.0]]).double()
        results.append(_outputs(f(*arguments, EPS)))
    for expected, got in zip(*results, strict=True):
        assert_close(got, expected, 1e-12)


@check(*STEPS)
def overflow_gives_no_zeros(f, name):
    x, *rest = _arguments(name)
    expected, results = (_outputs(f(x * scale, *rest, EPS)) for scale in (1e100, 1e200))
    for got, right in zip(results, expected, strict=True):
        assert_no_zeros(got, right)


@check(*STEPS)
def step_derivatives(f, name):
    arguments = _arguments(name, batch=(2,), inputs=2, hidden=2)
    flat = [t for a in arguments for t in (a if isinstance(a, tuple) else (a,))]
    singles = sum(not isinstance(a, tuple) for a in arguments)

    def call(*flat):
        pairs = zip(flat[singles::2], flat[singles + 1 :: 2], strict=True)
        return f(*flat[:singles], *pairs, 0.5)

    inputs = [t.requires_grad_() for t in flat]
    assert gradcheck(call, inputs)
    assert gradgradcheck(call, inputs, fast_mode=True)  # random directions: the full one takes 6 s


@check(*STEPS)
def half_precision_steps(f, name):
    """The products are half precision's own; norms must add no more."""
    for dtype in (torch.float16, torch.bfloat16):
        arguments = _arguments(name, batch=(7,), hidden=33)
        low = [
            tuple(p.to(dtype) for p in a) if isinstance(a, tuple) else a.to(dtype)
            for a in arguments
        ]
        high = [tuple(p.double() for p in a) if isinstance(a, tuple) else a.double() for a in low]
        got = _outputs(f(*low))
        assert all(t.dtype == dtype for t in got)
        assert_rounded(got, lambda high=high: _outputs(getattr(functional, name)(*high)))
