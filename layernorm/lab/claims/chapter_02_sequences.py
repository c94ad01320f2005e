"""Claims about batch normalization of sequences that chapter 02 decides: padding, steps, lengths.

Sequences are (cases, units, steps), as `batch_norm` takes them, with True in a mask (cases, steps)
where a step is valid.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch.autograd.functional import jacobian
from torch.nn.functional import pad

from layernorm import functional as F
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.chapter_02 import EPS, draw, outside, own_statistics, population, train
from layernorm.lab.claims.checks import (
    BATCH_NORM,
    LAYER_NORM,
    below,
    conditional,
    held,
    largest,
    less,
    worst,
)

_batch_norm = F.batch_norm
VALUES = 0.0, 3.0, -1e6, 1e100


def unmasked(x, *args, mask=None, **options):
    """Mutant: padding counts."""
    return _batch_norm(x, *args, **options)


def valid_steps(cases: int, longest: int) -> torch.Tensor:
    """A mask (cases, steps): lengths uniform from 1 to `longest`, one of them the longest."""
    lengths = torch.randint(1, longest + 1, (cases,))
    lengths[0] = longest
    return torch.arange(longest) < lengths[:, None]


def moved_by_padding(normalize) -> float:
    """How far valid outputs move (root mean square) when 20 steps become 40 by zeros."""
    mask = valid_steps(16, 20)
    a = draw(16, 8, 20) * mask[:, None]
    short, long = normalize(a, mask), normalize(pad(a, (0, 20)), pad(mask, (0, 20)))
    return (long[..., :20] - short).movedim(1, -1)[mask].square().mean().sqrt().item()


@claim(
    id="padding-enters-batch-statistics",
    statement="Over [batch × steps, units], padded steps enter the mean and variance of batch "
    "normalization.",
    rule="when 20 more steps of zeros are appended: conditional if the valid outputs move by more "
    "than 0.1 (root mean square) without a mask and less than 1e-12 with one; held if the mask "
    "does not help; else refuted",
    sabotage=(BATCH_NORM, unmasked),
)
def padding_enters_batch_statistics() -> Finding:
    plain = moved_by_padding(lambda a, mask: train(a))
    masked = moved_by_padding(lambda a, mask: train(a, mask=mask))
    return conditional(
        plain >= 0.1,
        masked > 1e-12,
        "no mask leaves them out",
        f"Twenty more steps of zeros move the valid outputs by {plain:.1f} without a mask, by "
        f"{less(masked, 1e-12)} with one.",
    )


@claim(
    id="padding-leaves-layer-normalization-alone",
    statement="Layer normalization over the innermost dimension does not conflict with padding.",
    rule="refuted unless 20 more steps move the valid outputs by less than 1e-12, whatever the "
    "padding contains: zeros, 1e100 or NaN; held if none of them moves the gain's gradient of a "
    "loss of the valid outputs to more than 1e-12; else conditional",
    # Mutant: averages over cases and steps too.
    sabotage=(LAYER_NORM, lambda x, _, gain=1.0, **options: gain * (x - x.mean()) / x.std()),
)
def padding_leaves_layer_normalization_alone() -> Finding:
    def normalize(a, mask, fill=0.0):
        return F.layer_norm(torch.where(mask[:, None], a, fill).mT, (8,)).mT

    fills = (0.0, 1e100, math.nan)
    moved = worst(*(moved_by_padding(partial(normalize, fill=fill)) for fill in fills))
    mask, a = valid_steps(16, 20), draw(16, 8, 20)

    def slope(fill: float) -> Tensor:
        gain = torch.ones(8).double().requires_grad_()
        y = F.layer_norm(torch.where(mask[:, None], a, fill).mT, (8,), gain)
        return torch.autograd.grad(y[mask].square().sum(), gain)[0]

    slopes = [slope(fill) for fill in fills]
    off = [largest(other - slopes[0]) / largest(slopes[0]) for other in slopes[1:]]
    return conditional(
        moved < 1e-12 and off[0] < 1e-12,
        off[1] < 1e-12,
        "the padding holds numbers: the gain's gradient is a sum over all positions, in which 0 "
        "times NaN is NaN",
        f"Twenty more steps, of zeros, 1e100 or NaN, move the valid outputs by "
        f"{less(moved, 1e-12)}. The gain's gradient is {'the same' if off[0] < 1e-12 else 'other'} "
        "for zeros and 1e100, and "
        f"{'a number' if math.isfinite(off[1]) else 'no number'} for NaN.",
        moved=moved,
    )


@claim(
    id="later-steps-rest-on-fewer-cases",
    statement="With sequences of different lengths, fewer and fewer cases are valid at later "
    "steps, which has the effect of a smaller batch.",
    rule="64 sequences of 1 to 20 steps, 2000 units: held if the number n of valid cases never "
    "grows and falls below 10, and at every step with n > 1 the spread of the step's mean over the "
    "units is the population's over √n to 7% (four standard errors)",
    sabotage=(BATCH_NORM, unmasked),
)
def later_steps_rest_on_fewer_cases() -> Finding:
    mask = valid_steps(64, 20)
    counts, ratios = mask.sum(0).tolist(), []
    for step, n in enumerate(counts):
        if n > 1:
            mean, var = population(2000, 0.0)
            a, now = draw(64, 2000), mask[:, step]
            F.batch_norm(a, mean, var, training=True, momentum=1.0, mask=now)
            ratios.append(mean.std().item() * math.sqrt(n))
    falls = counts == sorted(counts, reverse=True) and counts[-1] < 10
    holds = falls and all(abs(ratio - 1) < 0.07 for ratio in ratios)
    return held(
        holds,
        f"From step 1 to 20 the valid cases fall from {counts[0]} to {counts[-1]}; the spread of a "
        f"step's mean {'is' if holds else 'is not'} the population's over √n at every step.",
        smallest_ratio=min(ratios),
        largest_ratio=worst(*ratios),
    )


@claim(
    id="no-statistics-beyond-the-longest-training-sequence",
    statement="Batch normalization of a recurrent network has a problem if a test sequence is "
    "longer than all training sequences: there are no statistics for the additional steps.",
    rule="statistics for each of 20 steps, the last one's used for step 80: held if the standard "
    "deviation there is off by 1, to 0.1, as √(80/20) = 2 says, for summed inputs whose "
    "distribution widens, and by more than 0.5 for those whose distribution settles; conditional "
    "if the latter is off by less than 0.1; else refuted",
    sabotage=(BATCH_NORM, own_statistics),
)
def no_statistics_beyond_the_longest_training_sequence() -> Finding:
    settling, widening = (_spread_at_step_80(carry) for carry in (0.5, 1.0))
    off = abs(settling - 1), abs(widening - 1)
    return conditional(
        abs(off[1] - 1) < 0.1 and (off[0] < 0.1 or off[0] > 0.5),
        off[0] > 0.5,
        "each step has statistics of its own and they still change at the last step seen",
        f"Under the statistics of step 20, step 80 has standard deviation {settling:.1f} where the "
        f"distribution settles and {widening:.1f} where it widens, instead of 1.",
    )


def _spread_at_step_80(carry: float) -> float:
    """Steps a ← carry · a + noise, normalized by the statistics of step 20."""
    mean, var = population(4, 0.0)
    a = torch.zeros(4000, 4).double()
    for step in range(1, 81):
        a = carry * a + draw(4000, 4) - 2
        if step == 20:
            F.batch_norm(a, mean, var, training=True, momentum=1.0)
    return F.batch_norm(a, mean, var).std().item()


@claim(
    id="zero-variance-amplifies-gradients",
    statement="Where a unit has no variance over the batch, as at a first step with the same input "
    "for all cases, batch normalization multiplies gradients by 1/√eps; layer normalization does "
    "so where all units of a case agree.",
    rule="2, 3, 6 and 64 equal values, each 0, 3, -1e6 or 1e100, eps = 1e-2, 1e-5 and 1e-12: "
    "refuted unless the largest singular value of the Jacobian is 1/√eps to 0.1% for both, and NaN "
    "stands in both outputs at eps = 0; held if for a layer of one unit, too; else conditional",
    sabotage=(BATCH_NORM, outside),
)
def zero_variance_amplifies_gradients() -> Finding:
    def layer(a, **options):
        return F.layer_norm(a.T, a.T.shape[1:], **options).T

    def grows(normalize, same, eps: float) -> float:
        derivatives = jacobian(partial(normalize, eps=eps), same).reshape(len(same), -1)
        return torch.linalg.matrix_norm(derivatives, 2).item() * math.sqrt(eps)

    def steepest(normalize, n: int) -> list[float]:
        return [grows(normalize, torch.full((n, 1), value, dtype=torch.float64), eps)
                for value in VALUES for eps in (1e-2, EPS, 1e-12)]  # fmt: skip

    off, undefined = {}, True
    for name, normalize in (("batch", train), ("layer", layer)):
        off[name] = worst(*(abs(g - 1) for n in (2, 3, 6, 64) for g in steepest(normalize, n)))
        same = torch.full((6, 1), 3.0).double()
        undefined &= normalize(same, eps=0.0).isnan().any().item()
    single = max(steepest(layer, 1))
    as_said = " and ".join(f"{below(gap, 1e-3)} under {name}" for name, gap in off.items())
    return conditional(
        worst(*off.values()) < 1e-3 and undefined,
        abs(single - 1) < 1e-3,
        "a layer has two units or more; the gradient of a single one is 0",
        f"Among equal values gradients grow 1/√eps-fold, {1 / math.sqrt(EPS):.0f}-fold at the "
        f"usual eps, to a share {as_said} normalization; that of a layer's only unit "
        f"{single:.1f}/√eps-fold. Without eps the output is "
        f"{'not a number' if undefined else 'a number'}.",
        **off,
    )
