# ruff: noqa: E501  (a table, one line per case)
"""Plausible slips in the recurrent layers and cells, each caught by a test that real code passes.

A slip is the source of a module with one fragment replaced. A test fails when no check notices it,
when the fragment no longer stands in the source, and when the changed code does not run.
"""

import inspect
import sys
import types
from typing import NamedTuple

import pytest
from recurrent import recurrent_reference
from recurrent import test_cells as cells
from recurrent import test_layers as values
from recurrent import test_like_torch as properties
from torch.autograd.gradcheck import GradcheckError

import layernorm
from layernorm.recurrent import cells as real_cells
from layernorm.recurrent import definition, layers, parameters, variants

CHAIN = (variants, definition, parameters, layers, real_cells)


class Slip(NamedTuple):
    module: types.ModuleType
    name: str
    old: str
    new: str
    kind: str = "lstm"


V, D, P, L, C = CHAIN
SLIPS = [
    Slip(D, "backwards is forwards", "reversed(parts) if reverse else parts", "parts"),
    Slip(D, "backward outputs in the order of reading", "outputs.reverse()", "pass"),
    Slip(D, "states of ended sequences lost", "torch.cat([a, s[n:]])", "torch.cat([a, 0 * s[n:]])"),
    Slip(D, "ended sequences go on", "s[:n] for s in states", "s[s.shape[0] - n :] for s in states"),
    Slip(D, "b forgotten", "b=_or_zeros(weights.b, weights.w_ih)", "b=_or_zeros(None, weights.w_ih)"),
    Slip(D, "b forgotten", "b = _or_zeros(weights.b, weights.w_ih)", "b = _or_zeros(None, weights.w_ih)", "gru"),
    Slip(D, "the norm's bias forgotten", "_or_zeros(b, weights.w_ih)", "_or_zeros(None, weights.w_ih)", "rnn"),
    Slip(D, "norms of the two terms swapped", "b, w.ln_ih, w.ln_hh", "b, w.ln_hh, w.ln_ih", "gru"),
    Slip(D, "relu is tanh", "ln, eps, nonlinearity)", "ln, eps)", "rnn"),
    Slip(D, "no gradient through time", "outputs.append(new[0])", "outputs.append(new[0])\n        new = [n.detach() for n in new]"),
    Slip(V, "norms of the two terms swapped", "norms = w.ln_ih, w.ln_hh", "norms = w.ln_hh, w.ln_ih"),
    Slip(V, "no gradient to the projection", "w.ln_c, eps, w.w_hr", "w.ln_c, eps, None if w.w_hr is None else w.w_hr.detach()"),
    Slip(V, "carried: the raw cell carried", "h, c = paper(x, h, c, w, eps)\n    return h, layer_norm(c, c.shape[-1:], *w.ln_c, eps)", "return paper(x, h, c, w, eps)"),
    Slip(V, "joint: input term outside the norm", "layer_norm(h @ w.w_hh.T + x @ w.w_ih.T, w.w_hh.shape[:1], *w.ln_hh, eps)", "layer_norm(h @ w.w_hh.T, w.w_hh.shape[:1], *w.ln_hh, eps) + x @ w.w_ih.T"),
    Slip(V, "joint: b forgotten", "w.w_hh.shape[:1], *w.ln_hh, eps) + w.b", "w.w_hh.shape[:1], *w.ln_hh, eps)"),
    Slip(V, "per_gate: one norm for all gates", "torch.cat(norms, -1)", "layer_norm(h @ w.w_hh.T + x @ w.w_ih.T, w.w_hh.shape[:1], *w.ln_hh, eps)"),
    Slip(V, "per_gate: gains of the first gate for all", "layer_norm(a, c.shape[-1:], gain, b, eps)", "layer_norm(a, c.shape[-1:], split[1][0], b, eps)"),
    Slip(V, "per_gate: the raw cell carried", "w.w_hr)\n    return h, layer_norm(c, c.shape[-1:], *w.ln_c, eps)", "w.w_hr)\n    return h, c"),
    Slip(V, "cell_only: b forgotten", "x @ w.w_ih.T + w.b\n    return", "x @ w.w_ih.T\n    return"),
    Slip(L, "the second direction reads forwards", "self._weights(suffix), d == 1)", "self._weights(suffix), False)"),
    Slip(L, "both directions with the first's weights", "self._weights(suffix)", 'self._weights(suffix.removesuffix("_reverse"))'),
    Slip(L, "the second layer from the first's state", "s[len(last)] for s in initial", "s[len(last) % 2] for s in initial"),
    Slip(L, "output reshaped instead of transposed back", "output = output.transpose(0, 1)", "output = output.reshape(batch, steps, -1)"),
    Slip(L, "input reshaped instead of transposed", "input.transpose(0, 1)", "input.reshape(input.shape[1], input.shape[0], -1)"),
    Slip(L, "dropout after the last layer", "layer < self.num_layers - 1", "layer < self.num_layers"),
    Slip(L, "dropout without effect", "x = F.dropout(", "F.dropout("),
    Slip(L, "dropout in evaluation", "self.dropout, self.training", "self.dropout, True"),
    Slip(L, "initial states in another order than the rows", "[s.index_select(1, order) for s in hx]", "list(hx)"),
    Slip(L, "last states in another order than the sequences", "if back is not None:", "if False:"),
    Slip(L, "initial states ignored", "if hx is None:", "if True:"),
    Slip(L, "a random initial state", "weight.new_zeros(count, batch, size)", "weight.new_empty(count, batch, size).normal_()"),
    Slip(L, "the variant ignored", "self.eps, self.variant, reverse", 'self.eps, "carried", reverse'),
    Slip(L, "eps of the constructor ignored", "weights, self.eps, self.variant", "weights, 1e-5, self.variant"),
    Slip(L, "eps of the constructor ignored", "weights, self.eps, reverse)", "weights, 1e-5, reverse)", "gru"),
    Slip(L, "eps of the constructor ignored", "weights, self.eps, reverse, self.non", "weights, 1e-5, reverse, self.non", "rnn"),
    Slip(P, "gains overwritten by the weights' start", 'name.startswith("weight_")', '"weight_" in name'),
    Slip(P, "gains start at 0", 'float(name.startswith("ln_") and "_weight" in name)', "0.0"),
    Slip(P, "forget bias on the input gate", "parameter[self.hidden_size : 2 * self.hidden_size]", "parameter[: self.hidden_size]"),
    Slip(P, "biases start as weights", 'startswith("weight_")', 'startswith(("weight_", "bias_"))'),
    Slip(C, "eps of the constructor ignored", 'self._weights(""), self.eps, self.variant', 'self._weights(""), 1e-5, self.variant'),
    Slip(C, "the paper's variant carries the normalized cell", "self.eps, self.variant)", 'self.eps, "carried" if self.variant == "paper" else self.variant)'),
    Slip(C, "relu is tanh", ", nonlinearity=self.nonlinearity)[1:]", ")[1:]", "rnn"),
    Slip(C, "the given state ignored", "if hx is None:", "if True:"),
]  # fmt: skip

CASES = [
    *(values.Case("lstm", 1, False, "padded", True, True, (("variant", v),)) for v in variants.VARIANTS),
    values.Case("lstm", 2, True, "unsorted", True, True, (("proj_size", 2), ("variant", "joint"))),
    values.Case("gru", 1, True, "packed", True, True),
    values.Case("rnn", 1, False, "padded", True, True),
    values.Case("rnn", 1, False, "padded", True, True, (("nonlinearity", "relu"),)),
]  # fmt: skip
ASKED = [
    properties.test_batch_first_transposes_in_and_out,
    properties.test_initial_states_default_to_zero,
    properties.test_dropout_acts_between_layers_and_only_in_training,
    properties.test_dropout_of_everything_leaves_the_second_layer_without_input,
]


def checks(kind: str):
    """The checks of one kind of layer and cell, by name."""
    for case in (c for c in CASES if c.kind == kind):
        yield str(case), lambda case=case: values.compare(case, "reference", 3, 1e-11)
    for function in ASKED:
        yield function.__name__, lambda f=function: f(properties.maker(kind, "reference"))
    for options in (o for k, o in cells.FORMS if k == kind):
        yield f"cell {options}", lambda o=options: cells.test_a_cell_over_time_is_the_layer(kind, o)
    yield "starts", lambda: cells.test_how_parameters_start(kind)
    yield "forget bias", cells.test_the_forget_bias_is_b_of_the_forget_gate_alone


def first_to_fail(checks) -> str | None:
    for name, check in checks:
        try:
            check()
        except (AssertionError, GradcheckError):
            return name
    return None


def install(slip: Slip, monkeypatch) -> None:
    """Put the changed module, and all that imports it anew, where the tests find layers, cells."""
    found = {}
    for module in CHAIN[CHAIN.index(slip.module) :]:
        source, name = inspect.getsource(module), module.__name__
        if module is slip.module:
            assert slip.old in source, f"{slip.old!r} no longer stands in {name}"
            source = source.replace(slip.old, slip.new)
        found[name] = types.ModuleType(name)
        exec(compile(source, f"slip in {name}", "exec"), vars(found[name]))
        monkeypatch.setitem(sys.modules, name, found[name])
        monkeypatch.setattr(layernorm.recurrent, name.rpartition(".")[2], found[name])
    for kind in recurrent_reference.LAYERS:
        ours = f"LayerNorm{kind.upper()}"
        layer = vars(found["layernorm.recurrent.layers"])[ours] if L.__name__ in found else None
        cell = vars(found["layernorm.recurrent.cells"])[f"{ours}Cell"]
        if layer is not None:
            monkeypatch.setitem(recurrent_reference.LAYERS, kind, layer)
            monkeypatch.setattr(layernorm, ours, layer)
        monkeypatch.setitem(cells.CELLS, kind, (cell, cells.CELLS[kind][1]))
        monkeypatch.setattr(layernorm, f"{ours}Cell", cell)


@pytest.mark.parametrize("slip", SLIPS, ids=lambda s: f"{s.module.__name__[20:]}: {s.name}")
def test_a_check_notices(slip, monkeypatch):
    install(slip, monkeypatch)
    catcher = first_to_fail(checks(slip.kind))
    assert catcher is not None, f"nothing notices: {slip.name}"
    print(f"{slip.name}: caught by {catcher}")


@pytest.mark.parametrize("kind", recurrent_reference.LAYERS)
def test_the_unchanged_source_is_not_caught(kind):
    assert first_to_fail(checks(kind)) is None
