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
    conditional,
    held,
    largest,
    less,
    proved,
    size,
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
    rule="20 draws of 20 cases of 16 to 64 units, with standard deviations 1 and 10, a climb, an "
    "ascent and the adversary's rows of 2, 3 and 64: held if every mean is 0 to 1e-12 and "
    "every variance 1 to 0.001, also at standard deviation √eps; conditional if only units "
    "of a standard deviation below 100 √eps break it",
    # Mutant: divides by H - 1.
    sabotage=(LAYER_NORM, lambda x, n, **o: _layer_norm(x, n, **o) * (1 - 1 / x.shape[-1]) ** 0.5),
)
def output_has_mean_0_variance_1() -> Finding:
    def off(a: Tensor) -> Tensor:
        y = plain(a, EPS)
        return torch.maximum(size(y.mean(1)) / 1e-12, size(y.var(1, correction=0) - 1) / 1e-3)

    narrow = EPS**0.5 * draw(200, 64) / 3
    hard = {"standard deviation √eps": (narrow,)}
    for h in (2, 3, 64):
        hard |= {f"{name} (H = {h})": (a,) for name, a in adversary.rows(h).items()}
    return adversary.searched(
        1.0,
        "The means are 0 to 1e-12 and the variances 1 to 0.001; at standard deviation √eps they "
        f"are about {plain(narrow, EPS).var(1, correction=0).median():.1f}.",
        off,
        [(s * draw(20, h) / 3,) for s in (1, 10) for h in torch.randint(16, 65, (10,)).tolist()],
        hard,
        only_if=(
            "the layer has two units or more, and they vary by much more than √eps",
            lambda a: bool((a.std(1, correction=0) > 100 * EPS**0.5).all()),
        ),
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
        derivatives = (a.std(correction=0).item() or 1.0) * jacobian(plain, a)
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
        f"leave {left:.0%} of the variance (1.5/N is {1.5 / 20:.1%}).",
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
    rule="eps = 0, 200 cases of 20 units, the gain and bias of each unit fitted to give its input "
    "back: held if nothing is left of the inputs' variance to 1e-12; else refuted, and the "
    "evidence says whether cases a and 3a + 5 come out the same to 1e-9 for 100 drawn g, b",
    # Mutant: no normalization.
    sabotage=(LAYER_NORM, lambda x, n, g=1.0, b=0.0, eps=EPS: g * x + b),
)
def gain_and_bias_restore_layer_normalization() -> Finding:
    a, apart = draw(200, 20), 0.0
    left = unexplained(plain(a), a)
    for g, b in zip(draw(100, 20), draw(100, 20), strict=True):
        pair = F.layer_norm(torch.stack([a[0], 3 * a[0] + 5]), (20,), g, b, 0.0)
        apart = worst(apart, largest(pair[0] - pair[1]))
    return held(
        left < 1e-12,
        f"The best gain and bias for 20 units leave {left:.0%} of the variance (1.5/H is "
        f"{1.5 / 20:.1%}); the cases a and 3a + 5 come out "
        f"{'the same' if apart < 1e-9 else 'different'} for all of 100 gains and biases.",
        left=left,
        apart=apart,
    )


@claim(
    id="invariant-to-a-shift-of-one-case",
    statement="Layer normalization is invariant to shifting and scaling the features of a single "
    "training case.",
    rule="eps = 0, summed inputs a = Wx; x is scaled by 0.1 to 10 and a shifted, by a few times "
    "its largest entry: held if the output stays to 1e-9 (times largest entry over standard "
    "deviation) for 50 layers with 6 inputs and 8 units, a climb, an ascent, the adversary's "
    "weights, its rows as x, layers of 1, 2 and 3 units, and if all of x is shifted by 5 or "
    "scaled by -1; conditional if only these two break it, and summed inputs that do not vary",
    sabotage=(LAYER_NORM, not_recentered),
)
def invariant_to_a_shift_of_one_case() -> Finding:
    def off(w: Tensor, x: Tensor, scale: Tensor, shift: Tensor, *of_x: Tensor) -> Tensor:
        a = w @ x
        b = w @ (scale * x + sum(of_x)) + shift * a.abs().max()
        return size(plain(b) - plain(a)) / adversary.conditioning(torch.stack([a, b]).detach())

    def weights(h: int = 8) -> Tensor:
        return torch.randn(h, 6).double()

    ten, five, one, zero = torch.tensor([10.0, 5.0, 1.0, 0.0]).double()
    hard = {
        "x + 5": (weights(), draw(6), one, zero, five),
        "-x": (weights(), draw(6), -one, zero),
    }
    hard |= {f"H = {h}": (weights(h), draw(6), ten, five) for h in adversary.SIZES}
    hard |= {f"W: {k}": (w, draw(6), ten, five) for k, w in adversary.matrices(8, 6).items()}
    hard |= {f"x: {k}": (weights(), x[0], ten, five) for k, x in adversary.rows(6).items()}
    return adversary.searched(
        1e-9,
        "Scaling x and shifting all of a change no output.",
        off,
        [(weights(), draw(6), 10 ** (2 * torch.rand(1) - 1), draw(1)) for _ in range(50)],
        hard,
        only_if=(
            "eps = 0, the summed inputs a do not all agree, the scale is positive, and what is "
            "shifted is a, not the features x that enter the weights",
            lambda w, x, scale, _, *of_x: bool(scale > 0) and not of_x and adversary.varies(w @ x),
        ),
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
