"""Claims about layer normalization that chapter 03 decides: single cases, modes, finite precision.

The claims on lost and restored information are in `chapter_03_information.py`.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import permutations

import torch
from torch import Tensor
from torch.autograd.functional import jacobian

import layernorm
from layernorm import functional as F
from layernorm.lab.claims import Finding, adversary, checks, claim
from layernorm.lab.claims.checks import LAYER_NORM, conditional, held, largest, worst

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
    same, off = True, 0.0
    for units in (1, 2, 3, 5, 64, 1023):
        hard = torch.cat([*adversary.rows(units, huge=1e15, mean=1e3).values()])
        for dtype in (torch.float32, torch.float64):
            a = torch.cat([draw(500, units), hard, draw(500 - len(hard), units)]).to(dtype)
            for norm in (F.layer_norm, torch.nn.functional.layer_norm):
                whole = norm(a, (units,))
                for size in (1, 2, 3, 7, 64, 128):
                    parts = torch.cat([norm(part, (units,)) for part in a.split(size)])
                    same &= torch.equal(parts, whole)
                    off = worst(off, largest(parts - whole))
    return conditional(
        off <= 1e-5,
        same,
        "rounding errors do not count",
        "In batches of 1 to 1000, for 1 to 1023 units, in float32 and float64, by the definition "
        "and by PyTorch's kernel, every case, the adversary's, too, "
        f"{'keeps each bit' if same else 'changes'}.",
        largest=off,
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
        worst(*across) == 0 and drawn > 0,
        f"The largest derivative across cases is {worst(*across):.1f}, over 20 batches and the "
        f"adversary's {len(hard)}; within each drawn case it is {'not 0' if drawn > 0 else '0'}.",
        across=worst(*across),
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
    rule="100 single cases of 3 to 64 units and the adversary's rows of 2, 3 and 64: held if "
    "each output varies over the units with variance 1 to 1% and the gradient of a random sum of "
    "outputs is finite and not 0; conditional if only two units, or units that agree to "
    "100 √eps, break it",
    sabotage=(LAYER_NORM, over_the_batch),
)
def usable_at_batch_size_1() -> Finding:
    def off(a: Tensor) -> float:
        a = a.clone().requires_grad_()
        y = plain(a, EPS)
        (gradient,) = torch.autograd.grad((y * draw(a.shape[1])).sum(), a)
        learns = gradient.isfinite().all() and largest(gradient) * (spread(a) or 1) > 1e-6
        return abs(y.var(correction=0).item() - 1) if learns else math.inf

    def spread(a: Tensor) -> float:
        return a.detach().std(correction=0).item()

    return adversary.searched(
        0.01,
        "The outputs of single cases have variance 1 to 1%, and a gradient passes.",
        off,
        [(draw(1, units),) for units in torch.randint(3, 65, (100,)).tolist()],
        {
            f"{name} (H = {units})": (a,)
            for units in (2, 3, 64)
            for name, a in adversary.rows(units).items()
        },
        only_if=(
            "the layer has three units or more, and those of the case vary by much more than √eps",
            lambda a: a.shape[1] > 2 and spread(a) > 100 * EPS**0.5,
        ),
    )


@claim(
    id="one-mean-and-spread-per-case",
    statement="All units of a layer share one mean and one standard deviation; each training case "
    "has its own, whatever the other cases are.",
    rule="eps = 0, two cases, of each a mean and a standard deviation from its largest and "
    "smallest unit: held if they give all its outputs, and the mean is the average, to 1e-9 "
    "(times largest entry over spread), and those of the first case do not change by more if "
    "another case takes the place of the second, for 100 pairs of 16 units, a climb, and the "
    "adversary's rows of 1, 2, 3 and 16 beside and in the place of drawn cases; conditional if "
    "only cases break it that do not vary",
    sabotage=(LAYER_NORM, over_the_batch),
)
def one_mean_and_spread_per_case() -> Finding:
    def statistics(cases: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and spread of each case, (cases, 1), as its largest and smallest output have it."""
        (low, high), (bottom, top) = (x.aminmax(dim=1, keepdim=True) for x in (cases, plain(cases)))
        spread = torch.where(high > low, (high - low) / (top - bottom), 1)
        return low - bottom * spread, spread

    def off(pair: Tensor, other: Tensor) -> float:
        mean, spread = statistics(pair)
        average = pair.mean(1, keepdim=True)
        within = largest(plain(pair) - (pair - mean) / spread, (average - mean) / spread)
        again = statistics(torch.cat([pair[:1], other]))
        apart = largest((again[0] - mean)[:1] / spread[:1], (again[1] / spread)[:1] - 1)
        return worst(within, apart) / adversary.conditioning(torch.cat([pair, other]))

    cases = {}
    for h in (*adversary.SIZES, 16):
        for name, a in adversary.rows(h).items():
            cases[f"{name} (H = {h})"] = torch.cat([a, draw(1, h)]), draw(1, h)
            cases[f"beside {name} (H = {h})"] = torch.cat([draw(1, h), a]), draw(1, h)
            cases[f"then {name} (H = {h})"] = draw(2, h), a
    return adversary.searched(
        1e-9,
        "In each case one mean and one standard deviation give all outputs, and another second "
        "case leaves those of the first as they are.",
        off,
        [(draw(2, 16), draw(1, 16)) for _ in range(100)],
        cases,
        only_if=(
            "eps = 0, and the units of each case do not all agree",
            lambda *cases: adversary.varies(torch.cat(cases)),
        ),
    )


def eps_outside(x, normalized_shape, weight=None, bias=None, eps=EPS):
    """Mutant: eps added to the standard deviation."""
    d = x - x.mean(-1, keepdim=True)
    return d / (d.square().mean(-1, keepdim=True).sqrt() + eps)


def one_pass(x, normalized_shape, weight=None, bias=None, eps=EPS):
    """The variance as E[x²] − E[x]², which needs one pass over x."""
    mu = x.mean(-1, keepdim=True)
    return (x - mu) / (x.square().mean(-1, keepdim=True) - mu.square() + eps).sqrt()


def eps_inside(x, normalized_shape, eps=EPS):
    """Every step in the type of x, as the equation reads."""
    d = x - x.mean(-1, keepdim=True)
    return d / (d.square().mean(-1, keepdim=True) + eps).sqrt()


def error(norm, a, eps=EPS) -> float:
    """The largest error against the definition in float64; infinite if something is not finite."""
    y = norm(a, a.shape[-1:], eps=eps).double()
    return largest(y - plain(a.double(), eps)) if y.isfinite().all() else float("inf")


@claim(
    id="eps-inside-the-root-bounds-the-gain",
    statement="With eps inside the root a nearly constant case is amplified by at most 1/√eps, 316 "
    "times; with eps added to σ it would be up to 1/eps, 100,000 times.",
    rule="100 cases of 32 units with standard deviation 1e-8, eps = 1e-5: held if each is "
    "amplified by 1/√eps to 0.1 % and, with eps outside, by 1/eps to 0.2 %, and no row of the "
    "adversary by more",
    sabotage=(LAYER_NORM, eps_outside),
)
def eps_inside_the_root_bounds_the_gain() -> Finding:
    def amplified(norm, a):
        return norm(a, a.shape[1:], eps=EPS).std(1, correction=0) / a.std(1, correction=0)

    a = draw(100, 32)
    a = 1e-8 * (a - a.mean(1, keepdim=True)) / a.std(1, correction=0, keepdim=True)
    inside, outside = (amplified(norm, a) for norm in (F.layer_norm, eps_outside))
    hard = torch.cat([a for a in adversary.rows(32).values() if adversary.varies(a)])
    most = largest(amplified(F.layer_norm, hard)) * EPS**0.5
    return held(
        worst(largest(inside * EPS**0.5 - 1), most - 1) < 1e-3
        and largest(outside * EPS - 1) < 2e-3,
        f"A case of standard deviation 1e-8 is amplified by {inside.mean():.0f} with eps inside "
        f"the root, by {outside.mean() / 1000:.0f} thousand with eps outside; "
        f"{'no' if most - 1 < 1e-3 else 'some'} row of the adversary by more.",
    )


@claim(
    id="one-pass-variance-fails-at-large-means",
    statement="In float32 the variance E[x²] − E[x]² of summed inputs with mean 10,000 and "
    "standard deviation 1 is useless; the variance of the deviations is not.",
    rule="100 drawn cases of 512 units, a climb and the adversary's rows that vary of 2, 3, 64 "
    "and 512, brought to this mean and standard deviation: held if for each E[x²] − E[x]² gives "
    "a NaN or an error above 0.1 and the definition none above 0.005, five steps of float32 at "
    "10,000; the error is against float64 on the same inputs",
    sabotage=(LAYER_NORM, one_pass),
)
def one_pass_variance_fails_at_large_means() -> Finding:
    def off(a: Tensor) -> float:
        a = (1e4 + (a - a.mean()) / a.std(correction=0)).float()
        bad, good = error(one_pass, a), error(F.layer_norm, a)
        return worst(0.1 / max(bad, 1e-9), good / 0.005)

    hard = {f"{k} (H = {h})": a for h in (2, 3, 64, 512) for k, a in adversary.rows(h).items()}
    return adversary.searched(
        1.0,
        "E[x²] − E[x]² gives a NaN or an error above 0.1, deviations one below 0.005.",
        off,
        [(draw(1, 512),) for _ in range(100)],
        {name: (a,) for name, a in hard.items() if adversary.varies(a)},
    )


@claim(
    id="half-precision-needs-float32-statistics",
    statement="In float16 and bfloat16 layer normalization should compute its statistics in "
    "float32: then the only error is the rounding of the result.",
    rule="100 cases of 512 units with mean 100 and standard deviation 1, both types: refuted "
    "unless the definition errs at each output by at most half a step of the type there (and "
    "1e-6 of the largest input over the standard deviation, float32's own rounding) while "
    "computing in the type errs more than ten times as much; held if the adversary's cases, up "
    "to 1e4 in float16 and 1e30 in bfloat16, are only rounded, too; else conditional",
    sabotage=("layernorm.functional._statistics_type", lambda x: x),
)
def half_precision_needs_float32_statistics() -> Finding:
    ratios, rounded_once, broken = {}, True, []
    for dtype, huge in ((torch.float16, 1e4), (torch.bfloat16, 1e30)):
        a = (100 + torch.randn(100, 512)).to(dtype)
        rounded_once &= only_rounded(a)
        ratios[str(dtype)] = error(eps_inside, a) / error(F.layer_norm, a)
        cases = adversary.rows(512, huge, mean=1e3)
        found = {name: only_rounded(case.to(dtype)) for name, case in cases.items()}
        broken += [f"{name} in {dtype}" for name, good in found.items() if not good]
    return conditional(
        rounded_once and min(ratios.values()) > 10,
        not broken,
        "the squares of the deviations fit into float32",
        f"With float32 statistics the error {'is' if rounded_once else 'exceeds'} one rounding; "
        f"without, it is {'more than' if min(ratios.values()) > 10 else 'less than'} ten times as "
        f"large. Of the adversary's cases {', '.join(broken) or 'none'} "
        f"{'is' if len(broken) < 2 else 'are'} off by more.".replace("torch.", ""),
        **ratios,
    )


def only_rounded(a: torch.Tensor) -> bool:
    """Check that the definition gives the true output of a case in half precision, rounded."""
    truth, y = plain(a.double(), EPS), F.layer_norm(a, a.shape[-1:]).double()
    info = torch.finfo(a.dtype)
    step = info.eps * 2.0 ** truth.abs().clamp_min(info.tiny).log2().floor()
    allowed = step / 2 + 1e-6 * adversary.conditioning(a.double())
    return bool(((y - truth).abs() <= allowed).all())
