"""Worlds in which claims of chapters 1 to 3 have their third verdict."""

import math

import torch

from layernorm import functional as F
from layernorm.lab.claims.checks import BATCH_NORM, LAYER_NORM

WEIGHT_NORM = "layernorm.functional.weight_norm"
MOMENTS = "layernorm.functional._moments"
STATISTICS_TYPE = "layernorm.functional._statistics_type"
_batch_norm, _layer_norm, _weight_norm = F.batch_norm, F.layer_norm, F.weight_norm
_moments = F._moments


def agree(x):
    """Tell where the units of a case all agree."""
    return x.amax(-1, keepdim=True) == x.amin(-1, keepdim=True)


def varied(x):
    """Adds a ramp over the units to each case whose units agree."""
    return x + agree(x) * torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype)


def ramp_where_units_agree(x, *args, **options):
    """Adds a ramp over the units to each case whose units agree, and normalizes."""
    return _layer_norm(varied(x), *args, **options)


def zeros_where_units_agree(x, *args, **options):
    """Gives zeros, without a gradient, for cases whose units agree."""
    y = _layer_norm(torch.where(agree(x), x.detach(), x), *args, **options)
    return torch.where(agree(x), 0 * x, y)


def always_variance_1(x, *args, **options):
    """Has no eps, gain and bias; adds a ramp to each case whose units agree."""
    return _layer_norm(varied(x), x.shape[-1:], eps=0.0)


def always_variance_1_over_cases(x, *args, **options):
    """Takes the batch's statistics, in evaluation too, without eps, gain and bias; a ramp is added
    to each unit that does not vary."""
    return always_variance_1(x.T).T


def affine_first(norm):
    """Applies gain and bias to the summed inputs, before they are normalized."""

    def normalize(x, *args, weight=None, bias=None, **options):
        return norm(x * weight + bias if weight is not None else x, *args, **options)

    return normalize


def both_ways(x, *args, **options):
    """Normalizes over the units and over the cases in turn until both have mean 0 and variance 1
    (Olshen and Rajaratnam 2010); has no gain and bias."""
    for _ in range(100):
        for dim in (dim for dim in (0, 1) if x.shape[dim] > 1):
            x = x - x.mean(dim, keepdim=True)
            x = x / x.std(dim, correction=0, keepdim=True)
    return x


def linear(a):
    """An activation function that leaves its input as it is."""
    return a


def decorrelated(x, *args, **options):
    """Makes the units uncorrelated over the cases."""
    return torch.linalg.qr(x - x.mean(0))[0] * math.sqrt(len(x))


def change_since_the_case_before(x, *args, **options):
    """Normalizes by how much each case differs from the one before; where it differs in all units
    alike, a ramp, up and down in turn."""
    change, up = x - x.roll(1, 0), 1 - 2 * (torch.arange(len(x))[:, None] % 2)
    ramp = up * torch.linspace(-1, 1, x.shape[1]).double()
    return _layer_norm(torch.where(agree(change), ramp, change), *args, **options)


def batch_norm_by_size_of_gain(x, mean, var, gain=None, *args, **options):
    """Batch normalization that takes the absolute value of the gain."""
    return _batch_norm(x, mean, var, None if gain is None else gain.abs(), *args, **options)


def weight_norm_by_size_of_gain(v, gain, *args):
    """Weight normalization that takes the absolute value of the gain."""
    return _weight_norm(v, gain.abs(), *args)


def over_cases_alone(x, *args, **options):
    """Averages over the cases alone, at each position apart, in evaluation too."""
    return _layer_norm(x.movedim(0, -1), (len(x),)).movedim(-1, 0)


def no_gradient(x, *args, **options):
    """As `always_variance_1_over_cases`, and passes no gradient."""
    return always_variance_1_over_cases(x.detach()) + 0 * x


def by_root_of_steps(x, mean, var, mask=None, eps=1e-5, **options):
    """Divides sums over steps, masked ones too, by the root of the number of steps; adds eps to the
    running statistics."""
    y = _batch_norm(x, mean, var, eps=eps, **options)
    for running in (mean, var):
        running.add_(eps).mul_(math.sqrt(x.shape[-1]))
    return y


def zeros_beyond_range(x, *args, **options):
    """Takes a case for zeros if the squares of its units are not finite."""
    return _layer_norm(x.where(x.square().isfinite().all(-1, keepdim=True), 0), *args, **options)


def never_updates(x, mean=None, var=None, *args, training=False, **options):
    """Does not update the running statistics in training."""
    if training:
        mean = var = None
    return _batch_norm(x, mean, var, *args, training=training, **options)


def constant_mean(a, *args):
    """The mean passes no gradient."""
    mu, centered, var = _moments(a, *args)
    return mu, centered.detach() + (a - a.detach()), var


def negative_in_evaluation(x, *args, training=False, **options):
    """In training, as `always_variance_1_over_cases`; in evaluation, subtracts the values from the
    mean instead of the mean from the values."""
    if training:
        return always_variance_1_over_cases(x)
    return -_batch_norm(x, *args, **options)


def more_with_more_cases(x, *args, **options):
    """Multiplies by a factor that grows by 1e-10 with each case."""
    return _layer_norm(x, *args, **options) * (1 + 1e-10 * len(x))


def constant_statistics(x, *args, **options):
    """As `always_variance_1`, but mean and standard deviation pass no gradient."""
    spread = varied(x.detach()).std(-1, correction=0, keepdim=True)
    return always_variance_1(x.detach()) + (x - x.detach()) / spread


def fixed_statistics(x, mean=None, var=None, *args, training=False, **options):
    """Takes the running statistics in training too, and mean 0 and variance 1 if there are none."""
    mean, var = (x.new_full(x.shape[1:2], k) if m is None else m for k, m in ((0, mean), (1, var)))
    return _batch_norm(x, mean, var, *args, **options)


def forgets_everything(x, *args, **options):
    """Gives zeros, whatever the case."""
    return 0 * x


def in_double(x):
    """Statistics of half precision in float64."""
    return x.double() if x.dtype in (torch.float16, torch.bfloat16) else x


WORLDS = {
    "inactive-region-avoided": (
        (LAYER_NORM, affine_first(_layer_norm)),
        (BATCH_NORM, affine_first(_batch_norm)),
    ),
    "layer-inputs-standardized": (
        (LAYER_NORM, both_ways),
        (BATCH_NORM, both_ways),
        ("torch.relu", linear),
    ),
    "removes-correlation": ((LAYER_NORM, decorrelated),),
    "layer-normalization-cannot-decorrelate": ((LAYER_NORM, change_since_the_case_before),),
    "per-unit-methods-keep-correlations": (
        (BATCH_NORM, batch_norm_by_size_of_gain),
        (WEIGHT_NORM, weight_norm_by_size_of_gain),
    ),
    "gradients-follow-the-layer-below": ((LAYER_NORM, zeros_where_units_agree),),
    "batch-output-has-mean-0-variance-1": ((BATCH_NORM, always_variance_1_over_cases),),
    "no-batch-normalization-at-batch-size-1": ((BATCH_NORM, over_cases_alone),),
    "batch-of-n-bounds-the-output": ((BATCH_NORM, no_gradient),),
    "padding-enters-batch-statistics": ((BATCH_NORM, by_root_of_steps),),
    "padding-leaves-layer-normalization-alone": ((LAYER_NORM, zeros_beyond_range),),
    "no-statistics-beyond-the-longest-training-sequence": ((BATCH_NORM, never_updates),),
    "zero-variance-amplifies-gradients": ((MOMENTS, constant_mean),),
    "batch-computes-otherwise-in-evaluation": ((BATCH_NORM, negative_in_evaluation),),
    "independent-of-batch-size": ((LAYER_NORM, more_with_more_cases),),
    "usable-at-batch-size-1": ((LAYER_NORM, constant_statistics),),
    "one-mean-and-spread-per-case": ((LAYER_NORM, zeros_where_units_agree),),
    "half-precision-needs-float32-statistics": ((STATISTICS_TYPE, in_double),),
    "output-has-mean-0-variance-1": ((LAYER_NORM, always_variance_1),),
    "loses-two-dimensions": ((LAYER_NORM, ramp_where_units_agree),),
    "gain-and-bias-restore-batch-normalization": ((BATCH_NORM, fixed_statistics),),
    "invariant-to-a-shift-of-one-case": ((LAYER_NORM, forgets_everything),),
}
