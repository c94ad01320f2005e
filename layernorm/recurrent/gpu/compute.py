"""The recurrent layers over whole sequences on the GPU: what stands around the loop over time.

Before the loop (`step`) one product with the inputs of all steps, and its norm; after it
one product for each weight's gradient, and the sums for gains and biases. Products are taken in the
inputs' type, everything else in float32 (float64 for float64).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from layernorm.kernels import launch
from layernorm.recurrent.gpu import persistent, step
from layernorm.recurrent.gpu.step import Arrays, Weights, plan, spans
from layernorm.recurrent.gpu.sums import column_sums
from layernorm.recurrent.variants import FORMS, Form


class Inputs(NamedTuple):
    """All that has a gradient; x, w_ih, w_hh of one type. None: the form has no such part."""

    x: Tensor
    h0: Tensor
    c0: Tensor | None
    w_ih: Tensor
    w_hh: Tensor
    bias: Tensor | None
    gain_x: Tensor | None
    bias_x: Tensor | None
    gain_h: Tensor | None
    bias_h: Tensor | None
    gain_c: Tensor | None
    bias_c: Tensor | None


class Settings(NamedTuple):
    """`sizes` are the rows of each step, `form` a name of `variants.FORMS`, `kind` the type
    of y; `keep` says whether there will be a gradient, `persistent` which loop takes the steps."""

    sizes: tuple[int, ...]
    eps: float
    form: str
    reverse: bool
    kind: torch.dtype
    keep: bool
    persistent: bool = False


def compute(inputs: Inputs, settings: Settings) -> list[Tensor]:
    """y, h_n, c_n (empty without a cell), and what the gradient needs (nothing unless `keep`)."""
    x, h0, c0, form = inputs.x, inputs.h0, inputs.c0, FORMS[settings.form]
    if x.shape[0] == 0:
        outputs = allocate(inputs, settings)
        outputs[1].copy_(h0)
        if form.cell:
            outputs[2].copy_(c0)
        return outputs
    y, h_n, c_n, a, before, cells, stats, *_ = allocate(inputs, settings._replace(keep=True))
    a_x = torch.mm(x, inputs.w_ih.t(), out=None if form.terms == 2 else a)
    z, of_x = _input_norms(form, a_x, inputs, settings)
    arrays = Arrays(a, before, cells, stats if settings.keep else None, z)
    order = plan(settings.sizes, settings.reverse)
    loop = persistent if settings.persistent else step
    loop.forward(form, order, arrays, _weights(form, inputs), h0, c0, settings.eps, y, h_n, c_n)
    if not settings.keep:
        return [y, h_n, c_n]
    return [y, h_n, c_n, *arrays[:4], *z, *([a_x, *of_x] if form.terms == 2 else [])]


def allocate(inputs: Inputs, settings: Settings) -> list[Tensor]:
    """Room for the results of `compute`."""
    x, form, (batch, units) = inputs.x, FORMS[settings.form], inputs.h0.shape
    rows, wide, per_row = x.shape[0], _wide(x), form.gates * units
    outputs = [
        x.new_empty(rows, units, dtype=settings.kind),
        x.new_empty(batch, units, dtype=wide),
        x.new_empty((batch, units) if form.cell else (0,), dtype=wide),
    ]
    if not settings.keep:
        return outputs
    statistics = 3 * (len(form.norms) + form.cell)
    outputs += [
        x.new_empty(rows, per_row),
        x.new_empty(rows, units),
        x.new_empty(rows, units, dtype=wide),
        x.new_empty(rows, statistics, dtype=wide),
    ]
    if form.terms == 2:
        outputs += [x.new_empty(rows, n * units, dtype=wide) for n in form.norms]
        outputs += [x.new_empty(rows, per_row)]
        for _ in form.norms:
            outputs += [x.new_empty(rows, 2, dtype=wide), x.new_empty(rows, dtype=wide)]
    return outputs


def _kept(form: Form, kept: list[Tensor]) -> tuple[Arrays, Tensor | None, list[Tensor]]:
    """The arrays, the input term before its norms, and these norms' means and scales."""
    inputs = len(form.norms) if form.terms == 2 else 0
    a_x = kept[4 + inputs] if inputs else None
    return Arrays(*kept[:4], tuple(kept[4 : 4 + inputs])), a_x, kept[5 + inputs :]


def _input_norms(form, a_x, inputs, settings) -> tuple[tuple[Tensor, ...], list[Tensor]]:
    """LN(W_x x) and all biases outside the recurrent norm, for each norm; their statistics."""
    if form.terms < 2:
        return (), []
    z, kept = [], []
    shift = _sum(inputs.bias_x, inputs.bias, inputs.bias_h if form.cell else None)
    for span in spans(form, inputs.h0.shape[1]):
        normalized, _, mean, rstd = launch.forward(
            a_x[:, span], None, inputs.gain_x[span], shift[span], 1, settings.eps, shift.dtype,
            settings.keep, True,
        )  # fmt: skip
        z.append(normalized)
        kept += [mean, rstd]
    return tuple(z), kept


def _weights(form: Form, inputs: Inputs) -> Weights:
    shift = None
    if not form.cell:
        shift = inputs.bias_h.contiguous()
    elif form.terms < 2:
        shift = _sum(inputs.bias_h, inputs.bias)
        if shift is None:
            shift = inputs.gain_c.new_zeros(inputs.w_hh.shape[0])
    vectors = (inputs.gain_h, shift, inputs.gain_c, inputs.bias_c)
    return Weights(inputs.w_hh, *(None if v is None else v.contiguous() for v in vectors))


def _sum(*biases: Tensor | None) -> Tensor | None:
    """In the type in which everything is computed; None if there are none."""
    there = [b.to(_wide(b)) for b in biases if b is not None]
    return sum(there[1:], there[0]) if there else None


def compute_gradient(
    dy: Tensor, dh_n: Tensor | None, dc_n: Tensor | None, kept: list[Tensor], inputs: Inputs,
    settings: Settings, needs_dx: bool,
) -> list[Tensor]:  # fmt: skip
    """Gradients of `Inputs`, in their order; of what is not there or not needed: empty."""
    x, h0, form = inputs.x, inputs.h0, FORMS[settings.form]
    if x.shape[0] == 0:
        given = {"h0": dh_n, "c0": dc_n}
        return [
            x.new_empty(0) if t is None or (name == "x" and not needs_dx)
            else torch.zeros_like(t) if given.get(name) is None
            else given[name].to(t.dtype, copy=True)
            for name, t in inputs._asdict().items()
        ]  # fmt: skip
    arrays, a_x, of_x = _kept(form, kept)
    order, units = plan(settings.sizes, settings.reverse), h0.shape[1]
    dy = dy.contiguous()
    loop = persistent if settings.persistent else step
    (p, dsums, dcell), dh0, dc0 = loop.backward(
        form, order, arrays, _weights(form, inputs), dy, dh_n, dc_n, h0.shape[0]
    )
    found = {"h0": dh0, "c0": dc0, "w_hh": torch.mm(dsums.t(), arrays.before)}
    if form.cell:
        sums, _ = column_sums(dcell)
        found["gain_c"], found["bias_c"] = (part.clone() for part in sums.split(units))
    found |= _recurrent_norms(form, p, arrays, units)
    found |= _input_term(form, p, dsums, a_x, of_x, inputs, needs_dx)
    if form.terms < 2:
        found["bias"] = found["bias_h"].clone()
    elif form.cell:
        found["bias_h"] = found["bias_x"].clone()
    return [
        x.new_empty(0) if t is None or found.get(name) is None else found[name].to(t.dtype)
        for name, t in inputs._asdict().items()
    ]


def _recurrent_norms(form: Form, p: Tensor, arrays: Arrays, units: int) -> dict[str, Tensor]:
    """Gradients of the gain and of what is added, of the norms of a."""
    count, parts = len(form.norms), []
    for k, span in enumerate(spans(form, units)):
        # the candidate's recurrent term has a gradient of its own, the last of the GRU's p
        of_p = slice(span.start + units, span.stop + units) if k and not form.cell else span
        mean, rstd = arrays.stats[:, k : count + k + 1 : count], arrays.stats[:, 2 * count + k]
        parts.append(column_sums(p[:, of_p], arrays.a[:, span], mean, rstd))
    if not parts:
        return {"bias_h": column_sums(p)[0]}
    plain, along = (torch.cat(sums) for sums in zip(*parts, strict=True))
    return {"gain_h": along, "bias_h": plain}


def _input_term(
    form: Form, p: Tensor, dsums: Tensor, a_x: Tensor | None, of_x: list[Tensor], inputs: Inputs,
    needs_dx: bool,
) -> dict[str, Tensor]:  # fmt: skip
    """Gradients of x and w_ih, and of the input term's norms."""
    x, w, found = inputs.x, inputs.w_ih, {}
    if form.terms == 2:
        gains, shifts, parts = [], [], []
        for k, span in enumerate(spans(form, inputs.h0.shape[1])):
            dterm, dgain, dshift = launch.backward(
                p[:, span], None, a_x[:, span], inputs.gain_x[span], inputs.bias_x[span],
                of_x[2 * k], of_x[2 * k + 1], 1, True, True, True,
            )  # fmt: skip
            gains.append(dgain)
            shifts.append(dshift)
            parts.append((span, dterm))
        found = {"gain_x": torch.cat(gains), "bias_x": torch.cat(shifts)}
        found["bias"] = found["bias_x"].clone()
    else:
        parts = [(slice(None), dsums)]
    dw = torch.empty_like(w, memory_format=torch.contiguous_format)
    for span, dterm in parts:
        torch.mm(dterm.t(), x, out=dw[span])
    found["w_ih"] = dw
    if needs_dx:
        (span, dterm), *others = parts
        found["x"] = torch.mm(dterm, w[span])
        for span, dterm in others:
            found["x"].addmm_(dterm, w[span])
    return found


def _wide(t: Tensor) -> torch.dtype:
    return launch._accumulator(t)[0]
