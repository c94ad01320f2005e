"""Weights of DreamerV3's GRU, and of pydreamer's two."""

import re

import numpy as np
import torch
from torch import Tensor, nn

from layernorm.recurrent.convert.loading import (
    as_in,
    checked,
    constant,
    epsilons,
    like,
    load,
    state_of,
    taken,
)
from layernorm.recurrent.gru_variants import LayerNormGRUVariant

_CELL = re.compile(r"(?:layers\.(\d+)\.)?(\w+\.(?:weight|bias))")
_MATRICES = {"weight_ih.weight": "weight_ih", "weight_hh.weight": "weight_hh"}
_NORMS = {"joint": ("lnorm",), "per_gate": ("ln_reset", "ln_update", "ln_newval")}


def from_dreamer(
    kernel: np.ndarray | Tensor,
    scale: np.ndarray | Tensor,
    bias: np.ndarray | Tensor,
    *,
    eps: float = 1e-3,
    update_bias: float = -1.0,
    **options,
) -> LayerNormGRUVariant:
    """The GRU of DreamerV3's recurrent state-space model (variant `joint`), from its arrays.

        (a_r, a_n, a_u) = LN((h, x) kernel; scale, bias),   h' = u n + (1 - u) h
        n = tanh(sigmoid(a_r) a_n),   u = sigmoid(a_u + update_bias)

    Its update gate passes the new state, ours keeps the old one: z = 1 - u is the gate with the
    signs of its gains and biases changed.

    Args:
        kernel: (H + I, 3H), the state's rows first; gates in the order reset, candidate, update.
        scale, bias: (3H,) each, of the layer norm.
        eps, update_bias: as DreamerV3's.
        options: batch_first, backend and learn_initial_state of the new layer.

    Raises: ValueError for shapes that do not fit together.

    Source: github.com/danijar/dreamerv3, nets.py of 2023 (RSSM._gru, Linear, Norm). Its later
    versions have an RMS norm and blocks instead.

    >>> from_dreamer(torch.ones(5, 6), torch.ones(6), torch.zeros(6))
    LayerNormGRUVariant(3, 2, eps=0.001, variant=joint, update_bias=1.0)
    """
    taken(options, "batch_first", "backend", "learn_initial_state")
    given = {"kernel": kernel, "scale": scale, "bias": bias}
    kernel, scale, bias = checked(given, {"kernel": "H+I 3H", "scale": "3H", "bias": "3H"}).values()
    units = len(scale) // 3
    inputs = len(kernel) - units
    if inputs < 1:
        raise ValueError(
            f"kernel must have shape (H + I, 3H), the rows of the state's H = {units} units before "
            f"those of the I inputs, got {tuple(kernel.shape)}"
        )
    new = LayerNormGRUVariant(
        inputs, units, eps=eps, update_bias=-update_bias, **options, **like(kernel)
    )

    def ours(a: Tensor, sign: float) -> Tensor:
        r, n, u = a.chunk(3, dim=-1)
        return torch.cat([r, sign * u, n], dim=-1)

    weights = ours(kernel, 1.0).T
    return load(new, {
        "weight_hh_l0": weights[:, :units], "weight_ih_l0": weights[:, units:],
        "ln_hh_weight_l0": ours(scale, -1.0), "ln_hh_bias_l0": ours(bias, -1.0),
    })  # fmt: skip


def from_pydreamer(
    source, *, eps: float | None = None, update_bias: float | None = None, **options
) -> LayerNormGRUVariant:
    """pydreamer's NormGRUCell (variant `per_gate`) or NormGRUCellLateReset (`joint`), or a
    GRUCellStack of one of them, from the module or its state dict.

    It stores weight_ih (3H, I) and weight_hh (3H, H) without biases, gates in the order reset,
    update, candidate, and one norm of (3H,), lnorm, or three of (H,), ln_reset, ln_update and
    ln_newval. Its update gate passes the new state, ours keeps the old one: the signs of that
    gate's gains and biases are changed. The stack's state has the layers' side by side; here it is
    (layers, B, H).

    Args:
        source: the module, whose mode (training or evaluation) and frozen parameters are taken
            over, or its state dict.
        eps: of its norms. None: the module's; of a state dict, which does not hold it, 1e-3.
        update_bias: a constant of NormGRUCellLateReset; the other cell has none. None: the
            module's; of a state dict -1.
        options: batch_first, backend and learn_initial_state of the new layer.

    Raises: ValueError for other keys, for shapes that do not fit together, and for another eps or
    update_bias than the module's.

    Source: github.com/jurgisp/pydreamer, pydreamer/models/rnn.py.

    >>> from_pydreamer({
    ...     "weight_ih.weight": torch.ones(6, 3), "weight_hh.weight": torch.ones(6, 2),
    ...     "lnorm.weight": torch.ones(6), "lnorm.bias": torch.zeros(6)})
    LayerNormGRUVariant(3, 2, eps=0.001, variant=joint, update_bias=1.0)
    """
    taken(options, "batch_first", "backend", "learn_initial_state")
    given = state_of(source)
    found = {key: _CELL.fullmatch(key) for key in given}
    layers = 1 + max((int(m[1] or 0) for m in found.values() if m), default=0)
    keys = [{m[2]: key for key, m in found.items() if m and int(m[1] or 0) == n}
            for n in range(layers)]  # fmt: skip
    variant = "joint" if "lnorm.weight" in keys[0] else "per_gate"
    norms = {p: [f"{norm}.{p}" for norm in _NORMS[variant]] for p in ("weight", "bias")}
    needed = {*_MATRICES, *norms["weight"], *norms["bias"]}
    if None in found.values() or any(set(cell) != needed for cell in keys):
        raise ValueError(
            f"source must have the keys of pydreamer's cells, {', '.join(sorted(needed))}, in a "
            f"stack behind layers.0. and so on; got {', '.join(sorted(given)) or 'none'}"
        )
    given = checked(given, {
        key: "3H I" if m[2] == "weight_ih.weight" and not int(m[1] or 0)
        else "3H H" if m[2] in _MATRICES else "3H" if m[2].startswith("lnorm") else "H"
        for key, m in found.items()
    })  # fmt: skip
    cells = [{role: given[key] for role, key in cell.items()} for cell in keys]
    w = cells[0]["weight_ih.weight"]
    late = variant == "joint"
    eps = constant("eps", eps, 1e-3, epsilons(source, *_NORMS[variant]))
    if late:
        modules = source.modules() if isinstance(source, nn.Module) else ()
        own = {cell.update_bias for cell in modules if hasattr(cell, "update_bias")}
        update_bias = constant("update_bias", update_bias, -1.0, own)
    new = LayerNormGRUVariant(
        w.shape[1], w.shape[0] // 3, layers, bias=late, eps=eps, variant=variant,
        update_bias=-update_bias if late else 0.0, **options, **like(w),
    )  # fmt: skip
    state, origins = {}, {}
    for k, cell in enumerate(cells):
        for theirs, ours in _MATRICES.items():
            state[f"{ours}_l{k}"], origins[f"{ours}_l{k}"] = cell[theirs], [keys[k][theirs]]
        for part, names in norms.items():
            r, z, n = torch.cat([cell[name] for name in names]).chunk(3)
            state[f"ln_hh_{part}_l{k}"] = torch.cat([r, -z, n])
            origins[f"ln_hh_{part}_l{k}"] = [keys[k][name] for name in names]
    return as_in(source, load(new, state), origins)
