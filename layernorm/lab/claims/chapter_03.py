"""Claims about layer normalization that chapter 03 decides: case by case, in every mode.

What it loses and restores is in `chapter_03_information.py`, numerics in `chapter_03_numerics.py`.
"""

from __future__ import annotations

from functools import partial
from itertools import permutations

import torch
from torch.autograd.functional import jacobian

import layernorm
from layernorm import functional as F
from layernorm.lab.claims import Finding, checks, claim
from layernorm.lab.claims.checks import LAYER_NORM, conditional, held, largest

EPS = 1e-5


draw = partial(checks.draw, mean=2.0, spread=3.0)


def plain(a, eps=0.0):
    """Layer normalization over the last dimension, without gain and bias."""
    return F.layer_norm(a, a.shape[-1:], eps=eps)


def over_the_batch(x, normalized_shape, weight=None, bias=None, eps=EPS):
    """Mutant: every unit by its statistics over the cases."""
    cases = x.reshape(-1, x.shape[-1])
    y = (cases - cases.mean(0)) / (cases.var(0, correction=0) + eps).sqrt()
    return y.reshape(x.shape)


@claim(
    id="independent-of-batch-size",
    statement="Layer normalization does not depend on the size of the mini-batch, nor on what else "
    "is in it.",
    rule="1000 cases of 1, 2, 5, 64 and 1023 units, float32 and float64, the definition and "
    "PyTorch's kernel: held if each case comes out the same to the last bit in batches of 1, 2, "
    "3, 7, 64, 128 and 1000; conditional if only to 1e-5; else refuted",
    sabotage=(LAYER_NORM, over_the_batch),
)
def independent_of_batch_size() -> Finding:
    same, worst = True, 0.0
    for units in (1, 2, 5, 64, 1023):
        for dtype in (torch.float32, torch.float64):
            a = draw(1000, units).to(dtype)
            for norm in (F.layer_norm, torch.nn.functional.layer_norm):
                whole = norm(a, (units,))
                for size in (1, 2, 3, 7, 64, 128):
                    some = slice(500, 500 + size)
                    part = norm(a[some], (units,))
                    same &= torch.equal(part, whole[some])
                    worst = max(worst, largest(part - whole[some]))
    return conditional(
        worst <= 1e-5,
        same,
        "rounding errors do not count",
        "In batches of 1 to 1000, for 1 to 1023 units, in float32 and float64, by the definition "
        f"and by PyTorch's kernel, every case {'keeps each bit' if same else 'changes'}.",
        largest=worst,
    )


@claim(
    id="no-dependencies-between-cases",
    statement="Layer normalization introduces no dependency between training cases.",
    rule="held if in 20 batches of 5 cases and 4 units every derivative of one case's output "
    "with respect to another case is exactly 0, and none is 0 within all cases",
    sabotage=(LAYER_NORM, over_the_batch),
)
def no_dependencies_between_cases() -> Finding:
    across, within = 0.0, []
    for _ in range(20):
        blocks = jacobian(plain, draw(5, 4)).transpose(1, 2)  # case, case, unit, unit
        across = max(largest(blocks[n, m]) for n, m in permutations(range(5), 2))
        within += [largest(blocks[n, n]) for n in range(5)]
    return held(
        across == 0 and min(within) > 0,
        f"The largest derivative across cases is {across:.1f}, over 20 batches; within each case "
        f"it is {'not 0' if min(within) > 0 else '0'}.",
        across=across,
        within=min(within),
    )


@claim(
    id="same-in-training-and-evaluation",
    statement="Layer normalization computes the same in training and in evaluation; no statistics "
    "have to be stored for later.",
    rule="held if after 10 batches in training mode the module's state holds its gain and bias "
    "alone, unchanged, and one batch gives the same bits in both modes",
    sabotage=("layernorm.LayerNorm", layernorm.BatchNorm),
)
def same_in_training_and_evaluation() -> Finding:
    module, a = layernorm.LayerNorm(6), draw(8, 6).float()
    before = module(a)
    for _ in range(10):
        module(draw(8, 6).float())
    entries = sorted(module.state_dict())
    same = torch.equal(module.eval()(a), before) and torch.equal(module.train()(a), before)
    return held(
        same and entries == ["bias", "weight"],
        f"The state holds {', '.join(entries)}; both modes give "
        f"{'the same bits' if same else 'different outputs'}.",
    )


@claim(
    id="usable-at-batch-size-1",
    statement="Layer normalization works with a single training case, as in online learning.",
    rule="100 single cases of 3 to 64 units, eps = 0: held if each output varies over the units "
    "with variance 1 to 1e-9 and the gradient of a random sum of outputs is finite and not 0",
    sabotage=(LAYER_NORM, over_the_batch),
)
def usable_at_batch_size_1() -> Finding:
    learns, variances = True, []
    for units in torch.randint(3, 65, (100,)).tolist():
        a = draw(1, units).requires_grad_()
        y = plain(a)
        (gradient,) = torch.autograd.grad((y * draw(units)).sum(), a)
        variances.append(y.var(correction=0).item())
        learns &= bool(gradient.isfinite().all()) and largest(gradient) > 1e-6
    spread = all(abs(v - 1) < 1e-9 for v in variances)
    return held(
        learns and spread,
        f"100 single cases: the outputs have variance {min(variances):.3f} to "
        f"{max(variances):.3f}, and the gradient is {'never' if learns else 'sometimes'} 0 or "
        "infinite.",
    )


@claim(
    id="one-mean-and-spread-per-case",
    statement="All units of a layer share one mean and one standard deviation; different training "
    "cases have different ones.",
    rule="100 cases of 16 units: the slope between input and output is the same for all pairs of "
    "units of a case to 1e-9, and any two cases' slopes differ by more",
    sabotage=(LAYER_NORM, over_the_batch),
)
def one_mean_and_spread_per_case() -> Finding:
    a = draw(100, 16)
    y = plain(a)
    slopes = y.diff(dim=1) / a.diff(dim=1)
    within = largest(slopes - slopes[:, :1])
    between = slopes[:, 0].sort().values.diff().min().item()
    return held(
        within < 1e-9 and between > 1e-9,
        f"Within a case the slopes are {'equal' if within < 1e-9 else 'not equal'} to 1e-9; any "
        f"two of 100 cases have {'different' if between > 1e-9 else 'the same'} ones.",
        within=within,
        between=between,
    )
