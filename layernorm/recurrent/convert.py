"""Weights from elsewhere: torch's own layers, haste's LayerNormLSTM, PyTorch's TorchScript example.

Each function builds the layer with the source's sizes, type of numbers and device, and copies.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from layernorm.recurrent.layers import LayerNormGRU, LayerNormLSTM, LayerNormRNN

_HASTE = {"kernel", "recurrent_kernel", "bias", "gamma", "gamma_h", "beta_h"}
_EXAMPLE = re.compile(r"(?:layers\.(\d+)\.)?(?:directions\.([01])\.)?(?:cell\.)?([^.]+(?:\.\w+)?)")
_EXAMPLE_NAMES = {
    "weight_ih": "weight_ih",
    "weight_hh": "weight_hh",
    **{
        f"layernorm_{theirs}.{part}": f"{ours}_{part}"
        for theirs, ours in (("i", "ln_ih"), ("h", "ln_hh"), ("c", "ln_c"))
        for part in ("weight", "bias")
    },
}


def from_torch(
    module: nn.Module, *, variant: str = "paper", **options
) -> LayerNormLSTM | LayerNormGRU | LayerNormRNN:
    """The layer-normalized net with the weights of a `torch.nn.LSTM`, `GRU` or `RNN`.

    Copied: the weights, projections included, and the biases to where they stand in the equations:
    the LSTM's b_ih + b_hh to b; the GRU's likewise for r and z, b_in to b, and b_hn, which the
    reset gate multiplies, to the bias of that norm; the RNN's sum to the norm's bias. Gains start
    at 1 and the norms' other biases at 0, so the new net is another function than the old: what
    was a summed input's scale is now 1. Train it on, at first with a small learning rate.

    Args:
        module: the layer. Its settings (layers, directions, dropout, ...) are taken over.
        variant: the LSTM's, as `LayerNormLSTM`'s.
        options: eps, backend and learn_initial_state of the new layer.

    Raises: TypeError for another module or option; ValueError for a variant of a GRU or RNN.

    >>> new = from_torch(nn.LSTM(3, 5, num_layers=2))
    >>> new
    LayerNormLSTM(3, 5, num_layers=2)
    """
    layers = {nn.LSTM: LayerNormLSTM, nn.GRU: LayerNormGRU, nn.RNN: LayerNormRNN}
    if type(module) not in layers:
        raise TypeError(
            f"module must be a torch.nn.LSTM, GRU or RNN, got {type(module).__name__}; for a cell, "
            "copy weight_ih and weight_hh"
        )
    _taken(options, "eps", "backend", "learn_initial_state")
    settings = ["input_size", "hidden_size", "num_layers", "bias"]
    settings += ["batch_first", "dropout", "bidirectional"]
    if isinstance(module, nn.LSTM):
        settings.append("proj_size")
        options["variant"] = variant
    elif variant != "paper":
        raise ValueError(
            f"variant is the LSTM's: a {type(module).__name__} has none, got {variant}"
        )
    elif isinstance(module, nn.RNN):
        settings.append("nonlinearity")
    options |= {name: getattr(module, name) for name in settings}
    new = layers[type(module)](**options, **_like(module.weight_ih_l0)).train(module.training)
    source, state = module.state_dict(), new.state_dict()
    for name, value in source.items():
        if name.startswith("weight_"):
            state[name] = value
        elif name.startswith("bias_ih_"):
            layer = name.removeprefix("bias_ih_")
            b_ih, b_hh = value, source[f"bias_hh_{layer}"]
            if isinstance(module, nn.GRU):
                both = 2 * module.hidden_size
                gates, inside = b_hh.tensor_split([both])
                state[name] = b_ih + torch.cat([gates, torch.zeros_like(inside)])
                state[f"ln_hh_bias_{layer}"][both:] = inside
            else:
                target = f"ln_bias_{layer}" if isinstance(module, nn.RNN) else name
                state[target] = b_ih + b_hh
    new.load_state_dict(state)
    return new


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
    state = _state(source)
    if set(state) != _HASTE:
        hint = "; haste's LayerNormGRU has no counterpart here" if "recurrent_bias" in state else ""
        raise ValueError(
            f"source must have the keys of haste's LayerNormLSTM, {', '.join(sorted(_HASTE))}; got "
            f"{', '.join(sorted(state)) or 'none'}{hint}"
        )
    _taken(options, "batch_first", "backend", "learn_initial_state")

    def ours(name: str) -> Tensor:
        i, g, f, o = state[name].chunk(4, dim=-1)
        return torch.cat([i, f, g, o], dim=-1)

    inputs, hidden = state["kernel"].shape[0], state["recurrent_kernel"].shape[0]
    new = LayerNormLSTM(inputs, hidden, **options, **_like(state["kernel"]))
    gains = ours("gamma")
    return _load(new, {
        "weight_ih_l0": ours("kernel").T, "weight_hh_l0": ours("recurrent_kernel").T,
        "bias_ih_l0": ours("bias"), "ln_ih_weight_l0": gains[0], "ln_hh_weight_l0": gains[1],
        "ln_c_weight_l0": state["gamma_h"], "ln_c_bias_l0": state["beta_h"],
    })  # fmt: skip


def from_torchscript(source, *, eps: float = 1e-5, **options) -> LayerNormLSTM:
    """The layer-normalized LSTM of PyTorch's TorchScript example (variant `carried`).

    Takes its LayerNormLSTMCell, its layers and stacks, in one or both directions, or a state dict
    of any of these: weight_ih, weight_hh and the weights and biases of layernorm_i, layernorm_h and
    layernorm_c, with prefixes layers.{k}, directions.{d} and cell. It has no b (bias=False).

    Args:
        source: the module or its state dict.
        eps: the example's is 1e-5, and 0 with decompose_layernorm=True.
        options: batch_first, backend, dropout and learn_initial_state of the new layer.

    Raises: ValueError for other keys or shapes that do not fit together.

    Source: github.com/pytorch/pytorch, benchmarks/fastrnns/custom_lstms.py.

    >>> cell = {"weight_ih": torch.ones(8, 3), "weight_hh": torch.ones(8, 2)}
    >>> for norm, size in (("i", 8), ("h", 8), ("c", 2)):
    ...     cell[f"layernorm_{norm}.weight"] = cell[f"layernorm_{norm}.bias"] = torch.ones(size)
    >>> from_torchscript(cell)
    LayerNormLSTM(3, 2, bias=False, variant=carried)
    """
    _taken(options, "batch_first", "backend", "dropout", "learn_initial_state")
    state = {}
    for key, value in _state(source).items():
        found = _EXAMPLE.fullmatch(key)
        if found is None or found[3] not in _EXAMPLE_NAMES:
            raise ValueError(
                f"source has the key {key}, which the example's LayerNormLSTMCell has not; its own "
                f"are {', '.join(_EXAMPLE_NAMES)}"
            )
        reverse = "_reverse" if found[2] == "1" else ""
        state[f"{_EXAMPLE_NAMES[found[3]]}_l{found[1] or 0}{reverse}"] = value
    if "weight_ih_l0" not in state or "weight_hh_l0" not in state:
        raise ValueError(
            f"source must have weight_ih and weight_hh, got {', '.join(state) or 'none'}"
        )
    layers = sum(bool(re.fullmatch(r"weight_ih_l\d+", name)) for name in state)
    new = LayerNormLSTM(
        state["weight_ih_l0"].shape[1], state["weight_hh_l0"].shape[1], layers, bias=False,
        bidirectional="weight_ih_l0_reverse" in state, variant="carried", eps=eps,
        **options, **_like(state["weight_ih_l0"]),
    )  # fmt: skip
    missing = sorted(set(new.state_dict()) - set(state) - {"h_0", "c_0"})
    if missing:
        raise ValueError(f"source lacks what becomes {', '.join(missing)}")
    return _load(new, state)


def _state(source) -> dict[str, Tensor]:
    if not isinstance(source, nn.Module | Mapping):
        raise TypeError(f"source must be a module or its state dict, got {type(source).__name__}")
    return dict(source.state_dict() if isinstance(source, nn.Module) else source)


def _like(weight: Tensor) -> dict:
    return {"device": weight.device, "dtype": weight.dtype}


def _taken(options: dict, *names: str) -> None:
    """Everything else is the source's own."""
    if others := sorted(set(options) - set(names)):
        raise TypeError(f"options must be among {', '.join(names)}, got {', '.join(others)}")


def _load(new: LayerNormLSTM, state: dict[str, Tensor]) -> LayerNormLSTM:
    """Load the state; parameters that it lacks keep their start, gains 1 and all others 0."""
    own = new.state_dict()
    for name, value in state.items():
        if name not in own or value.shape != own[name].shape:
            expected = f"shape {tuple(own[name].shape)}" if name in own else "no such parameter"
            raise ValueError(f"{name} from source: expected {expected}, got {tuple(value.shape)}")
    new.load_state_dict(own | state)
    return new
