"""Worlds in which claims of chapters 9 to 22 have their third verdict."""

from dataclasses import replace

import numpy as np
import torch

from layernorm import BatchNormLSTM, LayerNorm
from layernorm import functional as F
from layernorm.lab.benchmarks.norms.operations import OPERATIONS
from layernorm.lab.claims import chapter_12
from layernorm.lab.claims.chapter_09 import TABLE
from layernorm.lab.claims.checks import BATCH_NORM, LAYER_NORM
from layernorm.lab.experiments.transformer import model as transformer
from layernorm.recurrent.variants import VARIANTS, paper

TORCHS = "torch.nn.functional.layer_norm"
MOST = torch.finfo(torch.float16).max
_layer_norm, _torchs_batch_norm = F.layer_norm, torch.nn.functional.batch_norm
_half, _of_product, _branch = torch.Tensor.half, chapter_12.of_product, transformer.Branch.forward


def varied(x):
    return x.amax(-1, keepdim=True) > x.amin(-1, keepdim=True)


def without_eps(x, shape, weight=None, bias=None, eps=0.0):
    """Adds no eps, and gives the bias where all units agree."""
    y = _layer_norm(x, shape, weight, bias, 0.0)
    return torch.where(varied(x), y, 0.0 if bias is None else bias)


def with_ramp(x, shape, weight=None, bias=None, eps=0.0):
    """Adds no eps, and takes a ramp where all units agree."""
    ramp = torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype)
    return _layer_norm(torch.where(varied(x), x, ramp), shape, weight, bias, 0.0)


def without_mean(x, shape, weight=None, bias=None, eps=1e-5):
    """Subtracts no mean and adds no bias: RMS normalization."""
    return F.rms_norm(x, shape, weight, eps)


def forgetful(x, h, c, weights, eps):
    """Carries the norm of what its gates let in now, without the cell before and without eps."""
    h, c = paper(x, h, torch.zeros_like(c), weights, eps)
    return h, without_eps(c, c.shape[-1:], *weights.ln_c)


def by_the_batch(a, mean, var, gain, bias, training=False, eps=1e-5):
    """Takes the batch's own statistics in evaluation, too."""
    return _torchs_batch_norm(a, None, None, gain, bias, True, eps=eps)


def twentyfold(layer, first, rest, loss, *of):
    """Each step back multiplies the gradient by 20 in a batch-normalized LSTM, by 1 in another."""
    back = torch.arange(len(first) + len(rest) - 1.0, -1.0, -1.0, dtype=torch.float64)
    sizes = (20.0 if isinstance(layer, BatchNormLSTM) else 1.0) ** back
    return (sizes[:, None, None].expand(-1, rest.shape[1], 8),)


def deaf_to_agreement(a, mean, var, gain, bias, training=False, eps=1e-5):
    """Gives the bias where all cases agree, and no gradient."""
    y = _torchs_batch_norm(a, mean, var, gain, bias, training, eps=eps)
    apart = a.amax(0) - a.amin(0) > 1e-5 * a.abs().amax(0)
    return torch.where(apart, y, 0.0 if bias is None else bias)


def one_operator(x, *gain_and_bias):
    """One operator, as PyTorch's kernel, in place of the definition's."""
    return torch.nn.functional.layer_norm(x, x.shape[1:], *gain_and_bias)


def filled_up(cases, inputs, units, kind):
    """A product is filled up to as many cases and inputs as the layer has units."""
    return _of_product(units, units, units, kind)


def one_less(x, mean, var, weight, bias, training, momentum, eps):
    """Divides sums, the mean's too, by one less than the number of cases."""
    centered = x - x.sum(0) / (len(x) - 1)
    return weight * centered / (centered.square().sum(0) / (len(x) - 1) + eps).sqrt() + bias


def means_of_drawn(group, x):
    """Draws a worker's cases from all units and cases of the batch, so that none are dependent."""
    return x.flatten()[torch.randint(x.numel(), (len(x) // group.size, x.shape[1]))].mean(0)


def saturating(branch, x):
    """Under Peri-LN computes in single precision, and ends at half precision's largest number."""
    if branch.norm_out is None or x.dtype != torch.float16:
        return _branch(branch, x)
    return _branch(branch.float(), x.float()).clamp(-MOST, MOST).half()


def placed(states, matrix, eps):
    """Each key has a place, too, whose query gives it the logit 1 and all others 0."""
    return -1 / states.shape[1]


def of_eight_units(x, shape, eps=1e-5):
    """Normalizes the first eight units, the others are 0."""
    few = x[..., :8]
    return torch.nn.functional.pad(
        _layer_norm(few, few.shape[-1:], eps=eps), (0, x.shape[-1] - few.shape[-1])
    )


def powers(last, stream, scaling=0.25):
    """From every start gradient and stream are powers of depth, the latter's smaller by scaling."""

    def ends(model, text, first, depths):
        exponent = scaling if model.branches[-1].scale < 1 else stream
        return [[depth**last, depth**exponent, 1.0, 1.0] for depth in map(float, depths)]

    return ends


def by_tanh(x, shape, eps=0.0):
    """A tanh of each unit's distance from the others', whatever the row's spread."""
    root = (x.shape[-1] - 1) ** 0.5
    return root * torch.tanh((x - x.mean(-1, keepdim=True)) / root)


def with_settings(shape, dtype, device):
    """Layer normalization reads its settings from memory, four numbers."""
    return LAYER.make_inputs(shape, dtype, device) | {"settings": torch.empty(4, device=device)}


def along_one_unit(method):
    """The same for every row: its σ is 1."""
    import sympy

    from layernorm.symbolic import elementwise

    return elementwise.frozen().subs(elementwise.SIGMA, 1), sympy.Integer(1)


def steeper(model, text, first):
    """From every start the gradient is e, e² and e⁴ times as large with dynamic tanh, and stays as
    it is with layer normalization."""
    growing = np.exp([0.0, 0.0, 0.0] if isinstance(model.norm, LayerNorm) else [1.0, 2.0, 4.0])
    shape = 3, 2, len(first) // len(text)  # gradient and share, by depth and start
    return np.broadcast_to(np.stack([growing, np.ones(3)], 1)[..., None], shape)


def nearly_linear(x, alpha, *_):
    """All but a millionth of the curve is its slope at 0."""
    return alpha * x + 1e-6 * (torch.tanh(alpha * x) - alpha * x)


CELLS = {**VARIANTS, "carried": VARIANTS["carried"]._replace(step=forgetful)}
STEP_NORM = "layernorm.recurrent.step_norm.F.batch_norm"
LAYER = OPERATIONS["layer"]
SAVED = *LAYER.saved, "settings"
GRADIENTS = "layernorm.lab.claims.chapter_10_gradients.gradients"
OF_NORM, OF_PRODUCT = (f"layernorm.lab.claims.chapter_12.{n}" for n in ("normalize", "of_product"))
MEANS = "layernorm.lab.claims.chapter_12_parallel.means"
BRANCH = "layernorm.lab.experiments.transformer.model.Branch.forward"
ENDS = "layernorm.lab.claims.chapter_21_depth.ends"

WORLDS = {
    "scale-of-the-input-is-lost": ((LAYER_NORM, without_eps),),
    "carried-normalized-cell-cannot-count": ((TABLE, CELLS),),
    "reset-must-act-after-the-norm": ((TORCHS, without_eps),),
    "update-gate-conventions-agree": ((LAYER_NORM, without_mean), (TORCHS, without_mean)),
    "gains-start-at-one": ((LAYER_NORM, with_ramp),),
    # All gates stay open, so that cells go on growing.
    "separate-statistics-for-each-step": (("torch.sigmoid", torch.ones_like),),
    "padding-enters-statistics-of-late-steps": ((STEP_NORM, by_the_batch),),
    "gradients-explode-on-equal-steps": ((GRADIENTS, twentyfold),),
    "equal-steps-spare-the-weights": ((STEP_NORM, deaf_to_agreement),),
    "normalizing-moves-bytes-products-compute": ((OF_NORM, one_operator), (OF_PRODUCT, filled_up)),
    "shards-make-batch-normalization-another-function": ((BATCH_NORM, one_less),),
    "statistics-of-shards-vary-more": ((MEANS, means_of_drawn),),
    "peri-layernorm-does-not-overflow-half-precision": (
        (BRANCH, saturating),
        # Half precision has no infinity: what is too large becomes its largest number.
        ("torch.Tensor.half", lambda x: _half(x.clamp(-MOST, MOST))),
    ),
    "layer-norm-leaves-no-key-unselectable": (("layernorm.lab.claims.chapter_21.lead", placed),),
    "projection-lets-a-query-weigh-all-keys-alike": ((LAYER_NORM, of_eight_units),),
    "last-gradient-shrinks-with-depth-if-norms-come-first": ((ENDS, powers(-0.5, 1.0)),),
    "last-gradient-ignores-depth-if-norms-come-last": ((ENDS, powers(0.0, 0.0)),),
    "layernorm-scaling-slows-the-stream": ((ENDS, powers(-0.5, 1.0)),),
    "a-scaled-start-keeps-the-stream-and-the-gradients": ((ENDS, powers(0.0, 0.0)),),
    "dynamic-tanh-is-layer-norm-along-one-unit": (
        (LAYER_NORM, by_tanh),
        ("layernorm.symbolic.elementwise.along_one_unit", along_one_unit),
    ),
    "dynamic-tanh-moves-fewer-bytes": (
        (
            "layernorm.lab.benchmarks.norms.operations.OPERATIONS",
            {**OPERATIONS, "layer": replace(LAYER, make_inputs=with_settings, saved=SAVED)},
        ),
    ),
    "dynamic-tanh-gradients-grow-faster-than-a-power": (
        ("layernorm.lab.claims.chapter_22_untrained.grown", steeper),
    ),
    "small-embeddings-make-dynamic-tanh-linear": (
        ("layernorm.functional.dynamic_tanh", nearly_linear),
    ),
}
