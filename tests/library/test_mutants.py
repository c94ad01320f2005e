# ruff: noqa: E501  (a table, one line per case)
"""Wrong variants of the definitions, each caught by the very checks that the real ones pass.

A mutant is the source of `layernorm.functional` with one fragment replaced; which check catches it
is printed (pytest -s, or -rP). A test fails when no check notices the mutant, when the fragment
no longer stands in the source, and when the mutant does not run: an error other than a failed
check proves nothing about the checks.
"""

import ast
import inspect
import types
import warnings
from typing import NamedTuple

import pytest
from checks import CHECKS
from torch.autograd.gradcheck import GradcheckError

from layernorm import functional


class Mutant(NamedTuple):
    operation: str  # whose checks must catch it
    slip: str
    old: str
    new: str
    function: str = ""  # where the fragment stands, if not in the operation itself


ROOT = "centered / torch.sqrt(var + eps)"
MOMENT = "mean(centered.square())"
COUNT = "sum(dims, keepdim=True) / valid.sum()"
AFFINE = "_per_channel(weight, x), _per_channel(bias, x)"
CENTERED = ("layer_norm", "group_norm", "instance_norm", "batch_norm")
TRACKED = ("instance_norm", "batch_norm")
STEPS = ("ln_rnn_step", "ln_lstm_step", "ln_gru_step")
CHANNELS = ("group_norm", "instance_norm", "batch_norm")

# Slips that several definitions can suffer.
SHARED = [
    *(Mutant(op, "eps outside the root", ROOT, "centered / (torch.sqrt(var) + eps)") for op in CENTERED),
    *(Mutant(op, "eps forgotten", ROOT, "centered / torch.sqrt(var)") for op in CENTERED),
    *(Mutant(op, "eps as a floor", ROOT, "centered / var.clamp(min=eps).sqrt()") for op in CENTERED),
    *(Mutant(op, "divided by the variance", ROOT, "centered / (var + eps)") for op in CENTERED),
    *(Mutant(op, "mean not subtracted", ROOT, "a / torch.sqrt(var + eps)") for op in CENTERED),
    *(Mutant(op, "no gradient through the variance", ROOT, ROOT.replace("var", "var.detach()")) for op in CENTERED),
    *(Mutant(op, "no gradient through the mean", "mu = mean(a)", "mu = mean(a).detach()", "_moments") for op in CENTERED),
    *(Mutant(op, "centered once", "centered = centered - error", "", "_moments") for op in (*CENTERED, *STEPS)),
    *(
        Mutant(op, "overflow to zeros", "square.masked_fill(square == torch.inf, torch.nan)", "square", "_in_range")
        for op in (*CENTERED, "rms_norm", "weight_norm", *STEPS)
    ),
    *(Mutant(op, "running mean of the first centering", "return mu + error", "return mu", "_moments") for op in TRACKED),
    *(Mutant(op, "default eps 1e-6", "eps: float = 1e-5", "eps: float = 1e-6") for op in CENTERED),
    *(
        Mutant(op, slip, MOMENT, new, "_moments")
        for op in CENTERED
        for slip, new in (
            ("unbiased variance", "a.var(dims, keepdim=True)"),
            ("E[x^2] - E[x]^2", "mean(a.square()) - mu.square()"),
            ("second moment about zero", "mean(a.square())"),
        )
    ),
    *(
        Mutant(op, "statistics kept in half precision", "x.float() if", "x if", "_statistics_type")
        for op in (*CENTERED, "rms_norm", "weight_norm")
    ),
    *(
        Mutant(op, "result stays in float32", ".to(x.dtype)", "")
        for op in (*CENTERED, "rms_norm")
    ),
    *(Mutant(op, "bias inside the gain", "else y * weight", "else (y + bias) * weight - bias", "_affine") for op in CENTERED),
    *(Mutant(op, "gain forgotten", "else y * weight", "else y", "_affine") for op in (*CENTERED, "rms_norm")),
    *(Mutant(op, "bias forgotten", "else y + bias", "else y", "_affine") for op in CENTERED),
    *(
        Mutant(op, "gain and bias swapped", AFFINE, "_per_channel(bias, x), _per_channel(weight, x)")
        for op in CHANNELS
    ),
    *(
        Mutant(op, slip, old, new, "_update")
        for op in TRACKED
        for slip, old, new in (
            ("momentum reversed", "(1 - momentum) * running + momentum * new", "momentum * running + (1 - momentum) * new"),
            ("running statistics never updated", "running.copy_", "torch.clone"),
        )
    ),
    *(Mutant(op, "running variance biased", " * n / (n - 1)", "") for op in TRACKED),
    *(Mutant(op, "default momentum 0.9", "momentum: float = 0.1", "momentum: float = 0.9") for op in TRACKED),
    *(Mutant(op, "empty batch updates the running statistics", "if x.numel():", "if True:") for op in TRACKED),
]  # fmt: skip

STEPWISE = [
    *(Mutant(op, "statistics of the whole batch", "_trailing(normalized_shape)", "tuple(range(-x.dim(), 0))", "layer_norm") for op in STEPS),
    *(Mutant(op, "result stays in float32", ".to(x.dtype)", "", "layer_norm") for op in ("ln_rnn_step", "ln_gru_step")),
    Mutant("ln_lstm_step", "cell kept in another type", "h @ w_hr.T, c", "h @ w_hr.T, c.float()", "_lstm_update"),
    Mutant("ln_rnn_step", "no gradient to the old state", "h @ w_hh.T", "h.detach() @ w_hh.T"),
    Mutant("ln_lstm_step", "no gradient to the old cell", "torch.sigmoid(f) * c", "torch.sigmoid(f) * c.detach()", "_lstm_update"),
    Mutant("ln_gru_step", "no gradient to the old state", "torch.sigmoid(z) * h", "torch.sigmoid(z) * h.detach()"),
]  # fmt: skip

OWN = [
    Mutant("layer_norm", "wrong axis: the batch", "_trailing(normalized_shape)", "(0,)"),
    Mutant("layer_norm", "only the last of two dimensions", "_trailing(normalized_shape)", "(-1,)"),
    Mutant("layer_norm", "gain and bias swapped", "weight, bias)", "bias, weight)"),
    Mutant("rms_norm", "wrong axis: the batch", "_trailing(normalized_shape)", "(0,)"),
    Mutant("rms_norm", "mean subtracted", "_affine(a /", "_affine((a - a.mean(_trailing(normalized_shape), keepdim=True)) /"),
    Mutant("rms_norm", "sum instead of mean", ".mean(_tr", ".sum(_tr"),
    Mutant("rms_norm", "eps outside the root", "torch.sqrt(mean_square + eps)", "(torch.sqrt(mean_square) + eps)"),
    Mutant("rms_norm", "eps forgotten", "torch.sqrt(mean_square + eps)", "torch.sqrt(mean_square)"),
    Mutant("rms_norm", "default eps 1e-5", "torch.finfo(a.dtype).eps", "1e-5"),
    Mutant("rms_norm", "default eps of the input's type", "torch.finfo(a.dtype).eps", "torch.finfo(x.dtype).eps"),
    Mutant("rms_norm", "no gradient through the root", "mean_square + eps", "mean_square.detach() + eps"),
    Mutant("group_norm", "over all channels", "range(2, a.dim())", "range(1, a.dim())"),
    Mutant("group_norm", "every channel by itself", "range(2, a.dim())", "range(3, a.dim())"),
    Mutant("group_norm", "channels dealt out to the groups", "(num_groups, x.shape[1] // num_groups)", "(x.shape[1] // num_groups, num_groups)"),
    Mutant("instance_norm", "over the channels too", "range(2, x.dim())", "range(1, x.dim())"),
    Mutant("instance_norm", "over the last dimension only", "range(2, x.dim())", "range(x.dim() - 1, x.dim())"),
    Mutant("instance_norm", "running statistics of the first case", "mu.mean(0)", "mu[0]"),
    Mutant("instance_norm", "running statistics unused in evaluation", "if use_input_stats:", "if True:"),
    Mutant("batch_norm", "wrong axis: positions not averaged", "(0, *range(2, x.dim()))", "(0,)"),
    Mutant("batch_norm", "wrong axis: every case by itself", "(0, *range(2, x.dim()))", "tuple(range(1, x.dim()))"),
    Mutant("batch_norm", "running statistics unused in evaluation", "if training:", "if True:"),
    Mutant("batch_norm", "running statistics move twice as fast", "mu.flatten(), mom", "mu.flatten(), 2 * mom"),
    Mutant("batch_norm", "running statistics carry gradients", "with torch.no_grad():", "if True:", "_update"),
    Mutant("batch_norm", "padding counted in the number", COUNT, COUNT.replace("sum()", "numel()"), "_moments"),
    Mutant("batch_norm", "padding counted in the variance", "torch.where(valid, t, 0)", "t", "_moments"),
    Mutant("batch_norm", "padding multiplied by zero", "torch.where(valid, _statistics_type(x), 0)", "_statistics_type(x) * valid"),
    Mutant("batch_norm", "padding normalized in the output", "torch.where(valid, y, 0)", "y"),
    Mutant("batch_norm", "padding multiplied away in the output", "torch.where(valid, y, 0)", "y * valid"),
    Mutant("batch_norm", "mask means padding", "mask.unsqueeze(1)", "~mask.unsqueeze(1)"),
    Mutant("batch_norm", "mask unused", "if mask is None else mask.unsqueeze(1)", ""),
    Mutant("batch_norm", "count in half precision", COUNT, COUNT.replace("sum()", "sum().half()"), "_moments"),
    Mutant("weight_norm", "root forgotten", ".sqrt()", ""),
    Mutant("weight_norm", "the wrong dimension keeps its norms", "d != dim % v.dim()", "d == dim % v.dim()"),
    Mutant("weight_norm", "one norm for all", "whole or d != dim % v.dim()", "True"),
    Mutant("weight_norm", "mean instead of sum", ".sum(others", ".mean(others"),
    Mutant("weight_norm", "-1 taken for the last dimension", "dim is None or dim == -1", "dim is None"),
    Mutant("weight_norm", "length forgotten", "(g * a / norm)", "(g.sign() * a / norm)"),
    Mutant("weight_norm", "no gradient through the norm", "a / norm", "a / norm.detach()"),
    Mutant("weight_norm", "result stays in float32", ".to(v.dtype)", ""),
    *(
        Mutant(op, slip, old, new)
        for op, f in (("dynamic_tanh", "torch.tanh"), ("dynamic_erf", "torch.erf"))
        for slip, old, new in (
            ("alpha outside", f"{f}(alpha * a", f"alpha * {f}(a"),
            ("alpha divides", "alpha * a", "a / alpha"),
            ("alpha does not learn", "alpha * a", "float(alpha) * a"),
            ("a norm before it", "a = _statistics_type(x)", "a = layer_norm(_statistics_type(x), x.shape[-1:])"),
            ("gain and bias swapped", "weight, bias)", "bias, weight)"),
            ("half precision inside", "_statistics_type(x)", "x"),
            ("result stays in float32", ".to(x.dtype)", ""),
            ("cut off instead of curved", f, "(lambda t: t.clamp(-1, 1))"),
        )
    ),
    Mutant("dynamic_erf", "shift outside", "torch.erf(alpha * a + shift)", "torch.erf(alpha * a) + shift"),
    Mutant("dynamic_erf", "shift before alpha", "alpha * a + shift", "alpha * (a + shift)"),
    Mutant("dynamic_erf", "tanh", "torch.erf", "torch.tanh"),
    Mutant("dynamic_erf", "the normal distribution's argument", "alpha * a + shift", "(alpha * a + shift) / 2**0.5"),
    Mutant("ln_rnn_step", "each term normalized by itself", "layer_norm(a, h.shape[-1:], *ln, eps)", "layer_norm(h @ w_hh.T, h.shape[-1:], *ln, eps) + layer_norm(x @ w_ih.T, h.shape[-1:], *ln, eps)"),
    Mutant("ln_rnn_step", "normalized after tanh", "f(layer_norm(a, h.shape[-1:], *ln, eps))", "layer_norm(f(a), h.shape[-1:], *ln, eps)"),
    Mutant("ln_rnn_step", "gain and bias swapped", "*ln,", "*ln[::-1],"),
    Mutant("ln_rnn_step", "input term forgotten", "h @ w_hh.T + x @ w_ih.T", "h @ w_hh.T"),
    Mutant("ln_rnn_step", "weight not transposed", "h @ w_hh.T", "h @ w_hh"),
    Mutant("ln_rnn_step", "eps not passed on", "*ln, eps", "*ln"),
    Mutant("ln_lstm_step", "normalized cell carried", "return h if w_hr is None else h @ w_hr.T, c", "return h, layer_norm(c, c.shape[-1:], *ln_c, eps)", "_lstm_update"),
    Mutant("ln_lstm_step", "cell not normalized", "torch.tanh(layer_norm(c, c.shape[-1:], *ln_c, eps))", "torch.tanh(c)", "_lstm_update"),
    Mutant("ln_lstm_step", "cell normalized after tanh", "torch.tanh(layer_norm(c, c.shape[-1:], *ln_c, eps))", "layer_norm(torch.tanh(c), c.shape[-1:], *ln_c, eps)", "_lstm_update"),
    Mutant("ln_lstm_step", "one norm on the sum", "layer_norm(h @ w_hh.T, stacked, *ln_hh, eps)\n        + layer_norm(x @ w_ih.T, stacked, *ln_ih, eps)", "layer_norm(h @ w_hh.T + x @ w_ih.T, stacked, *ln_ih, eps)"),
    Mutant("ln_lstm_step", "b inside the norm", "(x @ w_ih.T, stacked, *ln_ih, eps)\n        + b", "(x @ w_ih.T + b, stacked, *ln_ih, eps)"),
    Mutant("ln_lstm_step", "b added twice", "+ b\n", "+ b + b\n"),
    Mutant("ln_lstm_step", "gains of the two terms swapped", "w_hh.T, stacked, *ln_hh", "w_hh.T, stacked, *ln_ih"),
    Mutant("ln_lstm_step", "the paper's gate order", "i, f, g, o = ", "f, i, o, g = ", "_lstm_update"),
    Mutant("ln_lstm_step", "output and candidate swapped", "i, f, g, o = ", "i, f, o, g = ", "_lstm_update"),
    Mutant("ln_lstm_step", "forget bias of one", "torch.sigmoid(f)", "torch.sigmoid(f + 1)", "_lstm_update"),
    Mutant("ln_lstm_step", "every gate normalized by itself", "layer_norm(h @ w_hh.T, stacked, *ln_hh, eps)", "layer_norm((h @ w_hh.T).unflatten(-1, (4, -1)), h.shape[-1:], None, None, eps).flatten(-2) * ln_hh[0] + ln_hh[1]"),
    Mutant("ln_lstm_step", "cell and state returned in the wrong order", "return h if w_hr is None else h @ w_hr.T, c", "return c, h", "_lstm_update"),
    Mutant("ln_lstm_step", "eps not passed on to the cell", "*ln_c, eps", "*ln_c", "_lstm_update"),
    Mutant("ln_gru_step", "the paper's update gate", "(1 - torch.sigmoid(z)) * n + torch.sigmoid(z) * h", "(1 - torch.sigmoid(z)) * h + torch.sigmoid(z) * n"),
    Mutant("ln_gru_step", "the paper's gate order", "r, z = ", "z, r = "),
    Mutant("ln_gru_step", "b_n inside the reset product", "n_x + b[both:] + torch.sigmoid(r) * n_h", "n_x + torch.sigmoid(r) * (n_h + b[both:])"),
    Mutant("ln_gru_step", "b forgotten in the gates", " + b[:both]", ""),
    Mutant("ln_gru_step", "gains of the two terms swapped", "norms(h @ w_hh.T, *ln_hh)", "norms(h @ w_hh.T, *ln_ih)"),
    Mutant("ln_gru_step", "reset gate before the norm", "torch.sigmoid(r) * n_h", "norms((torch.sigmoid(r) * h) @ w_hh.T if r.shape == h.shape else 0, *ln_hh)[1]"),
    Mutant("ln_gru_step", "all 3H normalized together", "gates = layer_norm(a[..., :both], (both,), gain[:both], bias[:both], eps)", "gates = layer_norm(a, a.shape[-1:], gain, bias, eps)[..., :both]"),
    Mutant("ln_gru_step", "candidate not normalized", "layer_norm(a[..., both:], h.shape[-1:], gain[both:], bias[both:], eps)", "a[..., both:] * gain[both:] + bias[both:]"),
    Mutant("ln_gru_step", "every gate normalized by itself", "layer_norm(a[..., :both], (both,), gain[:both], bias[:both], eps)", "layer_norm(a[..., :both].unflatten(-1, (2, -1)), h.shape[-1:], None, None, eps).flatten(-2) * gain[:both] + bias[:both]"),
    Mutant("ln_gru_step", "eps not passed on to the gates", "bias[:both], eps", "bias[:both]"),
]  # fmt: skip

MUTANTS = SHARED + STEPWISE + OWN
SOURCE = inspect.getsource(functional)
SPANS = {n.name: n for n in ast.parse(SOURCE).body if isinstance(n, ast.FunctionDef)}


def apply(mutant: Mutant) -> types.ModuleType:
    """`layernorm.functional` with the mutant's fragment replaced in its function."""
    node = SPANS[mutant.function or mutant.operation]
    lines = SOURCE.splitlines(keepends=True)
    original = "".join(lines[node.lineno - 1 : node.end_lineno])
    assert mutant.old in original, f"{mutant.old!r} no longer stands in {node.name}"
    changed = original.replace(mutant.old, mutant.new)
    module = types.ModuleType("mutant")
    before, after = lines[: node.lineno - 1], lines[node.end_lineno :]
    exec(compile("".join([*before, changed, *after]), "mutant", "exec"), module.__dict__)
    return module


def caught_by(function, operation: str) -> str | None:
    """The first check that fails."""
    for name, check in CHECKS[operation].items():
        try:
            check(function, operation)
        except (AssertionError, GradcheckError):
            return name
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.operation}: {m.slip}")
def test_a_check_catches(mutant):
    function = getattr(apply(mutant), mutant.operation)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's about variances of one value
        catcher = caught_by(function, mutant.operation)
    assert catcher is not None, f"no check of {mutant.operation} notices: {mutant.slip}"
    print(f"{mutant.operation}: {mutant.slip}: caught by {catcher}")


@pytest.mark.parametrize("operation", CHECKS)
def test_the_unchanged_source_is_not_caught(operation):
    nothing = Mutant(operation, "none", "return", "return")
    assert caught_by(getattr(apply(nothing), operation), operation) is None
