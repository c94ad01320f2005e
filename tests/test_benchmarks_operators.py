"""Operators are counted one by one, forward and backward."""

import torch

from layernorm.benchmarks.operators import count


def test_operators_are_counted_forward_and_backward():
    x = torch.randn(3)
    assert count(lambda: None) == 0
    assert count(lambda: x.exp().neg()) == 2
    leaf = torch.randn(3, requires_grad=True)
    forward = count(lambda: leaf.exp().sum())
    both = count(lambda: torch.autograd.grad(leaf.exp().sum(), leaf))
    assert forward >= 2  # and what autograd does to keep a result
    assert both > forward
    assert count(lambda: [x.exp() for _ in range(7)]) == 7
