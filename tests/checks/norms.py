"""Checks of the five normalizations, and what only one of them has to satisfy."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from library.oracle import (
    OVERFLOWING,
    SCALES,
    assert_close,
    assert_no_zeros,
    assert_rounded,
    condition,
    draw,
    exact,
    hard_rows,
)
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from checks.registry import check
from layernorm import functional


class Norm(NamedTuple):
    """How to call one of the five normalizations alike: call(f, x, weight, bias, eps)."""

    call: Callable
    torch: Callable
    affine: Callable  # shape of x -> shape of gain and bias
    rows: Callable  # x -> (sets, values): each row is normalized together
    unrows: Callable  # rows, shape of x -> x
    centered: bool = True


def _channels_first(rows: Tensor, shape: torch.Size) -> Tensor:
    return rows.reshape(shape[1], shape[0], *shape[2:]).transpose(0, 1)


NORMS = {
    "layer_norm": Norm(
        lambda f, x, w, b, eps: f(x, x.shape[1:], w, b, eps),
        F.layer_norm,
        lambda s: s[1:],
        lambda x: x.reshape(x.shape[0], x[:1].numel()),
        lambda r, s: r.reshape(s),
    ),
    "rms_norm": Norm(
        lambda f, x, w, b, eps: f(x, x.shape[1:], w, eps),
        F.rms_norm,
        lambda s: s[1:],
        lambda x: x.reshape(x.shape[0], x[:1].numel()),
        lambda r, s: r.reshape(s),
        centered=False,
    ),
    "group_norm": Norm(
        lambda f, x, w, b, eps: f(x, 2, w, b, eps),
        F.group_norm,
        lambda s: s[1:2],
        lambda x: x.reshape(2 * x.shape[0], x[:1].numel() // 2),
        lambda r, s: r.reshape(s),
    ),
    "instance_norm": Norm(
        lambda f, x, w, b, eps: f(x, None, None, w, b, eps=eps),
        F.instance_norm,
        lambda s: s[1:2],
        lambda x: x.reshape(x.shape[0] * x.shape[1], x[:1, :1].numel()),
        lambda r, s: r.reshape(s),
    ),
    "batch_norm": Norm(
        lambda f, x, w, b, eps: f(x, None, None, w, b, training=True, eps=eps),
        F.batch_norm,
        lambda s: s[1:2],
        lambda x: x.transpose(0, 1).reshape(x.shape[1], x[:, :1].numel()),
        _channels_first,
    ),
}
ALL = tuple(NORMS)
SHAPES = [(1, 2, 3), (3, 4, 7), (2, 6, 1023), (5, 2, 3, 11), (17, 4, 13)]


def _arguments(name: str, shape: tuple[int, ...], **numbers) -> tuple[Tensor, Tensor, Tensor]:
    """x, gain and bias; never gain 1 or bias 0."""
    affine = NORMS[name].affine(torch.Size(shape))
    return draw(*shape, **numbers), draw(*affine, seed=1), draw(*affine, seed=2)


def _condition(name: str, x: Tensor) -> float:
    return condition(NORMS[name].rows(x)) if NORMS[name].centered else 1.0


def _compare(f, name, x, w, b, eps=1e-5, tolerance=1e-12):
    got, expected = (NORMS[name].call(g, x, w, b, eps) for g in (f, NORMS[name].torch))
    assert_close(got, expected, tolerance * _condition(name, x))


def _assert_rounded(got, name, *arguments):
    """Torch's numbers, as far as rounding may take our definition of them in float32."""
    doubles = [t.double() for t in arguments]
    torchs, ours = (
        functools.partial(NORMS[name].call, g, *doubles, 1e-5)
        for g in (NORMS[name].torch, getattr(functional, name))
    )
    assert_rounded([got], lambda: [ours()], torch.float32, expected=[torchs()])


@check(*ALL)
def agrees_with_torch_in_float64(f, name):
    for shape in SHAPES:
        for eps in (1e-5, 0.1):
            _compare(f, name, *_arguments(name, shape, mean=0.5, std=2.0), eps)


@check(*ALL)
def agrees_with_exact_arithmetic(f, name):
    """Ordinary numbers; a mean of 1e4; a spread of 1e-3 around it; variances of 1e-20."""
    norm = NORMS[name]
    for mean, std, eps in ((0, 1, 0.1), (1e4, 1, 1e-5), (1e4, 1e-3, 1e-12), (0, 1e-10, 1e-20)):
        x, w, b = _arguments(name, (3, 4, 5), mean=mean, std=std)
        assert_close(norm.call(f, x, w, b, eps), _exactly(name, x, w, b, eps), 1e-12)


def _exactly(name, x, w, b, eps):
    norm = NORMS[name]
    rows = [exact(row, eps, norm.centered) for row in norm.rows(x).tolist()]
    y = norm.unrows(torch.tensor(rows, dtype=torch.float64), x.shape)
    w, b = (t.view(*t.shape, *[1] * (x.dim() - 1 - t.dim())) for t in (w, b))
    return y * w + b if norm.centered else y * w


# of an input whose four rows are normalized each by itself
FOUR = {"group_norm": (2, 2), "instance_norm": (2, 2), "batch_norm": (1, 4)}


@check(*ALL)
def constant_rows_and_large_means(f, name):
    """As exact as rounding allows where the mean is centered of its own rounding error too."""
    for width in (7, 257):
        shape = torch.Size((*FOUR.get(name, (4, 1)), width))
        _, w, b = (t.float() for t in _arguments(name, shape))
        x = NORMS[name].unrows(hard_rows(width), shape)
        doubles = [t.double() for t in (x, w, b)]
        definition = functools.partial(NORMS[name].call, getattr(functional, name), *doubles, 1e-5)
        got = NORMS[name].call(f, x, w, b, 1e-5)
        expected = _exactly(name, *doubles, 1e-5)
        assert_rounded([got], lambda d=definition: [d()], expected=[expected])


@check(*ALL)
def overflow_gives_no_zeros(f, name):
    """Nor anything else that is wrong: torch's rms_norm and batch_norm give zeros."""
    for dtype, scale in SCALES:
        shape = torch.Size((*FOUR.get(name, (4, 1)), 4))
        x = NORMS[name].unrows(OVERFLOWING * scale, shape).to(dtype)
        ones = torch.ones(NORMS[name].affine(shape)).double()
        expected = _exactly(name, x.double(), ones, 0 * ones, 1e-5)
        got = NORMS[name].call(f, x, None, None, 1e-5)
        assert_no_zeros(got, expected)


@check(*ALL)
def strided_and_expanded_inputs(f, name):
    _, w, b = _arguments(name, (3, 4, 5))
    for view in (
        draw(6, 4, 10)[::2, :, ::2],
        draw(5, 4, 3).transpose(0, 2),
        draw(1, 4, 5).expand(3, 4, 5),
        draw(3, 4, 5).flip(2),
    ):
        before = view.clone()
        _compare(f, name, view, w.repeat_interleave(2, -1)[..., ::2], b)
        assert torch.equal(view, before), "the input was changed"


@check(*ALL)
def float32_to_rounding(f, name):
    """As far as rounding may take the definition in float32."""
    for shape in SHAPES:
        x, w, b = (t.float() for t in _arguments(name, shape, mean=3.0))
        got = NORMS[name].call(f, x, w, b, 1e-5)
        assert got.dtype == torch.float32
        _assert_rounded(got, name, x, w, b)


@check(*ALL)
def half_precision_is_rounded_once(f, name):
    """With float32 statistics the error is that of rounding the result, at most half an ulp of
    each number, and float32's own error, as in the check above. Means of 10 round to 0.03 in
    bfloat16, squares of 400 overflow float16: both must not happen."""
    for dtype in (torch.float16, torch.bfloat16):
        for mean, std in ((10.0, 1.0), (0.0, 400.0)):
            for parameters in (dtype, torch.float32):
                x, w, b = _arguments(name, (3, 4, 257), mean=mean, std=std)
                x, w, b = x.to(dtype), w.to(parameters), b.to(parameters)
                got = NORMS[name].call(f, x, w, b, 1e-5)
                assert got.dtype == dtype
                _assert_rounded(got, name, x, w, b)


@check(*ALL)
def first_and_second_derivatives(f, name):
    inputs = [t.requires_grad_() for t in _arguments(name, (2, 4, 3))]

    def call(x, w, b):
        return NORMS[name].call(f, x, w, b, 1e-2)

    assert gradcheck(call, inputs)
    assert gradgradcheck(call, inputs)


@check(*ALL)
def nan_and_infinity_as_in_torch(f, name):
    for bad in (float("nan"), float("inf"), -float("inf")):
        x, w, b = _arguments(name, (3, 4, 5))
        x[1, 2, 3] = bad
        got, expected = (NORMS[name].call(g, x, w, b, 1e-5) for g in (f, NORMS[name].torch))
        if name == "rms_norm":  # torch's gives the other units of the case zeros
            expected[1] = float("nan")
        assert torch.equal(got.isnan(), expected.isnan())
        assert torch.equal(got.isinf(), expected.isinf())
        assert_close(got.nan_to_num(), expected.nan_to_num(), 1e-12)


@check(*ALL)
def empty_batch(f, name):
    x, w, b = _arguments(name, (0, 4, 5))
    for dtype in (torch.float64, torch.bfloat16):
        y = NORMS[name].call(f, x.to(dtype), w.to(dtype), b.to(dtype), 1e-5)
        assert y.shape == (0, 4, 5)
        assert y.dtype == dtype


@check(*ALL)
def defaults_are_torchs(f, name):
    """At a spread of 1e-4 the default eps decides the result in float32, and elsewhere."""
    lead = {"layer_norm": [(4, 5)], "rms_norm": [(4, 5)], "group_norm": [2]}.get(name, [])
    training = {"training": True} if name == "batch_norm" else {}
    lead = [None, None] if name == "batch_norm" else lead
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        x = draw(3, 4, 5, std=1e-4).to(dtype)
        got, expected = (g(x, *lead, **training) for g in (f, NORMS[name].torch))
        # Sums of 20 numbers on both sides, each rounded at most 20 times, in any order.
        tolerance = 1e-12 if dtype == torch.float64 else 20 * torch.finfo(dtype).eps
        assert_close(got, expected, tolerance * _condition(name, x))


@check("layer_norm")
def hand_worked_layer_norm(f, _):
    """(0, 0, 3): mean 1, variance 2; eps = 2 makes the root 2."""
    x, gain, bias = (
        torch.tensor([[0.0, 0, 3], [7, 7, 10]]),
        torch.tensor([2.0, 4, 6]),
        torch.ones(3),
    )
    expected = torch.tensor([[0.0, -1, 7], [0, -1, 7]])
    assert torch.equal(f(x, (3,), gain, bias, 2.0), expected)


@check("layer_norm")
def one_unit_gives_the_bias(f, _):
    x, w, b = draw(5, 1), draw(1, seed=1), draw(1, seed=2)
    assert torch.equal(f(x, (1,), w, b), b.expand(5, 1))


@check("rms_norm")
def hand_worked_rms_norm(f, _):
    """(1, 7): mean square 25; with eps = 11 the root is 6."""
    x, gain = torch.tensor([[1.0, 7.0]]), torch.tensor([6.0, 12.0])
    assert_close(f(x, (2,), gain, 11.0), torch.tensor([[1.0, 14.0]]), 3e-7)  # five roundings


@check("group_norm")
def hand_worked_group_norm(f, _):
    """Neighbors form groups: (1, 3) and (10, 30)."""
    x, gain, bias = (
        torch.tensor([[1.0, 3, 10, 30]]),
        torch.tensor([1.0, 2, 3, 4]),
        torch.arange(4.0),
    )
    assert torch.equal(f(x, 2, gain, bias, 0.0), torch.tensor([[-1.0, 3, -1, 7]]))


@check("group_norm")
def one_value_per_group_gives_the_bias(f, _):
    bias = draw(4, seed=2)
    assert torch.equal(f(draw(1, 4), 4, draw(4, seed=1), bias), bias[None])
