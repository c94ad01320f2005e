"""Weights of PyTorch's own layers, and of its TorchScript example."""

import re
from collections.abc import Mapping

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
from layernorm.recurrent.layers import Layer, LayerNormGRU, LayerNormLSTM, LayerNormRNN

_LAYERS = {nn.LSTM: LayerNormLSTM, nn.GRU: LayerNormGRU, nn.RNN: LayerNormRNN}
_KINDS = {4: nn.LSTM, 3: nn.GRU, 1: nn.RNN}  # by the rows of a matrix, over the units
_NAME = re.compile(r"(weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)_l(\d+)(|_reverse)")
_NO_GRUS = {
    "joint": "in its candidate the reset gate multiplies the input's term, too",
    "per_gate": "it has no place for b_hn, which the reset gate multiplies",
}
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
    source, *, variant: str = "paper", **options
) -> LayerNormLSTM | LayerNormGRU | LayerNormGRUVariant | LayerNormRNN:
    """The layer-normalized net with the weights of a `torch.nn.LSTM`, `GRU` or `RNN`, from the
    module or its state dict.

    Copied: the weights, projections included, and the biases to where they stand in the equations:
    the LSTM's b_ih + b_hh to b; the GRU's likewise for r and z, b_in to b, and b_hn, which the
    reset gate multiplies, to the bias of that norm; the RNN's sum to the norm's bias. Gains start
    at 1 and the norms' other biases at 0, so the new net computes a different function: the scale
    of each normalized term is now 1. Train it further, at first with a small learning rate.

    A weight that is frozen (`requires_grad=False`) in the module stays so, and a bias of which both
    parts are. The gains, and the biases of the LSTM's and GRU's norms, are new and are trained.

    Args:
        source: the module, whose settings (layers, directions, dropout, ...) are taken over, or a
            state dict of it alone, in which the names begin with weight_ and bias_. A subclass is
            taken unless it has a `forward` of its own.
        variant: the LSTM's, as `LayerNormLSTM`'s; of the GRU also "stacked", a
            `LayerNormGRUVariant`. Without their norms "paper" and "stacked" are `torch.nn.GRU`;
            "joint" and "per_gate" are not, and old weights do not fit them.
        options: eps, backend and learn_initial_state of the new layer; for a state dict, which does
            not hold them, also batch_first, dropout and the RNN's nonlinearity.

    Raises: TypeError for another module, another type of source, or another option; ValueError for
    another variant, other keys, and shapes that do not fit together.

    >>> from_torch(nn.LSTM(3, 5, num_layers=2))
    LayerNormLSTM(3, 5, num_layers=2)
    >>> from_torch(nn.GRU(3, 5, bidirectional=True).state_dict(), batch_first=True)
    LayerNormGRU(3, 5, batch_first=True, bidirectional=True)
    """
    of_state = isinstance(source, Mapping)
    kind, settings, weights = _of_state(source) if of_state else _of_module(source)
    unsaid = ["batch_first", "dropout", *["nonlinearity"] * (kind is nn.RNN)] if of_state else []
    taken(options, "eps", "backend", "learn_initial_state", *unsaid)
    made = _LAYERS[kind]
    if kind is nn.LSTM:
        settings["variant"] = variant
    elif kind is nn.GRU and variant == "stacked":
        made = LayerNormGRUVariant
        settings["variant"] = variant
    elif variant != "paper":
        known = '"paper" or "stacked"' if kind is nn.GRU else '"paper"'
        reason = f": {_NO_GRUS[variant]}" if kind is nn.GRU and variant in _NO_GRUS else ""
        raise ValueError(
            f"variant must be {known} for a torch.nn.{kind.__name__}, got {variant!r}{reason}"
        )
    new = made(**settings, **options, **like(weights["weight_ih_l0"]))
    _copy(kind, weights, new)
    return new if of_state else new.train(source.training)


def _copy(kind: type[nn.Module], weights: dict[str, Tensor], new: Layer) -> None:
    """Copy the weights into the new layer, and which of them are frozen."""
    frozen = {n for n, w in weights.items() if isinstance(w, nn.Parameter) and not w.requires_grad}
    state, weights = new.state_dict(), {name: w.detach() for name, w in weights.items()}
    for name, value in weights.items():
        if name.startswith("bias_hh"):
            continue
        target, sources = name, {name}
        if name.startswith("bias_ih"):
            layer = name.removeprefix("bias_ih")
            other = weights[f"bias_hh{layer}"]
            sources.add(f"bias_hh{layer}")
            if kind is nn.GRU:
                both = 2 * new.hidden_size
                gates, inside = other.tensor_split([both])
                other = torch.cat([gates, torch.zeros_like(inside)])
                state[f"ln_hh_bias{layer}"][both:] = inside
            elif kind is nn.RNN:
                target = f"ln_bias{layer}"
            value = value + other
        state[target] = value
        new.get_parameter(target).requires_grad_(not sources <= frozen)
    new.load_state_dict(state)


def _of_module(module) -> tuple[type[nn.Module], dict, dict[str, Tensor]]:
    """The kind of torch's layer, its settings and parameters."""
    if isinstance(module, nn.Module) and nn.utils.parametrize.is_parametrized(module):
        raise TypeError(
            "source is parametrized (by weight_norm, say): make its weights plain ones first, with "
            "torch.nn.utils.parametrize.remove_parametrizations"
        )
    kind = next((kind for kind in _LAYERS if isinstance(module, kind)), None)
    if kind is None:
        inside = module.named_modules() if isinstance(module, nn.Module) else ()
        found = [name for name, part in inside if isinstance(part, tuple(_LAYERS))]
        raise TypeError(
            "source must be a torch.nn.LSTM, GRU or RNN, or the state dict of one, got "
            f"{type(module).__name__}; "
            + (
                f"it contains {', '.join(found)}: convert source.get_submodule({found[0]!r})"
                if found
                else "for a cell, copy weight_ih and weight_hh"
            )
        )
    if type(module).forward is not kind.forward:
        raise TypeError(
            f"source must compute as torch.nn.{kind.__name__}, but {type(module).__name__} has a "
            "forward of its own; if you know that its weights fit, give source.state_dict()"
        )
    own = dict(module.named_parameters(recurse=False, remove_duplicate=False))
    if others := sorted(n for n in own if _NAME.match(n) and n.endswith(("_orig", "_g", "_v"))):
        raise TypeError(
            f"source has {others[0]} in place of a weight (pruned, or with an old-style norm of "
            "its weights): make it plain first, with torch.nn.utils.prune.remove, "
            "remove_weight_norm or remove_spectral_norm"
        )
    names = ["input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout"]
    names += {nn.LSTM: ["proj_size"], nn.RNN: ["nonlinearity"]}.get(kind, [])
    settings = {name: getattr(module, name) for name in names}
    settings["bidirectional"] = bool(module.bidirectional)  # torch takes any number
    return kind, settings, {name: w for name, w in own.items() if _NAME.fullmatch(name)}


def _of_state(source: Mapping[str, Tensor]) -> tuple[type[nn.Module], dict, dict[str, Tensor]]:
    """The same, the kind and settings from the names and shapes."""
    found = {name: _NAME.fullmatch(str(name)) for name in source}
    if strange := [name for name, match in found.items() if not match]:
        raise ValueError(
            f"source has the key {strange[0]}: it must be the state dict of one torch.nn.LSTM, GRU "
            "or RNN, with the keys weight_ih_l0 and so on, without a prefix"
        )
    layers = 1 + max((int(match[2]) for match in found.values()), default=0)
    both = any(match[3] for match in found.values())
    bias, projected = "bias_ih_l0" in source, "weight_hr_l0" in source
    first = tuple(np.shape(source.get("weight_hh_l0", ())))
    blocks = 4 if projected else first[0] // first[1] if len(first) == 2 and first[1] else 0
    rows, out = f"{blocks if blocks > 1 else ''}H", "P" if projected else "H"
    parts = {"weight_ih": f"{rows} I", "weight_hh": f"{rows} {out}"}
    parts |= {"bias_ih": rows, "bias_hh": rows} if bias else {}
    parts |= {"weight_hr": "P H"} if projected else {}
    shapes = {
        f"{part}_l{layer}{end}": f"{rows} {2 * both or ''}{out}"
        if layer and part == "weight_ih"
        else shape
        for layer in range(layers)
        for end in ("", "_reverse")[: 1 + both]
        for part, shape in parts.items()
    }
    missing, rest = sorted(set(shapes) - set(source)), sorted(set(source) - set(shapes))
    if missing or rest:
        raise ValueError(
            "source must have the same arrays for each layer and direction; missing: "
            f"{', '.join(missing) or 'none'}; without their like: {', '.join(rest) or 'none'}"
        )
    if blocks not in _KINDS:
        raise ValueError(
            "weight_hh_l0 must have shape (4H, H), (3H, H) or (H, H), that of an LSTM, a GRU or an "
            f"RNN, got {first}"
        )
    weights = checked(source, shapes)
    settings = {
        "input_size": weights["weight_ih_l0"].shape[1],
        "hidden_size": len(weights["weight_ih_l0"]) // blocks,
        "num_layers": layers, "bias": bias, "bidirectional": both,
    }  # fmt: skip
    if projected:
        settings["proj_size"] = weights["weight_hh_l0"].shape[1]
    return _KINDS[blocks], settings, weights


def from_torchscript(source, *, eps: float | None = None, **options) -> LayerNormLSTM:
    """The layer-normalized LSTM of PyTorch's TorchScript example (variant `carried`).

    Takes its LayerNormLSTMCell, its layers and stacks, in one or both directions, or a state dict
    of any of these: weight_ih, weight_hh and the weights and biases of layernorm_i, layernorm_h and
    layernorm_c, with prefixes layers.{k}, directions.{d} and cell. It has no b (bias=False).

    Args:
        source: the module, whose mode (training or evaluation) and frozen parameters are taken
            over, or its state dict.
        eps: of its norms. None: the module's; of a state dict, which does not hold it, 1e-5, as in
            the example. The norms of decompose_layernorm=True have none: give 0.
        options: batch_first, backend, dropout and learn_initial_state of the new layer.

    Raises: ValueError for other keys, for shapes that do not fit together, and for another eps than
    the module's.

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
    origins = {
        f"{_EXAMPLE_NAMES[m[3]]}_l{m[1] or 0}{'_reverse' if m[2] == '1' else ''}": [key]
        for key, m in found.items()
    }
    state = {name: w[key] for name, [key] in origins.items()}
    if "weight_ih_l0" not in state or "weight_hh_l0" not in state:
        raise ValueError(
            f"source must have weight_ih and weight_hh, got {', '.join(state) or 'none'}"
        )
    layers = sum(bool(re.fullmatch(r"weight_ih_l\d+", name)) for name in state)
    own = epsilons(source, "layernorm_i", "layernorm_h", "layernorm_c")
    eps = constant("eps", eps, 1e-5, own)
    new = LayerNormLSTM(
        state["weight_ih_l0"].shape[1], state["weight_hh_l0"].shape[1], layers, bias=False,
        bidirectional=both, variant="carried", eps=eps, **options, **like(state["weight_ih_l0"]),
    )  # fmt: skip
    missing = sorted(set(new.state_dict()) - set(state) - {"h_0", "c_0"})
    if missing:
        raise ValueError(f"source lacks what becomes {', '.join(missing)}")
    return as_in(source, load(new, state), origins)
