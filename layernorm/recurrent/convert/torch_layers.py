"""Weights of PyTorch's own layers, and of its TorchScript example."""

import re

import torch
from torch import nn

from layernorm.recurrent.convert.loading import checked, like, load, state_of, taken
from layernorm.recurrent.layers import LayerNormGRU, LayerNormLSTM, LayerNormRNN

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
    if isinstance(module, nn.Module) and nn.utils.parametrize.is_parametrized(module):
        raise TypeError(
            "module is parametrized (by weight_norm, say): make its weights plain ones first, with "
            "torch.nn.utils.parametrize.remove_parametrizations"
        )
    if others := sorted(
        name for name, _ in module.named_parameters() if name.endswith(("_orig", "_g", "_v"))
    ):
        raise TypeError(
            f"module has {others[0]} in place of a weight (pruned, or with an old-style norm of "
            "its weights): make it plain first, with torch.nn.utils.prune.remove, "
            "remove_weight_norm or remove_spectral_norm"
        )
    if type(module) not in layers:
        raise TypeError(
            f"module must be a torch.nn.LSTM, GRU or RNN, got {type(module).__name__}; for a cell, "
            "copy weight_ih and weight_hh"
        )
    taken(options, "eps", "backend", "learn_initial_state")
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
    options["bidirectional"] = bool(module.bidirectional)  # torch takes any number
    new = layers[type(module)](**options, **like(module.weight_ih_l0)).train(module.training)
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
    taken(options, "batch_first", "backend", "dropout", "learn_initial_state")
    given = state_of(source)
    found = {key: _EXAMPLE.fullmatch(key) for key in given}
    for key, m in found.items():
        if m is None or m[3] not in _EXAMPLE_NAMES:
            raise ValueError(
                f"source has the key {key}, which the example's LayerNormLSTMCell has not; its own "
                f"are {', '.join(_EXAMPLE_NAMES)}"
            )
    both = any(m[2] == "1" for m in found.values())
    w = checked(given, {
        key: f"4H {('2H' if both else 'H') if int(m[1] or 0) else 'I'}" if m[3] == "weight_ih"
        else "4H H" if m[3] == "weight_hh" else "H" if m[3].startswith("layernorm_c") else "4H"
        for key, m in found.items()
    })  # fmt: skip
    state = {
        f"{_EXAMPLE_NAMES[m[3]]}_l{m[1] or 0}{'_reverse' if m[2] == '1' else ''}": w[key]
        for key, m in found.items()
    }
    if "weight_ih_l0" not in state or "weight_hh_l0" not in state:
        raise ValueError(
            f"source must have weight_ih and weight_hh, got {', '.join(state) or 'none'}"
        )
    layers = sum(bool(re.fullmatch(r"weight_ih_l\d+", name)) for name in state)
    new = LayerNormLSTM(
        state["weight_ih_l0"].shape[1], state["weight_hh_l0"].shape[1], layers, bias=False,
        bidirectional=both, variant="carried", eps=eps, **options, **like(state["weight_ih_l0"]),
    )  # fmt: skip
    missing = sorted(set(new.state_dict()) - set(state) - {"h_0", "c_0"})
    if missing:
        raise ValueError(f"source lacks what becomes {', '.join(missing)}")
    return load(new, state)
