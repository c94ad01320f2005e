"""ConvNets: what each arm's statistics are taken over, what has a border, what is refused."""

import hashlib
import itertools
import math
import sys
from dataclasses import replace

import pytest
import torch
from lab.data import test_cifar10 as generated
from torch import nn

from layernorm.lab import data
from layernorm.lab.data.pinned import Pinned
from layernorm.lab.experiments import get
from layernorm.lab.experiments.convnet import border as convnet_border
from layernorm.lab.experiments.convnet import model as convnet_model
from layernorm.lab.experiments.convnet import task as convnet_task
from layernorm.lab.experiments.convnet.plan import (
    BORDER_ARMS,
    METHOD_ARMS,
    RESNET_ARMS,
    ConvNetOptions,
)
from layernorm.lab.experiments.options import make
from layernorm.lab.experiments.run import train

EXPERIMENT = get("convnet")
CPU = torch.device("cpu")


def options(**values):
    return make(ConvNetOptions, values)


def network(inputs=1, seed=0, **values):
    torch.manual_seed(seed)
    return convnet_model.build(options(**values), inputs)


def arm(name, **values):
    return {**EXPERIMENT.arms[name], **values}


def summed(shape=(3, 8, 14, 14)):
    """Summed inputs whose cases, channels and positions all differ in mean and scale."""
    torch.manual_seed(1)
    parts = [torch.randn(shape[0], 1, 1, 1), torch.randn(1, shape[1], 1, 1), torch.randn(shape[2:])]
    return torch.randn(shape) * (1 + parts[2].abs()) + 3 * sum(parts)


def with_gains(norm):
    torch.manual_seed(2)
    with torch.no_grad():
        norm.weight.copy_(torch.randn(len(norm.weight)))
        norm.bias.copy_(torch.randn(len(norm.bias)))
    return norm


def by_hand(a, norm, dims, inner=None):
    """The formula, with statistics over these dimensions of `inner` (all of a if None)."""
    x = (a if inner is None else inner).double()
    mu, var = x.mean(dims, keepdim=True), x.var(dims, correction=0, keepdim=True)
    z = (a.double() - mu) / torch.sqrt(var + 1e-5)
    gain, bias = (p.detach().double()[:, None, None] for p in (norm.weight, norm.bias))
    return (gain * z + bias).float()


@pytest.mark.parametrize(("size", "margin"), [(28, 4), (14, 2), (7, 1), (4, 0)])
def test_interior_statistics_leave_the_border_out_and_all_units_use_them(size, margin):
    a, norm = summed((3, 8, size, size)), with_gains(convnet_model.norm("layer", "interior", 8, 4))
    keep = slice(margin, size - margin)
    inner = a[:, :, keep, keep]
    expected = by_hand(a, norm, (1, 2, 3), inner)
    torch.testing.assert_close(norm(a), expected, atol=1e-5, rtol=1e-5)
    touched = a.clone()
    touched[:, :, 0] += 100  # a row at the border: nobody else may notice, if it is left out
    same = torch.equal(norm(touched)[:, :, 1:], norm(a)[:, :, 1:])
    assert same == (margin > 0)


def test_the_other_norms_are_torchs_or_the_formula():
    a = summed()
    pairs = [
        (convnet_model.norm("group", "all", 8, 4), nn.GroupNorm(4, 8)),
        (convnet_model.norm("instance", "all", 8, 4), nn.InstanceNorm2d(8, affine=True)),
        (convnet_model.norm("batch", "all", 8, 4), nn.BatchNorm2d(8)),
    ]
    for ours, theirs in pairs:
        theirs.load_state_dict(with_gains(ours).state_dict())
        for training in (True, True, False):  # batch normalization: running statistics, too
            assert torch.equal(ours.train(training)(a), theirs.train(training)(a))
    ours = with_gains(convnet_model.norm("layer", "all", 8, 4))
    torch.testing.assert_close(ours(a), by_hand(a, ours, (1, 2, 3)), atol=1e-5, rtol=1e-5)
    ours = with_gains(convnet_model.norm("layer", "channels", 8, 4))
    theirs = nn.LayerNorm(8)
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours(a), theirs(a.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))


def test_the_arm_without_normalization_has_gain_and_bias_alone():
    a, norm = summed(), with_gains(convnet_model.norm("none", "all", 8, 4))
    expected = a * norm.weight[:, None, None] + norm.bias[:, None, None]
    torch.testing.assert_close(norm(a), expected)


@pytest.mark.parametrize("arms", [METHOD_ARMS | BORDER_ARMS, RESNET_ARMS])
def test_arms_of_one_network_have_the_same_parameters_at_the_start(arms):
    models = [network(**values) for values in arms.values()]
    first = [p.detach() for p in models[0].parameters()]
    for model in models[1:]:
        for ours, theirs in zip(model.parameters(), first, strict=True):
            assert torch.equal(ours, theirs)


def test_convolutions_have_no_bias_and_logits_no_normalization():
    for name in ("plain", "resnet"):
        model = network(network=name, method="layer")
        convs = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
        norms = [m for m in model.modules() if isinstance(m, nn.GroupNorm)]
        assert len(convs) == len(norms)
        assert all(conv.bias is None for conv in convs)
        assert [type(m) for m in model[-1].modules()] == [convnet_model.Classifier, nn.Linear]


def test_shapes_of_the_two_networks():
    def sizes(model):
        seen = []
        for layer in model[:-1]:
            layer.register_forward_hook(lambda _, __, y: seen.append((*y.shape[1:],)))
        assert model(torch.rand(2, 1, 28, 28)).shape == (2, 10)
        return seen

    plain = sizes(network(method="layer"))
    assert plain == [(8, 28, 28), (16, 14, 14), (16, 14, 14), (32, 7, 7)]
    residual = sizes(network(network="resnet", blocks=2, method="layer"))
    assert residual == [(8, 28, 28)] * 3 + [(16, 14, 14)] * 2 + [(32, 7, 7)] * 2


def test_a_block_adds_what_comes_in_before_the_last_relu():
    block = network(network="resnet", method="layer")[1].eval()
    x = torch.randn(2, 8, 6, 6)
    inner = torch.relu(block.first.norm(block.first.conv(x)))
    expected = torch.relu(block.second.norm(block.second.conv(inner)) + x)
    torch.testing.assert_close(block(x), expected)


@pytest.mark.parametrize("network_name", ["plain", "resnet"])
@pytest.mark.parametrize("method", convnet_model.METHODS)
def test_wrapped_around_there_is_no_border(method, network_name):
    """An image rolled by 4, which halves twice, gives the same logits; padded, it does not."""
    x = torch.rand(5, 1, 20, 20)
    for padding in ("circular", "zeros"):
        model = network(method=method, network=network_name, padding=padding)
        logits = [model(torch.roll(x, shift, (2, 3))) for shift in ((0, 0), (4, 0), (8, -4))]
        apart = max((logits[0] - other).abs().max().item() for other in logits[1:])
        assert (apart < 1e-5) == (padding == "circular")


@pytest.mark.parametrize("network_name", ["plain", "resnet"])
def test_rescaled_starts_with_summed_inputs_of_unit_variance(network_name):
    model, x = network(network=network_name), torch.rand(50, 1, 12, 12)
    convnet_model.rescale_(model, x)
    seen = []
    layers = [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    for layer in layers:
        layer.register_forward_hook(lambda _, __, y: seen.append(y.std().item()))
    model(x)
    assert len(seen) == len(layers)
    assert seen == pytest.approx([1.0] * len(layers), abs=1e-4)
    with pytest.raises(ValueError, match="do not vary over x"):
        convnet_model.rescale_(network(network=network_name), torch.zeros(5, 1, 12, 12))


def test_the_task_rescales_only_its_control():
    def spread(name):
        torch.manual_seed(0)
        task = convnet_task.ConvNet(options(**arm(name)), 0, CPU)
        return task.model[0].conv(task.train.x[:256]).std().item()

    assert spread("rescaled") == pytest.approx(1, abs=1e-4)
    assert spread("none") < 0.7


def test_evaluation_measures_the_watched_examples_in_evaluation_mode():
    task = convnet_task.ConvNet(options(method="batch", watched=100), 0, CPU)
    task.model.eval()
    with torch.no_grad():
        found = task.evaluate()
        test = task.watched["test"]
        logits = task.model(test.x).double()
    assert len(test.y) == 100
    assert found["test_nll"] == pytest.approx(nn.functional.cross_entropy(logits, test.y).item())
    assert found["test_error"] == (logits.argmax(1) != test.y).double().mean().item() * 100
    assert set(test.y.tolist()) == set(range(10))


def test_final_statistics_are_those_of_evaluation_mode():
    task = convnet_task.ConvNet(options(method="batch", watched=50), 0, CPU)
    task.model.train()
    found = task.final()
    expected = convnet_border.profile(task.model.eval(), task.watched["validation"].x)
    assert found == expected


def test_a_crop_that_leaves_nothing_is_refused():
    with pytest.raises(ValueError, match="crop must be below half of 8x8 pixels, got 4"):
        convnet_task.ConvNet(options(crop=4), 0, CPU)


# What is measured by the distance to the border


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
    model, x = network(method="layer", channels=(4, 4)).eval(), torch.rand(30, 1, 10, 10)
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
    model, x = network(network="resnet", method="batch").eval(), torch.rand(10, 1, 12, 12)
    found = convnet_border.profile(model, x)
    assert {name.split("_")[1] for name in found if name.startswith("active")} == set("1234")
    with torch.no_grad():
        first = model[1].first
        y = first.norm(first.conv(model[0](x)))
    on = (y > 0).double().mean(0)
    assert found["active_2_5"] == pytest.approx(on[:, 5:7, 5:7].mean().item(), rel=1e-4)


def test_a_network_that_is_never_on_has_no_share_to_report():
    model = network(method="none").eval()
    with torch.no_grad():
        model[1].norm.bias.fill_(-100)
    found = convnet_border.profile(model, torch.rand(10, 1, 12, 12))
    assert "border_active" not in found
    assert found["active_2_0"] == 0
    assert all(torch.isfinite(torch.tensor(value)) for value in found.values())


# The paper's size, on generated photographs like CIFAR-10's


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """Four records a file, found in the reader's own folder; 16 of the 20 are for training."""
    folder = tmp_path / "cifar10"
    folder.mkdir()
    path = folder / "cifar-10-binary.tar.gz"
    generated.pack(path, generated.contents(4))
    pin = Pinned(path.name, hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size)
    pinned = replace(data.DATASETS["cifar10"], files=(pin,), mirrors=())
    monkeypatch.setattr(sys.modules["layernorm.lab.data.cifar10"], "CIFAR10", pinned)
    monkeypatch.setattr(sys.modules["layernorm.lab.data.cifar10"], "RECORDS", 4)
    monkeypatch.setattr(sys.modules["layernorm.lab.data.cifar10"], "TRAINING_POINTS", 16)
    monkeypatch.setenv("LAYERNORM_DATA", str(tmp_path))
    convnet_task.splits.cache_clear()
    yield
    convnet_task.splits.cache_clear()


@pytest.mark.parametrize("arm", ["batch", "layer-circular", "group-resnet"])
def test_the_paper_profile_starts_and_trains(photographs, arm):
    few = {"updates": 2, "evaluations": 1, "batch_size": 4, "watched": 4, "learning_rate": 1e-3}
    config = EXPERIMENT.config("paper", arm, 0, **few)
    record = train(config, save=False)
    assert record.config["data"] == convnet_task.splits("cifar10").sha256
    nll = record.result["curves"]["train_nll"]["value"]
    assert len(nll) == 2
    assert nll[0] != nll[1]
    assert all(map(math.isfinite, nll))
    layers = 6 if arm != "group-resnet" else 10  # those with a ReLU right behind them
    assert f"active_{layers}_0" in record.result["final"]
    assert f"active_{layers + 1}_0" not in record.result["final"]
