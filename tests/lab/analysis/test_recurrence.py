"""Sizes and exponents of recurrences, against networks where both are known."""

import math

import pytest
import torch

from layernorm import functional as F
from layernorm.lab.analysis import recurrence


def networks(steps=40, nets=2, units=12, inputs=3):
    w_ih, w_hh = recurrence.draw(nets, units, inputs, seed=3)
    x, h = torch.randn(steps, nets, inputs).double(), torch.randn(nets, units).double()
    return x, h, w_ih, w_hh


def test_step_is_the_definition():
    x, h, w_ih, w_hh = (t[0] for t in networks())
    ln = (torch.full((12,), 2.0).double(), torch.zeros(12).double())
    ours = recurrence.step("ln-relu", x[0], h, w_ih, w_hh, gain=2.0, eps=0.1)
    wanted = F.ln_rnn_step(x[0], h, w_ih, w_hh, ln, 0.1, "relu")
    torch.testing.assert_close(ours, wanted)
    plain = torch.nn.RNNCell(3, 12).double()
    for name, value in (("weight_ih", w_ih), ("weight_hh", w_hh)):
        getattr(plain, name).data.copy_(value)
    plain.bias_ih.data.zero_()
    plain.bias_hh.data.zero_()
    ours = recurrence.step("tanh", x[0], h, w_ih, w_hh)
    torch.testing.assert_close(ours, plain(x[0][None], h[None])[0])


@pytest.mark.parametrize("kind", recurrence.KINDS)
def test_stretch_is_the_jacobian_of_all_steps(kind):
    """Against autograd, for the product over 10 steps and the direction that was drawn."""
    x, h, w_ih, w_hh = networks(steps=10)
    torch.manual_seed(5)
    course = recurrence.follow(kind, x, h, w_ih, w_hh, directions=1, every=5)
    torch.manual_seed(5)
    q = torch.linalg.qr(torch.randn(2, 12, 1).double())[0]

    def run(h):
        for k in x[:, 0]:
            h = recurrence.step(kind, k, h, w_ih[0], w_hh[0])
        return h

    jacobian = torch.autograd.functional.jacobian(run, h[0])
    stretched = (jacobian @ q[0]).norm().log()
    torch.testing.assert_close(course.stretch[-1, 0, 0], stretched, rtol=0, atol=1e-9)
    wanted = run(h[0]).square().mean().sqrt().log10()
    torch.testing.assert_close(course.size[-1, 0], wanted)


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_sizes_beyond_floating_point(factor):
    """A rotation times a factor, ReLU never active otherwise: log size is known exactly."""
    steps, units = 400, 4
    h = torch.ones(1, units).double()
    w_hh = factor * torch.eye(units).double()[None].roll(1, 1)
    x, w_ih = torch.zeros(steps, 1, 2).double(), torch.zeros(1, units, 2).double()
    course = recurrence.follow("relu", x, h, w_ih, w_hh, directions=2)
    assert course.size[-1].item() == pytest.approx(steps * math.log10(factor), rel=1e-9)
    assert course.exponents[0].tolist() == pytest.approx([math.log(factor)] * 2, rel=1e-9)


def test_layer_normalization_has_two_lost_directions():
    x, h, w_ih, w_hh = networks()
    course = recurrence.follow("ln-tanh", x, h, w_ih, w_hh, eps=0.0, directions=12)
    assert (course.exponents[:, :10] > -5).all()
    assert (course.exponents[:, 10:] < -5).all()


def test_bad_input_is_refused():
    x, h, w_ih, w_hh = networks()
    with pytest.raises(ValueError, match="kind must be one of tanh, relu, ln-tanh, ln-relu"):
        recurrence.follow("gru", x, h, w_ih, w_hh)
    with pytest.raises(ValueError, match="directions must lie between 1 and the 12 units, got 13"):
        recurrence.follow("tanh", x, h, w_ih, w_hh, directions=13)
    with pytest.raises(ValueError, match="every must divide the 40 steps, got 7"):
        recurrence.follow("tanh", x, h, w_ih, w_hh, every=7)
