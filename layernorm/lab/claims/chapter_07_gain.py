"""Claims about learning the gain and learning a weight's length, shown on the side paths' page."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from layernorm import functional as F
from layernorm.lab.analysis import fisher
from layernorm.lab.analysis.fisher import draw, model
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.chapter_07 import NATURAL, _natural
from layernorm.lab.claims.checks import LAYER_NORM, conditional, largest, less, proved, worst


def summed_inputs_only(method, w, b, g, x):
    """Mutant: the summed inputs without normalization, times the gain."""
    return g * (x @ w.T) + b


def hard_models(units: int, huge: float) -> dict[str, tuple[Tensor, ...]]:
    """Models with the adversary's inputs, weights and biases, and of few units and cases."""
    w, b, g, x = model(units, 2, 4)
    two = torch.tensor([[-7.0], [20.0]]).double().repeat(2, 2)
    found = {f"x {name}": (w, b, g, k) for name, k in adversary.matrices(4, 2, huge).items()}
    found |= {f"W {name}": (k, b, g, x) for name, k in adversary.matrices(units, 2, huge).items()}
    found |= {f"b {name}": (w, k, g, two) for name, k in adversary.gates(units, 1).items()}
    found |= {f"H = {n}": model(n, 2, 4) for n in adversary.SIZES}
    return found | {"two cases": model(units, 2, 2), "x nearly constant": (w, b, g, 1e6 + x)}


def summed(w: Tensor, x: Tensor) -> Tensor:
    """The summed inputs; those of equal cases, or of equal weights, agree to the last bit."""
    return (x[:, None] * w).sum(-1)


def units_vary(w: Tensor, b: Tensor, g: Tensor, x: Tensor) -> bool:
    """Tell whether every unit varies over the cases."""
    return adversary.varies(summed(w, x).T)


@claim(
    id="gain-metric-is-the-prediction-error",
    statement="When the gain of a batch- or layer-normalized model is learned, the metric depends "
    "on the size of the prediction error only, E[Cov[y|x]]/φ².",
    rule="the gains' metric by autograd against E[Cov], eps = 0, to 1e-10 of its largest entry, "
    "10 models, a climb and the adversary's inputs, weights, biases and sizes: refuted unless they "
    "agree for batch normalization where every unit varies over the cases, for Gaussian outputs "
    "and, where all ((aᵢ − μᵢ)/σᵢ)² agree, Bernoulli outputs; held if in all cases, for layer "
    "normalization and the three families, too; else conditional. The evidence adds Bernoulli "
    "outputs with gains 1 and 10",
    sabotage=(NATURAL, summed_inputs_only),
)
def gain_metric_is_the_prediction_error() -> Finding:
    def gap(family: str, method: str, *p: Tensor) -> float:
        said = fisher.mean_covariance(family, method, *p)
        return largest(fisher.along_gain(family, method, *p) - said) / max(1e-300, largest(said))

    def violation(*p: Tensor) -> float:
        bar = F.batch_norm(summed(p[0], p[3]), None, None, training=True, eps=0.0)
        coin = largest(bar.square() - 1) < 1e-9
        gaps = [gap(f, "batch", *p) for f in ("gaussian", "bernoulli")[: 1 + coin]]
        return worst(*gaps, 0 * largest(bar))  # no number where a unit does not vary

    draws = [model(2, 2, 4) for _ in range(10)]
    only_if = (
        "eps = 0, the normalization is batch normalization, every unit varies over the cases, the "
        "outputs are independent and the variance of yᵢ is uncorrelated with (aᵢ − μᵢ)²/σᵢ² over "
        "the cases, as for Gaussian outputs",
        units_vary,
    )
    found = adversary.searched(
        1e-10,
        "For Gaussian outputs and batch normalization, and for Bernoulli outputs of two values of "
        "a, the metric is E[Cov] to 1e-10.",
        violation,
        draws,
        hard_models(2, 1e6),
        only_if,
    )
    off = worst(*(gap(*k, *draws[0]) for k in product(fisher.FAMILIES, ("batch", "layer"))))
    w, x, zero = torch.ones(1, 1).double(), draw(20_000, 1), torch.zeros(1).double()
    ratio = {}
    for gain in (1, 10):
        p = (w, zero, zero + gain, x)
        printed = fisher.mean_covariance("bernoulli", "batch", *p)
        s = fisher.natural("batch", *p)
        true = (torch.sigmoid(s) * torch.sigmoid(-s) * (s / gain).square()).mean()
        ratio[f"gain_{gain}"] = (printed / true).item()
    return conditional(
        found.verdict != "refuted",
        found.verdict == "held" and off < 1e-10,
        only_if[0],
        f"{found.evidence} For a Bernoulli output of normally distributed cases E[Cov] is "
        f"{ratio['gain_1']:.1f} times the metric at gain 1 and {ratio['gain_10']:.0f} times at "
        "gain 10.",
        **found.numbers,
        **ratio,
    )


def covariance(family: str, s: Tensor) -> Tensor:
    """Cov[y|x] of every case."""
    if family == "gaussian":
        return torch.eye(s.shape[1]).to(s).expand(len(s), -1, -1)
    if family == "bernoulli":
        return torch.diag_embed(torch.sigmoid(s) * torch.sigmoid(-s))
    p = s.softmax(-1)
    return torch.diag_embed(p) - p[:, :, None] * p[:, None]


def metric(family: str, method: str, w: Tensor, b: Tensor, g: Tensor, x: Tensor) -> Tensor:
    """`fisher.along_gain`, faster, and for scales that leave its outcomes no digits."""
    a = summed(w, x)
    if method == "none":
        s, slope = a + b, a / w.norm(dim=1)
    elif method == "batch":
        slope = F.batch_norm(a, None, None, training=True, eps=0.0)
    else:
        slope = F.layer_norm(a, a.shape[1:], eps=0.0)
    s = s if method == "none" else g * slope + b
    return torch.einsum("nij,ni,nj->ij", covariance(family, s), slope, slope) / len(x)


def change(family: str, method: str, name: str, w: Tensor, b: Tensor, g: Tensor, x: Tensor):
    """How much the metric's entries (of lengths, its trace) change, the most of some factors."""
    found, old = 0.0, metric(family, method, w, b, g, x)
    for c in (1e-40, 10.0, 1e40):
        new = metric(family, method, *((w, b, g, c * x) if name == "x" else (c * w, b, g, x)))
        pair = (new.trace(), old.trace()) if method == "none" else (new, old)
        found = worst(found, largest(pair[0] - pair[1]) / max(1e-300, largest(*pair)))
    return found


@claim(
    id="gain-metric-ignores-the-scale-of-inputs",
    statement="When the gain is learned, batch- and layer-normalized models are more robust to the "
    "scaling of the input and of the weights than the standard model is.",
    rule="x or W times 1e-40, 10 and 1e40, eps = 0, 5 models (whose metrics are those by "
    "autograd), a climb and the adversary's inputs and weights (none all 0), biases and sizes; a "
    "change is relative. Refuted unless, where all units vary over the cases and in each case, the "
    "gains' metric stays to 1e-10 (times largest entry over standard deviation) for batch and "
    "layer normalization and the three families, and the trace of that of the lengths ‖wᵢ‖ of the "
    "standard model changes by a half at one of the factors, with x for the three families, with "
    "W for Bernoulli outputs; held if in all cases, for every factor, and with W for Gaussian "
    "and categorical outputs; else conditional",
    # Mutant: layer normalization does nothing.
    sabotage=(LAYER_NORM, lambda x, *args, **options: x),
)
def gain_metric_ignores_the_scale_of_inputs() -> Finding:
    families, methods, names = fisher.FAMILIES, ("batch", "layer"), ("x", "W")

    def violation(*p: Tensor) -> float:
        a = summed(p[0], p[3])
        rounding = 1e-10 * max(adversary.conditioning(a), adversary.conditioning(a.T))
        gains = [change(*k, *p) for k in product(families, methods, names)]
        lengths = [change(f, "none", "x", *p) for f in families]
        lengths.append(change("bernoulli", "none", "W", *p))
        return worst(worst(*gains) / rounding, 0.5 / max(1e-300, min(lengths)))

    draws, hard = [model(4, 2, 4) for _ in range(5)], hard_models(4, 1e20)
    hard = {k: p for k, p in hard.items() if p[0].any() and p[3].any()}  # else nothing is scaled
    only_if = (
        "eps = 0, all units vary over the cases and within each case, and of the standard model a "
        "change at some factor is asked, not at each: with the input, or with the weights if the "
        "outputs are Bernoulli",
        lambda *p: units_vary(*p) and adversary.varies(summed(p[0], p[3])),
    )
    found = adversary.searched(
        1.0,
        "The gains' metric keeps its value to 1e-10, that of the lengths changes by a half or more "
        "at one of the factors 1e-40, 10 and 1e40.",
        violation,
        draws,
        hard,
        only_if,
    )
    derived = all(
        largest(metric(*k, *draws[0]) - fisher.along_gain(*k, *draws[0])) < 1e-10
        for k in product(families, ("none", *methods))
    )
    still = {
        "Gaussian": change("gaussian", "none", "W", *draws[0]),
        "categorical": change("categorical", "none", "W", *hard["W equal rows"]),
    }
    one = torch.ones(1, 1).double()
    coins = [metric("bernoulli", "none", c * one, -5.5 * one[0], one[0], one) for c in (1, 10)]
    stays = largest(coins[1] / coins[0] - 1)
    return conditional(
        found.verdict != "refuted" and derived,
        found.verdict == "held" and min(*still.values(), stays) >= 0.5,
        only_if[0],
        f"{found.evidence} With W it changes at no factor "
        f"for {' and '.join(k for k, v in still.items() if v < 1e-9) or 'no'} outputs "
        "(categorical: if all rows of W are equal); that of one Bernoulli output with s = W x - "
        f"5.5 and x = 1 has {'the same' if stays < 1e-9 else 'another'} value at W = 1 and at "
        "W = 10.",
        **found.numbers,
    )


@claim(
    id="length-metric-is-scaled-by-the-input",
    statement="In the standard model the metric along the length of the incoming weights is "
    "scaled by the norm of the input.",
    rule="Refuted unless for Gaussian outputs the metric by autograd is E[(x·wᵢ/‖wᵢ‖)²], to 1e-9 "
    "of E[‖x‖²], for 10 models, a climb and the adversary's inputs, weights, biases and sizes "
    "whose weight vectors are not 0, and 9 times as large with inputs 3 times larger; held if "
    "it grows so for Bernoulli outputs, too, and if inputs turned to another direction at the "
    "same norm leave it; else conditional",
    # Mutant: the standard model is layer normalized, too.
    sabotage=(NATURAL, lambda m, w, b, g, x: _natural("layer", w, b, 1 + 0 * g, x)),
)
def length_metric_is_scaled_by_the_input() -> Finding:
    def violation(w: Tensor, b: Tensor, g: Tensor, x: Tensor) -> float:
        along = torch.diag((summed(w, x) / w.norm(dim=1)).square().mean(0))
        off = largest(fisher.along_gain("gaussian", "none", w, b, g, x) - along)
        return off / max(1e-300, x.square().sum(1).mean().item())

    hard = hard_models(2, 1e6)
    found = adversary.searched(
        1e-9,
        "For Gaussian outputs the metric is the mean square of the input's part along wᵢ.",
        violation,
        [model(2, 2, 4) for _ in range(10)],
        {k: p for k, p in hard.items() if p[0].any(1).all()},
    )
    w, b, g, x = model(2, 2, 8)
    grown = {}
    for family in ("gaussian", "bernoulli"):
        before, after = (fisher.along_gain(family, "none", w, b, g, c * x).trace() for c in (1, 3))
        grown[family] = (after / before).item()
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]]).double()
    same, turned = (fisher.along_gain("gaussian", "none", w, b, g, k)[0, 0] for k in (x, x @ turn))
    return conditional(
        found.verdict == "held" and abs(grown["gaussian"] - 9) <= 1e-9,
        abs(grown["bernoulli"] - 9) < 1e-9 and abs(turned / same - 1) < 1e-9,
        "the variance of the output does not depend on x, and 'norm' means the square of the "
        "input's part along wᵢ",
        f"{found.evidence} "
        f"Inputs 3 times larger multiply it by {grown['gaussian']:.1f} for Gaussian and "
        f"by {grown['bernoulli']:.1f} for Bernoulli outputs, whose variance changes with x; turned "
        f"by 90 degrees at the same norm they multiply it by {turned / same:.1f}.",
        **found.numbers,
        **grown,
    )


@claim(
    id="weight-normalization-learns-lengths-as-without",
    statement="The metric along the gain of weight normalization is the metric of the standard "
    "model along the length of its weights: re-scaled inputs re-scale both.",
    kind="proof",
    rule="with weights of length t along wᵢ the standard model has sᵢ = t wᵢᵀx/‖wᵢ‖ + bᵢ, and "
    "weight normalization has the same with gᵢ for t, so derivatives and metrics are the same for "
    "any number of units and features. Checked by SymPy: ∂sᵢ/∂gᵢ is the standard model's "
    "derivative along wᵢ/‖wᵢ‖, 1 to 3 units and features; and by autograd: the metrics agree to "
    "1e-12 for gains gᵢ = ‖wᵢ‖, all three families: proved if both, else refuted",
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
