"""Checks of what users pass to the recurrent definitions, cells and layers: as
`layernorm._validation`, whose single steps' checks are reused, once for each sequence."""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from layernorm import _validation, _validation_modules, _validation_steps
from layernorm._validation import _floating, _shape, _tensor
from layernorm.recurrent.variants import named_variant


def lstm(x, batch_sizes, h0, c0, weights, eps, variant, reverse):
    named, pairs = named_variant(variant).form.named, {}
    for name in ("ln_ih", "ln_hh"):
        pairs[name] = getattr(weights, name)
        if name in named:
            continue
        if pairs[name] is not None:
            raise ValueError(f'weights.{name} must be None: variant "{variant}" has no such norm')
        pairs[name] = _stand_in(weights.w_hh)
    _sequences(x, batch_sizes, {"h0": h0, "c0": c0})
    if weights.w_hr is None and c0.shape != h0.shape:
        raise ValueError(f"c0 must have shape {_shape(h0)} (the shape of h0), got {_shape(c0)}")
    b = _stand_in(weights.w_hh)[0] if weights.b is None else weights.b
    _validation_steps.ln_lstm_step(
        x[:0], h0[:0], c0[:0], weights.w_ih, weights.w_hh, b,
        **pairs, ln_c=weights.ln_c, eps=eps, w_hr=weights.w_hr,
    )  # fmt: skip


def gru(x, batch_sizes, h0, weights, eps, reverse):
    _sequences(x, batch_sizes, {"h0": h0})
    b = _stand_in(weights.w_hh)[0] if weights.b is None else weights.b
    _validation_steps.ln_gru_step(x[:0], h0[:0], *weights[:2], b, *weights[3:], eps)


def rnn(x, batch_sizes, h0, weights, eps, reverse, nonlinearity):
    _sequences(x, batch_sizes, {"h0": h0})
    gain, b = weights.ln
    ln = gain, _stand_in(weights.w_hh)[0] if b is None else b
    _validation_steps.ln_rnn_step(x[:0], h0[:0], *weights[:2], ln, eps, nonlinearity)


def _stand_in(w: Tensor) -> tuple[Tensor, Tensor]:
    """A pair that fits, for a norm or a bias that is not there."""
    _tensor("w_hh", w)
    b = w.new_empty(w.shape[0])
    return b, b


def _sequences(x, batch_sizes, states: dict[str, Tensor]) -> None:
    for name, t in {"x": x, **states}.items():
        _floating(name, t)
        if t.dim() != 2:
            raise ValueError(f"{name} must have two dimensions, (rows, features), got {_shape(t)}")
    batch = states["h0"].shape[0]
    for name, state in states.items():
        if state.shape[0] != batch:
            raise ValueError(f"{name} must have h0's {batch} rows, got {_shape(state)}")
    step_sizes(batch_sizes, x.shape[0], batch)


def step_sizes(batch_sizes, rows: int, batch: int) -> list[int]:
    """The number of x's rows that belong to each step."""
    if batch_sizes is None:
        if rows % batch if batch else rows:
            raise ValueError(
                f"x must have T * {batch} rows, T steps of h0's {batch} sequences, got {rows}; "
                "give batch_sizes if the sequences' lengths differ"
            )
        return [batch] * (rows // batch if batch else 0)
    _tensor("batch_sizes", batch_sizes)
    if batch_sizes.dtype != torch.int64 or batch_sizes.dim() != 1:
        raise TypeError(
            "batch_sizes must be a vector of int64, as in a PackedSequence, got "
            f"{batch_sizes.dtype} of shape {_shape(batch_sizes)}"
        )
    sizes = batch_sizes.tolist()
    falling = all(a >= b for a, b in pairwise(sizes))
    if not falling or sum(sizes) != rows or (sizes and not 0 < sizes[-1] <= sizes[0] == batch):
        raise ValueError(
            f"batch_sizes must not increase, start with h0's {batch} rows, stay above 0 and add up "
            f"to x's {rows} rows, got {sizes if len(sizes) < 20 else f'{len(sizes)} other values'}"
        )
    return sizes


def sizes(**named) -> None:
    """Arguments that must be positive ints."""
    for name, n in named.items():
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"{name} must be an int, got {n!r}")
        if n < 1:
            raise ValueError(f"{name} must be positive, got {n}")


def flags(**named) -> None:
    """Arguments that must be bools: a number here is an argument in another's place."""
    for name, value in named.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {value!r}")


def settings(layer) -> None:
    """A layer's options."""
    sizes(num_layers=layer.num_layers)
    flags(
        batch_first=layer.batch_first,
        bidirectional=layer.bidirectional,
        learn_initial_state=layer.learn_initial_state,
    )
    _validation._finite("dropout", layer.dropout)
    if not 0 <= layer.dropout <= 1:
        raise ValueError(f"dropout must be a probability, in [0, 1], got {layer.dropout}")


def projection(proj_size, hidden_size: int) -> None:
    if isinstance(proj_size, bool) or not isinstance(proj_size, int):
        raise TypeError(f"proj_size must be an int, got {proj_size!r}")
    if not 0 <= proj_size < hidden_size:
        raise ValueError(
            f"proj_size must be 0 (no projection) or smaller than hidden_size={hidden_size}, "
            f"got {proj_size}"
        )


def rows(name: str, x, features: int, weight: Tensor, dims: tuple[int, ...], form: str) -> None:
    """An input of a layer or cell: kind, number of dimensions, features, type of number."""
    if isinstance(x, torch.fx.Proxy):
        raise TypeError(
            f"{name} must be a torch.Tensor, got a Proxy of torch.fx, which cannot see through "
            "this module; trace with a torch.fx.Tracer whose is_leaf_module takes it whole"
        )
    _floating(name, x)
    if x.dim() not in dims or x.shape[-1] != features:
        raise ValueError(f"{name} must have shape {form}, got {_shape(x)}")
    _validation.on_device(name, x, weight, "the weights'")
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(
            f"{name} must have the weights' type {weight.dtype}, got {x.dtype}; convert it with "
            f"{name}.to({weight.dtype}) or the module with module.to({x.dtype})"
        )


def layer_input(input, layer, weight: Tensor) -> None:
    n = layer.input_size
    if isinstance(input, PackedSequence):
        rows("input.data", input.data, n, weight, (2,), f"(N, {n})")
        return
    order = "B, T" if layer.batch_first else "T, B"
    rows("input", input, n, weight, (2, 3), f"({order}, {n}), or (T, {n}) for one sequence")
    if input.shape[-2 if input.dim() == 2 or layer.batch_first else 0] == 0:
        raise ValueError(
            f"input must have at least one time step, got shape {_shape(input)}; drop empty "
            "sequences, and check batch_first"
        )


def initial_states(
    hx, expected: list[tuple[int, ...]], weight: Tensor, advice: str = ""
) -> list[Tensor]:
    """hx as a list of states, each of its expected shape and, under autocast too, of the weights'
    type."""
    several = isinstance(hx, tuple | list)
    if len(expected) == 1:
        if several:
            raise TypeError(
                f"hx must be one tensor, h_0, got {len(hx)} values; only an LSTM has a second state"
            )
        hx = (hx,)
    elif not several or len(hx) != len(expected):
        kind = f"{len(hx)} values" if several else type(hx).__name__
        raise TypeError(f"hx must be a pair (h_0, c_0) of tensors, got {kind}")
    for name, state, shape in zip(("h_0", "c_0"), hx, expected, strict=False):
        _floating(name, state)
        if not _same_shape(state, shape):
            raise ValueError(
                f"{name} must have shape {shape} for this input, got {_shape(state)}{advice}"
            )
        _validation.on_device(name, state, weight, "the weights'")
        if state.dtype != weight.dtype and not torch.is_autocast_enabled(state.device.type):
            raise TypeError(
                f"{name} must have the weights' type {weight.dtype}, got {state.dtype}; convert "
                f"it with {name}.to({weight.dtype})"
            )
    return [state.to(weight.dtype) for state in hx]


def _same_shape(state: Tensor, shape: tuple[int, ...]) -> bool:
    """Compare sizes; in a graph those that are data, as a packed batch's is, when it runs."""
    if state.dim() != len(shape):
        return False
    if torch.compiler.is_compiling():
        for n, m in zip(state.shape, shape, strict=True):
            torch._check(n == m, lambda: "hx must have (layers * directions, batch, size) of input")
        return True
    return _shape(state) == shape


def forget_bias(forget_bias: float, bias: bool) -> None:
    """Where the forget gate's part of b starts."""
    _validation._finite("forget_bias", forget_bias)
    if forget_bias and not bias:
        raise ValueError(f"forget_bias={forget_bias} needs bias=True: it is where b starts")


def batch_norm_settings(self, eps, momentum, bias, **options) -> None:
    """The constructor's arguments of `BatchNormLSTM` that other layers do not have."""
    forget_bias(options["forget_bias"], bias)
    sizes(**{n: options[n] for n in ("num_layers", "max_length", "min_samples")})
    if options["min_samples"] < 2:
        raise ValueError(f"min_samples must be at least 2, got {options['min_samples']}")
    for name in ("gain", "dropout"):
        _validation._finite(name, options[name])
    _validation_modules.settings(eps, momentum)
    if eps == 0:
        raise ValueError("eps must be positive, got 0: the first recurrent term has no variance")
    if momentum is not None and not 0 < momentum <= 1:
        raise ValueError(f"momentum must lie in (0, 1] or be None, got {momentum}")
    for name, known in (("statistics", ("per_step", "sequence")), ("beyond", ("last", "error"))):
        if options[name] not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {options[name]!r}")


def lengths(self, input, hx, lengths) -> None:
    """The lengths of padded sequences, beside the input of a layer."""
    layer_input(input, self, self.weight_ih_l0)
    if hx is not None and not isinstance(hx, tuple | list):
        initial_states(hx, [(), ()], self.weight_ih_l0)  # refuses it
    if lengths is None:
        return
    if isinstance(input, PackedSequence) or input.dim() == 2:
        raise ValueError(
            "lengths must be None, got some: they are for padded batches, not for a PackedSequence "
            "or a single sequence"
        )
    lengths = torch.as_tensor(lengths, device="cpu")
    lengths = lengths if lengths.numel() else lengths.long()  # of an empty list
    batch, steps = input.shape[:2] if self.batch_first else input.shape[1::-1]
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths must be whole numbers, got {lengths.dtype}")
    if lengths.shape != (batch,):
        raise ValueError(
            f"lengths must have shape ({batch},), one for each sequence, got {tuple(lengths.shape)}"
        )
    if torch.compiler.is_compiling() or not batch:
        return  # a graph has no values yet
    if not (lengths.min() >= 1 and lengths.max() <= steps):
        raise ValueError(
            f"lengths must lie in 1 to {steps}, the padded length, got {lengths.tolist()}; leave "
            "empty sequences out of the batch"
        )
