"""Claims about learning the gain and learning a weight's length, shown on the side paths' page."""

from __future__ import annotations

from itertools import product

import torch

from layernorm.lab.analysis import fisher
from layernorm.lab.analysis.fisher import draw, model
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.chapter_07 import NATURAL, _natural
from layernorm.lab.claims.checks import conditional, largest, less, proved, worst


def summed_inputs_only(method, w, b, g, x):
    """Mutant: the summed inputs without normalization, times the gain."""
    return g * (x @ w.T) + b


@claim(
    id="gain-metric-is-the-prediction-error",
    statement="When the gain of a batch- or layer-normalized model is learned, the metric depends "
    "on the size of the prediction error only, E[Cov[y|x]]/φ².",
    rule="the gains' metric by autograd against E[Cov], 3 units and 8 cases, 5 models: held if "
    "they agree to 1e-10 in all entries for batch and layer normalization and all three families; "
    "conditional if in the diagonal for batch normalization and Gaussian outputs only; else "
    "refuted. The evidence adds Bernoulli outputs with gains 1 and 10",
    sabotage=(NATURAL, summed_inputs_only),
)
def gain_metric_is_the_prediction_error() -> Finding:
    off, diagonal = 0.0, 0.0
    for _ in range(5):
        p = model(3, 2, 8)
        for method, family in product(("batch", "layer"), fisher.FAMILIES):
            metrics = fisher.along_gain, fisher.mean_covariance
            gap = torch.sub(*(metric(family, method, *p) for metric in metrics))
            off = worst(off, largest(gap))
            if (family, method) == ("gaussian", "batch"):
                diagonal = worst(diagonal, largest(gap.diagonal()))
    w, x, zero = torch.ones(1, 1).double(), draw(20_000, 1), torch.zeros(1).double()
    ratio = {}
    for gain in (1, 10):
        p = (w, zero, zero + gain, x)
        printed = fisher.mean_covariance("bernoulli", "batch", *p)
        s = fisher.natural("batch", *p)
        true = (torch.sigmoid(s) * torch.sigmoid(-s) * (s / gain).square()).mean()
        ratio[f"gain_{gain}"] = (printed / true).item()
    return conditional(
        diagonal < 1e-10,
        off < 1e-10,
        "the normalization is batch normalization, the outputs are independent and the variance "
        "of yᵢ is uncorrelated with (aᵢ − μᵢ)²/σᵢ² over the cases, as for Gaussian outputs",
        f"For Gaussian outputs and batch normalization the diagonal is E[Cov] to "
        f"{'1e-10' if diagonal < 1e-10 else 'no better than 1e-10'}; for a Bernoulli output of "
        f"normally distributed cases E[Cov] is {ratio['gain_1']:.1f} times the metric at gain 1 "
        f"and {ratio['gain_10']:.0f} times at gain 10.",
        largest=off,
        **ratio,
    )


@claim(
    id="gain-metric-ignores-the-scale-of-inputs",
    statement="When the gain is learned, batch- and layer-normalized models are more robust to the "
    "scaling of the input and of the weights than the standard model is.",
    rule="10 models, Gaussian and Bernoulli outputs, eps = 0, x and W times 0.1 and 10: held if "
    "the gains' metric stays to 1e-10 under batch and layer normalization, and the trace of that "
    "of the lengths ‖wᵢ‖ of the standard model changes by 0.1% or more each time; conditional if "
    "only that of Gaussian outputs under another scale of W does not; else refuted",
    sabotage=(NATURAL, summed_inputs_only),
)
def gain_metric_ignores_the_scale_of_inputs() -> Finding:
    moved, families = 0.0, ("gaussian", "bernoulli")
    factors = {pair: [] for pair in product(families, ("x", "W"))}
    models = [model(3, 2, 8) for _ in range(10)]
    for (w, b, g, x), family, c in product(models, families, (0.1, 10.0)):
        scaled = {"x": (w, b, g, c * x), "W": (c * w, b, g, x)}
        for (method, of), name in product((("batch", 1), ("layer", 1), ("none", 0)), scaled):
            before = fisher.along_gain(family, method, w, b, g, x)
            after = fisher.along_gain(family, method, *scaled[name])
            if of:
                moved = worst(moved, largest(after - before))
            else:
                ratio = after.trace() / before.trace()
                factors[family, name].append(ratio.log().abs().exp().item())
    least = {f"{family}_{name}": min(found) for (family, name), found in factors.items()}
    weights = least.pop("gaussian_W")
    return conditional(
        moved < 1e-10 and min(least.values()) >= 1.001,
        weights >= 1.001,
        "what is scaled is the input, or the outputs are not Gaussian: with Gaussian outputs the "
        "standard model's metric does not depend on the scale of the weights either",
        f"With x or W ten times larger or smaller the gains' metric changes by "
        f"{less(moved, 1e-10)}; that of the standard model's lengths by a factor of "
        f"{least['gaussian_x']:.0f} with x and Gaussian outputs, of {least['bernoulli_x']:.2f} or "
        f"more with x and of {least['bernoulli_W']:.2f} or more with W and Bernoulli outputs, of "
        f"{weights:.2f} with W and Gaussian ones.",
        moved=moved,
        weights=weights,
        **least,
    )


@claim(
    id="length-metric-is-scaled-by-the-input",
    statement="In the standard model the metric along the length of the incoming weights is "
    "scaled by the norm of the input.",
    rule="one unit, x times 3: held if the metric grows in proportion to ‖x‖² for Gaussian and "
    "Bernoulli outputs, and inputs turned to another direction at the same norm leave it (to "
    "1e-9); conditional if it grows so for Gaussian outputs only; else refuted",
    # Mutant: the standard model is layer normalized, too.
    sabotage=(NATURAL, lambda m, w, b, g, x: _natural("layer", w, b, 1 + 0 * g, x)),
)
def length_metric_is_scaled_by_the_input() -> Finding:
    w, b, g, x = model(2, 2, 8)
    grown = {}
    for family in ("gaussian", "bernoulli"):
        before, after = (fisher.along_gain(family, "none", w, b, g, c * x).trace() for c in (1, 3))
        grown[family] = (after / before).item()
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]]).double()
    same, turned = (fisher.along_gain("gaussian", "none", w, b, g, k)[0, 0] for k in (x, x @ turn))
    return conditional(
        abs(grown["gaussian"] - 9) <= 1e-9,
        abs(grown["bernoulli"] - 9) < 1e-9 and abs(turned / same - 1) < 1e-9,
        "the variance of the output does not depend on x, and 'norm' means the square of the "
        "input's part along wᵢ",
        f"Inputs 3 times larger multiply the metric by {grown['gaussian']:.1f} for Gaussian and "
        f"by {grown['bernoulli']:.1f} for Bernoulli outputs, whose variance changes with x; turned "
        f"by 90 degrees at the same norm they multiply it by {turned / same:.1f}.",
        **grown,
    )


@claim(
    id="weight-normalization-learns-lengths-as-without",
    statement="The metric along the gain of weight normalization is the metric of the standard "
    "model along the length of its weights: re-scaled inputs re-scale both.",
    kind="proof",
    rule="SymPy: ∂sᵢ/∂gᵢ under weight normalization is the standard model's derivative along "
    "wᵢ/‖wᵢ‖, 1 to 3 units and features; and the metrics by autograd agree to 1e-12 for gains "
    "gᵢ = ‖wᵢ‖, all three families: proved if both, else refuted",
    # Mutant: layer normalization in the place of weight normalization.
    sabotage=(NATURAL, lambda m, *p: _natural("layer" if m == "weight" else m, *p)),
)
def weight_normalization_learns_lengths_as_without() -> Finding:
    import sympy as sp

    from layernorm.symbolic.geometry import GLM

    same, off = True, 0.0
    for units, features in product((1, 2, 3), (1, 2, 3)):
        normal, plain = (GLM("bernoulli", m, units, features) for m in ("weight", "none"))
        for i in range(units):
            own = list(normal.w.row(i))
            length = sp.sqrt(sp.Add(*(v**2 for v in own)))
            along = sp.Add(*(plain.natural(0)[i].diff(v) * v for v in own)) / length
            same &= sp.expand(normal.natural(0)[i].diff(normal.g[i]) - along) == 0
    for family in fisher.FAMILIES:
        w, b, _, x = model(3, 2, 4)
        pair = (fisher.along_gain(family, m, w, b, w.norm(dim=1), x) for m in ("weight", "none"))
        off = worst(off, largest(torch.sub(*pair)))
    return proved(
        same and off < 1e-12,
        f"The derivatives {'are' if same else 'are not'} the same for 1 to 3 units and features, "
        f"and the metrics agree to {less(off, 1e-12)}.",
        off=off,
    )
