"""ONNX files of models that hold this package's layers and norms: `export`.

A recurrent layer becomes one Scan for each layer and direction. Its body is one step of the
definition (`layernorm.recurrent.definition`), with ONNX's LayerNormalization for every norm; no
operator of this package is left in the file, only ONNX's own. ONNX stores eps in single precision,
which a file in float64 shows in its ninth digit.

What may have any size in the file, where `dynamic_shapes` names it:

    LayerNormLSTM, LayerNormGRU (its Variant), LayerNormRNN,
    with zoneout, BatchNormLSTM                                 batch and length
    their cells                                                 batch
    LayerNorm, RMSNorm, WeightNormLinear, DynamicTanh, Erf      every dimension before the units
    BatchNorm, GroupNorm, InstanceNorm                          batch and positions

Inputs, units, layers and directions are the model's. Lengths that differ within a batch are data,
which a graph cannot depend on: a `PackedSequence` and `lengths` are refused. Pad the batch instead.
Padding at the end changes no earlier output of the forward direction, but the last states and the
reverse direction.

Runtimes round differently, and the LSTM of the paper magnifies a rounding from step to step. A
`LayerNormLSTM` of 64 units at its starting weights and its file, both in float32, differed by some
1e-6 over 10 steps, 1e-5 over 50 and 1e-3 to 1e-2 over 200, as far as each was from the layer in
float64; variant `joint` and the GRU stayed near 1e-6. So judge a file over many steps by the layer
in float64, and allow it several times the difference that the layer itself has.

`torch.onnx.export` by itself stops at the fast path ("No ONNX function found for layernorm.lstm").
With backend="reference" it writes all steps of the loop, for the example's length alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from os import PathLike
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from layernorm import functional, kernels
from layernorm.recurrent import (
    BatchNormLSTM,
    LayerNormGRUVariant,
    batch_norm,
    checks,
    definition,
    gru_variants,
    layers,
    resets,
    variants,
    zoneout,
)
from layernorm.recurrent.step_norm import StepNorm


class NotExportable(ValueError):
    """Raised if a layer is called in a way that an ONNX file cannot express."""


def export(model: nn.Module, args: tuple = (), f: str | PathLike | None = None, **options):
    """`torch.onnx.export` of a model that holds this package's layers; same arguments.

    Args:
        model: in evaluation mode.
        args: example inputs; where a dimension shall be of any size, the example's is 2 or more.
        f: the file to write; None: only return.
        options: as `torch.onnx.export`'s; `dynamic_shapes` names what may have any size, and
            `external_data=False` puts the weights into the same file.

    Returns: the `torch.onnx.ONNXProgram`.

    Raises: ImportError without the package onnxscript; TypeError for a model that is no module;
    ValueError for a model in training and for dynamo=False; NotExportable for a `PackedSequence`,
    for `with_resets`, and for `lengths` and beyond="error" of `BatchNormLSTM`; and what
    `torch.onnx.export` raises.

    While it works, other threads must not call recurrent layers: these compute by the Scan.

    Source: Scan and LayerNormalization of https://onnx.ai/onnx/operators; torch's own translation
    of `torch._higher_order_ops.scan`.

    >>> export(nn.Linear(2, 3), (torch.ones(1, 2),))
    Traceback (most recent call last):
        ...
    ValueError: model is in training mode, of which no file is made; call model.eval()
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if any(module.training for module in model.modules()):
        raise ValueError("model is in training mode, of which no file is made; call model.eval()")
    if not options.setdefault("dynamo", True):
        raise ValueError(
            "dynamo=False asks for torch.onnx's old exporter, which has no Scan; leave it out"
        )
    if find_spec("onnxscript") is None:
        raise ImportError("export needs onnxscript; install it with pip install 'layernorm[onnx]'")
    try:
        with _exportable(), torch.no_grad():
            return torch.onnx.export(model, args, f, **options)
    except Exception as error:
        reason = error
        while reason and not isinstance(reason, NotExportable):
            reason = reason.__cause__
        if reason is None:
            raise
        raise reason from None


@contextmanager
def _exportable() -> Iterator[None]:
    """Let the recurrent layers compute by a Scan, and the definitions by LayerNormalization."""
    places = [
        (layers, "_computer", lambda *_: _Scans),
        (functional, "layer_norm", _layer_norm),
        (kernels, "_kernel", partial(getattr, functional)),
        (variants, "layer_norm", _layer_norm),
        (checks, "layer_input", _layer_input),
        (batch_norm, "valid_rows", _refuse_lengths),
        (resets, "_cut", _refuse_resets),
        (BatchNormLSTM, "_stack", layers.Layer._stack),
        (BatchNormLSTM, "_sequence", _batch_norm_scan),
        (LayerNormGRUVariant, "_sequence", _variant_scan),
        (zoneout._Zoneout, "_sequence", _zoneout_scan),
    ]
    before = [getattr(place, name) for place, name, _ in places]
    try:
        for place, name, value in places:
            setattr(place, name, value)
        yield
    finally:
        for (place, name, _), value in zip(places, before, strict=True):
            setattr(place, name, value)


def _layer_norm(x: Tensor, normalized_shape, weight=None, bias=None, eps: float = 1e-5) -> Tensor:
    """The operator that the exporter knows, instead of the definition's seven."""
    return F.layer_norm(x, tuple(normalized_shape), weight, bias, eps)


class _Scans:
    """The functions of `definition` by which a layer computes."""

    @staticmethod
    def lstm(x, batch_sizes, h0, c0, weights, eps, variant, reverse):
        def step(rows, h, c, weights):
            return definition.lstm(rows, None, h, c, weights, eps, variant)

        return _scan(step, x, [h0, c0], weights, reverse)

    @staticmethod
    def gru(x, batch_sizes, h0, weights, eps, reverse):
        def step(rows, h, weights):
            return definition.gru(rows, None, h, weights, eps)

        return _scan(step, x, [h0], weights, reverse)

    @staticmethod
    def rnn(x, batch_sizes, h0, weights, eps, reverse, nonlinearity):
        def step(rows, h, weights):
            return definition.rnn(rows, None, h, weights, eps, nonlinearity=nonlinearity)

        return _scan(step, x, [h0], weights, reverse)


def _variant_scan(layer: LayerNormGRUVariant, x, batch_sizes, states, weights, reverse: bool):
    def step(rows, h, weights):
        return gru_variants.gru(rows, None, h, weights, layer.eps, layer.variant)

    return _scan(step, x, states, weights, reverse)


def _zoneout_scan(layer, x, batch_sizes, states, weights, reverse: bool):
    """In evaluation, where each state keeps a fixed share."""

    def step(rows, *given):
        *states, weights = given
        after = zoneout.zoned(layer._one(weights), layer._kept(0, states), rows.shape[1])
        return definition._over_time(after, rows, None, states, False)

    return _scan(step, x, states, weights, reverse)


def _batch_norm_scan(layer: BatchNormLSTM, x, batch_sizes, states, suffix: str, reverse: bool):
    """`BatchNormLSTM._sequence` in evaluation; the running statistics are read step by step."""
    if layer.beyond == "error":
        raise NotExportable(
            'beyond="error" cannot be exported: a file refuses no length; set layer.beyond = "last"'
        )
    names = [f"{name}{suffix}" for name in ("weight_ih", "weight_hh", "bias_ih")]
    steps = x.shape[0] // states[0].shape[0]
    norms = layer._step_norms(suffix, steps)
    statistics = [moment.expand(steps, -1) for norm in norms.values() for moment in norm.running]
    affine = [(norm.gain, norm.bias) for norm in norms.values()]
    weights = [getattr(layer, name, None) for name in names], affine

    def step(rows, h, c, weights):
        rows, *found = rows
        moments = [moment[None] for moment in found]
        own = {
            term: StepNorm(*affine, layer.eps, layer.min_samples, tuple(moments[2 * k : 2 * k + 2]))
            for k, (term, affine) in enumerate(zip(norms, weights[1], strict=True))
        }
        parameters = dict(zip(names, weights[0], strict=True))
        holder = SimpleNamespace(**parameters, bias=layer.bias, statistics=layer.statistics)
        return BatchNormLSTM._run(holder, rows, [rows.shape[0]], h, c, suffix, own)

    return _scan(step, x, states, weights, reverse, statistics)


def _scan(
    step: Callable, x: Tensor, states: list[Tensor], weights, reverse: bool, extra=()
) -> tuple[Tensor, ...]:
    """The outputs and last states of `step(rows, *states, weights)`, which gives an output and new
    states, over time: one operator instead of a loop. With `extra`, tensors of which each step has
    a row, `rows` is a list that ends with these."""
    from torch._higher_order_ops.scan import scan_op

    flat, form = pytree.tree_flatten(weights)
    count, inputs = len(states), len(states) + 1 + len(extra)

    def body(*given: Tensor) -> list[Tensor]:
        lifted = iter(given[inputs:])
        own = pytree.tree_unflatten([None if w is None else next(lifted) for w in flat], form)
        rows = list(given[count:inputs]) if extra else given[count]
        y, *new = step(rows, *given[:count], own)
        return [*new, y]

    rows = x.unflatten(0, (-1, states[0].shape[0]))
    rows = rows.flip(0) if reverse else rows
    # the operator refuses what shares memory, as one tensor for two states or weights does
    initial = [state.clone() for state in states]
    weights = tuple(_apart([w for w in flat if w is not None]))
    *last, y = scan_op(body, initial, [rows, *extra], weights)
    return (y.flip(0) if reverse else y).flatten(0, 1), *last


def _apart(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors, a copy of one that has been there before."""
    return [
        t.clone() if any(t is before for before in tensors[:k]) else t
        for k, t in enumerate(tensors)
    ]


_check_input = checks.layer_input


def _layer_input(input, layer, weight) -> None:
    if isinstance(input, PackedSequence):
        raise NotExportable(
            f"a PackedSequence cannot be exported, got one for {type(layer).__name__}: its lengths "
            "are data; call the layer with the padded batch"
        )
    _check_input(input, layer, weight)


def _refuse_lengths(*_):
    raise NotExportable("lengths cannot be exported: they are data; give the padded batch alone")


def _refuse_resets(*_):
    raise NotExportable(
        "with_resets cannot be exported: where it cuts is data; export the layer alone, for one "
        "episode or one step, and set its states back outside"
    )
