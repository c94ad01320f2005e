"""Checks of running statistics: batch normalization and instance normalization."""

import torch
import torch.nn.functional as F
from library.oracle import assert_close, draw

from checks.registry import check

# Sums of 15 numbers on both sides, each rounded at most 15 times in any order, and a third of their
# sizes' sum lost to signs: 45 units of 2^-24.
FLOAT32 = 45 * 2**-24


@check("instance_norm", "batch_norm")
def running_statistics_as_in_torch(f, name):
    """Two updates with momentum 0.3, then evaluation; half-precision input beside float32."""
    w, b = draw(4, seed=1), draw(4, seed=2)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.bfloat16, 1e-2)):
        kept = torch.float64 if dtype == torch.float64 else torch.float32
        mine, torchs = ([draw(4, seed=3).to(kept), draw(4, seed=4).to(kept).exp()] for _ in "ab")
        for seed in (5, 6):
            for g, running in ((f, mine), (getattr(F, name), torchs)):
                x = draw(3, 4, 5, seed=seed, mean=2.0, std=3.0).to(dtype)
                g(x, *running, w.to(kept), b.to(kept), True, 0.3)
        for got, expected in zip(mine, torchs, strict=True):
            assert got.dtype == kept
            # both compute them from the same rounded input, in the type in which they are kept
            assert_close(got, expected, 1e-12 if kept == torch.float64 else FLOAT32)
        x = draw(2, 4, 1, seed=7).to(dtype)
        got = f(x, *mine, w.to(kept), b.to(kept), False)
        expected = getattr(F, name)(x, *torchs, w.to(kept), b.to(kept), False)
        assert_close(got, expected, tolerance)


@check("instance_norm", "batch_norm")
def default_momentum_is_torchs(f, name):
    x, mine = draw(3, 4, 5, mean=2.0), (torch.zeros(4), torch.ones(4))
    torchs = [t.clone() for t in mine]
    for g, running in ((f, mine), (getattr(F, name), torchs)):
        g(x.float(), *running, None, None, True)
    for got, expected in zip(mine, torchs, strict=True):
        assert_close(got, expected, FLOAT32)


@check("instance_norm", "batch_norm")
def running_means_of_constants(f, _):
    """Sums of seven are rounded; the mean's rounding error is a part of it."""
    x = draw(1, 200, mean=1e4, std=1e3).float()[..., None].expand(1, 200, 7)
    mean, var = torch.zeros(200), torch.ones(200)
    f(x, mean, var, None, None, True, 1.0)
    assert torch.equal(mean, x[0, :, 0])
    assert var.abs().max() < 1e-12


@check("instance_norm", "batch_norm")
def running_statistics_carry_no_gradient(f, _):
    """They are numbers that are kept: no graph hangs on them from batch to batch."""
    mean, var = torch.zeros(4), torch.ones(4)
    f(draw(3, 4, 5).float().requires_grad_(), mean, var, None, None, True)
    assert not mean.requires_grad
    assert not var.requires_grad


@check("batch_norm")
def hand_worked_batch_norm(f, _):
    """(1, 3): mean 2, biased variance 1 normalizes, unbiased variance 2 is remembered."""
    mean, var = torch.zeros(1), torch.ones(1)
    y = f(
        torch.tensor([[1.0], [3.0]]), mean, var, torch.tensor([5.0]), torch.ones(1), True, 0.25, 0.0
    )
    assert torch.equal(y, torch.tensor([[-4.0], [6.0]]))
    assert torch.equal(torch.cat([mean, var]), torch.tensor([0.5, 1.25]))


@check("batch_norm", "instance_norm")
def empty_batch_leaves_running_statistics(f, _):
    mean, var = draw(4, seed=3), draw(4, seed=4).exp()
    before = mean.clone(), var.clone()
    f(torch.zeros(0, 4, 5).double(), mean, var, None, None, True)
    assert torch.equal(mean, before[0])
    assert torch.equal(var, before[1])
