"""Weights of haste's LayerNormLSTM and LayerNormGRU."""

import torch
from torch import Tensor

from layernorm.recurrent.convert.loading import as_in, checked, like, load, state_of, taken
from layernorm.recurrent.gru_variants import LayerNormGRUVariant
from layernorm.recurrent.layers import LayerNormLSTM
from layernorm.recurrent.zoneout import ZoneoutGRUVariant, ZoneoutLSTM

_LSTM = {
    "kernel": "I 4H", "recurrent_kernel": "H 4H", "bias": "4H",
    "gamma": "2 4H", "gamma_h": "H", "beta_h": "H",
}  # fmt: skip
_GRU = {
    "kernel": "I 3H", "recurrent_kernel": "H 3H", "bias": "3H",
    "recurrent_bias": "3H", "gamma": "2 3H",
}  # fmt: skip
_ORIGINS = {
    "weight_ih_l0": "kernel", "weight_hh_l0": "recurrent_kernel", "bias_ih_l0": "bias",
    "ln_ih_weight_l0": "gamma", "ln_hh_weight_l0": "gamma", "ln_hh_bias_l0": "recurrent_bias",
    "ln_c_weight_l0": "gamma_h", "ln_c_bias_l0": "beta_h",
}  # fmt: skip


def from_haste(
    source, *, zoneout: float | None = None, **options
) -> LayerNormLSTM | LayerNormGRUVariant:
    """haste's LayerNormLSTM (variant `paper`) or LayerNormGRU (variant `stacked`), from the module
    or its state dict.

    haste stores kernel (I, 4H) and recurrent_kernel (H, 4H), to be multiplied from the right, with
    the gates in the order i, g, f, o; bias (4H,); gamma (2, 4H), the gains of the input and the
    recurrent norm, which have no biases there (here 0); gamma_h, beta_h (H,) of LN(c). The GRU has
    3H for 4H, its gates in the order z, r, n, and recurrent_bias (3H,) behind the recurrent norm,
    which here is that norm's bias: the reset gate multiplies its part of n. eps is 1e-5 in both.
    A layer with zoneout, which changes its equations in evaluation too, becomes `ZoneoutLSTM` or
    `ZoneoutGRUVariant`. DropConnect (its dropout) acts in training alone and is not taken over.

    Args:
        source: the module, whose batch_first, mode (training or evaluation) and frozen parameters
            are taken over, or its state dict.
        zoneout: None: the module's; a state dict does not hold it and then has none. 0 goes on
            without.
        options: batch_first (in place of the module's), backend and learn_initial_state of the new
            layer.

    Raises: ValueError for other keys, for shapes that do not fit together, and for a zoneout
    outside [0, 1].

    Source: github.com/lmnt-com/haste, its layer_norm_lstm.py and layer_norm_gru.py for PyTorch and
    its layer_norm_lstm_cell.py and layer_norm_gru_cell.py for TensorFlow.

    >>> four = torch.ones(8)
    >>> from_haste({
    ...     "kernel": torch.ones(3, 8), "recurrent_kernel": torch.ones(2, 8), "bias": four,
    ...     "gamma": torch.ones(2, 8), "gamma_h": torch.ones(2), "beta_h": torch.ones(2)})
    LayerNormLSTM(3, 2)
    """
    state = state_of(source)
    gru = "recurrent_bias" in state
    name, shapes = ("LayerNormGRU", _GRU) if gru else ("LayerNormLSTM", _LSTM)
    if set(state) != set(shapes):
        raise ValueError(
            f"source must have the keys of haste's {name}, {', '.join(sorted(shapes))}; got "
            f"{', '.join(sorted(state)) or 'none'}"
        )
    taken(options, "batch_first", "backend", "learn_initial_state")
    state = checked(state, shapes)

    def ours(name: str) -> Tensor:
        if gru:
            z, r, n = state[name].chunk(3, dim=-1)
            return torch.cat([r, z, n], dim=-1)
        i, g, f, o = state[name].chunk(4, dim=-1)
        return torch.cat([i, f, g, o], dim=-1)

    sizes = state["kernel"].shape[0], state["recurrent_kernel"].shape[0]
    options |= like(state["kernel"])
    options.setdefault("batch_first", bool(getattr(source, "batch_first", False)))
    z = getattr(source, "zoneout", 0) if zoneout is None else zoneout
    if z:
        options["zoneout"] = z
    gains = ours("gamma")
    converted = {
        "weight_ih_l0": ours("kernel").T, "weight_hh_l0": ours("recurrent_kernel").T,
        "bias_ih_l0": ours("bias"), "ln_ih_weight_l0": gains[0], "ln_hh_weight_l0": gains[1],
    }  # fmt: skip
    if gru:
        made = ZoneoutGRUVariant if z else LayerNormGRUVariant
        new = made(*sizes, variant="stacked", **options)
        converted["ln_hh_bias_l0"] = ours("recurrent_bias")
    else:
        new = (ZoneoutLSTM if z else LayerNormLSTM)(*sizes, **options)
        converted |= {"ln_c_weight_l0": state["gamma_h"], "ln_c_bias_l0": state["beta_h"]}
    return as_in(source, load(new, converted), {name: [_ORIGINS[name]] for name in converted})
