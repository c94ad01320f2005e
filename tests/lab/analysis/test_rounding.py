"""The error analysis: hand-worked sums, every order of summation, and what it must not excuse."""

import functools

import pytest
import torch
from library.oracle import draw

from layernorm import functional
from layernorm.lab.analysis import rounding

F16, F32, F64 = torch.float16, torch.float32, torch.float64
U = 2.0**-24
ROW = (53,)


def test_unit_roundoffs():
    assert rounding.unit_roundoff(F32) == U
    assert rounding.unit_roundoff(torch.bfloat16) == 2.0**-8


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (lambda a: a.sum(), 2 * 10),  # four terms: sqrt(4) units of 1 + 2 + 3 + 4
        (lambda a: a.mean(), 2 * 10 / 4),
        (lambda a: (-a).t().clone(), 0.0),
        (lambda a: a @ a, 2**0.5 * (7**2 + 10**2 + 15**2 + 22**2) ** 0.5),
        (lambda a: 3 * a, 3 * 30**0.5),
        (lambda a: (a > 2).sum(), 0.0),
    ],
    ids=["sum", "mean", "moves", "product", "elements", "counts"],
)
def test_one_operation(compute, expected):
    a = torch.tensor([[1.0, -2], [-3, 4]]).double()
    [found] = rounding.spread(lambda: [compute(a)])
    assert found == pytest.approx(U * expected, rel=1e-6)


def test_an_error_is_magnified_by_what_follows():
    """(a^2 - b) 1000 at a^2 = 2, b = 1: the square's error of 2 u becomes one of 2000 u."""
    a = torch.tensor(2.0).double().sqrt()
    [found] = rounding.spread(lambda: [(a.square() - 1) * 1000], draws=200)
    assert found == pytest.approx(U * 1000 * (2**2 + 1 + 1) ** 0.5, rel=0.1)


def test_gradients_have_errors_of_their_own():
    a = draw(7).requires_grad_()
    [found] = rounding.spread(lambda: torch.autograd.grad(a.tanh().sum(), a))
    assert found > 0.3 * U


def test_the_factors_of_products_may_be_coarser():
    a, b = draw(40, 30), draw(30, 50)
    [fine] = rounding.spread(lambda: [a @ b])
    [coarse] = rounding.spread(lambda: [a @ b], products=F16)
    factors_and_result = 3**0.5 * rounding.unit_roundoff(F16) * float((a @ b).norm())
    assert coarse == pytest.approx(factors_and_result, rel=0.1)
    assert coarse > 100 * fine


def in_turn(a: torch.Tensor) -> torch.Tensor:
    """One term after the other, each sum rounded."""
    return a.cumsum(-1)[..., -1:]


def normalized(x, gain, bias, order, statistics=F32, forgotten=0.0, centerings=2):
    """Layer normalization and its gradients by hand, in the type of `x`, in an order."""
    x, gain = x[:, order], gain[order]
    a = x.to(statistics)
    off = a
    for _ in range(centerings):
        off = off - in_turn(off) / len(order)
    rstd = (in_turn(off.square()) / len(order) + 1e-5).rsqrt()
    hat = (off * rstd).to(x.dtype)
    g = draw(*x.shape, seed=9).to(x.dtype)[:, order] * gain
    plain, along = (in_turn(t) * (1 - forgotten) / len(order) for t in (g, g * hat))
    back = order.argsort()
    y, dx = hat * gain + bias[order], rstd.to(x.dtype) * (g - plain - hat * along)
    return [y[:, back], dx[:, back]]


def ratios(mean: float, seeds: int, **options):
    found = []
    for seed in range(seeds):
        low = [
            draw(4, 53, seed=seed, mean=mean).float(),
            *(draw(53, seed=s).float() for s in (1, 2)),
        ]
        x, gain, bias = (t.double() for t in low)
        x.requires_grad_()

        def compute(x=x, gain=gain, bias=bias):
            y = functional.layer_norm(x, ROW, gain, bias)
            slopes = draw(4, 53, seed=9).float().double()
            return [y, *torch.autograd.grad(y, x, slopes)]

        order = torch.randperm(53, generator=torch.Generator().manual_seed(seed))
        got = normalized(*low, order, **options)
        allowed = rounding.allowance(compute)
        errors = [
            float((g.double() - e).detach().norm()) for g, e in zip(got, compute(), strict=True)
        ]
        found.append([e / a for e, a in zip(errors, allowed, strict=True)])
    return torch.tensor(found)


@pytest.mark.parametrize("mean", [0.0, 3.0, 1e4])
def test_every_order_of_summation_is_allowed(mean):
    """Thirty draws, each added in an order of its own, the errors of sums one after the other."""
    found = ratios(mean, 30)
    assert 0.01 < found.max() < 0.7


def test_the_rounding_of_a_large_mean_is_not():
    """A row that is centered once is off by it."""
    assert ratios(1e4, 5, centerings=1)[:, 0].min() > 2


@pytest.mark.parametrize(
    ("options", "result"),
    [({"statistics": F16}, 0), ({"statistics": torch.bfloat16}, 1), ({"forgotten": 1e-4}, 1)],
    ids=["statistics in float16", "statistics in bfloat16", "a part of a mean forgotten"],
)
def test_what_is_wrong_is_not(options, result):
    assert ratios(0.5, 5, **options)[:, result].min() > 2


def test_one_more_unit_in_every_operation_is_allowed():
    """As a processor might have that rounds each of them differently."""
    x, w = draw(4, 53), draw(30, 53, seed=1)
    compute = functools.partial(lambda: [functional.layer_norm(x @ w.T, (30,)).tanh()])
    [allowed], [exact] = rounding.allowance(compute), compute()
    for seed in range(30):
        with rounding._Rounding(2 * U, 2 * U, 100 + seed):
            [got] = compute()
        assert U * float(exact.norm()) / 10 < float((got - exact).norm()) < allowed


def test_the_largest_errors_grow_with_the_mean_and_are_nan_where_outputs_are():
    noise = draw(20, 50, seed=3)

    def centered_once(a, shape):
        deviations = a - a.mean(-1, keepdim=True)
        return deviations * (deviations.square().mean(-1, keepdim=True) + 1e-5).rsqrt()

    exact = rounding.largest_errors(functional.layer_norm, F64, [0.0, 1e4], noise)
    assert exact == [0.0, 0.0]
    near, far = rounding.largest_errors(centered_once, F32, [1.0, 1e4], noise)
    assert 0 < near < 1e-5 < far < 1e-2

    def root_of_a_negative(a, shape):
        return (a.mean(-1, keepdim=True) - a).sqrt()

    (error,) = rounding.largest_errors(root_of_a_negative, F32, [0.0], noise)
    assert error != error
