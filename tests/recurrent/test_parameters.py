"""What users do with a layer's parameters and states besides training: tie, remove, convert or
reparametrize them; under every backend the same numbers, or a refusal by name."""

import pytest
import torch
from library.oracle import draw
from recurrent.recurrent_reference import LAYERS, NETS, shaken, usable
from torch import nn
from torch.nn.utils import parametrizations

import layernorm
from layernorm.recurrent import BatchNormLSTM, LayerNormGRUVariant

EVERY = pytest.mark.parametrize(("kind", "backend"), NETS)
X = draw(4, 2, 3)


def made(kind: str, backend: str, **options) -> nn.Module:
    usable(backend)
    return shaken(LAYERS[kind](3, 5, backend=backend, **{"dtype": torch.float64} | options))


def state(module, *shape: int, **options):
    states = tuple(torch.ones(1, *shape, 5, **options) for _ in range(module.states))
    return states if module.states == 2 else states[0]


@EVERY
def test_a_parameter_that_is_not_there(kind, backend):
    module = made(kind, backend)
    module.weight_hh_l0 = None
    with pytest.raises(TypeError, match=r"weight_hh_l0 must be a torch\.Tensor, got None"):
        module(X)
    del module.weight_hh_l0
    with pytest.raises(AttributeError, match="weight_hh_l0"):
        module(X)


@EVERY
def test_a_parameter_elsewhere(kind, backend):
    """Its address would be another device's, or none."""
    module = made(kind, backend)
    module.weight_hh_l0 = nn.Parameter(module.weight_hh_l0.to("meta"))
    with pytest.raises(ValueError, match=r"w_hh must be .*(cpu|CPU), got .*meta"):
        module(X)


@EVERY
def test_parameters_of_several_types(kind, backend):
    module = made(kind, backend, dtype=torch.float32)
    norm = "ln_weight_l0" if kind == "rnn" else "ln_hh_weight_l0"
    setattr(module, norm, nn.Parameter(getattr(module, norm).double()))
    with pytest.raises(TypeError, match=r"must have .*type.*float64"):
        module(X.float())


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_under_autocast_given_states_take_the_weights_type(kind, backend, dtype):
    module = made(kind, backend, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, last = module(X.float(), state(module, 2, dtype=dtype))
    last = last if isinstance(last, tuple) else (last,)
    assert {t.dtype for t in (y, *last)} == {torch.float32}


@EVERY
def test_a_view_whose_sign_is_kept_beside_it(kind, backend):
    """The imaginary part of a conjugate is a view with a flag: its numbers in memory have the other
    sign."""
    module, tangled = made(kind, backend), torch.complex(X, X).conj().imag
    assert tangled.is_neg()
    torch.testing.assert_close(module(tangled)[0], module(-X)[0], rtol=1e-12, atol=0)

    x = X.clone().requires_grad_()
    y = module(x)[0]
    slope = torch.complex(y.detach(), y.detach()).conj().imag
    got, expected = (torch.autograd.grad(y, x, g, retain_graph=True)[0] for g in (slope, -y))
    torch.testing.assert_close(got, expected.detach(), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("module", "start"),
    [
        (layernorm.LayerNormLSTM(3, 5, forget_bias=2.0), 2.0),
        (layernorm.LayerNormGRU(3, 5), 0.0),
        (LayerNormGRUVariant(3, 5, update_bias=2.0), 2.0),
        (BatchNormLSTM(3, 5, forget_bias=2.0), 2.0),
    ],
    ids=lambda p: type(p).__name__,
)
def test_parametrized_parameters_start_anew(module, start):
    """weight_norm keeps v and g as parameters of other names; v = 0 would give 0/0."""
    parametrizations.weight_norm(module, "weight_hh_l0")
    parametrizations.weight_norm(module, "bias_ih_l0", dim=None)
    nn.utils.parametrize.remove_parametrizations(module, "bias_ih_l0")
    shaken(module).reset_parameters()
    v = module.parametrizations.weight_hh_l0.original1
    assert 0 < v.abs().max() <= 5**-0.5
    assert module(X.float())[0].isfinite().all()
    assert module.bias_ih_l0[5:10].tolist() == [start] * 5


def test_all_weights_are_the_layers_and_directions_as_torchs():
    ours, torchs = (k(3, 5, 2, bidirectional=True) for k in (layernorm.LayerNormGRU, nn.GRU))
    names = {id(p): name for name, p in ours.named_parameters()}
    found = [[names[id(p)] for p in ps] for ps in ours.all_weights]
    assert sorted(name for ps in found for name in ps) == sorted(names.values())
    for ps, theirs in zip(found, torchs.all_weights, strict=True):
        suffix = next(n for n, p in torchs.named_parameters() if p is theirs[0])[9:]
        assert all(name.endswith(suffix) for name in ps)
        assert ps[:2] == [f"weight_ih{suffix}", f"weight_hh{suffix}"]


@pytest.mark.parametrize("layer", [layernorm.LayerNormLSTM, layernorm.LayerNormGRUCell])
def test_a_subclass_keeps_the_start_of_its_own_modules(layer):
    """Modules inside are reset first, by whoever resets all."""

    class Tagger(layer):
        def __init__(self):
            super().__init__(3, 4)
            self.readout = nn.Linear(4, 5)

    net = Tagger()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(7.0)
    net.apply(lambda m: hasattr(m, "reset_parameters") and m.reset_parameters())
    assert 0 < net.readout.weight.abs().max() <= 0.5
    assert all(p.abs().max() <= 1 for p in net.parameters())
