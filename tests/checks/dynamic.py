"""Checks of dynamic tanh and dynamic erf, which stand where norms stood."""

import math

import torch
from library.oracle import assert_close, assert_rounded, draw
from torch.autograd import gradcheck, gradgradcheck

from checks.registry import check
from layernorm import functional

BOTH = "dynamic_tanh", "dynamic_erf"
CURVE = {"dynamic_tanh": math.tanh, "dynamic_erf": math.erf}


def arguments(operation, *shape, dtype=torch.float64):
    """x and all parameters, none of them where it starts."""
    x, w, b = draw(*shape), draw(shape[-1], seed=1), draw(shape[-1], seed=2)
    numbers = torch.tensor([0.7, -0.3][: 1 if operation == "dynamic_tanh" else 2])
    return [t.to(dtype).requires_grad_() for t in (x, *numbers, w, b)]


@check(*BOTH)
def each_number_is_that_of_pythons_own_function(f, operation):
    """Far from 0 as well, where both functions are flat."""
    for shape in ((1, 1), (3, 5), (2, 3, 7)):
        x, *numbers, w, b = (t.detach() for t in arguments(operation, *shape))
        x = 4 * x
        alpha, shift = float(numbers[0]), sum(map(float, numbers[1:]))
        y = [CURVE[operation](alpha * k + shift) for k in x.flatten().tolist()]
        curve = torch.tensor(y, dtype=torch.float64).view(shape)
        assert_close(f(x, *numbers, w, b), w * curve + b, 1e-14)
        assert_close(f(x, *map(float, numbers)), curve, 1e-14)


@check("dynamic_tanh")
def hand_worked_dynamic_tanh(f, _):
    """tanh(ln 2) = (2 - 1/2) / (2 + 1/2) = 3/5."""
    x = torch.tensor([2 * math.log(2.0), 0.0], dtype=torch.float64)
    assert_close(f(x, 0.5, torch.tensor([5.0, 1.0]).double()), torch.tensor([3.0, 0.0]), 1e-15)


@check("dynamic_erf")
def hand_worked_dynamic_erf(f, _):
    """erf is the probability of a normal number within x sqrt(2): a half at 0.4769...; without a
    shift it is odd."""
    x = torch.tensor([0.4769362762044699, 0.0]).double()
    assert_close(f(2 * x, 0.5), torch.tensor([0.5, 0.0]), 1e-8)
    assert_close(f(-2 * x, 0.5), torch.tensor([-0.5, 0.0]), 1e-8)


@check(*BOTH)
def dynamic_derivatives(f, operation):
    given = arguments(operation, 3, 4)
    assert gradcheck(f, given)
    assert gradgradcheck(f, given)


@check(*BOTH)
def dynamic_in_half_precision(f, operation):
    """Computed in float32 and rounded once: the bias takes away most of gain times curve, and with
    it the digits that half precision has."""
    for dtype in (torch.float16, torch.bfloat16):
        x, *numbers, w, _ = (t.detach() for t in arguments(operation, 1, 64))
        w = 100 * w
        x, *numbers, w, b = (t.to(dtype) for t in (x, *numbers, w, -w * f(x, *numbers)[0]))
        got = f(x, *numbers, w, b)
        assert got.dtype == dtype
        exact, true = [t.double() for t in (x, *numbers, w, b)], getattr(functional, operation)
        assert_rounded([got], lambda e=exact, t=true: [t(*e)], torch.float32)
