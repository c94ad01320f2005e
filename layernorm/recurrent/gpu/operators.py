"""The recurrent layers on the GPU as a torch operator with a gradient: `layernorm::recurrence`.

Registered, it passes through `torch.compile` as it is. It returns also what its gradient needs, as
a list: `compute` knows its order. For everyone else the computation is called directly,
or replayed from a CUDA graph.
"""

import torch
from torch import Tensor

from layernorm.kernels import launch
from layernorm.recurrent import checks, definition, fused
from layernorm.recurrent.definition import GRUWeights, LSTMWeights
from layernorm.recurrent.fused import no_second_derivative, watched
from layernorm.recurrent.gpu import graphs, persistent
from layernorm.recurrent.gpu.compute import (
    Inputs,
    Settings,
    allocate,
    compute,
    compute_gradient,
)
from layernorm.recurrent.gpu.step import LONGEST
from layernorm.recurrent.variants import FORMS

COUNT = len(Inputs._fields)
DEVICES = ("cuda", "cpu") if launch.INTERPRETED else "cuda"


def _compute(
    x: Tensor, h0: Tensor, c0: Tensor | None, w_ih: Tensor, w_hh: Tensor, bias: Tensor | None,
    gain_x: Tensor | None, bias_x: Tensor | None, gain_h: Tensor | None, bias_h: Tensor | None,
    gain_c: Tensor | None, bias_c: Tensor | None, batch_sizes: Tensor | None, eps: float,
    form: str, reverse: bool, kind: torch.dtype, keep: bool,
) -> list[Tensor]:  # fmt: skip
    inputs = Inputs(
        x, h0, c0, w_ih, w_hh, bias, gain_x, bias_x, gain_h, bias_h, gain_c, bias_c
    )  # fmt: skip
    settings = _settings(inputs, batch_sizes, eps, form, reverse, kind, keep)
    with launch._on(x.device):
        return compute(inputs, settings)


_recurrence = fused.registered("recurrence", _compute, DEVICES)


@_recurrence.register_fake
def _(*arguments):
    return allocate(Inputs(*arguments[:COUNT]), Settings((), *arguments[COUNT + 1 :]))


def _compute_backward(
    dy: Tensor, dh_n: Tensor | None, dc_n: Tensor | None, kept: list[Tensor],
    x: Tensor, h0: Tensor, c0: Tensor | None, w_ih: Tensor, w_hh: Tensor, bias: Tensor | None,
    gain_x: Tensor | None, bias_x: Tensor | None, gain_h: Tensor | None, bias_h: Tensor | None,
    gain_c: Tensor | None, bias_c: Tensor | None, batch_sizes: Tensor | None, eps: float,
    form: str, reverse: bool, kind: torch.dtype, needs_dx: bool,
) -> list[Tensor]:  # fmt: skip
    inputs = Inputs(
        x, h0, c0, w_ih, w_hh, bias, gain_x, bias_x, gain_h, bias_h, gain_c, bias_c
    )  # fmt: skip
    settings = _settings(inputs, batch_sizes, eps, form, reverse, kind, True)
    with launch._on(x.device):
        return compute_gradient(dy, dh_n, dc_n, kept, inputs, settings, needs_dx)


_recurrence_backward = fused.registered("recurrence_backward", _compute_backward, DEVICES)


@_recurrence_backward.register_fake
def _(dy, dh_n, dc_n, kept, *arguments):
    *inputs, _, _, _, _, _, needs_dx = arguments
    there = [t is not None and (k > 0 or needs_dx) for k, t in enumerate(inputs)]
    return [
        t.new_empty(t.shape) if has else dy.new_empty(0, dtype=inputs[0].dtype)
        for t, has in zip(inputs, there, strict=True)
    ]


def _setup(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[: COUNT + 1], *output[3:])
    ctx.rest = inputs[COUNT + 1 : -1]
    ctx.set_materialize_grads(False)


def _registered_gradient(ctx, gradients):
    *tensors, batch_sizes = ctx.saved_tensors[: COUNT + 1]
    dy, dh_n, dc_n = gradients[:3]
    if len(ctx.saved_tensors) == COUNT + 1:  # captured where nothing needed a gradient
        settings = _settings(Inputs(*tensors), batch_sizes, *ctx.rest, True)
        found = _again(settings, Inputs(*tensors), gradients[:3], ctx.needs_input_grad[:COUNT])
        return *found, *[None] * 6
    dy = _zeros_of_y(Inputs(*tensors), ctx.rest[3]) if dy is None else dy
    found = _recurrence_backward(
        dy, dh_n, dc_n, list(ctx.saved_tensors[COUNT + 1 :]), *tensors, batch_sizes, *ctx.rest,
        ctx.needs_input_grad[0],
    )  # fmt: skip
    return *_wanted(found, ctx.needs_input_grad), *[None] * 6


def _zeros_of_y(inputs: Inputs, kind: torch.dtype) -> Tensor:
    return inputs.x.new_zeros(inputs.x.shape[0], inputs.h0.shape[1], dtype=kind)


def _wanted(found: list[Tensor], wanted) -> list[Tensor | None]:
    return [g if w else None for g, w in zip(found, wanted, strict=False)]


_recurrence.register_autograd(_registered_gradient, setup_context=_setup)
_recurrence_backward.register_autograd(no_second_derivative)


class _Direct(torch.autograd.Function):
    """Without torch's dispatcher, and by a CUDA graph where there is one."""

    @staticmethod
    def forward(ctx, settings: Settings, *tensors):
        inputs = Inputs(*tensors)
        ctx.captured, outputs, kept = _computed(inputs, settings)
        ctx.settings = settings
        ctx.save_for_backward(*inputs, *kept)
        ctx.set_materialize_grads(False)
        return tuple(outputs)

    @staticmethod
    def backward(ctx, dy, dh_n, dc_n):
        settings, wanted = ctx.settings, ctx.needs_input_grad[1:]
        inputs, kept = Inputs(*ctx.saved_tensors[:COUNT]), list(ctx.saved_tensors[COUNT:])
        given = (_zeros_of_y(inputs, settings.kind) if dy is None else dy, dh_n, dc_n)
        if fused.again(given):
            return None, *_again(settings, inputs, (dy, dh_n, dc_n), wanted)
        given = [g if g is None else g.resolve_neg() for g in given]
        with launch._on(inputs.x.device):
            found = None
            if ctx.captured is not None and ctx.captured.holds(kept):
                found = ctx.captured.gradient(*given, wanted[0])
            if found is None:
                found = compute_gradient(*given, kept, inputs, settings, wanted[0])
        return None, *_wanted(found, wanted)


def _again(settings: Settings, inputs: Inputs, gradients, wanted) -> list[Tensor | None]:
    """The gradients by the definition."""
    sizes = torch.tensor(settings.sizes, dtype=torch.int64)
    rest = settings.eps, settings.reverse

    def function(x, h0, c0, w_ih, w_hh, b, *flat):
        pairs = [None if g is None else (g, b) for g, b in zip(flat[::2], flat[1::2], strict=True)]
        x, w_ih, w_hh = (t.to(h0.dtype) for t in (x, w_ih, w_hh))
        if settings.form == "gru":
            weights = GRUWeights(w_ih, w_hh, b, *pairs[:2])
            y, h_n = definition.gru(x, sizes, h0, weights, *rest)
            return y.to(settings.kind), h_n, None
        weights = LSTMWeights(w_ih, w_hh, b, *pairs)
        outputs = definition.lstm(x, sizes, h0, c0, weights, rest[0], settings.form, rest[1])
        return outputs[0].to(settings.kind), *outputs[1:]

    return fused.gradients(function, inputs, gradients, wanted)


def _computed(inputs: Inputs, settings: Settings):
    """The capture, if one was replayed, or None; y, h_n, c_n; what the gradient needs."""
    with launch._on(inputs.x.device):
        replayed = graphs.forward(inputs, settings)
        if replayed is not None:
            return replayed
        outputs = compute(inputs, settings)
        return None, outputs[:3], outputs[3:]


def apply(
    inputs: Inputs, batch_sizes: Tensor | None, eps: float, form: str, reverse: bool,
    kind: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """y in the type `kind`, and h_n, c_n (empty without a cell) in that of the computation."""
    keep = fused.recorded(inputs)
    if inputs.x.is_meta or watched(inputs):
        return tuple(_recurrence(*inputs, batch_sizes, eps, form, reverse, kind, keep)[:3])
    settings = _settings(inputs, batch_sizes, eps, form, reverse, kind, keep)
    return _Direct.apply(settings, *inputs) if keep else tuple(_computed(inputs, settings)[1])


def _settings(inputs: Inputs, batch_sizes: Tensor | None, eps, form: str, *rest) -> Settings:
    sizes = _sizes(inputs, form, batch_sizes)
    kind = "lstm" if FORMS[form].cell else "gru"
    use = persistent.chosen(kind, inputs.w_hh, sizes, keep=rest[-1])
    return Settings(sizes, eps, form, *rest, use)


def _sizes(inputs: Inputs, form: str, batch_sizes: Tensor | None) -> tuple[int, ...]:
    """Rows of each step. The kernels trust what they are given: it is checked here.

    Raises:
        ValueError: the argument's name, what was expected and what came.
    """
    (rows, width), (batch, units) = inputs.x.shape, inputs.h0.shape
    per_gate, per_unit = (FORMS[form].gates * units,), (units,)
    if not (inputs.x.is_cuda or launch.INTERPRETED):
        raise ValueError(
            f"x must be on a CUDA device for these kernels, got one on {inputs.x.device}; use "
            "layernorm.recurrent.cpu on a CPU"
        )
    launch.check_device(inputs.x)
    if units > LONGEST:
        raise ValueError(
            f"hidden_size must be at most {LONGEST} for the fused path on a GPU, got {units}; use "
            'backend="reference"'
        )
    expected = dict.fromkeys(("bias", "gain_x", "bias_x", "gain_h", "bias_h"), per_gate) | {
        "x": (rows, width), "h0": (batch, units), "c0": (batch, units), "gain_c": per_unit,
        "bias_c": per_unit, "w_ih": (*per_gate, width), "w_hh": (*per_gate, units),
    }  # fmt: skip
    for name, t in inputs._asdict().items():
        if t is not None and (tuple(t.shape) != expected[name] or t.device != inputs.x.device):
            raise ValueError(
                f"{name} must have shape {expected[name]} and be on {inputs.x.device}, got "
                f"{tuple(t.shape)} on {t.device}"
            )
    return tuple(checks.step_sizes(batch_sizes, rows, batch))
