"""Checks of weight normalization."""

import torch
from library.oracle import OVERFLOWING, SCALES, assert_close, assert_no_zeros, assert_rounded, draw
from torch.autograd import gradcheck, gradgradcheck

from checks.registry import check
from layernorm import functional


@check("weight_norm")
def agrees_with_torch_for_every_dim(f, _):
    for shape in ((1, 1), (3, 5), (2, 3, 7), (4, 1023)):
        v = draw(*shape)
        for dim in (None, -1, *range(len(shape))):
            torch_dim = -1 if dim is None else dim
            g = torch.norm_except_dim(v, 2, torch_dim).cos()
            assert_close(f(v, g, dim), torch._weight_norm(v, g, torch_dim), 1e-12)
    assert torch.equal(f(v, g.new_ones(4, 1)), f(v, g.new_ones(4, 1), 0))
    assert torch.equal(f(v, g.new_ones(4, 1), -2), f(v, g.new_ones(4, 1), 0))


@check("weight_norm")
def hand_worked_weight_norm(f, _):
    """Rows (3, 4) of length 5 and (0, 2) of length 2 become 10 and -1 long."""
    v, g = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[10.0], [-1.0]])
    assert_close(f(v, g), torch.tensor([[6.0, 8.0], [0.0, -1.0]]), 3e-7)  # five roundings


@check("weight_norm")
def weight_norm_derivatives(f, _):
    v, g = draw(3, 4).requires_grad_(), draw(3, 1, seed=1).requires_grad_()
    assert gradcheck(f, (v, g))
    assert gradgradcheck(f, (v, g))


@check("weight_norm")
def overflow_gives_no_zeros(f, _):
    for dtype, scale in SCALES:
        v, g = (OVERFLOWING * scale).to(dtype), torch.ones(4, 1, dtype=dtype)
        expected = v.double() / scale / (v.double() / scale).norm(dim=1, keepdim=True)
        assert_no_zeros(f(v, g), expected)


@check("weight_norm")
def weight_norm_in_half_precision(f, _):
    """Rounded once; 300^2 would overflow float16."""
    for dtype in (torch.float16, torch.bfloat16):
        v, g = draw(5, 64, std=300.0).to(dtype), draw(5, 1, seed=1).to(dtype)
        got, exact = f(v, g), (v.double(), g.double())
        assert got.dtype == dtype
        assert_rounded([got], lambda exact=exact: [functional.weight_norm(*exact)], torch.float32)
