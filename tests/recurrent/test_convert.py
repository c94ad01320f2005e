# ruff: noqa: E501  (a table at the end, one line per case)
"""Imported weights: the numbers of the library they come from, by its own equations in NumPy."""

import re
from functools import partial
from pathlib import Path

import apart
import numpy as np
import pytest
import torch
from library.oracle import draw
from recurrent.recurrent_reference import shaken
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from layernorm import LayerNormLSTM
from layernorm.recurrent import convert


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def norm(a, gain, bias, eps=1e-5):
    """Over the last axis."""
    centered = a - a.mean(-1, keepdims=True)
    return gain * centered / np.sqrt((centered**2).mean(-1, keepdims=True) + eps) + bias


def hastes_lstm(x, w, h, c):
    """x (T, B, I); products from the right, gates i, g, f, o, no biases in the gates' norms, the
    raw cell carried."""
    outputs = []
    size = h.shape[-1]
    for rows in x:
        v_x = norm(rows @ w["kernel"], w["gamma"][0], 0.0)
        v_h = norm(h @ w["recurrent_kernel"], w["gamma"][1], 0.0)
        v = v_x + v_h + w["bias"]
        i, g, f, o = (v[:, k * size : (k + 1) * size] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(norm(c, w["gamma_h"], w["beta_h"]))
        outputs.append(h)
    return np.stack(outputs), h, c


def hastes_gru(x, w, h):
    """x (T, B, I); products from the right, gates z, r, g, each term normalized as a whole, its
    bias behind; z keeps the state, the reset acts behind the recurrent norm."""
    outputs = []
    for rows in x:
        v_x = norm(rows @ w["kernel"], w["gamma"][0], 0.0) + w["bias"]
        v_h = norm(h @ w["recurrent_kernel"], w["gamma"][1], 0.0) + w["recurrent_bias"]
        (x_z, x_r, x_g), (h_z, h_r, h_g) = (np.split(v, 3, axis=-1) for v in (v_x, v_h))
        z, r = sigmoid(x_z + h_z), sigmoid(x_r + h_r)
        h = z * h + (1 - z) * np.tanh(x_g + r * h_g)
        outputs.append(h)
    return np.stack(outputs)


def dreamers_gru(x, kernel, scale, bias, h):
    """DreamerV3's _gru over x (T, B, I): one product without bias of (h, x), one layer norm with
    eps 1e-3, gates reset, candidate, update; the update passes the new state."""
    outputs = []
    for rows in x:
        a = norm(np.concatenate([h, rows], axis=-1) @ kernel, scale, bias, 1e-3)
        reset, cand, update = np.split(a, 3, axis=-1)
        cand, update = np.tanh(sigmoid(reset) * cand), sigmoid(update - 1)
        h = update * cand + (1 - update) * h
        outputs.append(h)
    return np.stack(outputs)


def pydreamers_gru(x, w, h, late):
    """pydreamer's NormGRUCell over x (T, B, I), or its NormGRUCellLateReset: products without bias,
    gates reset, update, candidate; the update passes the new state; eps 1e-3."""
    outputs = []
    for rows in x:
        i, g = rows @ w["weight_ih.weight"].T, h @ w["weight_hh.weight"].T
        if late:
            a = norm(i + g, w["lnorm.weight"], w["lnorm.bias"], 1e-3)
            reset, update, new = np.split(a, 3, axis=-1)
            update, new = sigmoid(update - 1), np.tanh(sigmoid(reset) * new)
        else:
            pairs = zip(np.split(i, 3, -1), np.split(g, 3, -1), strict=True)
            (i_r, g_r), (i_u, g_u), (i_n, g_n) = pairs
            ln = {
                k: (w[f"ln_{k}.weight"], w[f"ln_{k}.bias"]) for k in ("reset", "update", "newval")
            }
            reset = sigmoid(norm(i_r + g_r, *ln["reset"], 1e-3))
            update = sigmoid(norm(i_u + g_u, *ln["update"], 1e-3))
            new = np.tanh(norm(i_n + reset * g_n, *ln["newval"], 1e-3))
        h = update * new + (1 - update) * h
        outputs.append(h)
    return np.stack(outputs)


def examples_lstm(x, w, h, c, eps=1e-5):
    """The TorchScript example's cell over x (T, B, I): weights (4H, I), gates i, f, g, o, the
    normalized cell carried."""
    outputs = []
    size = h.shape[-1]
    for rows in x:
        a = norm(rows @ w["weight_ih"].T, w["layernorm_i.weight"], w["layernorm_i.bias"], eps)
        a = a + norm(h @ w["weight_hh"].T, w["layernorm_h.weight"], w["layernorm_h.bias"], eps)
        i, f, g, o = (a[:, k * size : (k + 1) * size] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        c = norm(c, w["layernorm_c.weight"], w["layernorm_c.bias"], eps)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs), h, c


def addons_lstm(x, w, h, c, eps):
    """TensorFlow Addons' cell over x (T, B, I): products from the right, gates i, f, g, o, the
    normalized cell carried."""
    kernel, recurrent, bias, *norms = w
    outputs = []
    for rows in x:
        z = norm(rows @ kernel, *norms[:2], eps) + norm(h @ recurrent, *norms[2:4], eps) + bias
        i, f, g, o = np.split(z, 4, axis=1)
        c = norm(sigmoid(f) * c + sigmoid(i) * np.tanh(g), *norms[4:], eps)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs), h, c


def authors_lstm(x, w, h, c):
    """The authors' lnlstm_layer: the bias within the input's norm and behind, gates i, f, o, g."""
    outputs = []
    for rows in x:
        below = norm(rows @ w["W"] + w["b"], w["s1"], w["b1"])
        i, f, o, g = np.split(below + norm(h @ w["U"], w["s2"], w["b2"]) + w["b"], 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(norm(c, w["s3"], w["b3"]))
        outputs.append(h)
    return np.stack(outputs), h, c


def authors_gru(x, w, h):
    """The authors' lngru_layer: gates r, u; u keeps the old state."""
    outputs = []
    for rows in x:
        gates = norm(rows @ w["W"] + w["b"], w["s1"], w["b1"]) + norm(h @ w["U"], w["s3"], w["b3"])
        r, u = np.split(sigmoid(gates), 2, axis=1)
        new = norm(rows @ w["Wx"] + w["bx"], w["s2"], w["b2"])
        new = np.tanh(r * norm(h @ w["Ux"], w["s4"], w["b4"]) + new)
        h = u * h + (1 - u) * new
        outputs.append(h)
    return np.stack(outputs), h


def arrays(state):
    return {name: t.detach().numpy() for name, t in state.items()}


def same(got, expected) -> None:
    y, (h, c) = got
    for a, b in zip((y, h[-1], c[-1]), expected, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-11, atol=1e-11)


HASTE = {
    "kernel": draw(3, 20, seed=1), "recurrent_kernel": draw(5, 20, seed=2),
    "bias": draw(20, seed=3), "gamma": draw(2, 20, seed=4, mean=1.0), "gamma_h": draw(5, seed=5, mean=1.0),
    "beta_h": draw(5, seed=6),
}  # fmt: skip
X, STATES = draw(7, 2, 3, seed=7), (draw(1, 2, 5, seed=8), draw(1, 2, 5, seed=9))
ARRAYS = X.numpy(), STATES[0][0].numpy(), STATES[1][0].numpy()


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


HASTE_GRU = {
    "kernel": draw(3, 15, seed=21), "recurrent_kernel": draw(5, 15, seed=22),
    "bias": draw(15, seed=23), "recurrent_bias": draw(15, seed=24),
    "gamma": draw(2, 15, seed=25, mean=1.0),
}  # fmt: skip
DREAMER = draw(8, 15, seed=31), draw(15, seed=32, mean=1.0), draw(15, seed=33)


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


def pydreamers_cell(late: bool, inputs: int, seed: int) -> dict[str, torch.Tensor]:
    norms = {"lnorm": 15} if late else {"ln_reset": 5, "ln_update": 5, "ln_newval": 5}
    cell = {"weight_ih.weight": draw(15, inputs, seed=seed)}
    cell["weight_hh.weight"] = draw(15, 5, seed=seed + 1)
    for k, (name, size) in enumerate(norms.items()):
        cell[f"{name}.weight"] = draw(size, seed=seed + 2 + k, mean=1.0)
        cell[f"{name}.bias"] = draw(size, seed=seed + 5 + k)
    return cell


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


ADDONS = [
    draw(3, 20, seed=51), draw(5, 20, seed=52), draw(20, seed=53),
    draw(20, seed=54, mean=1.0), draw(20, seed=55), draw(20, seed=56, mean=1.0), draw(20, seed=57),
    draw(5, seed=58, mean=1.0), draw(5, seed=59),
]  # fmt: skip


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


def sized(sizes, seed):
    shapes = {name: size if isinstance(size, tuple) else (size,) for name, size in sizes.items()}
    return {
        name: draw(*shape, seed=seed + k, mean=float(name.startswith("s")))
        for k, (name, shape) in enumerate(shapes.items())
    }


LSTM = sized(
    {"W": (3, 20), "U": (5, 20), "b": 20, "b1": 20, "b2": 20, "b3": 5, "s1": 20, "s2": 20, "s3": 5},
    seed=60,
)
GRU = sized(
    {"W": (3, 10), "U": (5, 10), "b": 10, "Wx": (3, 5), "Ux": (5, 5), "bx": 5}
    | {f"{kind}{k}": 10 if k in (1, 3) else 5 for kind in "bs" for k in (1, 2, 3, 4)},
    seed=80,
)
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


def example_cell(inputs: int, hidden: int, seed: int) -> dict[str, torch.Tensor]:
    cell = {"weight_ih": draw(4 * hidden, inputs, seed=seed)}
    cell["weight_hh"] = draw(4 * hidden, hidden, seed=seed + 1)
    for k, (name, size) in enumerate((("i", 4 * hidden), ("h", 4 * hidden), ("c", hidden))):
        cell[f"layernorm_{name}.weight"] = draw(size, seed=seed + 2 + k, mean=1.0, std=0.3)
        cell[f"layernorm_{name}.bias"] = draw(size, seed=seed + 5 + k, std=0.3)
    return cell


def prefixed(cell, prefix: str):
    return {prefix + name: value for name, value in cell.items()}


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


BROKEN = [
    (convert.from_keras, ADDONS[:7], {}, ValueError, "must be the 9 arrays.*got 7"),
    (convert.from_keras, [ADDONS[2], *ADDONS[1:]], {}, ValueError, r"kernel must have shape \(I, 4H\), got \(20,\)"),
    (convert.from_keras, [*ADDONS[:8], draw(4)], {}, ValueError, r"state_norm beta must have shape \(H\) with H = 5, got \(4,\)"),
    (convert.from_keras, ADDONS, {"variant": "paper"}, TypeError, "options must be among .*got variant"),
    (convert.from_theano, {}, {}, ValueError, "lnlstm layer; missing: W.*got none"),
    (convert.from_theano, LSTM, {"prefix": "encoder"}, ValueError, "missing: encoder_W"),
    (convert.from_theano, {"Ux": X, **LSTM}, {}, ValueError, "lngru layer; missing: Wx"),
    (convert.from_theano, LSTM | {"s3": draw(4)}, {}, ValueError, r"s3 must have shape \(H\) with H = 5, got \(4,\)"),
    (convert.from_torch, nn.LSTMCell(2, 3), {}, TypeError, "LSTM, GRU or RNN, got LSTMCell"),
    (convert.from_torch, weight_norm(nn.LSTM(2, 3), "weight_hh_l0"), {}, TypeError, "remove_parametrizations"),
    (convert.from_theano, LSTM | {"W": np.array([["a"]])}, {}, TypeError, "W must be an array of numbers: "),
    (convert.from_torch, nn.GRU(2, 3), {"variant": "joint"}, ValueError, "a GRU has none"),
    (convert.from_torch, nn.LSTM(2, 3), {"forget_bias": 1.0}, TypeError, "options must be among eps, backend, learn_initial_state, got forget_bias"),
    (convert.from_haste, {"kernel": X}, {}, ValueError, "keys of haste's LayerNormLSTM.*got kernel"),
    (convert.from_haste, HASTE | {"recurrent_bias": X}, {}, ValueError, "keys of haste's LayerNormGRU, bias, gamma, kernel.*beta_h"),
    (convert.from_haste, HASTE_GRU | {"bias": draw(12)}, {}, ValueError, r"^bias must have shape \(3H\) with H = 5, got \(12,\)"),
    (partial(convert.from_dreamer, scale=DREAMER[1], bias=DREAMER[2]), draw(8, 16), {}, ValueError, r"kernel must have shape \(N, 3H\), got \(8, 16\)"),
    (partial(convert.from_dreamer, scale=DREAMER[1], bias=DREAMER[2]), draw(5, 15), {}, ValueError, r"kernel must have shape.*got \(5, 15\)"),
    (partial(convert.from_dreamer, scale=DREAMER[1], bias=draw(5)), DREAMER[0], {}, ValueError, r"bias must have shape \(3H\) with H = 5, got \(5,\)"),
    (partial(convert.from_dreamer, scale=DREAMER[1], bias=DREAMER[2]), DREAMER[0], {"variant": "joint"}, TypeError, "options must be among .*got variant"),
    (convert.from_pydreamer, {}, {}, ValueError, "keys of pydreamer's cells, ln_newval.*got none"),
    (convert.from_pydreamer, pydreamers_cell(True, 3, 1) | {"bias": X}, {}, ValueError, "cells, lnorm.bias, .*got bias, lnorm.bias"),
    (convert.from_pydreamer, {f"layers.1.{k}": v for k, v in pydreamers_cell(True, 3, 1).items()}, {}, ValueError, "cells, ln_newval"),
    (convert.from_pydreamer, pydreamers_cell(True, 3, 1) | {"lnorm.bias": draw(12)}, {}, ValueError, r"lnorm.bias must have shape \(3H\) with H = 5, got \(12,\)"),
    (convert.from_pydreamer, pydreamers_cell(True, 3, 1), {"eps2": 1}, TypeError, "options must be among"),
    (convert.from_haste, HASTE | {"bias": draw(16)}, {}, ValueError, r"^bias must have shape \(4H\) with H = 5, got \(16,\)"),
    (convert.from_haste, HASTE, {"eps": 0.1}, TypeError, "options must be among batch_first, .*got eps"),
    (convert.from_torchscript, {}, {"bias": True}, TypeError, "options must be among .*got bias"),
    (convert.from_haste, [X], {}, TypeError, "a module or its state dict, got list"),
    (convert.from_torchscript, {"cell.bias_ih": X}, {}, ValueError, "has the key cell.bias_ih"),
    (convert.from_torchscript, {}, {}, ValueError, "must have weight_ih and weight_hh, got none"),
    (
        convert.from_torchscript,
        {k: v for k, v in example_cell(3, 5, seed=1).items() if "_c" not in k},
        {}, ValueError, "lacks what becomes ln_c_bias_l0, ln_c_weight_l0",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("function", "source", "options", "error", "message"), BROKEN)
def test_other_sources_are_refused(function, source, options, error, message):
    with pytest.raises(error, match=message):
        function(source, **options)


def of_keras(source, **options):
    return convert.from_keras(list(source.values()), **options)


def of_dreamer(source):
    return convert.from_dreamer(*source.values())


STACK = {
    f"layers.{k}.directions.{d}.cell.{name}": value
    for k, d in ((0, 0), (0, 1), (1, 0), (1, 1))
    for name, value in example_cell(10 if k else 3, 5, seed=20 * k + 40 * d).items()
}
KERAS = (
    *("kernel", "recurrent_kernel", "bias", "kernel_norm gamma", "kernel_norm beta"),
    *("recurrent_norm gamma", "recurrent_norm beta", "state_norm gamma", "state_norm beta"),
)
SOURCES = {
    "haste lstm": (convert.from_haste, HASTE),
    "haste gru": (convert.from_haste, HASTE_GRU),
    "keras": (of_keras, dict(zip(KERAS, ADDONS, strict=True))),
    "dreamer": (of_dreamer, dict(zip(("kernel", "scale", "bias"), DREAMER, strict=True))),
    "pydreamer": (
        convert.from_pydreamer,
        prefixed(pydreamers_cell(False, 3, 1), "layers.0.")
        | prefixed(pydreamers_cell(False, 5, 1), "layers.1."),
    ),
    "theano lstm": (convert.from_theano, LSTM),
    "theano gru": (convert.from_theano, GRU),
    "torchscript": (convert.from_torchscript, STACK),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_each_array_is_checked_and_named(kind):
    function, source = SOURCES[kind]
    function(source)
    for name, value in source.items():
        shorter = value[tuple(slice(-1) for _ in value.shape)]
        for other in (shorter, value[:0], value[..., None], value[0]):
            with pytest.raises(ValueError, match=f"^{re.escape(name)} must have shape"):
                function(source | {name: other})
        for other, told in ((value.long(), "got torch.int64"), (value.bool(), "got torch.bool")):
            with pytest.raises(ValueError, match=re.escape(f"{name} must hold")) as refused:
                function(source | {name: other})
            assert told in str(refused.value)
