"""The fused path as torch operators: `layernorm::lstm`, `layernorm::gru` and their gradients.

Where the gains and biases of a norm are None, nothing is normalized there (`layernorm bench
recurrent` times that form; a layer always has its norms).

Registered, they pass through `torch.compile` and `torch.export` as they are. A forward operator
also returns what its gradient needs, as one tensor: per row the normalized summed inputs (where
there are none, the gates), for the LSTM the new cell before its norm, and the norms' scales; at the
end the number of threads, since the order of a row's units depends on it and the gradient may be
asked for under another number.

Imported at first use: torch's registration brings in SymPy, which `import layernorm` need not.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from layernorm.recurrent import definition, fused
from layernorm.recurrent.cpu.binding import call, pool
from layernorm.recurrent.definition import GRUWeights, LSTMWeights
from layernorm.recurrent.fused import no_second_derivative, registered, watched
from layernorm.recurrent.variants import FORMS, Form


class Operator(NamedTuple):
    """A computation with its gradient, and both as they are registered with torch."""

    registered: Callable
    compute: Callable
    backward: Callable
    compute_backward: Callable
    setup: Callable  # what the gradient needs, into ctx
    gradient: Callable  # (ctx, backward, is dx wanted, gradients of the outputs)
    again: Callable  # (ctx, which are wanted, gradients of the outputs): by the definition


class _Direct(torch.autograd.Function):
    """An operator without torch's dispatcher, whose bookkeeping in Python costs a tenth of a
    millisecond: as much as some nets."""

    @staticmethod
    def forward(ctx, operator: Operator, *inputs):
        output = operator.compute(*inputs)
        operator.setup(ctx, inputs, output)
        ctx.operator = operator
        ctx.mark_non_differentiable(output[-1])
        return output

    @staticmethod
    def backward(ctx, *gradients):
        operator, wanted = ctx.operator, ctx.needs_input_grad[1:]
        if fused.again(gradients):
            return None, *operator.again(ctx, wanted, gradients[:-1])
        return None, *operator.gradient(ctx, operator.compute_backward, wanted[0], *gradients)


def _apply(operator: Operator, *inputs):
    """The registered operator for whoever looks at operators (graph capture, transforms, modes,
    subclasses of tensors), the computation itself for everyone else."""
    if watched(inputs):
        return operator.registered(*inputs)
    *_, keep = inputs
    return _Direct.apply(operator, *inputs) if keep else operator.compute(*inputs)


def _keep(like: Tensor, rows: int, widths: dict[str, int], threads: int) -> Tensor:
    """Room for arrays of so many numbers per row, and for the number of threads."""
    kept = pool.take(like, rows * sum(widths.values()) + 1)
    kept[-1] = threads
    return kept


def _parts(kept: Tensor, like: Tensor, widths: dict[str, int]) -> dict[str, int]:
    """The addresses of the arrays in `kept`, of so many numbers per row of `like`."""
    rows = like.shape[0]
    expected = (rows * sum(widths.values()) + 1,)
    fits = kept.dtype == like.dtype and kept.device.type == "cpu" and kept.is_contiguous()
    if not fits or kept.shape != expected:
        raise ValueError(
            f"kept must be contiguous {like.dtype} of shape {expected} on the CPU, as the forward "
            f"pass returned it, got {kept.dtype} of shape {tuple(kept.shape)} on {kept.device}; "
            "hooks on saved tensors must give back what they were given"
        )
    address, size, parts = kept.data_ptr(), kept.element_size(), {}
    for name, width in widths.items():
        parts[name] = address
        address += rows * width * size
    return parts


def _with_copies(gradients: dict[str, Tensor], copies: int) -> list[Tensor]:
    """The gradients, and copies of that of the biases, which are equal: each parameter has a tensor
    of its own, since clipping scales them in place."""
    return [*gradients.values(), *(gradients["dbias"].clone() for _ in range(copies))]


def _addresses(**tensors: Tensor) -> dict[str, int]:
    """The addresses of the tensors that are not empty."""
    return {name: t.data_ptr() for name, t in tensors.items() if t.numel()}


def _lstm_widths(units: int, variant: str) -> dict[str, int]:
    form = FORMS[variant]
    widths = dict.fromkeys(("hat_h", "hat_x")[: form.terms] or ("gates",), 4 * units)
    return widths | {"cell": units, "scales": 2 * _groups(form) + 3}


def _groups(form: Form) -> int:
    """Norms of a term, in each row; the library counts one where there is none."""
    return len(form.norms) or 1


def _gru_widths(units: int) -> dict[str, int]:
    return {"hat_h": 3 * units, "hat_x": 3 * units, "scales": 4}


def _lstm_numbers(variant: str, eps: float, reverse: bool, threads: int) -> dict:
    form = FORMS[variant]
    norms = {"terms": form.terms, "groups": _groups(form), "carry": form.carry}
    return norms | _gru_numbers(eps, reverse, threads)


def _gru_numbers(eps: float, reverse: bool, threads: int) -> dict:
    return {"eps": eps, "reverse": reverse, "threads": threads}


def compute_lstm(
    x: Tensor, h0: Tensor, c0: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor | None,
    gain_x: Tensor | None, bias_x: Tensor | None, gain_h: Tensor | None, bias_h: Tensor | None,
    gain_c: Tensor | None, bias_c: Tensor | None, batch_sizes: Tensor | None, eps: float,
    variant: str, reverse: bool, keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """y, h_n, c_n, and what the backward pass needs (empty unless `keep`)."""
    rows, units = x.shape[0], h0.shape[1]
    if rows == 0:
        return x.new_empty(0, units), h0.clone(), c0.clone(), x.new_empty(int(keep))
    y, h_n, c_n = x.new_empty(rows, units), torch.empty_like(h0), torch.empty_like(c0)
    widths = _lstm_widths(units, variant)
    threads = torch.get_num_threads()
    kept = _keep(x, rows, widths, threads) if keep else x.new_empty(0)
    call(
        "lstm_forward", 4, batch_sizes, _lstm_numbers(variant, eps, reverse, threads),
        {"x": x, "h0": h0, "c0": c0, "w_ih": w_ih, "w_hh": w_hh, "bias": bias, "gain_x": gain_x,
         "bias_x": bias_x, "gain_h": gain_h, "bias_h": bias_h, "gain_c": gain_c, "bias_c": bias_c},
        _addresses(y=y, h_n=h_n, c_n=c_n) | (_parts(kept, x, widths) if keep else {}),
    )  # fmt: skip
    return y, h_n, c_n, kept


_lstm = registered("lstm", compute_lstm, "cpu")


@_lstm.register_fake
def _(x, h0, c0, w_ih, *others):
    rows, units = x.shape[0], h0.shape[1]
    kept = rows * sum(_lstm_widths(units, others[-3]).values()) + 1 if others[-1] else 0
    return (
        x.new_empty(rows, units),
        h0.new_empty(h0.shape),
        c0.new_empty(c0.shape),
        (x.new_empty(kept)),
    )


def compute_lstm_backward(
    dy: Tensor | None, dh_n: Tensor | None, dc_n: Tensor | None, y: Tensor, kept: Tensor,
    x: Tensor, h0: Tensor, c0: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor | None,
    gain_x: Tensor | None, bias_x: Tensor | None, gain_h: Tensor | None, bias_h: Tensor | None,
    gain_c: Tensor | None, bias_c: Tensor | None, batch_sizes: Tensor | None, eps: float,
    variant: str, reverse: bool, needs_dx: bool,
) -> list[Tensor]:  # fmt: skip
    """Gradients of x (empty unless `needs_dx`), h0, c0, w_ih, w_hh, bias, gain_x, gain_h, gain_c,
    bias_c (of a norm that is not there: empty), bias_x, bias_h."""
    gradients = _lstm_gradients(x, h0, c0, w_ih, w_hh, gain_x, gain_h, gain_c, needs_dx)
    if x.shape[0] == 0:
        for name, gradient in gradients.items():
            carried = {"dh0": dh_n, "dc0": dc_n}.get(name)
            gradient.zero_() if carried is None else gradient.copy_(carried)
        return _with_copies(gradients, 2)
    call(
        "lstm_backward", 4, batch_sizes, _lstm_numbers(variant, eps, reverse, int(kept[-1])),
        {"x": x, "h0": h0, "c0": c0, "w_ih": w_ih, "w_hh": w_hh, "bias": bias, "gain_x": gain_x,
         "bias_x": bias_x, "gain_h": gain_h, "bias_h": bias_h, "gain_c": gain_c, "bias_c": bias_c,
         "y": y, "dy": torch.zeros_like(y) if dy is None else dy.contiguous(),
         "dh_n": None if dh_n is None else dh_n.contiguous(),
         "dc_n": None if dc_n is None else dc_n.contiguous()},
        _addresses(**gradients) | _parts(kept, x, _lstm_widths(h0.shape[1], variant)),
    )  # fmt: skip
    return _with_copies(gradients, 2)


def _lstm_gradients(x, h0, c0, w_ih, w_hh, gain_x, gain_h, gain_c, needs_dx) -> dict[str, Tensor]:
    absent = (0,)
    shapes = {
        "dx": x.shape if needs_dx else absent, "dh0": h0.shape, "dc0": c0.shape,
        "dw_ih": w_ih.shape, "dw_hh": w_hh.shape, "dbias": w_ih.shape[:1],
        "dgain_x": absent if gain_x is None else gain_x.shape,
        "dgain_h": absent if gain_h is None else gain_h.shape,
        "dgain_c": absent if gain_c is None else gain_c.shape,
        "dbias_c": absent if gain_c is None else gain_c.shape,
    }  # fmt: skip
    return {name: x.new_empty(shape) for name, shape in shapes.items()}


_lstm_backward = registered("lstm_backward", compute_lstm_backward, "cpu")


@_lstm_backward.register_fake
def _(dy, dh_n, dc_n, y, kept, x, h0, c0, w_ih, w_hh, bias, gain_x, bias_x, gain_h, bias_h, gain_c,
      *others):  # fmt: skip
    gradients = _lstm_gradients(x, h0, c0, w_ih, w_hh, gain_x, gain_h, gain_c, others[-1])
    return _with_copies(gradients, 2)


def _lstm_setup(ctx, inputs, output) -> None:
    y, _, _, kept = output
    ctx.save_for_backward(y, kept, *inputs[:13])
    ctx.rest = inputs[13:16]
    ctx.set_materialize_grads(False)


def _lstm_gradient(ctx, backward, needs_dx: bool, dy, dh_n, dc_n, _):
    saved = ctx.saved_tensors
    has = [t is not None for t in saved[2:]]
    dx, dh0, dc0, dw_ih, dw_hh, dbias, dgain_x, dgain_h, dgain_c, dbias_c, dbias_x, dbias_h = (
        backward(dy, dh_n, dc_n, *saved, *ctx.rest, needs_dx)
    )
    of = [dx if needs_dx else None, dh0, dc0, dw_ih, dw_hh]
    of += [dbias, dgain_x, dbias_x, dgain_h, dbias_h, dgain_c, dbias_c, None]
    return *(g if there else None for g, there in zip(of, has, strict=True)), None, None, None, None


def _lstm_again(ctx, wanted, gradients):
    *inputs, batch_sizes = ctx.saved_tensors[2:]
    eps, variant, reverse = ctx.rest

    def function(x, h0, c0, w_ih, w_hh, b, *pairs):
        weights = LSTMWeights(w_ih, w_hh, b, *_pairs(pairs))
        return definition.lstm(x, batch_sizes, h0, c0, weights, eps, variant, reverse)

    found = fused.gradients(function, inputs, gradients, wanted[: len(inputs)])
    return *found, None, None, None, None, None


def _pairs(flat) -> list[tuple[Tensor, Tensor] | None]:
    """The norms' gains and biases in pairs; None for a norm that is not there."""
    return [None if g is None else (g, b) for g, b in zip(flat[::2], flat[1::2], strict=True)]


LSTM = Operator(
    _lstm,
    compute_lstm,
    _lstm_backward,
    compute_lstm_backward,
    _lstm_setup,
    _lstm_gradient,
    _lstm_again,
)
lstm = partial(_apply, LSTM)


def compute_gru(
    x: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor | None,
    gain_x: Tensor | None, bias_x: Tensor | None, gain_h: Tensor | None, bias_h: Tensor | None,
    batch_sizes: Tensor | None, eps: float, reverse: bool, keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """y, h_n, and what the backward pass needs (empty unless `keep`)."""
    rows, units = x.shape[0], h0.shape[1]
    if rows == 0:
        return x.new_empty(0, units), h0.clone(), x.new_empty(int(keep))
    y, h_n, widths = x.new_empty(rows, units), torch.empty_like(h0), _gru_widths(units)
    threads = torch.get_num_threads()
    kept = _keep(x, rows, widths, threads) if keep else x.new_empty(0)
    call(
        "gru_forward", 3, batch_sizes, _gru_numbers(eps, reverse, threads),
        {"x": x, "h0": h0, "w_ih": w_ih, "w_hh": w_hh, "bias": bias, "gain_x": gain_x,
         "bias_x": bias_x, "gain_h": gain_h, "bias_h": bias_h},
        _addresses(y=y, h_n=h_n) | (_parts(kept, x, widths) if keep else {}),
    )  # fmt: skip
    return y, h_n, kept


_gru = registered("gru", compute_gru, "cpu")


@_gru.register_fake
def _(x, h0, w_ih, *others):
    rows, units = x.shape[0], h0.shape[1]
    kept = rows * sum(_gru_widths(units).values()) + 1 if others[-1] else 0
    return x.new_empty(rows, units), h0.new_empty(h0.shape), x.new_empty(kept)


def compute_gru_backward(
    dy: Tensor | None, dh_n: Tensor | None, y: Tensor, kept: Tensor, x: Tensor, h0: Tensor,
    w_ih: Tensor, w_hh: Tensor, bias: Tensor | None, gain_x: Tensor | None,
    bias_x: Tensor | None, gain_h: Tensor | None, bias_h: Tensor | None,
    batch_sizes: Tensor | None, eps: float, reverse: bool, needs_dx: bool,
) -> list[Tensor]:  # fmt: skip
    """Gradients of x (empty unless `needs_dx`), h0, w_ih, w_hh, bias, bias_h, gain_x, gain_h
    (of norms that are not there: empty), bias_x."""
    gradients = _gru_gradients(x, h0, w_ih, w_hh, gain_x is not None, needs_dx)
    if x.shape[0] == 0:
        for name, gradient in gradients.items():
            carried = dh_n if name == "dh0" else None
            gradient.zero_() if carried is None else gradient.copy_(carried)
        return _with_copies(gradients, 1)
    call(
        "gru_backward", 3, batch_sizes, _gru_numbers(eps, reverse, int(kept[-1])),
        {"x": x, "h0": h0, "w_ih": w_ih, "w_hh": w_hh, "bias": bias, "gain_x": gain_x,
         "bias_x": bias_x, "gain_h": gain_h, "bias_h": bias_h, "y": y,
         "dy": torch.zeros_like(y) if dy is None else dy.contiguous(),
         "dh_n": None if dh_n is None else dh_n.contiguous()},
        _addresses(**gradients) | _parts(kept, x, _gru_widths(h0.shape[1])),
    )  # fmt: skip
    return _with_copies(gradients, 1)


def _gru_gradients(x, h0, w_ih, w_hh, normed, needs_dx) -> dict[str, Tensor]:
    per_gate = w_ih.shape[:1]
    of_gains = per_gate if normed else (0,)
    shapes = {
        "dx": x.shape if needs_dx else (0,), "dh0": h0.shape, "dw_ih": w_ih.shape,
        "dw_hh": w_hh.shape, "dbias": per_gate, "dbias_n": per_gate, "dgain_x": of_gains,
        "dgain_h": of_gains,
    }  # fmt: skip
    return {name: x.new_empty(shape) for name, shape in shapes.items()}


_gru_backward = registered("gru_backward", compute_gru_backward, "cpu")


@_gru_backward.register_fake
def _(dy, dh_n, y, kept, x, h0, w_ih, w_hh, bias, gain_x, *others):
    return _with_copies(_gru_gradients(x, h0, w_ih, w_hh, gain_x is not None, others[-1]), 1)


def _gru_setup(ctx, inputs, output) -> None:
    y, _, kept = output
    ctx.save_for_backward(y, kept, *inputs[:10])
    ctx.rest = inputs[10:12]
    ctx.set_materialize_grads(False)


def _gru_gradient(ctx, backward, needs_dx: bool, dy, dh_n, _):
    saved = ctx.saved_tensors
    dx, dh0, dw_ih, dw_hh, dbias, dbias_h, dgain_x, dgain_h, dbias_x = backward(
        dy, dh_n, *saved, *ctx.rest, needs_dx
    )
    of = [dx if needs_dx else None, dh0, dw_ih, dw_hh]
    of += [dbias, dgain_x, dbias_x, dgain_h, dbias_h, None]
    has = [t is not None for t in saved[2:]]
    return *(g if there else None for g, there in zip(of, has, strict=True)), None, None, None


def _gru_again(ctx, wanted, gradients):
    *inputs, batch_sizes = ctx.saved_tensors[2:]
    eps, reverse = ctx.rest

    def function(x, h0, w_ih, w_hh, b, *pairs):
        weights = GRUWeights(w_ih, w_hh, b, *_pairs(pairs))
        return definition.gru(x, batch_sizes, h0, weights, eps, reverse)

    found = fused.gradients(function, inputs, gradients, wanted[: len(inputs)])
    return *found, None, None, None, None


GRU = Operator(
    _gru, compute_gru, _gru_backward, compute_gru_backward, _gru_setup, _gru_gradient, _gru_again
)
gru = partial(_apply, GRU)


def _differentiable(operator: Operator) -> None:
    def gradient(ctx, *gradients):
        _, kept, *_ = ctx.saved_tensors
        if kept.dim() and kept.shape[0] == 0:  # captured where nothing needed a gradient
            return operator.again(ctx, ctx.needs_input_grad, gradients[:-1])
        return operator.gradient(ctx, operator.backward, ctx.needs_input_grad[0], *gradients)

    operator.registered.register_autograd(gradient, setup_context=operator.setup)
    operator.backward.register_autograd(no_second_derivative)


_differentiable(LSTM)
_differentiable(GRU)
