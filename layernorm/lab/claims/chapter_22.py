"""Claims of chapter 22 that algebra and counting decide: dynamic tanh, dynamic erf, frozen norms.

What is measured in untrained transformers is in `chapter_22_untrained.py`; what needs training are
rows of the plan of the experiment `transformer`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from layernorm import LayerNorm
from layernorm import functional as F
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import conditional, draw, held, less, proved, spelled, worst
from layernorm.lab.experiments.transformer import without

ELEMENTWISE = "layernorm.symbolic.elementwise"
TANH = "layernorm.functional.dynamic_tanh"  # where mutants are put


def normalized(x: Tensor, *_, **__) -> Tensor:
    """Mutant: layer normalization stays."""
    return F.layer_norm(x, x.shape[-1:], eps=0.0)


def other_curve(_, z):
    """Mutant: erf in the place of both curves."""
    import sympy

    return sympy.erf(z)


def wave(_, z):
    """Mutant: a curve that falls again."""
    import sympy

    return sympy.sin(z)


def scaled_up(weight: Tensor, gain: Tensor, bias: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """Mutant: the mean is not subtracted."""
    return weight * gain / sigma, weight @ bias


@claim(
    id="dynamic-tanh-is-layer-norm-along-one-unit",
    statement="If all units of a row but one stand still, layer normalization acts on this one as "
    "a tanh (Stollenwerk 2025).",
    kind="proof",
    rule="SymPy, for every number of units H: from the definition, y as a function of one unit "
    "has the slope (1 - (1 + y²)/H)/σ, also in float64 to 1e-12 (times largest entry over "
    "standard deviation) for 100 rows of 8 units and the adversary's that vary. Proved if √(H - "
    "1) tanh(√(H - 1) u/(Hσ)) has this slope, σ being that of the row as the unit moves; "
    "conditional if only for a σ that stands still; else refuted. The evidence gives the "
    "function that has it exactly",
    sabotage=(f"{ELEMENTWISE}.curve", other_curve),
)
def one_unit() -> Finding:
    import sympy

    from layernorm.symbolic import elementwise

    y, sigma = elementwise.along_one_unit("layer")
    exact = sympy.lambdify([elementwise.U, elementwise.S, elementwise.H], y)
    off = 0.0
    rows = [draw(1, 8, mean=2.0) for _ in range(100)]
    for a in filter(adversary.varies, (*rows, *adversary.rows(8).values())):
        others, u = a[0, 1:], a[0, 0] - a[0, 1:].mean()
        found = exact(u.item(), others.std(correction=0).item(), 8)
        gap = abs(F.layer_norm(a, (8,), eps=0.0)[0, 0].item() - found)
        off = worst(off, gap / adversary.conditioning(a))
    tanh = elementwise.frozen()
    moving = tanh.subs(elementwise.SIGMA, sigma)
    same = elementwise.defect(y, sigma) == 0 and off < 1e-12
    return conditional(
        same and elementwise.defect(tanh, elementwise.SIGMA) == 0,
        elementwise.defect(moving, sigma) == 0,
        "σ stands still while the unit moves",
        f"The function that has layer normalization's slope exactly is {spelled(y)}, u being the "
        f"unit's distance from the mean of the others and s their standard deviation; in float64 "
        f"it is off by {less(off, 1e-12)}.",
        holds=proved,
        off=off,
    )


@claim(
    id="dynamic-tanh-keeps-no-invariance",
    statement="Dynamic tanh and dynamic erf have none of the six invariances of Table 1 of the "
    "paper, whatever alpha above 0.",
    kind="proof",
    rule="proved if SymPy finds the slope of both curves positive at every argument, so that an "
    "output changes exactly where its summed input does, and if in a layer of integers each of the "
    "six transformations changes a summed input; else refuted",
    sabotage=(f"{ELEMENTWISE}.curve", wave),
)
def no_invariance() -> Finding:
    from layernorm.symbolic import TRANSFORMATIONS, elementwise

    rising = all(elementwise.relative_slope(name).is_positive for name in elementwise.CURVES)
    moved = {t.title: elementwise.moved_input(name) for name, t in TRANSFORMATIONS.items()}
    shown = "; ".join(f"{t}: {pair[0]} becomes {pair[1]}" for t, pair in moved.items() if pair)
    return proved(
        rising and all(moved.values()),
        f"Both curves {'rise' if rising else 'do not rise'} everywhere. A summed input under "
        f"{shown}.",
    )


def scale_gap(x: Tensor, weight: Tensor, target: Tensor, alpha: float = 0.7) -> Tensor:
    """How far ⟨W, ∂L/∂W⟩ is from α ∂L/∂α, over the sizes that make them up, for the loss
    L = ⟨target, tanh(α W x)⟩."""
    w, a = weight.detach().requires_grad_(), torch.tensor(alpha).double().requires_grad_()
    dw, da = torch.autograd.grad((F.dynamic_tanh(x @ w.T, a) * target).sum(), (w, a))
    size = 1e-300 + w.norm() * dw.norm() + (a * da).abs()
    return (((w * dw).sum() - a * da).abs() / size).detach()


def without_alpha(x: Tensor, alpha: Tensor, *_) -> Tensor:
    """Mutant: alpha stands outside, too."""
    return alpha * torch.tanh(alpha * x)


@claim(
    id="weights-and-alpha-share-one-scale",
    statement="Under dynamic tanh a larger matrix and a smaller alpha make up for each other: ⟨W, "
    "∂L/∂W⟩ is α ∂L/∂α, so gradient flow keeps the difference of ‖W‖² and α² constant, whereas "
    "under layer normalization it keeps ‖W‖² constant.",
    rule="held if the two sides differ by less than 1e-12 of the sizes that make them up, for 100 "
    "random layers of 6 units and 4 features with 5 cases and random losses, a climb and the "
    "adversary's inputs and matrices; the rest is Euler's rule; else refuted",
    sabotage=(TANH, without_alpha),
)
def one_scale() -> Finding:
    target = draw(5, 6)
    cases = {f"weights: {name}": (draw(5, 4), w) for name, w in adversary.matrices(6, 4).items()}
    cases |= {f"inputs: {name}": (x, draw(6, 4)) for name, x in adversary.matrices(5, 4).items()}
    return adversary.searched(
        1e-12,
        "The two sides agree to 1e-12 of their sizes.",
        lambda x, w: scale_gap(x, w, target),
        [(draw(5, 4), draw(6, 4)) for _ in range(100)],
        cases,
    )


def step(x: Tensor, weight: Tensor, target: Tensor, rate: float = 0.1) -> float:
    """The change of a matrix's length by one step of gradient descent."""
    w = weight.clone().requires_grad_()
    loss = (F.dynamic_tanh(x @ w.T, 0.5) - target).square().mean()
    (dw,) = torch.autograd.grad(loss, w)
    return float((weight - rate * dw).norm() - weight.norm())


@claim(
    id="weights-only-grow-under-dynamic-tanh",
    statement="As under layer normalization, a step of gradient descent never makes a matrix "
    "shorter under dynamic tanh.",
    rule="held if no step at rate 0.1 makes the matrix shorter by more than 1e-12, for 200 random "
    "regressions of 6 units, 4 features and 5 cases and the adversary's inputs, else refuted; "
    "chapter 7 proves it for layer normalization",
    sabotage=(TANH, normalized),
)
def only_grow() -> Finding:
    drawn = [(draw(5, 4), draw(6, 4), draw(5, 6)) for _ in range(200)]
    inputs = [adversary.matrices(5, 4)[name] for name in ("one column", "rank one", "one-hot")]
    drawn += [(x + 1e-3 * draw(5, 4), draw(6, 4), draw(5, 6)) for x in inputs]
    changes = [step(*one) for one in drawn]
    shorter = sum(change < -1e-12 for change in changes)
    return held(
        shorter == 0,
        f"In {shorter} of {len(drawn)} regressions the step makes the matrix shorter.",
        share=shorter / len(drawn),
        most=min(changes),
    )


@claim(
    id="dynamic-erf-is-flatter-than-dynamic-tanh",
    statement="At the same alpha dynamic erf is flatter than dynamic tanh at every argument but 0, "
    "in shares of the largest slope: it saturates at smaller inputs.",
    kind="proof",
    rule="proved if SymPy finds that the logarithm of the ratio of the two slopes has the "
    "derivative -2(z - tanh z), and z - tanh z the derivative tanh² z, so that the ratio is below "
    "1 for every z but 0; else refuted. The evidence says where each slope is a tenth",
    sabotage=(f"{ELEMENTWISE}.CURVES", {"dyt": lambda z: wave("", z), "derf": lambda z: z}),
)
def flatter() -> Finding:
    import sympy

    from layernorm.symbolic import elementwise

    z, share = elementwise.Z, sympy.Rational(1, 10)
    slopes = [elementwise.relative_slope(name) for name in ("derf", "dyt")]
    rate = sympy.diff(sympy.log(slopes[0] / slopes[1]), z)
    ahead = z - sympy.tanh(z)
    exact = sympy.simplify((rate + 2 * ahead).rewrite(sympy.exp)) == 0
    exact &= sympy.simplify(ahead.diff(z) - sympy.tanh(z) ** 2) == 0
    erf, tanh = (float(elementwise.flat_beyond(name, share)) for name in ("derf", "dyt"))
    return proved(
        exact,
        f"The slope is a tenth of the largest at {erf:.2f}/α and {tanh:.2f}/α: dynamic erf with "
        f"{erf / tanh:.2f} times the alpha is as flat there.",
        ratio=erf / tanh,
    )


def fold_gap(x: Tensor, weight: Tensor, gain: Tensor, bias: Tensor, sigma: float) -> float:
    """How far a matrix after a frozen layer norm is from the folded one, over the numbers added."""
    norm = LayerNorm(x.shape[-1]).double()
    with torch.no_grad():
        norm.weight.copy_(gain), norm.bias.copy_(bias)
        matrix, shift = without.folded(weight, gain, bias, sigma)
        gap = (without.Frozen(norm, sigma)(x) @ weight.T - x @ matrix.T - shift).abs()
        size = x.abs() @ (weight * gain / sigma).abs().T + (weight * bias).abs().sum(1)
        return float((gap / (1e-300 + size)).max())


@claim(
    id="a-frozen-layer-norm-folds-into-the-next-matrix",
    statement="A layer normalization whose σ is held at one value for all tokens is a linear map; "
    "with gain and bias it becomes part of the next matrix and bias (Heimersheim 2024).",
    rule="held if a matrix of 5 rows after the frozen norm and the folded one, "
    "W diag(g)(I - 11ᵀ/H)/σ with the bias Wb, differ by less than 1e-12 of the numbers that are "
    "added, for 100 random layers of 8 units, a climb, and the adversary's rows and matrices; else "
    "refuted",
    sabotage=("layernorm.lab.experiments.transformer.without.folded", scaled_up),
)
def folds() -> Finding:
    gain, bias = 1 + draw(8), draw(8)
    cases = {f"row: {name}": (x, draw(5, 8)) for name, x in adversary.rows(8).items()}
    cases |= {f"matrix: {name}": (draw(2, 8), w) for name, w in adversary.matrices(5, 8).items()}
    return adversary.searched(
        1e-12,
        "The two differ by less than 1e-12 of the numbers added.",
        lambda x, w: fold_gap(x, w, gain, bias, 1.7),
        [(draw(2, 8, mean=1.0), draw(5, 8)) for _ in range(100)],
        cases,
    )


KEPT = 8  # bytes of a row's mean and 1/σ


@claim(
    id="dynamic-tanh-moves-fewer-bytes",
    statement="As it computes no statistic, dynamic tanh moves fewer bytes than layer "
    "normalization, forward and backward (after Zhu et al. 2025, who report lower latency).",
    kind="proof",
    rule="the byte model, in which each tensor is read or written once, as a norm does whose row "
    "stays on the chip, float32, 1 to 65,536 rows of 1 to 65,536 numbers, forward and backward: "
    "refuted unless the difference to layer normalization that keeps nothing for its gradient is "
    "the same number of bytes at every size, and dynamic tanh moves fewer, from two rows on, than "
    f"one that keeps each row's mean and 1/σ, {KEPT} bytes; proved if with one row, too, and also "
    "than one that keeps nothing; else conditional",
    # Mutant: dynamic tanh reads its input twice.
    sabotage=(
        "layernorm.lab.benchmarks.norms.operations.least_bytes",
        lambda name, size, mode: 4 * size[0] * size[1] * (3 if name == "dyt" else 2),
    ),
)
def fewer_bytes() -> Finding:
    from layernorm.lab.benchmarks.norms.operations import least_bytes

    counts, widths, modes = (1, 2, 16, 65_536), (1, 32, 1024, 65_536), ("forward", "backward")
    sizes = [(count, width) for count in counts for width in widths]
    more = {
        (size, mode): least_bytes("dyt", size, mode) - least_bytes("layer", size, mode)
        for size in sizes
        for mode in modes
    }
    same = all(len({more[size, mode] for size in sizes}) == 1 for mode in modes)
    kept = {place: extra - KEPT * place[0][0] for place, extra in more.items()}
    forward, backward = (more[sizes[0], mode] for mode in modes)
    one = [kept[sizes[0], mode] for mode in modes]  # of one row
    rows = [extra for (size, _), extra in kept.items() if size[0] > 1]
    share = KEPT * 4096 / least_bytes("layer", (4096, 1024), "forward")
    return conditional(
        same and max(rows) < 0,
        max(*more.values(), *one) < 0,
        "there are two rows or more, and the norm keeps each row's mean and 1/σ for its gradient, "
        "as PyTorch's kernels do (ours keep three numbers, 12 bytes)",
        f"Beside a norm that keeps nothing it moves {forward} bytes more forward and {backward} "
        f"backward, those of alpha, at any size; one that keeps the two numbers moves {KEPT} bytes "
        f"more for each row, {share:.1%} of what it moves forward for rows of 1024 numbers. With "
        f"one row the difference is {one[0]} bytes forward and {one[1]} backward.",
        proved,
        most=max(more.values()),
    )
