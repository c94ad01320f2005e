"""ConvNets: what is measured of a layer's units by their distance to the border."""

import itertools

import pytest
import torch

from layernorm.lab.experiments.convnet import border as convnet_border
from layernorm.lab.experiments.convnet import model as convnet_model
from layernorm.lab.experiments.convnet.plan import ConvNetOptions
from layernorm.lab.experiments.options import make


def network(**values):
    torch.manual_seed(0)
    return convnet_model.build(make(ConvNetOptions, values), inputs=1).eval()


@pytest.mark.parametrize("shape", [(1, 1), (2, 5), (7, 7), (28, 28), (4, 9)])
def test_distance_counts_the_positions_up_to_the_nearest_border(shape):
    h, w = shape
    found = convnet_border.distance(h, w)
    for y, x in itertools.product(range(h), range(w)):
        assert found[y, x] == min(y, x, h - 1 - y, w - 1 - x)
    rings = torch.stack(convnet_border.rings(h, w))
    assert (rings.sum(0) == 1).all()
    assert torch.equal(rings[-1], found >= len(rings) - 1)
    assert len(rings) == min(7, int(found.max()) + 1)


def test_the_profile_is_what_its_definition_says():
    model, x = network(method="layer", channels=(4, 4)), torch.rand(30, 1, 10, 10)
    with torch.no_grad():
        model[0].norm.weight.copy_(torch.tensor([1.0, -2.0, 0.5, 3.0]))
        model[0].norm.bias.copy_(torch.tensor([0.5, 0.1, -1.0, 0.3]))
    found = convnet_border.profile(model, x)
    with torch.no_grad():
        a1 = model[0].conv(x)
        y1 = model[0].norm(a1)
        a2 = model[1].conv(torch.relu(y1))
        y2 = model[1].norm(a2)
    shares = {"border_active": [], "border_variance": []}
    for k, (a, y, size) in enumerate(((a1, y1, 10), (a2, y2, 5)), 1):
        on, variance = (y > 0).float().mean(0), a.var(0, correction=0)
        for d in range((size + 1) // 2):
            at = [
                (i, j)
                for i, j in itertools.product(range(size), repeat=2)
                if min(i, j, size - 1 - i, size - 1 - j) == d
            ]
            rows, columns = zip(*at, strict=True)
            for name, of in (
                ("active", on),
                ("input_mean", a.mean(0)),
                ("input_variance", variance),
            ):
                expected = of[:, rows, columns].mean().item()
                assert found[f"{name}_{k}_{d}"] == pytest.approx(expected, rel=1e-4, abs=1e-7)
        for name, of in (("border_active", on), ("border_variance", variance)):
            inner = of[:, 1:-1, 1:-1]
            border = (of.sum() - inner.sum()) / (of.numel() - inner.numel())
            shares[name].append((border / inner.mean()).item())
    for name, values in shares.items():
        assert found[name] == pytest.approx(sum(values) / 2, rel=1e-4)
    assert not any(name.startswith("active_3") for name in found)


def test_the_profile_reads_what_relu_gets_in_the_residual_network():
    model, x = network(network="resnet", method="batch"), torch.rand(10, 1, 12, 12)
    found = convnet_border.profile(model, x)
    assert {name.split("_")[1] for name in found if name.startswith("active")} == set("1234")
    with torch.no_grad():
        first = model[1].first
        y = first.norm(first.conv(model[0](x)))
    on = (y > 0).double().mean(0)
    assert found["active_2_5"] == pytest.approx(on[:, 5:7, 5:7].mean().item(), rel=1e-4)


def test_a_network_that_is_never_on_has_no_share_to_report():
    model = network(method="none")
    with torch.no_grad():
        model[1].norm.bias.fill_(-100)
    found = convnet_border.profile(model, torch.rand(10, 1, 12, 12))
    assert "border_active" not in found
    assert found["active_2_0"] == 0
    assert all(torch.isfinite(torch.tensor(value)) for value in found.values())
