"""A batch spread over workers: threads and processes, gradients, what is sent."""

import pytest
import torch
from torch.nn.functional import batch_norm

from layernorm.lab.analysis import networks, parallel
from layernorm.lab.analysis.parallel import Group, Synchronized, in_threads, update

UNITS, CASES = [5, 8, 6, 3], 12


@pytest.fixture(scope="module")
def two():
    with parallel.crew(2) as crew:
        yield crew


def batch(cases=CASES):
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(cases, UNITS[0], generator=draw, dtype=torch.float64)
    return x, torch.randint(UNITS[-1], (cases,), generator=draw)


def network(method):
    """Gains and biases are not 1 and 0."""
    torch.manual_seed(0)
    net = networks.mlp(UNITS, method).double()
    for p in net.parameters():
        p.data += 0.3 * torch.randn_like(p)
    return net


def apart(updates, method):
    one = update(Group(), network(method), *batch()).gradient
    assert all(torch.equal(u.gradient, updates[0].gradient) for u in updates)
    return float((updates[0].gradient - one).norm() / one.norm())


@pytest.mark.parametrize(
    ("method", "shared", "least", "most"),
    [
        ("layer", False, 0.0, 1e-13),
        ("rms", False, 0.0, 1e-13),
        ("none", False, 0.0, 1e-13),
        ("batch", False, 0.05, 5.0),
        ("batch", True, 0.0, 1e-13),
    ],
)
def test_two_processes_against_one(two, method, shared, least, most):
    updates = two.ask(2, update, network(method), *batch(), shared)
    assert least <= apart(updates, method) < most
    [threads, _] = in_threads(2, update, network(method), *batch(), shared)
    torch.testing.assert_close(threads.gradient, updates[0].gradient, rtol=1e-13, atol=1e-15)
    assert (threads.forward, threads.backward) == (updates[0].forward, updates[0].backward)


@pytest.mark.parametrize("workers", [2, 3, 4, 6])
def test_more_workers(workers):
    for method, shared in (("layer", False), ("batch", True)):
        assert apart(in_threads(workers, update, network(method), *batch(), shared), method) < 1e-13
    assert apart(in_threads(workers, update, network("batch"), *batch()), "batch") > 0.05


def test_a_single_worker_tells_nobody_anything(two):
    for shared in (False, True):
        [alone] = two.ask(1, update, network("batch"), *batch(), shared)
        assert alone.forward == alone.backward == alone.averaging == ()
        assert apart([alone], "batch") < 1e-13


def test_what_is_sent(two):
    [told, other] = two.ask(2, update, network("batch"), *batch(), True)
    assert told.forward == other.forward == (2 * 8 * 8, 2 * 6 * 8)  # two float64 a unit
    assert told.backward == told.forward[::-1]
    assert told.averaging == (8 * len(told.gradient),)
    [layer, _] = two.ask(2, update, network("layer"), *batch())
    assert layer.forward == layer.backward == ()


def normalized(group, x, dy):
    """The outputs of a worker's shard and the gradient of its inputs."""
    shard, dy = (t.chunk(group.size)[group.rank] for t in (x, dy))
    shard = shard.clone().requires_grad_()
    y = Synchronized.apply(shard, 1e-5, group)
    return y.detach(), torch.autograd.grad(y, shard, dy)[0]


def test_synchronized_statistics_are_those_of_the_whole_batch():
    """Against torch's operator, values and gradients, with a mean of 10⁴ beside a spread of 1."""
    torch.manual_seed(0)
    x, dy = (torch.randn(12, 7, dtype=torch.float64) + m for m in (1e4, 0))
    leaf = x.clone().requires_grad_()
    y = batch_norm(leaf, None, None, training=True)
    (dx,) = torch.autograd.grad(y, leaf, dy)
    ours = in_threads(3, normalized, x, dy)
    for mine, torchs in zip(zip(*ours, strict=True), (y, dx), strict=True):
        torch.testing.assert_close(torch.cat(mine), torchs.detach(), rtol=0, atol=1e-10)


def test_a_batch_that_does_not_divide_is_refused(two):
    for ask in (two.ask, in_threads):
        with pytest.raises(ValueError, match="a batch of 11 cannot be cut into 2 equal shards"):
            ask(2, update, network("layer"), *batch(11))
    assert len(two.ask(2, update, network("layer"), *batch())) == 2  # it goes on


@pytest.mark.parametrize("workers", [0, 3])
def test_workers_that_were_not_started_are_refused(two, workers):
    with pytest.raises(ValueError, match=f"workers must be from 1 to 2, got {workers}"):
        two.ask(workers, update, network("layer"), *batch())


def fails_alone(group):
    if group.rank == 1:
        raise ArithmeticError("of one worker")
    return group.sum(torch.ones(1))


def test_an_error_of_one_thread_does_not_leave_the_others_waiting():
    with pytest.raises(ArithmeticError, match="of one worker"):
        in_threads(3, fails_alone)
