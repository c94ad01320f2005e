"""Weights of DreamerV3's GRU."""

import numpy as np
import torch
from torch import Tensor

from layernorm.recurrent.convert.loading import like, load, taken
from layernorm.recurrent.gru_variants import LayerNormGRUVariant


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
    kernel, scale, bias = (torch.as_tensor(t) for t in (kernel, scale, bias))
    units = kernel.shape[-1] // 3 if kernel.dim() == 2 else 0
    inputs = kernel.shape[0] - units
    if not units or kernel.shape[1] != 3 * units or inputs < 1:
        raise ValueError(
            "kernel must have shape (H + I, 3 H), the rows of the state's H units before those "
            f"of the I inputs, got {tuple(kernel.shape)}"
        )
    for name, vector in (("scale", scale), ("bias", bias)):
        if vector.shape != (3 * units,):
            raise ValueError(f"{name} must have shape ({3 * units},), got {tuple(vector.shape)}")
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
