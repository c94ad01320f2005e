"""Worlds in which claims of chapters 4 to 8 have their third verdict."""

import math

import sympy
import torch

from layernorm import functional as F
from layernorm.lab.analysis import fisher, recurrence, weights
from layernorm.lab.claims.chapter_06 import swapped
from layernorm.lab.claims.chapter_07 import NATURAL
from layernorm.lab.claims.chapter_07_length import MLP
from layernorm.lab.claims.chapter_08 import STEP
from layernorm.lab.claims.checks import BATCH_NORM, LAYER_NORM
from layernorm.symbolic import gradients

FISHER, GAIN = "layernorm.lab.analysis.fisher", "layernorm.lab.claims.chapter_07_gain"
_layer_norm, _step, _mlp = F.layer_norm, recurrence.step, weights.networks.mlp
_natural, _outcomes, _log_partition = fisher.natural, fisher.outcomes, fisher.log_partition
_gradients = weights.gradients


def by_a_third(x, normalized_shape, **options):
    """Divides by the root mean square of the first third of the units."""
    return x / x[..., : x.shape[-1] // 3].square().mean(-1, keepdim=True).sqrt()


def exact(x, normalized_shape, weight=None, bias=None, eps=0.0):
    """Has no eps."""
    return _layer_norm(x, normalized_shape, weight, bias, 0.0)


def standardized(x, dim):
    """Has no eps, and gives 0 where numbers vary by no more than rounding errors."""
    centered = x - x.mean(dim, keepdim=True)
    var = centered.square().mean(dim, keepdim=True)
    varies = var > 1e-20 * x.square().amax(dim, keepdim=True)
    return varies * centered / torch.where(varies, var, 1).sqrt()


def of_any_row(x, normalized_shape, weight=None, bias=None, eps=0.0):
    """Layer normalization that is defined for constant rows, too."""
    return F._affine(standardized(x, -1), weight, bias)


def of_any_unit(x, mean, var, weight=None, bias=None, *rest, **options):
    """Batch normalization that is defined for constant units, too."""
    return F._affine(standardized(x, 0), weight, bias)


def even(x, normalized_shape, weight=None, bias=None, eps=0.0):
    """Takes the absolute value of what is normalized, and is defined for constant rows, too."""
    return F._affine(standardized(x, -1).abs(), weight, bias)


def over_cases(x, normalized_shape, **options):
    """Normalizes every unit by its own statistics over the cases."""
    return standardized(x, 0)


# No method has an eps, and weights and inputs are re-scaled by positive factors only.
NO_EPS = ("layernorm.methods.Form.has_eps", property(lambda form: False))
POSITIVE = (NO_EPS, ("layernorm.symbolic.invariances.DELTA", sympy.Symbol("delta", positive=True)))


def as_shares(family, method, w, b, g, x):
    """Has Gaussian outputs only, and takes a change of length as a share of it."""
    a = (x[:, None] * w).sum(-1)
    slope = a if method == "none" else standardized(a, 0 if method == "batch" else -1)
    return slope.T @ slope / len(x)


def product_of_lengths(w, x):
    """The summed input is the weights' length times the input's, whatever their directions."""
    return w.norm(dim=1) * x.norm(dim=1, keepdim=True)


def projected(net, cases):
    """Takes off the part of a gradient along its vector, or matrix under layer normalization."""
    whole = any(isinstance(module, torch.nn.LayerNorm) for module in net.modules())
    dims, found = (0, 1) if whole else (1,), []
    for w, g in zip(weights.hidden(net), _gradients(net, cases), strict=True):
        unit = (w / w.square().sum(dims, keepdim=True).sqrt()).detach()
        found.append(g - (g * unit).sum(dims, keepdim=True) * unit)
    return found


class Relative(torch.optim.SGD):
    """Gradient descent whose steps are multiplied by the length of what they change."""

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad *= p.detach().norm()
        super().step()


def both_alone(kind, x, h, w_ih, w_hh, *rest):
    """Normalizes both terms by themselves, without eps, and adds their absolute values, a tenth of
    that of the states."""
    states, inputs = (standardized(a, -1).abs() for a in (h @ w_hh.T, x @ w_ih.T))
    return torch.tanh(0.1 * states + inputs)


def leaky(kind, x, h, *rest):
    """A layer-normalized network goes a thousandth of each step."""
    after = _step(kind, x, h, *rest)
    return h + 0.001 * (after - h) if kind.startswith("ln-") else after


def by_the_formula(kind, x, h, w_ih, w_hh, gain, *rest):
    """Multiplies the state by what the formula says, less a share of 1/(100 H)."""
    slope = math.exp(recurrence.wide_exponent("ln-tanh", drive=0.0, gain=gain))
    return slope * (1 - 0.01 / h.shape[-1]) * h


WORLDS = {
    "layer-norm-mixes-features": ((LAYER_NORM, by_a_third),),
    "gradient-orthogonal-to-output": (
        NO_EPS,
        ("layernorm.symbolic.gradients.derive", gradients.derive.__wrapped__),  # forgets the other
    ),
    "table-1-row-batch": POSITIVE,
    "table-1-row-weight": POSITIVE,
    "table-1-row-layer": POSITIVE,
    "table-1-row-rms": POSITIVE,
    "table-1-row-group": POSITIVE,
    "layer-norm-ignores-scale-and-center-of-weights": POSITIVE,
    "layer-norm-ignores-scale-of-a-case": POSITIVE,
    "all-methods-ignore-scale-of-the-data": (
        ("layernorm.symbolic.definitions.statistics", swapped("weight", "layer")),
        *POSITIVE,
    ),
    "invariances-hold-exactly": (NO_EPS, (LAYER_NORM, exact)),
    # Layer normalization, too, normalizes every unit over the cases.
    "fisher-of-the-normalized-model": (
        ("layernorm.symbolic.geometry.statistics", swapped("layer", "batch")),
        (NATURAL, lambda m, *p: _natural("batch" if m == "layer" else m, *p)),
    ),
    # The rate grows by the size of 1 - ηλ, whatever its sign.
    "weight-decay-is-a-growing-learning-rate": (
        (
            "layernorm.lab.experiments.transformer.untrained.growing",
            lambda rate, decay, t: rate * abs(1 - rate * decay) ** (-2 * t - 1),
        ),
        (LAYER_NORM, exact),
    ),
    # The gain is added.
    "gain-metric-is-the-prediction-error": (
        (NATURAL, lambda m, w, b, g, x: _natural(m, w, b + g, 1 + 0 * g, x)),
        (BATCH_NORM, of_any_unit),
    ),
    "gain-metric-ignores-the-scale-of-inputs": (
        (f"{GAIN}.metric", as_shares),
        (f"{FISHER}.along_gain", as_shares),
    ),
    # All outputs are Gaussian.
    "length-metric-is-scaled-by-the-input": (
        (f"{GAIN}.summed", product_of_lengths),
        (NATURAL, lambda m, w, b, g, x: product_of_lengths(w, x) + b),
        (f"{FISHER}.outcomes", lambda family, *rest: _outcomes("gaussian", *rest)),
        (f"{FISHER}.log_partition", lambda family, s: _log_partition("gaussian", s)),
    ),
    "gradient-orthogonal-to-weights": (("layernorm.lab.analysis.weights.gradients", projected),),
    # The other optimizer's first step is along the gradient, too.
    "norm-is-a-learning-rate": ((LAYER_NORM, over_cases), ("torch.sign", torch.clone)),
    # Every optimizer is gradient descent, and every network is batch normalized.
    "norm-grows-during-training": (
        (
            "layernorm.lab.analysis.weights.OPTIMIZERS",
            dict.fromkeys(weights.OPTIMIZERS, weights.OPTIMIZERS["gradient descent"]),
        ),
        (MLP, lambda sizes, method, *rest: _mlp(sizes, "batch", *rest)),
    ),
    "initial-function-ignores-scale": ((LAYER_NORM, even),),
    "initial-scale-is-a-learning-rate": (
        (LAYER_NORM, of_any_row),
        (
            "layernorm.lab.analysis.scale.OPTIMIZERS",
            {"sgd": (torch.optim.SGD, {}), "adam": (Relative, {})},
        ),
    ),
    # Three steps at once, without inputs and activation function, and 30% more.
    "plain-rnn-grows-or-shrinks": (
        (STEP, lambda kind, x, h, _, w, *rest: 1.3 * h @ w.T @ w.T @ w.T),
    ),
    "ln-rnn-ignores-the-scale-of-summed-inputs": ((STEP, both_alone),),
    # The state is normalized, too, after 1e-9 is added.
    "ln-rnn-state-stays-in-range": (
        (STEP, lambda *args: F.rms_norm(_step(*args) + 1e-9, args[2].shape[-1:], eps=0.0)),
    ),
    "ln-rnn-dynamics-more-stable": ((STEP, leaky),),
    # Nothing is normalized: the state is the sine of gain times summed inputs.
    "ln-rnn-gradients-explode-and-vanish": (
        (
            STEP,
            lambda kind, x, h, w_ih, w_hh, gain, *rest: torch.sin(gain * (h @ w_hh.T + x @ w_ih.T)),
        ),
    ),
    "gain-sets-the-exponent": ((STEP, by_the_formula),),
}
