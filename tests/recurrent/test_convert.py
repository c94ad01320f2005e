"""Imported weights: the numbers of the library they come from, by its own equations in NumPy."""

import io
import re
from pathlib import Path

import apart
import numpy as np
import pytest
import torch
from library.oracle import draw
from recurrent.other_libraries import (
    ADDONS,
    ARRAYS,
    DREAMER,
    GRU,
    HASTE,
    HASTE_GRU,
    LSTM,
    STATES,
    X,
    addons_lstm,
    arrays,
    authors_gru,
    authors_lstm,
    dreamers_gru,
    example_cell,
    examples_lstm,
    hastes_gru,
    hastes_lstm,
    prefixed,
    pydreamers_cell,
    pydreamers_gru,
)
from recurrent.recurrent_reference import shaken
from torch import nn

from layernorm import LayerNormLSTM, functional
from layernorm.recurrent import convert


def same(got, expected) -> None:
    y, (h, c) = got
    for a, b in zip((y, h[-1], c[-1]), expected, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-11, atol=1e-11)


def test_hastes_numbers():
    x, h, c = ARRAYS
    layer = convert.from_haste(HASTE)
    assert layer.weight_ih_l0.dtype == torch.float64
    same(layer(X, STATES), hastes_lstm(x, arrays(HASTE), h, c))


def test_hastes_module_and_options():
    module = nn.Module()
    for name, value in HASTE.items():
        module.register_parameter(name, nn.Parameter(value))
    module.zoneout = 0.0
    layer = convert.from_haste(module, batch_first=True, learn_initial_state=True)
    y, last = layer(X.transpose(0, 1))
    x, h, c = ARRAYS
    same((y.transpose(0, 1), last), hastes_lstm(x, arrays(HASTE), 0 * h, 0 * c))
    module.zoneout = 1.1
    with pytest.raises(ValueError, match=r"zoneout must be a probability, .*got 1\.1"):
        convert.from_haste(module)


def same_gru(layer, expected) -> None:
    y, last = layer(X, STATES[0])
    assert y.dtype == torch.float64
    for a, b in ((y, expected), (last[0], expected[-1])):
        np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-11, atol=1e-11)


def test_hastes_gru():
    x, h, _ = ARRAYS
    layer = convert.from_haste(HASTE_GRU)
    assert layer.variant == "stacked"
    same_gru(layer, hastes_gru(x, arrays(HASTE_GRU), h))


def test_dreamers_gru():
    x, h, _ = ARRAYS
    layer = convert.from_dreamer(*(a.numpy() for a in DREAMER))
    assert (layer.input_size, layer.hidden_size) == (3, 5)
    same_gru(layer, dreamers_gru(x, *(a.numpy() for a in DREAMER), h))


@pytest.mark.parametrize("late", [True, False])
def test_pydreamers_gru(late):
    x, h, _ = ARRAYS
    cell = pydreamers_cell(late, 3, seed=91)
    layer = convert.from_pydreamer(cell)
    assert layer.variant == ("joint" if late else "per_gate")
    expected = pydreamers_gru(x, arrays(cell), h, late)
    same_gru(layer, expected)
    above = pydreamers_cell(late, 5, seed=111)
    stack = prefixed(cell, "layers.0.") | prefixed(above, "layers.1.")
    states = STATES[0].expand(2, -1, -1)
    y, last = convert.from_pydreamer(stack, batch_first=True)(X.transpose(0, 1), states)
    top = pydreamers_gru(expected, arrays(above), h, late)
    for a, b in ((y.transpose(0, 1), top), (last[0], expected[-1]), (last[1], top[-1])):
        np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("eps", [1e-3, 0.1])
def test_tensorflow_addons_numbers(eps):
    x, h, c = ARRAYS
    weights = [w.numpy() for w in ADDONS]
    same(convert.from_keras(weights, eps=eps)(X, STATES), addons_lstm(x, weights, h, c, eps))


def test_tensorflow_addons_without_bias():
    x, h, c = ARRAYS
    without = [*ADDONS[:2], *ADDONS[3:]]
    weights = [w.numpy() for w in (*ADDONS[:2], torch.zeros(20), *ADDONS[3:])]
    same(convert.from_keras(without)(X, STATES), addons_lstm(x, weights, h, c, 1e-3))


WITH_ONE = torch.cat([X, torch.ones_like(X[..., :1])], -1)


def test_the_authors_lstm():
    x, h, c = ARRAYS
    layer = convert.from_theano(prefixed(LSTM, "encoder_"), "encoder")
    assert layer.input_size == 4
    same(layer(WITH_ONE, STATES), authors_lstm(x, arrays(LSTM), h, c))
    zero = LSTM | {"b": torch.zeros_like(LSTM["b"])}
    same(convert.from_theano(zero)(X, STATES), authors_lstm(x, arrays(zero), h, c))


def test_the_authors_gru():
    x, h, _ = ARRAYS
    zero = GRU | {name: torch.zeros_like(GRU[name]) for name in ("b", "bx")}
    for weights, inputs in ((GRU, WITH_ONE), (zero, X)):
        y, last = convert.from_theano(weights)(inputs, STATES[0])
        expected = authors_gru(x, arrays(weights), h)
        for a, b in zip((y, last[0]), expected, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-11, atol=1e-11)


def test_the_script_for_a_file_of_the_authors_code(tmp_path):
    """As the API page prints it; such a file also has losses and parameters of other layers."""
    page = (Path(__file__).parents[2] / "book" / "api.md").read_text(encoding="utf-8")
    [script] = re.findall(r"^```python\n(.*?from_theano.*?)^```", page, re.M | re.S)
    x, h, c = ARRAYS
    others = {"history_errs": [], "Wemb": draw(9, 3).numpy(), "ff_state_b": np.zeros(5)}
    np.savez(tmp_path / "model.npz", **others, **arrays(prefixed(LSTM, "encoder_")))
    done = apart.python("-c", script, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "LayerNormLSTM(4, 5)\n"), done.stderr
    layer = LayerNormLSTM(4, 5, dtype=torch.float64)
    layer.load_state_dict(torch.load(tmp_path / "encoder.pt", weights_only=True))
    same(layer(WITH_ONE, STATES), authors_lstm(x, arrays(LSTM), h, c))


@pytest.mark.parametrize("eps", [1e-5, 0.0])
def test_the_examples_numbers(eps):
    x, h, c = ARRAYS
    cell = example_cell(3, 5, seed=10)
    expected = examples_lstm(x, arrays(cell), h, c, eps)
    for prefix in ("", "cell.", "layers.0.cell."):
        layer = convert.from_torchscript(prefixed(cell, prefix), eps=eps)
        same(layer(X, STATES), expected)


def test_the_examples_stack_of_layers():
    x, h, c = ARRAYS
    cells = [example_cell(3, 5, seed=10), example_cell(5, 5, seed=30)]
    state = {
        k: v for n, cell in enumerate(cells) for k, v in prefixed(cell, f"layers.{n}.cell.").items()
    }
    layer = convert.from_torchscript(state)
    below = examples_lstm(x, arrays(cells[0]), h, c)
    states = tuple(s.expand(2, -1, -1) for s in STATES)
    same(layer(X, states), examples_lstm(below[0], arrays(cells[1]), h, c))


def test_the_examples_two_directions():
    x, h, c = ARRAYS
    cells = [example_cell(3, 5, seed=10), example_cell(3, 5, seed=30)]
    state = {}
    for d, cell in enumerate(cells):
        state |= prefixed(cell, f"layers.0.directions.{d}.cell.")
    y, (h_n, c_n) = convert.from_torchscript(state)(X, tuple(s.expand(2, -1, -1) for s in STATES))
    forward = examples_lstm(x, arrays(cells[0]), h, c)
    backward = examples_lstm(x[::-1], arrays(cells[1]), h, c)
    same((y[..., :5], (h_n[:1], c_n[:1])), forward)
    same((y[..., 5:], (h_n[1:], c_n[1:])), (backward[0][::-1], *backward[1:]))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_torchs_weights_and_where_its_two_biases_go(kind):
    """They are added up outside the norms; but torch's b_hn stands inside the reset product, as the
    recurrent norm's bias does, and the RNN has no other bias than its norm's."""
    module = shaken(kind(3, 5, dtype=torch.float64))
    old, new = module.state_dict(), convert.from_torch(module).state_dict()
    one, other = old.pop("bias_ih_l0"), old.pop("bias_hh_l0")
    if kind is nn.GRU:
        last = torch.arange(15) >= 10
        old |= {"bias_ih_l0": one + other * ~last, "ln_hh_bias_l0": other * last}
    else:
        old["ln_bias_l0" if kind is nn.RNN else "bias_ih_l0"] = one + other
    for name, value in new.items():
        expected = old.pop(name, torch.full_like(value, float("_weight" in name)))
        assert torch.equal(value, expected), name
    assert not old


def test_torch_takes_a_number_for_a_flag():
    assert convert.from_torch(nn.LSTM(3, 5, bidirectional=1)).bidirectional is True


def test_torchs_settings_and_every_weight_are_taken_over():
    settings = {"num_layers": 2, "bidirectional": True, "batch_first": True, "dropout": 0.1}
    module = nn.LSTM(3, 5, proj_size=2, bias=False, **settings).eval()
    new = convert.from_torch(module, variant="joint", eps=0.1, backend="reference")
    assert not new.training
    names = (*settings, "proj_size", "bias", "input_size", "hidden_size")
    assert all(getattr(new, name) == getattr(module, name) for name in names)
    assert (new.variant, new.eps, new.backend) == ("joint", 0.1, "reference")
    state = new.state_dict()
    assert all(torch.equal(state[k], v) for k, v in module.state_dict().items())
    rest = {k: v for k, v in state.items() if k not in module.state_dict()}
    assert all((v == float("_weight" in k)).all() for k, v in rest.items())
    with torch.no_grad():
        new.weight_ih_l0.zero_()
    assert module.weight_ih_l0.any(), "copied, not shared"


STATED = [
    (nn.LSTM(3, 5), {}),
    (nn.LSTM(3, 5, 2, bidirectional=True, batch_first=True, dtype=torch.float64), {}),
    (nn.LSTM(3, 5, 3, bias=False, proj_size=2, dropout=0.5), {"variant": "joint", "eps": 0.1}),
    (nn.LSTM(3, 5, 2, bidirectional=True, proj_size=2), {}),
    (nn.LSTM(3, 1), {}),
    (nn.GRU(3, 5, 2, bidirectional=True, batch_first=True), {}),
    (nn.GRU(3, 5, bias=False, dtype=torch.bfloat16), {"variant": "stacked"}),
    (nn.RNN(3, 5, 2, "relu"), {"learn_initial_state": True}),
]


@pytest.mark.parametrize(("module", "options"), STATED, ids=str)
def test_torchs_state_dict_gives_what_the_module_gives(module, options):
    """Its sizes, layers, directions, projection and bias are found from names and shapes; what it
    does not hold is said."""
    unsaid = {"batch_first": module.batch_first, "dropout": module.dropout}
    if isinstance(module, nn.RNN):
        unsaid["nonlinearity"] = module.nonlinearity
    buffer = io.BytesIO()
    torch.save(shaken(module).state_dict(), buffer)
    buffer.seek(0)
    state = torch.load(buffer, weights_only=True)
    new = convert.from_torch(state, **options, **unsaid)
    expected = convert.from_torch(module, **options)
    assert repr(new) == repr(expected)
    assert new.training
    for (name, got), (other, value) in zip(
        new.state_dict().items(), expected.state_dict().items(), strict=True
    ):
        assert name == other
        assert got.dtype == value.dtype
        assert torch.equal(got, value)
    reordered = dict(reversed(state.items()))
    assert repr(convert.from_torch(reordered, **options, **unsaid)) == repr(expected)


def test_torchs_gru_as_the_stacked_variant_is_that_gru_but_for_its_norms(monkeypatch):
    module = shaken(nn.GRU(3, 5, 2, bidirectional=True, dtype=torch.float64))
    x = draw(4, 2, 3)
    for variant in ("paper", "stacked"):
        new = convert.from_torch(module, variant=variant, backend="reference")
        with monkeypatch.context() as without:
            without.setattr(functional, "layer_norm", lambda x, shape, gain, bias, eps: x + bias)
            torch.testing.assert_close(new(x)[0], module(x)[0])
        assert not torch.allclose(new(x)[0], module(x)[0])


class Named(nn.LSTM):
    """A user's: torch's equations, and parameters that these do not contain."""

    def __init__(self, *sizes) -> None:
        super().__init__(*sizes)
        self.readout = nn.Linear(5, 1)
        self.weight_of_the_loss = nn.Parameter(torch.ones(2))


def test_a_subclass_that_computes_as_torchs_is_taken():
    module = Named(3, 5)
    new = convert.from_torch(module)
    assert repr(new) == "LayerNormLSTM(3, 5)"
    assert torch.equal(new.weight_hh_l0, module.weight_hh_l0)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_what_is_frozen_stays_frozen(kind):
    """A bias of which one part is trained is trained; so are the norms' new parameters."""
    module = kind(3, 5, 2)
    for name in ("weight_ih_l0", "weight_hh_l1", "bias_ih_l0", "bias_hh_l0", "bias_hh_l1"):
        module.get_parameter(name).requires_grad_(False)
    new = convert.from_torch(module)
    bias = "ln_bias_l0" if kind is nn.RNN else "bias_ih_l0"
    frozen = {name for name, p in new.named_parameters() if not p.requires_grad}
    assert frozen == {"weight_ih_l0", "weight_hh_l1", bias}
    assert all(p.requires_grad for p in convert.from_torch(module.state_dict()).parameters())


def test_one_tensor_for_two_weights():
    module = nn.LSTM(5, 5)
    module.weight_hh_l0 = module.weight_ih_l0
    new = convert.from_torch(module)
    assert torch.equal(new.weight_hh_l0, module.weight_ih_l0)
