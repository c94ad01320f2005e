import copy
import math

import pytest
import torch

from layernorm import functional as F
from layernorm.lab.analysis import activations, networks


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "relu"])
def test_slopes_are_the_derivatives_as_a_share_of_the_largest(activation):
    a = draw(1000).requires_grad_()
    (derivative,) = torch.autograd.grad(getattr(torch, activation)(a).sum(), a)
    largest = {"tanh": 1, "sigmoid": 0.25, "relu": 1}[activation]
    torch.testing.assert_close(activations.slope(a, activation), derivative / largest)


@pytest.mark.parametrize(("activation", "edge"), [("tanh", 2.18), ("sigmoid", 4.36)])
def test_the_inactive_region_begins_where_the_docstring_says(activation, edge):
    a = torch.tensor([edge - 0.01, edge + 0.01, -edge - 0.01], dtype=torch.float64)
    assert activations.saturated(a, activation) == pytest.approx(2 / 3)


def test_drift_is_the_distance_of_means_and_standard_deviations():
    a = draw(5000, 3) * torch.tensor([1.0, 2.0, 2.0]) / draw(5000, 3).std(0, correction=0)
    a = (a - a.mean(0)) / a.std(0, correction=0) * torch.tensor([1.0, 2.0, 2.0])
    moved = a * torch.tensor([2.0, 1.0, 1.0]) + torch.tensor([0.0, 0.0, 4.0])
    assert activations.drift(moved, a) == pytest.approx(math.sqrt((1 + 16) / 9))
    assert activations.drift(a[torch.randperm(5000)], a) == pytest.approx(0, abs=1e-12)
    assert activations.drift(10 * moved, 10 * a) == pytest.approx(activations.drift(moved, a))


def test_correlations_of_a_common_cause():
    common, own = draw(20000, 1), draw(20000, 6, seed=1)
    r = activations.correlation(3 * common + own)
    off = r[~torch.eye(6, dtype=torch.bool)]
    torch.testing.assert_close(off, torch.full_like(off, 0.9), atol=0.01, rtol=0)
    assert activations.squared_correlation(3 * common + own) == pytest.approx(0.81, abs=0.02)
    assert activations.squared_correlation(own) == pytest.approx(1 / 20000, abs=1e-4)


@pytest.mark.parametrize("strong", [1, 3, 8])
def test_directions_counts_equally_strong_ones(strong):
    basis, _ = torch.linalg.qr(draw(20, strong))
    assert activations.directions(basis.T) == pytest.approx(strong)
    assert activations.directions(draw(7, 1) @ basis.T[:1]) == pytest.approx(1)


def test_absorbed_is_what_layer_normalization_ignores():
    a, d = draw(50, 16), draw(50, 16, seed=1)
    both = 2 + a * 3
    assert activations.absorbed(both, a) == pytest.approx(1)
    centered = a - a.mean(1, keepdim=True)
    d = d - d.mean(1, keepdim=True)
    d = d - centered * (d * centered).sum(1, keepdim=True) / centered.square().sum(1, keepdim=True)
    assert activations.absorbed(d, a) == pytest.approx(0, abs=1e-12)

    def moved(change):
        step = 1e-6
        return (F.layer_norm(a + step * change, (16,)) - F.layer_norm(a, (16,))).norm() / step

    assert moved(both) < 1e-4 * both.norm()  # not 0: eps
    assert moved(d) > 0.1 * d.norm()
    random = activations.absorbed(draw(4000, 16, seed=2), draw(4000, 16, seed=3))
    assert random == pytest.approx(2 / 16, abs=0.01)


@pytest.mark.parametrize("name", ["none", "batch", "weight", "layer", "rms"])
def test_the_watch_tells_the_layers_below_from_the_layer_itself(name):
    torch.manual_seed(0)
    x = torch.rand(40, 5)
    net = networks.mlp([5, 16, 12, 3], name)
    watch = activations.Watch(net, x, "tanh")
    state = copy.deepcopy(net.state_dict())
    start = watch.curve(net)
    assert start["drift"] == start["drift_below"] == 0
    for key, value in net.state_dict().items():  # running averages too
        assert torch.equal(value, state[key])
    with torch.no_grad():
        [p.add_(0.1) for p in net[2].parameters()]
    assert watch.curve(net)["drift_below"] == 0
    assert watch.curve(net)["drift"] > 0
    with torch.no_grad():
        [p.mul_(-1.3) for p in net[0].parameters()]
    assert watch.curve(net)["drift_below"] > 0
    assert 1 <= watch.final(net)["change_directions"] < 12
    assert 0 <= watch.final(net)["change_absorbed"] <= 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: activations.slope(torch.ones(2), "gelu"), "activation must be one of"),
        (lambda: activations.drift(torch.ones(3, 2), torch.ones(3, 2)), "must vary over its cases"),
        (lambda: activations.correlation(torch.ones(3, 2)), "got a constant one"),
        (lambda: activations.directions(torch.zeros(3, 2)), "d must not be zero"),
        (lambda: activations.absorbed(torch.zeros(3, 2), torch.rand(3, 2)), "d must not be zero"),
        (lambda: activations.Watch(networks.mlp([2, 3, 2]), torch.rand(3, 2), "tanh"), "second"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
