"""Weights of haste's LayerNormLSTM."""

import torch
from torch import Tensor

from layernorm.recurrent.convert.loading import like, load, state_of, taken
from layernorm.recurrent.layers import LayerNormLSTM

_HASTE = {"kernel", "recurrent_kernel", "bias", "gamma", "gamma_h", "beta_h"}


def from_haste(source, **options) -> LayerNormLSTM:
    """haste's LayerNormLSTM (variant `paper`), from the module or its state dict.

    haste stores kernel (I, 4H) and recurrent_kernel (H, 4H), to be multiplied from the right, with
    the gates in the order i, g, f, o; bias (4H,); gamma (2, 4H), the gains of the input and the
    recurrent norm, which have no biases there (here 0); gamma_h, beta_h (H,) of LN(c). Its eps is
    1e-5. DropConnect (its dropout) acts in training alone and is not taken over.

    Args:
        source: the module or its state dict.
        options: batch_first, backend and learn_initial_state of the new layer.

    Raises: ValueError for other keys (a LayerNormGRU of haste normalizes all 3H summed inputs
    together, which is not eqs. (26) to (28)), for shapes that do not fit together, and for a
    module with zoneout, which changes its equations in evaluation too.

    Source: github.com/lmnt-com/haste, its layer_norm_lstm.py for PyTorch and its
    layer_norm_lstm_cell.py for TensorFlow.

    >>> four = torch.ones(8)
    >>> from_haste({
    ...     "kernel": torch.ones(3, 8), "recurrent_kernel": torch.ones(2, 8), "bias": four,
    ...     "gamma": torch.ones(2, 8), "gamma_h": torch.ones(2), "beta_h": torch.ones(2)})
    LayerNormLSTM(3, 2)
    """
    if getattr(source, "zoneout", 0):
        raise ValueError(
            f"source has zoneout={source.zoneout}, which LayerNormLSTM does not have; set it to 0 "
            "if you mean to go on without"
        )
    state = state_of(source)
    if set(state) != _HASTE:
        hint = "; haste's LayerNormGRU has no counterpart here" if "recurrent_bias" in state else ""
        raise ValueError(
            f"source must have the keys of haste's LayerNormLSTM, {', '.join(sorted(_HASTE))}; got "
            f"{', '.join(sorted(state)) or 'none'}{hint}"
        )
    taken(options, "batch_first", "backend", "learn_initial_state")

    def ours(name: str) -> Tensor:
        i, g, f, o = state[name].chunk(4, dim=-1)
        return torch.cat([i, f, g, o], dim=-1)

    inputs, hidden = state["kernel"].shape[0], state["recurrent_kernel"].shape[0]
    new = LayerNormLSTM(inputs, hidden, **options, **like(state["kernel"]))
    gains = ours("gamma")
    return load(new, {
        "weight_ih_l0": ours("kernel").T, "weight_hh_l0": ours("recurrent_kernel").T,
        "bias_ih_l0": ours("bias"), "ln_ih_weight_l0": gains[0], "ln_hh_weight_l0": gains[1],
        "ln_c_weight_l0": state["gamma_h"], "ln_c_bias_l0": state["beta_h"],
    })  # fmt: skip
