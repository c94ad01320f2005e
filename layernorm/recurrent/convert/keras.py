"""Weights of TensorFlow Addons' LayerNormLSTMCell."""

from collections.abc import Sequence

import numpy as np
import torch

from layernorm.recurrent.convert.loading import checked, like, load, taken
from layernorm.recurrent.layers import LayerNormLSTM

_SHAPES = {
    "kernel": "I 4H", "recurrent_kernel": "H 4H", "bias": "4H",
    "kernel_norm gamma": "4H", "kernel_norm beta": "4H",
    "recurrent_norm gamma": "4H", "recurrent_norm beta": "4H",
    "state_norm gamma": "H", "state_norm beta": "H",
}  # fmt: skip


def from_keras(
    weights: Sequence[np.ndarray | torch.Tensor], *, eps: float = 1e-3, **options
) -> LayerNormLSTM:
    """TensorFlow Addons' LayerNormLSTMCell (variant `carried`), from what `get_weights()` gives.

    Its arrays are, in this order, kernel (I, 4H), recurrent_kernel (H, 4H), bias (4H,) unless
    use_bias=False, and gamma and beta of kernel_norm (4H,), recurrent_norm (4H,) and state_norm
    (H,); gates in the order i, f, g, o. Dropout acts in training alone and is not taken over.

    Args:
        weights: `get_weights()` of the cell, or of the RNN layer around it.
        eps: the cell's norm_epsilon.
        options: batch_first, backend and learn_initial_state of the new layer.

    Raises: ValueError for another number of arrays, or shapes that do not fit together.

    Source: github.com/tensorflow/addons, `tensorflow_addons/rnn/layer_norm_lstm_cell.py`. Its other
    activations have no counterpart here.

    >>> four, two = torch.ones(8), torch.ones(2)
    >>> from_keras([torch.ones(3, 8), torch.ones(2, 8), *[four] * 5, two, two])
    LayerNormLSTM(3, 2, eps=0.001, variant=carried)
    """
    taken(options, "batch_first", "backend", "learn_initial_state")
    bias = len(weights) == len(_SHAPES)
    if not bias and len(weights) != len(_SHAPES) - 1:
        raise ValueError(
            f"weights must be the 9 arrays of get_weights(), or 8 without bias: "
            f"{', '.join(_SHAPES)}; got {len(weights)}"
        )
    shapes = {name: shape for name, shape in _SHAPES.items() if bias or name != "bias"}
    source = checked(dict(zip(shapes, weights, strict=True)), shapes)
    sizes = source["kernel"].shape[0], source["recurrent_kernel"].shape[0]
    new = LayerNormLSTM(
        *sizes, bias=bias, variant="carried", eps=eps, **options, **like(source["kernel"])
    )
    state = {"weight_ih_l0": source["kernel"].T, "weight_hh_l0": source["recurrent_kernel"].T}
    for theirs, ours in (("kernel", "ih"), ("recurrent", "hh"), ("state", "c")):
        state[f"ln_{ours}_weight_l0"] = source[f"{theirs}_norm gamma"]
        state[f"ln_{ours}_bias_l0"] = source[f"{theirs}_norm beta"]
    return load(new, state | ({"bias_ih_l0": source["bias"]} if bias else {}))
