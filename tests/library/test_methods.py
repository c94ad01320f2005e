import pytest
import torch
from torch import nn

from layernorm import symbolic
from layernorm.lab.analysis import networks
from layernorm.methods import FORMS, METHODS, method

DENSE = [m.name for m in METHODS.values() if m.dense]


def test_the_table_tells_every_method_apart():
    assert {"none", "batch", "weight", "layer", "rms", "group", "instance"} <= METHODS.keys()
    assert FORMS.keys() <= METHODS.keys()
    assert len({m.color for m in METHODS.values()}) == len(METHODS)
    assert len({m.marker for m in METHODS.values()}) == len(METHODS)


@pytest.mark.parametrize("name", DENSE)
def test_every_layer_has_one_bias_per_unit_added_after_the_normalization(name):
    layer = METHODS[name].layer(5, 16).double()
    biases = [p for key, p in layer.named_parameters() if key.endswith("bias")]
    assert [tuple(b.shape) for b in biases] == [(16,)]
    x = torch.randn(7, 5, dtype=torch.float64)
    before = layer(x)
    with torch.no_grad():
        biases[0].add_(3.0)
    torch.testing.assert_close(layer(x), before + 3.0, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "axis"), [("batch", 0), ("layer", 1), ("rms", 1), ("group", 1), ("none", None)]
)
def test_each_method_normalizes_over_what_the_table_says(name, axis):
    a = METHODS[name].layer(9, 16).double()(torch.randn(64, 9, dtype=torch.float64) * 7 + 1)
    power = (a**2).mean(axis) if axis is not None else (a**2).mean()
    unit = torch.allclose(power, torch.ones_like(power), atol=1e-3)
    assert unit == (name != "none")


def test_instance_normalization_is_refused_where_there_are_no_positions():
    with pytest.raises(ValueError, match="has no positions"):
        method("instance").layer(3, 4)


def test_a_misspelled_method_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'layer'"):
        method("layr")


@pytest.mark.parametrize("name", DENSE)
def test_mlp_leaves_the_logits_plain(name):
    net = networks.mlp([6, 8, 8, 3], name, "relu")
    assert isinstance(net[-1], nn.Linear)
    assert net(torch.randn(5, 6)).shape == (5, 3)


def test_summed_inputs_feed_the_nonlinearity():
    net = networks.mlp([6, 8, 8, 3], "layer", "tanh").eval()
    x = torch.randn(5, 6)
    first, second, logits = networks.summed_inputs(net, x)
    torch.testing.assert_close(net[2](torch.tanh(first)), second)
    torch.testing.assert_close(net(x), logits)
    raw = networks.summed_inputs(net, x, normalized=False)[0]
    torch.testing.assert_close(raw, x @ net[0][0].weight.T)


def test_summed_inputs_are_those_the_output_was_computed_from():
    net, x = networks.mlp([6, 8, 8, 3], "batch"), torch.rand(5, 6)
    *hidden, logits = networks.summed_inputs(net, x)
    gradients = torch.autograd.grad(logits.sum(), hidden)
    assert all(d.abs().max() > 0 for d in gradients)
    assert net[0][1].num_batches_tracked == 1  # each layer ran once


def test_rescaling_makes_the_summed_inputs_unit_variance():
    net = networks.mlp([6, 8, 8, 3], "none", "tanh")
    x = 20 * torch.rand(200, 6)
    networks.rescale_(net, x)
    for a in networks.summed_inputs(net, x):
        assert a.std().item() == pytest.approx(1.0, abs=1e-4)


REDRAWN = {
    "scale": "weight_matrix_rescaling",
    "spread": "weight_vector_rescaling",
    "shift": "weight_matrix_recentering",
}


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("change", [{"scale": 10.0}, {"spread": 1.0}, {"shift": 1.0}], ids=str)
@pytest.mark.parametrize("gains", [True, False])
def test_other_weights_at_the_start_change_what_table_1_says(name, change, gains):
    net = networks.mlp([6, 32, 3], name, "tanh").double()
    x = torch.randn(16, 6, dtype=torch.float64)
    for norm in (m for m in net.modules() if hasattr(m, "eps")):
        norm.eps = 1e-30  # the invariances are exact without eps; torch refuses 0 for batch
    before = networks.summed_inputs(net, x)[0]
    networks.redraw_(net, **change, gains=gains)
    after = networks.summed_inputs(net, x)[0]
    same = torch.allclose(before, after, rtol=0, atol=1e-12)
    (transformation,) = (REDRAWN[kind] for kind in change)
    keeps = name in FORMS and symbolic.decide(name, transformation).invariant
    assert same == (keeps and not (name == "weight" and gains))


def test_redrawn_weights_are_what_the_options_say():
    def redrawn(**options):
        net = networks.mlp([50, 400, 3])
        start = net[0][0].weight.detach().clone(), net[2].weight.detach().clone()
        networks.redraw_(net, **options)
        assert torch.equal(net[2].weight, start[1])
        return start[0], net[0][0].weight.detach()

    w, scaled = redrawn(scale=3.0)
    torch.testing.assert_close(scaled, 3 * w)
    w, shifted = redrawn(shift=2.0)
    torch.testing.assert_close(shifted - w, torch.full_like(w, 2 * w.square().mean().sqrt()))
    w, spread = redrawn(spread=1.0)
    u = torch.log10(spread[:, 0] / w[:, 0])
    torch.testing.assert_close(spread, w * 10 ** u[:, None])
    assert -1 <= u.min() < -0.9
    assert 0.9 < u.max() <= 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: networks.mlp([3]), "sizes must be"),
        (lambda: networks.mlp([3, 0, 2]), "sizes must be"),
        (lambda: networks.mlp([3, 4, 2], activation="tnah"), "unknown activation"),
        (lambda: networks.redraw_(networks.mlp([3, 4, 2]), scale=0.0), "scale must be > 0"),
        (lambda: networks.redraw_(networks.mlp([3, 4, 2]), spread=-1.0), "spread >= 0"),
        (lambda: networks.rescale_(networks.mlp([3, 4, 2]), torch.zeros(5, 3)), "do not vary"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
