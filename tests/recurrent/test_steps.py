"""The recurrent steps over time; step by step they pass tests/checks/steps.py."""

import torch
from library.oracle import assert_close, draw
from torch import nn

from layernorm import functional


def _pair(size, seed):
    return draw(size, seed=seed, mean=1.0, std=0.3), draw(size, seed=seed + 1, std=0.3)


def test_the_papers_update_gate_is_ours_with_the_sign_of_its_summed_input_changed():
    """Eq. (28), h' = (1 - sigmoid(z)) h + sigmoid(z) n: 1 - sigmoid(z) = sigmoid(-z)."""
    hidden, batch = 5, 3
    x, h = draw(batch, 4, seed=1), draw(batch, hidden, seed=2)
    w_ih, w_hh, b = draw(15, 4, seed=3), draw(15, hidden, seed=4), draw(15, seed=5)
    ln_ih, ln_hh = (draw(15, seed=6), draw(15, seed=7)), (draw(15, seed=8), draw(15, seed=9))

    def norm(a, ln, part):
        return functional.layer_norm(a[:, part], a[:, part].shape[1:], ln[0][part], ln[1][part])

    gates, candidate = slice(0, 10), slice(10, 15)
    a_x, a_h = x @ w_ih.T, h @ w_hh.T
    r, z = (norm(a_h, ln_hh, gates) + norm(a_x, ln_ih, gates) + b[gates]).chunk(2, dim=1)
    n_x, n_h = norm(a_x, ln_ih, candidate), norm(a_h, ln_hh, candidate)
    n = torch.tanh(n_x + b[candidate] + r.sigmoid() * n_h)
    paper = (1 - z.sigmoid()) * h + z.sigmoid() * n

    turn = torch.ones(15, dtype=torch.float64)
    turn[hidden : 2 * hidden] = -1  # gains, biases and b of z
    turned = [tuple(p * turn for p in ln) for ln in (ln_ih, ln_hh)]
    ours = functional.ln_gru_step(x, h, w_ih, w_hh, b * turn, *turned)
    assert_close(ours, paper, 1e-12)


def test_the_carried_cell_is_not_normalized():
    """Closed input gates and open forget gates keep the cell to the last bit, whatever its mean
    and variance, and the state sees only its normalized form (eqs. 21 and 22)."""
    hidden = 4
    x, h, c = torch.zeros(2, 3).double(), torch.zeros(2, hidden).double(), draw(2, hidden, mean=9.0)
    keep = torch.zeros(4, hidden).double()
    keep[0], keep[1] = -1e3, 1e3  # i closed, f open
    gain = torch.zeros(4 * hidden).double()
    weights = draw(4 * hidden, 3), draw(4 * hidden, hidden)
    ln_c = _pair(hidden, 1)
    new_h, new_c = h, c
    for _ in range(100):
        silent = (gain, gain)
        new_h, new_c = functional.ln_lstm_step(
            x, new_h, new_c, *weights, keep.flatten(), silent, silent, ln_c
        )
    assert torch.equal(new_c, c)
    seen = (
        torch.sigmoid(torch.zeros(1).double()) * functional.layer_norm(c, (hidden,), *ln_c).tanh()
    )
    assert_close(new_h, seen, 1e-12)


def test_gains_and_biases_are_shared_over_time_and_sequences_backpropagate():
    """Ten steps in float64: the gradient of every parameter is that of central differences."""
    gain, bias = (p.requires_grad_() for p in _pair(5, 1))
    w_ih, w_hh = draw(5, 3, seed=3).requires_grad_(), draw(5, 5, seed=4).requires_grad_()
    xs = draw(10, 2, 3, seed=5)

    def run(w_ih, w_hh, gain, bias):
        h = xs.new_zeros(2, 5)
        for x in xs:
            h = functional.ln_rnn_step(x, h, w_ih, w_hh, (gain, bias))
        return h

    assert torch.autograd.gradcheck(run, (w_ih, w_hh, gain, bias), rtol=1e-4)


def test_the_lstm_step_ignores_the_scale_of_its_weights_and_inputs():
    """Eq. (7) in the recurrent net, eps = 0: gates and state do not change; torch's cell does."""
    x, h, c = draw(2, 3, seed=1), draw(2, 5, seed=2), draw(2, 5, seed=3)
    w_ih, w_hh, b = draw(20, 3, seed=4), draw(20, 5, seed=5), draw(20, seed=6)
    norms = _pair(20, 7), _pair(20, 9), _pair(5, 11)
    once = functional.ln_lstm_step(x, h, c, w_ih, w_hh, b, *norms, eps=0.0)
    scaled = functional.ln_lstm_step(7 * x, h, c, 3 * w_ih, 11 * w_hh, b, *norms, eps=0.0)
    for got, expected in zip(scaled, once, strict=True):
        assert_close(got, expected, 1e-12)
    cell = nn.LSTMCell(3, 5, dtype=torch.float64)
    assert not torch.allclose(cell(7 * x, (h, c))[0], cell(x, (h, c))[0])


def test_the_projection_is_applied_to_the_state_alone():
    """With W_hr the state is W_hr times what it is without; the cell is the same."""
    x, h, c = draw(2, 3, seed=1), draw(2, 4, seed=2), draw(2, 5, seed=3)
    w_hr = draw(4, 5, seed=4)
    w_ih, w_hh, b = draw(20, 3, seed=5), draw(20, 4, seed=6), draw(20, seed=7)
    norms = _pair(20, 8), _pair(20, 10), _pair(5, 12)
    got_h, got_c = functional.ln_lstm_step(x, h, c, w_ih, w_hh, b, *norms, w_hr=w_hr)
    wide, same = torch.cat([h, torch.zeros(2, 1)], dim=1), torch.cat([w_hh, draw(20, 1)], dim=1)
    plain_h, plain_c = functional.ln_lstm_step(x, wide, c, w_ih, same, b, *norms)
    assert_close(got_h, plain_h @ w_hr.T, 1e-12)
    assert torch.allclose(got_c, plain_c, rtol=1e-12)


def test_the_rnn_step_takes_relu():
    """f = relu: the step's tanh undone, its negative part cut off."""
    arguments = draw(2, 3, seed=1), draw(2, 5, seed=2), draw(5, 3, seed=3), draw(5, 5, seed=4)
    ln = _pair(5, 5)
    with_tanh = functional.ln_rnn_step(*arguments, ln)
    assert (with_tanh < 0).any()
    got = functional.ln_rnn_step(*arguments, ln, nonlinearity="relu")
    assert_close(got, with_tanh.atanh().clamp(min=0), 1e-10)
