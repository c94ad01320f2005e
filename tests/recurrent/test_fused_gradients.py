"""Gradients of the fused layers where the plain tests do not look: in graphs captured without them,
in place, of one result alone; and what the functions refuse when they are called by themselves."""

import pytest
import torch
from apart import python
from library.oracle import draw
from recurrent.recurrent_fused import weights

from layernorm import LayerNormGRU, LayerNormLSTM
from layernorm.recurrent import ZoneoutGRU, ZoneoutLSTM, cpu, definition
from layernorm.recurrent.cpu import binding

pytestmark = pytest.mark.skipif(cpu.missing() is not None, reason=str(cpu.missing()))
LAYERS = pytest.mark.parametrize("layer", [LayerNormLSTM, LayerNormGRU])


def both(layer) -> list[torch.nn.Module]:
    """One net by the definition and by the fused path."""
    reference = layer(3, 4, backend="reference").double()
    fast = layer(3, 4).double()
    fast.load_state_dict(reference.state_dict())
    return [reference, fast]


@LAYERS
def test_a_graph_captured_without_gradients_has_them(layer):
    """Exported under no_grad, a graph keeps nothing for a gradient, which is asked for later."""
    x, found = draw(5, 2, 3), []
    for net in both(layer):
        with torch.no_grad():
            graph = torch.export.export(net.eval(), (x,)).module()
        z = x.clone().requires_grad_()
        y, *states = graph(z)
        last = states[0][0] if layer is LayerNormLSTM else states[0]
        found.append(torch.autograd.grad(y.square().sum() + last.sum(), z)[0])
    torch.testing.assert_close(found[1], found[0])


@LAYERS
def test_every_parameter_has_a_gradient_of_its_own(layer):
    """Biases have equal gradients. Clipping scales each in place, once."""
    x, found = draw(5, 2, 3), []
    for net in both(layer):
        gradients = torch.autograd.grad(net(x)[0].square().sum(), list(net.parameters()))
        torch._foreach_mul_(gradients, 0.1)
        found.append(gradients)
    for slow, fast in zip(*found, strict=True):
        torch.testing.assert_close(fast, slow)


@pytest.mark.parametrize("layer", ["LayerNormLSTM", "LayerNormGRU"])
def test_a_compiled_layers_gradients_are_apart(layer):
    """Without the checks of annotations, which cannot be compiled."""
    code = f"""
import torch
from layernorm import {layer}

net = {layer}(3, 4)
y = torch.compile(net)(torch.randn(5, 2, 3))[0]
gradients = torch.autograd.grad(y.square().sum(), list(net.parameters()))
print(len(gradients) - len({{g.data_ptr() for g in gradients}}))
"""
    done = python("-c", code, timeout=600)
    assert done.stdout.strip() == "0", done.stderr


def test_a_result_that_depends_on_nothing_trained():
    """After one step the cell does not depend on the cell's norm."""
    x, found = draw(1, 2, 3), []
    for net in both(LayerNormLSTM):
        parameter = net.requires_grad_(False).ln_c_weight_l0.requires_grad_()
        y, states = net(x)
        total = y.square().sum() + torch.cat([*states]).square().sum()
        found.append(torch.autograd.grad(total, parameter, create_graph=True)[0])
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("layer", [ZoneoutLSTM, ZoneoutGRU])
def test_zoneout_in_half_precision_under_autocast(layer):
    net = layer(3, 4, zoneout=0.5).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        y = net(torch.randn(5, 2, 3))[0]
    y.float().sum().backward()
    assert y.dtype == torch.bfloat16
    assert net.weight_ih_l0.grad.isfinite().all()


@pytest.mark.parametrize(
    ("changed", "variant", "error", "message"),
    [
        ({"w_hh": None}, "paper", TypeError, "w_hh must be a torch.Tensor, got NoneType"),
        ({"w_ih": None}, "paper", TypeError, "w_ih must be a torch.Tensor, got NoneType"),
        ({"ln_ih": None}, "paper", ValueError, "weights.ln_ih must be a pair"),
        ({"ln_hh": None}, "paper", ValueError, "weights.ln_hh must be a pair"),
        ({}, "joint", ValueError, 'weights.ln_ih must be None for variant "joint"'),
        ({}, "cell_only", ValueError, 'weights.ln_ih must be None for variant "cell_only"'),
        ({"w_hr": draw(6, 6)}, "paper", ValueError, "weights.w_hr must be None"),
        ({"ln_hh": (draw(24), None)}, "paper", TypeError, "gain_h and bias_h must both be"),
    ],
)
def test_the_functions_refuse_weights_that_do_not_fit(changed, variant, error, message):
    """As the definition does; the library would read from nowhere."""
    w = weights("lstm", 4, 6)._replace(**changed)
    given = draw(6, 4), None, draw(2, 6), draw(2, 6), w, 1e-5, variant
    with pytest.raises(error, match=message):
        cpu.lstm(*given)
    if "w_hr" not in changed:
        with pytest.raises((TypeError, ValueError)):
            definition.lstm(*given)


@pytest.mark.parametrize(
    ("changed", "eps", "error", "message"),
    [
        ({"w_hh": None}, 1e-5, TypeError, "w_hh must be a torch.Tensor, got NoneType"),
        ({}, -1.0, ValueError, "eps must be non-negative"),
        ({}, float("nan"), ValueError, "eps must be non-negative"),
    ],
)
def test_the_gru_refuses_as_well(changed, eps, error, message):
    w = weights("gru", 4, 6)._replace(**changed)
    with pytest.raises(error, match=message):
        cpu.gru(draw(6, 4), None, draw(2, 6), w, eps)


def test_a_cell_of_another_size_is_named():
    w = weights("lstm", 4, 6)
    with pytest.raises(ValueError, match=r"c0 must have shape \(2, 6\).*got \(2, 5\)"):
        definition.lstm(draw(6, 4), None, draw(2, 6), draw(2, 5), w)


def test_memory_of_the_past_is_given_back(monkeypatch):
    """Sizes that nobody asks for any more go, those in turn stay."""
    from layernorm.recurrent.cpu import operators

    pool = binding.Pool()
    monkeypatch.setattr(operators, "pool", pool)
    net = LayerNormLSTM(4, 20)

    def step(steps):
        net(torch.randn(steps, 8, 4))[0].sum().backward()

    for steps in (300, 700, 1500):
        step(steps)
    in_turn = set()
    for k in range(100):
        for steps in (90, 20, 2):
            step(steps)
        if k == 50:
            in_turn = set(pool.storages)
    assert len(pool.storages) == 3
    assert set(pool.storages) == in_turn
