"""Claims about layer normalization that chapter 03 decides: case by case, in every mode.

What it loses and restores is in `chapter_03_information.py`, numerics in `chapter_03_numerics.py`.
"""

from __future__ import annotations

from functools import partial
from itertools import permutations

import torch
from torch import Tensor
from torch.autograd.functional import jacobian

import layernorm
from layernorm import functional as F
from layernorm.lab.claims import Finding, adversary, checks, claim
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
    rule="1000 cases, the adversary's among them, of 1, 2, 3, 5, 64 and 1023 units, float32 and "
    "float64, the definition and "
    "PyTorch's kernel: held if each case comes out the same to the last bit in batches of 1, 2, "
    "3, 7, 64, 128 and 1000; conditional if only to 1e-5; else refuted",
    sabotage=(LAYER_NORM, over_the_batch),
)
def independent_of_batch_size() -> Finding:
    same, worst = True, 0.0
    for units in (1, 2, 3, 5, 64, 1023):
        hard = torch.cat([*adversary.rows(units, huge=1e15, mean=1e3).values()])
        for dtype in (torch.float32, torch.float64):
            a = torch.cat([draw(500, units), hard, draw(500 - len(hard), units)]).to(dtype)
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
        "and by PyTorch's kernel, every case, the adversary's, too, "
        f"{'keeps each bit' if same else 'changes'}.",
        largest=worst,
    )


@claim(
    id="no-dependencies-between-cases",
    statement="Layer normalization introduces no dependency between training cases.",
    rule="held if in 20 batches of 5 cases and 4 units, and in the adversary's, every derivative "
    "of one case's output with respect to another case is exactly 0, and in the 20 none is 0 "
    "within all cases",
    sabotage=(LAYER_NORM, over_the_batch),
)
def no_dependencies_between_cases() -> Finding:
    across, within = [], []
    hard = [*adversary.matrices(5, 4).values()]
    for a in (*(draw(5, 4) for _ in range(20)), *hard):
        blocks = jacobian(partial(plain, eps=EPS), a).transpose(1, 2)  # case, case, unit, unit
        across += [largest(blocks[n, m]) for n, m in permutations(range(5), 2)]
        within += [largest(blocks[n, n]) for n in range(5)]
    drawn = min(within[: -5 * len(hard)])
    return held(
        max(across) == 0 and drawn > 0,
        f"The largest derivative across cases is {max(across):.1f}, over 20 batches and the "
        f"adversary's {len(hard)}; within each drawn case it is {'not 0' if drawn > 0 else '0'}.",
        across=max(across),
        within=drawn,
    )


@claim(
    id="same-in-training-and-evaluation",
    statement="Layer normalization computes the same in training and in evaluation; no statistics "
    "have to be stored for later.",
    rule="held if after 10 batches in training mode the module's state holds its gain and bias "
    "alone, unchanged, and a batch, and one of the adversary's rows, give the same bits in both "
    "modes",
    sabotage=("layernorm.LayerNorm", layernorm.BatchNorm),
)
def same_in_training_and_evaluation() -> Finding:
    hard = torch.cat([*adversary.rows(6, huge=1e15).values()])
    module, a = layernorm.LayerNorm(6), torch.cat([draw(8, 6), hard]).float()
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
    rule="100 single cases of 3 to 64 units, eps = 0, and the adversary's rows of 1, 2, 3 and 64 "
    "units at the usual eps: held if each output varies over the units with variance 1 to 1e-9 "
    "(1% at the usual eps) and the gradient of a random sum of outputs is finite and not 0; "
    "conditional if only one or two units, or units that agree to √eps, break it",
    sabotage=(LAYER_NORM, over_the_batch),
)
def usable_at_batch_size_1() -> Finding:
    def learns(a: Tensor, eps: float, bound: float) -> bool:
        a = a.clone().requires_grad_()
        y = plain(a, eps)
        (gradient,) = torch.autograd.grad((y * draw(a.shape[1])).sum(), a)
        spread = abs(y.var(correction=0).item() - 1) < bound
        relative = largest(gradient) * a.std(correction=0).item()
        return spread and bool(gradient.isfinite().all()) and relative > 1e-6

    singles = [draw(1, units) for units in torch.randint(3, 65, (100,)).tolist()]
    always = all(learns(a, 0.0, 1e-9) for a in singles)
    broken = {True: [], False: []}
    for units in (*adversary.SIZES, 64):
        for name, a in adversary.rows(units).items():
            enough = units > 2 and a.std(correction=0).item() > 100 * EPS**0.5
            if not learns(a, EPS, 0.01):
                broken[enough].append(name)
    return conditional(
        always and not broken[True],
        not broken[False],
        "the layer has three units or more, and those of the case differ by much more than √eps",
        f"In 100 single cases the outputs {'have' if always else 'do not have'} variance 1 and a "
        f"gradient; of the adversary's rows of 1, 2, 3 and 64 units {len(broken[False])} with too "
        f"few units or too little spread have not, and {len(broken[True])} of the others.",
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
