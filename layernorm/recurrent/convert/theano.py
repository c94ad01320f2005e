"""Weights of the code that the paper's authors published, which runs on Theano."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from layernorm.recurrent.convert.loading import checked, like, load, taken
from layernorm.recurrent.layers import LayerNormGRU, LayerNormLSTM

_LSTM = {"W": "I 4H", "U": "H 4H", "b": "4H"} | {
    f"{kind}{norm}": shape for kind in "bs" for norm, shape in ((1, "4H"), (2, "4H"), (3, "H"))
}
_GRU = {"W": "I 2H", "U": "H 2H", "b": "2H", "Wx": "I H", "Ux": "H H", "bx": "H"} | {
    f"{kind}{norm}": "2H" if norm in (1, 3) else "H" for kind in "bs" for norm in (1, 2, 3, 4)
}


def from_theano(
    source: Mapping[str, np.ndarray | Tensor], prefix: str = "", **options
) -> LayerNormLSTM | LayerNormGRU:
    r"""The `lnlstm` or `lngru` layer of the authors' code, from its arrays.

    That code adds the bias to the input's summed inputs before their norm, LN(W x + b); its LSTM
    adds it once more behind the norms. Neither stands in eqs. (20) and (26). Where b is not zero,
    the new layer therefore has one input more: append a 1 to each input,
    `torch.cat([x, torch.ones_like(x[..., :1])], -1)`, and W x + b is a product again. The numbers
    are then the same.

    Args:
        source: arrays by name, as `numpy.load` gives them: W (I, 4H), U (H, 4H), b (4H,), gains
            s1, s2 (4H,), s3 (H,) and biases b1 to b3 of the norms of the input, the recurrent term
            and the cell, gates in the order i, f, o, g; for the GRU W (I, 2H), U (H, 2H), b (2H,)
            of r and z, Wx, Ux, bx of the candidate, and norms 1 to 4 of these terms.
        prefix: what stands before the names, "encoder" for `encoder_W`.
        options: batch_first, backend and learn_initial_state of the new layer.

    Raises: ValueError where names are missing or shapes do not fit together.

    Source: github.com/ryankiros/layer-norm, layers.py. Its masks keep the state where they are 0;
    give a PackedSequence instead.

    >>> eight, two = torch.zeros(8), torch.zeros(2)
    >>> from_theano({
    ...     "W": torch.ones(3, 8), "U": torch.ones(2, 8), "b": eight, "b1": eight, "b2": eight,
    ...     "b3": two, "s1": eight, "s2": eight, "s3": two})
    LayerNormLSTM(3, 2)
    """
    taken(options, "batch_first", "backend", "learn_initial_state")
    begins = f"{prefix}_" if prefix else ""
    gru = f"{begins}Ux" in source
    shapes = {begins + name: shape for name, shape in (_GRU if gru else _LSTM).items()}
    if missing := [name for name in shapes if name not in source]:
        raise ValueError(
            f"source must have the arrays of the authors' {'lngru' if gru else 'lnlstm'} layer; "
            f"missing: {', '.join(missing)}; got {', '.join(sorted(source)) or 'none'}"
        )
    found = checked(source, shapes)
    arrays = {name.removeprefix(begins): array for name, array in found.items()}
    state = _gru(arrays) if gru else _lstm(arrays)
    made = LayerNormGRU if gru else LayerNormLSTM
    inputs, hidden = state["weight_ih_l0"].shape[1], arrays["U"].shape[0]
    return load(made(inputs, hidden, **options, **like(arrays["W"])), state)


def _lstm(w: dict[str, Tensor]) -> dict[str, Tensor]:
    def ours(a: Tensor) -> Tensor:
        i, f, o, g = a.chunk(4, dim=-1)
        return torch.cat([i, f, g, o], dim=-1)

    state = {
        "weight_ih_l0": _with_bias(ours(w["W"]), ours(w["b"])),
        "weight_hh_l0": ours(w["U"]).T,
        "bias_ih_l0": ours(w["b"]),
        "ln_c_weight_l0": w["s3"],
        "ln_c_bias_l0": w["b3"],
    }
    for number, term in (("1", "ih"), ("2", "hh")):
        state[f"ln_{term}_weight_l0"] = ours(w[f"s{number}"])
        state[f"ln_{term}_bias_l0"] = ours(w[f"b{number}"])
    return state


def _gru(w: dict[str, Tensor]) -> dict[str, Tensor]:
    joined = {
        **{name: torch.cat([w[name], w[f"{name}x"]], dim=-1) for name in ("W", "U", "b")},
        **{f"{kind}{term}": torch.cat([w[f"{kind}{gates}"], w[f"{kind}{new}"]])
           for kind in "sb" for term, gates, new in (("ih", 1, 2), ("hh", 3, 4))},
    }  # fmt: skip
    state = {"weight_ih_l0": _with_bias(joined["W"], joined["b"]), "weight_hh_l0": joined["U"].T}
    for term in ("ih", "hh"):
        state[f"ln_{term}_weight_l0"] = joined[f"s{term}"]
        state[f"ln_{term}_bias_l0"] = joined[f"b{term}"]
    return state


def _with_bias(w: Tensor, b: Tensor) -> Tensor:
    """The matrix of W x + b: W, and b as a column of its own unless it is zero."""
    return torch.cat([w, b[None]]).T if b.any() else w.T
