"""Operators are counted one by one, forward and backward."""

import torch

from layernorm.lab.benchmarks.measure.counting import Work, count, work


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


def test_arithmetic_and_bytes_are_counted():
    x, w, row = torch.randn(5, 3), torch.randn(3, 7), torch.randn(3)
    assert work(lambda: x + row) == Work(1, 15, 4 * (15 + 3 + 15))
    assert work(lambda: x.sum()) == Work(1, 15, 4 * (15 + 1))
    assert work(lambda: x @ w) == Work(1, 2 * 5 * 3 * 7, 4 * (15 + 21 + 35))
    assert work(lambda: x.double()) == Work(1, 15, 4 * 15 + 8 * 15)
    assert work(lambda: x.T) == Work(1, 0, 0)  # a view moves nothing
    assert work(lambda: torch.stack([row, row])) == Work(1, 6, 4 * 12)


def test_the_products_of_a_backward_pass_are_counted():
    x, w = torch.randn(5, 3, requires_grad=True), torch.randn(3, 7, requires_grad=True)
    y, dy = x @ w, torch.ones(5, 7)
    found = work(lambda: torch.autograd.grad(y, [x, w], dy))
    assert found.operations == 2 * 2 * 5 * 3 * 7
