"""Normalized nets of other libraries: their equations in NumPy, and weights as they store them."""

import numpy as np
import torch
from library.oracle import draw


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


HASTE = {
    "kernel": draw(3, 20, seed=1), "recurrent_kernel": draw(5, 20, seed=2),
    "bias": draw(20, seed=3), "gamma": draw(2, 20, seed=4, mean=1.0),
    "gamma_h": draw(5, seed=5, mean=1.0), "beta_h": draw(5, seed=6),
}  # fmt: skip
X, STATES = draw(7, 2, 3, seed=7), (draw(1, 2, 5, seed=8), draw(1, 2, 5, seed=9))
ARRAYS = X.numpy(), STATES[0][0].numpy(), STATES[1][0].numpy()
HASTE_GRU = {
    "kernel": draw(3, 15, seed=21), "recurrent_kernel": draw(5, 15, seed=22),
    "bias": draw(15, seed=23), "recurrent_bias": draw(15, seed=24),
    "gamma": draw(2, 15, seed=25, mean=1.0),
}  # fmt: skip
DREAMER = draw(8, 15, seed=31), draw(15, seed=32, mean=1.0), draw(15, seed=33)


def pydreamers_cell(late: bool, inputs: int, seed: int) -> dict[str, torch.Tensor]:
    norms = {"lnorm": 15} if late else {"ln_reset": 5, "ln_update": 5, "ln_newval": 5}
    cell = {"weight_ih.weight": draw(15, inputs, seed=seed)}
    cell["weight_hh.weight"] = draw(15, 5, seed=seed + 1)
    for k, (name, size) in enumerate(norms.items()):
        cell[f"{name}.weight"] = draw(size, seed=seed + 2 + k, mean=1.0)
        cell[f"{name}.bias"] = draw(size, seed=seed + 5 + k)
    return cell


ADDONS = [
    draw(3, 20, seed=51), draw(5, 20, seed=52), draw(20, seed=53),
    draw(20, seed=54, mean=1.0), draw(20, seed=55), draw(20, seed=56, mean=1.0), draw(20, seed=57),
    draw(5, seed=58, mean=1.0), draw(5, seed=59),
]  # fmt: skip


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


def example_cell(inputs: int, hidden: int, seed: int) -> dict[str, torch.Tensor]:
    cell = {"weight_ih": draw(4 * hidden, inputs, seed=seed)}
    cell["weight_hh"] = draw(4 * hidden, hidden, seed=seed + 1)
    for k, (name, size) in enumerate((("i", 4 * hidden), ("h", 4 * hidden), ("c", hidden))):
        cell[f"layernorm_{name}.weight"] = draw(size, seed=seed + 2 + k, mean=1.0, std=0.3)
        cell[f"layernorm_{name}.bias"] = draw(size, seed=seed + 5 + k, std=0.3)
    return cell


def prefixed(cell, prefix: str):
    return {prefix + name: value for name, value in cell.items()}
