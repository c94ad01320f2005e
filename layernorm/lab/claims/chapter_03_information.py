"""Claims that chapter 03 decides about what layer normalization loses, keeps and restores."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.autograd.functional import jacobian

from layernorm import functional as F
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.chapter_03 import EPS, draw, plain
from layernorm.lab.claims.checks import (
    BATCH_NORM,
    LAYER_NORM,
    below,
    conditional,
    held,
    largest,
    less,
    proved,
    worst,
)

_layer_norm, _batch_norm = F.layer_norm, F.batch_norm  # what mutants are made of


def not_recentered(x, normalized_shape, weight=None, bias=None, eps=EPS):
    """Mutant: the mean is not subtracted."""
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


@claim(
    id="output-has-mean-0-variance-1",
    statement="The first of layer normalization's two steps gives every case mean 0 and variance 1 "
    "over its units.",
    rule="200 cases of 64 units for each of the standard deviations 10, 1 and √eps, and 200 of one "
    "unit: refuted if a mean misses 0 by 1e-12, or a variance 1 by 0.001 at 10 or 1; conditional "
    "if one does at √eps or for one unit; else held",
    # Mutant: divides by H - 1.
    sabotage=(LAYER_NORM, lambda x, n, **o: _layer_norm(x, n, **o) * (1 - 1 / x.shape[-1]) ** 0.5),
)
def output_has_mean_0_variance_1() -> Finding:
    cases = [plain(s * draw(200, 64) / 3, EPS) for s in (10.0, 1.0, EPS**0.5)]
    mean = largest(*(y.mean(1) for y in cases))
    *wide, narrow = (y.var(1, correction=0) for y in cases)
    missed = largest(*(1 - variance for variance in wide))
    alone = largest(plain(draw(200, 1), EPS))
    return conditional(
        mean <= 1e-12 and missed <= 1e-3,
        largest(1 - narrow) < 1e-3 and alone > 0,
        "the layer has two units or more, and they vary by much more than √eps",
        f"The means are {below(mean, 1e-12)}; the variances are 1 to "
        f"{'0.001' if missed < 1e-3 else 'more than 0.001'} at standard deviations 10 and 1, about "
        f"{narrow.median():.1f} at √eps, and a single unit gives {alone:.0f}.",
    )


@claim(
    id="loses-two-dimensions",
    statement="Layer normalization maps the H summed inputs of a case to a sphere of H − 2 "
    "dimensions: radius √H, orthogonal to (1, …, 1). One unit always gives its bias, two units "
    "give ±g + b.",
    rule="eps = 0, 5 cases for each H from 2 to 12, and the adversary's rows of 2, 3 and 12: held "
    "if exactly H − 2 singular values of the Jacobian times σ exceed 1e-6 and the other two are "
    "below 1e-9, every output's length is √H and its sum 0 to 1e-9 (times largest entry over σ), "
    "one unit gives b exactly and two give ±g + b to 1e-9; conditional if only rows that do not "
    "vary break it",
    sabotage=(LAYER_NORM, not_recentered),
)
def loses_two_dimensions() -> Finding:
    def off(a: Tensor) -> float:
        h, y = len(a), plain(a)
        derivatives = a.std(correction=0) * jacobian(plain, a)
        if not derivatives.isfinite().all():
            return math.inf
        values = torch.linalg.svdvals(derivatives)
        if not (values[: h - 2] > 1e-6).all():
            return math.inf
        sphere = largest(y.norm() - h**0.5, y.sum())
        return worst(largest(values[h - 2 :]), sphere) / adversary.conditioning(a)

    g, b = draw(2), draw(2)
    one = F.layer_norm(draw(20, 1), (1,), g[:1], b[:1], EPS)
    two = F.layer_norm(draw(20, 2), (2,), g, b, 0.0)
    few = torch.equal(one, b[:1].expand(20, 1)) and largest((two - b).abs() - g.abs()) < 1e-9
    return adversary.searched(
        1e-9 if few else 0.0,
        "For H = 2 to 12 the Jacobian has rank H − 2 and the outputs lie on the sphere; the cases "
        f"H = 1 and 2 are {'as stated' if few else 'not as stated'}.",
        off,
        [(draw(h),) for h in range(2, 13) for _ in range(5)],
        {f"{k} (H = {h})": (a[0],) for h in (2, 3, 12) for k, a in adversary.rows(h).items()},
        only_if=(adversary.VARIES, adversary.varies),
    )


@claim(
    id="gain-and-bias-restore-batch-normalization",
    statement="The learned gain and bias let batch normalization restore the expressive power of "
    "the original data.",
    rule="50 batches of 20 cases and 8 units and the adversary's batches: refuted unless in "
    "evaluation, with g = √(σ² + eps) and b = μ of the running statistics, the output equals the "
    "input to 1e-12 of the largest, or of 1; held if in training, too, one gain and bias of each "
    "unit, fitted to all 50 batches, leave nothing of the inputs' variance to 1e-12; else "
    "conditional",
    # Mutant: batch normalization that forgets its gain.
    sabotage=(
        BATCH_NORM,
        lambda x, m, v, g=None, *rest, **options: _batch_norm(x, m, v, None, *rest, **options),
    ),
)
def gain_and_bias_restore_batch_normalization() -> Finding:
    def off(a: Tensor) -> float:
        mean, var = draw(8), draw(8).square()
        y = F.batch_norm(a, mean, var, (var + EPS).sqrt(), mean)
        return largest(y - a) / max(1.0, largest(a))

    batches = [draw(20, 8) for _ in range(50)]
    hard = adversary.matrices(20, 8)
    exact = worst(*map(off, [*batches, *hard.values()]))
    trained = [F.batch_norm(a, None, None, training=True, eps=EPS) for a in batches]
    left = unexplained(torch.cat(trained), torch.cat(batches))
    return conditional(
        exact < 1e-12,
        left < 1e-12,
        "the statistics are fixed, as in evaluation; in training those of each batch are lost",
        f"In evaluation the output is the input to {less(exact, 1e-12)}, for 50 batches and the "
        f"adversary's {len(hard)}. In training the best gain and bias for 50 batches of 20 cases "
        f"leave {left:.0%} of the variance.",
        off=exact,
        left=left,
    )


def unexplained(y: Tensor, a: Tensor) -> float:
    """The share of the variance of a, (cases, units), that the best gain and bias of each unit
    leave if they are given y."""
    centered, scaled = a - a.mean(0), y - y.mean(0)
    g = (scaled * centered).sum(0) / scaled.square().sum(0)
    return ((centered - g * scaled).square().sum() / centered.square().sum()).item()


@claim(
    id="gain-and-bias-restore-layer-normalization",
    statement="The learned gain and bias let layer normalization restore the expressive power of "
    "the original data.",
    rule="eps = 0, 200 cases of 8 units, the gain and bias of each unit fitted to give its input "
    "back: held if nothing is left of the inputs' variance to 1e-12; else refuted, and the "
    "evidence says whether cases a and 3a + 5 come out the same to 1e-9 for 100 drawn g, b",
    # Mutant: no normalization.
    sabotage=(LAYER_NORM, lambda x, n, g=1.0, b=0.0, eps=EPS: g * x + b),
)
def gain_and_bias_restore_layer_normalization() -> Finding:
    a, apart = draw(200, 8), 0.0
    left = unexplained(plain(a), a)
    for g, b in zip(draw(100, 8), draw(100, 8), strict=True):
        pair = F.layer_norm(torch.stack([a[0], 3 * a[0] + 5]), (8,), g, b, 0.0)
        apart = worst(apart, largest(pair[0] - pair[1]))
    return held(
        left < 1e-12,
        f"The best gain and bias leave {left:.0%} of the variance; the cases a and 3a + 5 come "
        f"out {'the same' if apart < 1e-9 else 'different'} for all of 100 gains and biases.",
        left=left,
        apart=apart,
    )


@claim(
    id="invariant-to-a-shift-of-one-case",
    statement="Layer normalization is invariant to shifting and scaling the features of a single "
    "training case.",
    rule="eps = 0, 50 layers with 6 inputs and 8 units: refuted if scaling x by 0.1 or 10, or "
    "adding 5 to all summed inputs a = Wx, changes the output by 1e-9; conditional if adding 5 to "
    "all of x does, or scaling it by -1; else held",
    sabotage=(LAYER_NORM, not_recentered),
)
def invariant_to_a_shift_of_one_case() -> Finding:
    kept, shift_x, turned = 0.0, [], []
    for _ in range(50):
        w, x = torch.randn(8, 6).double(), draw(6)
        y = plain(w @ x)
        kept = worst(
            kept, largest(*(plain(a) - y for a in (w @ (0.1 * x), w @ (10 * x), w @ x + 5)))
        )
        shift_x.append(largest(plain(w @ (x + 5)) - y))
        turned.append(largest(plain(-(w @ x)) - y))
    return conditional(
        kept < 1e-9,
        worst(*shift_x, *turned) < 1e-9,
        "eps = 0, the scale is positive, and what is shifted is the summed inputs a, not the "
        "features x that enter the weights",
        f"Scaling x and shifting a {'change nothing' if kept < 1e-9 else 'count'} to 1e-9; "
        f"shifting x by 5 changes an output by {torch.tensor(shift_x).median():.1f} in the median "
        f"layer, scaling it by -1 by {torch.tensor(turned).median():.1f}.",
    )


def center(feature):
    """The values of one feature over the cases, with their mean subtracted."""
    return [value - sum(feature) / len(feature) for value in feature]


@claim(
    id="centering-absorbs-a-data-shift",
    statement="Where the data are centered, a shift of the data set does not reach layer "
    "normalization, which is not invariant to it.",
    kind="proof",
    rule="the mean m of the values shifts as they do: (x + γ) − (m + γ) = x − m, for any number of "
    "cases. Proved if SymPy finds the centered values unchanged for 1 to 8 cases of any values, "
    "and layer normalization gives others for integers that are printed; else refuted",
    sabotage=("layernorm.lab.claims.chapter_03_information.center", lambda x: x),
)
def centering_absorbs_a_data_shift() -> Finding:
    import sympy

    shift = sympy.Symbol("gamma", real=True)
    left = []
    for cases in range(1, 9):
        values = sympy.symbols(f"x:{cases}", real=True)
        moved = center([value + shift for value in values])
        left += [sympy.expand(b - a) for a, b in zip(center(values), moved, strict=True)]
    w, x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]]).double(), torch.tensor([3.0, 5.0])
    before, after = (plain(w @ features.double())[0].item() for features in (x, x + 1))
    absorbed, counts = not any(left), abs(after - before) > 0.01
    return proved(
        absorbed and counts,
        f"For 1 to 8 cases a shift {'leaves' if absorbed else 'does not leave'} the centered "
        f"values. Without centering, features (3, 5) shifted by 1 change an output from "
        f"{before:.2f} to {after:.2f} (weights (1, 0), (0, 1) and (2, 1)).",
    )
