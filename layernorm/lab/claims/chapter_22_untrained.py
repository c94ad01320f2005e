"""Claims of chapter 22 that are measured in untrained transformers without norms."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from layernorm import LayerNorm
from layernorm.lab.analysis.statistics import Interval, interval
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.chapter_21_depth import said
from layernorm.lab.claims.checks import conditional, draw, held, seeds, size
from layernorm.lab.data.characters import ALPHABET
from layernorm.lab.experiments.transformer import without
from layernorm.lab.experiments.transformer.model import Transformer

BRANCH = "layernorm.lab.experiments.transformer.model.Branch.forward"
TANH = "layernorm.functional.dynamic_tanh"
STDS = (0.01, 0.03, 0.1)
SLOPE = {"dyt/much": 0.5, "derf/much": 1 / math.sqrt(math.pi)}  # at 0, with alpha 0.5


def curved(seed: int, hidden: int = 48, **options) -> tuple[Transformer, Tensor]:
    """A network of 64 blocks with dynamic tanh, in float32, whose embeddings start half as large as
    usual, and its text."""
    options = {"hidden": hidden, "heads": min(4, hidden), "embedding_std": 0.5} | options
    model, text = without.build("dyt/much", without.DEPTHS[-1], seed, **options)
    return model.float().requires_grad_(False), text


def change(model: Transformer, alpha: float) -> None:
    """Give every curve an alpha; 0 puts layer normalization in its place."""
    for owner, curve in without.norms(model):
        if alpha:
            curve.alpha.fill_(alpha)
        else:
            owner.norm = LayerNorm(model.embedding.embedding_dim)


def grown(model: Transformer, text: Tensor, first: Tensor) -> np.ndarray:
    """For starts of the stream, (starts * n, t, d), by depth: the size of the loss's gradient there
    over that at the end, and the share of the blocks' terms in the variance."""
    found, x = [], first.detach().requires_grad_()
    first, each, y = x, (-1, len(text)), text.roll(-1, 1).flatten()
    for i, branch in enumerate(model.branches, 1):
        x = branch(x)
        if i in [2 * depth for depth in without.DEPTHS]:
            logits = model.output(model.norm(x)).unflatten(0, each)
            loss = sum(cross_entropy(one.flatten(0, 1), y) for one in logits)
            pairs = torch.autograd.grad(loss, (first, x), retain_graph=True), (x - first, x)
            pairs = [[z.detach().unflatten(0, each).flatten(1) for z in pair] for pair in pairs]
            sizes, parts = ([z.norm(dim=1) for z in pairs[0]], [z.var(1) for z in pairs[1]])
            found.append(torch.stack([sizes[0] / sizes[1], parts[0] / parts[1]]))
    return torch.stack(found).double().numpy()  # depth, gradient or share, start


def divided(seed: int) -> float:
    """The gradient's ratio at 64 blocks if the matrices that write to the stream start divided."""
    model, text = curved(seed, scaled=True)
    return grown(model, text, model.embed(text))[-1, 0, 0]


def further(found: np.ndarray) -> np.ndarray:
    """The growth of the gradient's logarithm from the second depth to the third, less that from the
    first to the second; it is not finite where no gradient arrives."""
    with np.errstate(all="ignore"):
        one, two = without.growth(found[:, 0].T)
        return two - one


BENT, LINE, SHARE, SPREAD, SLOPE_AT = range(5)  # what `hard` measures
ALPHAS = {"alpha: 0.01": 0.01, "alpha: 1e10": 1e10}
NARROW = "layers of 1 to 3 units"


def hard(seed: int, hidden: int = 48) -> dict[str, list[float]]:
    """For the drawn start and the adversary's, by name: the further growth with dynamic tanh and
    with layer normalization, the blocks' share with the former at 64 blocks, the embeddings' least
    spread over units, and the mean slope of dynamic tanh at them."""
    model, text = curved(seed, hidden)
    text = text[:1]
    text[:, 0] = len(ALPHABET) - 1  # which some tables make 0, so that nothing comes before 0
    drawn, wide = model.embed(text), hidden == 48
    begun, alphas = {"as drawn": drawn}, ALPHAS if wide else {}
    for name, table in adversary.matrices(len(ALPHABET), hidden, huge=1e15).items() if wide else ():
        begun[f"embeddings: {name}"] = table[text].float()
    first = torch.cat([*begun.values()])
    curves = {0.5: grown(model, text, first)}
    for alpha in (*alphas.values(), 0.0):
        change(model, alpha)
        curves[alpha] = grown(model, text, drawn if alpha else first)
    norm = further(curves[0.0])

    def row(i: int, x: Tensor, alpha: float = 0.5) -> list[float]:
        bent, share = further(curves[alpha])[i], curves[alpha][-1, 1, i]
        slope = 1 - (alpha * x).tanh().square().mean()
        return [bent, norm[i], share, x.std(-1, correction=0).min().item(), slope.item()]

    found = {name: row(i, x) for i, (name, x) in enumerate(begun.items())}
    return found | {name: row(0, drawn, alpha) for name, alpha in alphas.items()}


CONDITIONS: dict[str, Callable[[np.ndarray], bool]] = {
    "with 64 blocks the blocks' terms make most of the residual stream, as they do not where the "
    "matrices that write to it start divided by √(2L)": lambda one: one[:, SHARE].min() > 0.5,
    "each token's embedding varies over its units by more than √eps": (
        lambda one: one[:, SPREAD].min() > 1e-5**0.5
    ),
    "the mean slope of dynamic tanh at the embeddings is above a hundredth of the largest": (
        lambda one: one[:, SLOPE_AT].min() > 0.01
    ),
}


def against() -> tuple[list[str], list[str], int]:
    """Which of the adversary's cases break the statement, which of these meet the conditions, and
    of how many."""
    tried = defaultdict(list)
    for i, seed in enumerate(seeds(2)):
        for name, row in hard(seed).items():
            tried[name].append(row)
        for units in adversary.SIZES if i == 0 else ():
            tried[NARROW].append(hard(seed, units)["as drawn"])
    broken, inside = [], []
    for name, found in ((name, np.array(rows)) for name, rows in tried.items()):
        bent, line = found[:, BENT].mean(), found[:, LINE].mean()
        if not abs(line) < bent < math.inf:
            broken.append(name)
            inside += [name] if all(meets(found) for meets in CONDITIONS.values()) else []
    return broken, inside, len(tried) - 1


@claim(
    id="dynamic-tanh-gradients-grow-faster-than-a-power",
    statement="From 4 to 64 blocks of an untrained transformer the gradient grows ever faster on "
    "logarithmic axes with dynamic tanh, and bends more than with layer normalization, for which a "
    "power is not excluded (after Alekseev 2026, who derives growth faster than any power, and a "
    "power).",
    rule="the loss's gradient at the embeddings over that at the stream's end; the first 4, 16 and "
    "64 blocks of untrained networks of 48 units, five seeds, embeddings half as large as usual. "
    "The growth of its logarithm from 16 to 64 blocks, less that from 4 to 16, is 0 for a power. "
    "Refuted unless its 95% interval lies above 0 under dynamic tanh whose alpha is 0.5 or 1, "
    "contains 0 under layer normalization, and that of the difference, paired by seed, lies above "
    "0 for both alphas. The adversary, two seeds: its matrices as embeddings, alpha 0.01 and 1e10; "
    "a network each of 1, 2 and 3 units. A case breaks it if no gradient arrives or the mean "
    "growth bends as much under layer normalization. The control, "
    "three seeds: residual matrices that start divided by √(2L), with which the gradient at 64 "
    "blocks is to be twice as large. Held if nothing breaks it, conditional if only the control "
    "and cases that miss the condition do, else refuted",
    # Mutant: the branches are nearly left out.
    sabotage=(BRANCH, lambda branch, x: x + 1e-3 * branch.f(branch.norm(x))),
)
def gradients() -> Finding:
    bent, drawn = defaultdict(list), seeds(5)
    for seed in drawn:
        model, text = curved(seed)
        for alpha in (0.5, 1.0, 0.0):
            change(model, alpha)
            bent[alpha].append(grown(model, text, model.embed(text))[..., 0])
    last = np.mean([one[-1, 0] for one in bent[0.5]])
    half, one, norm = (further(np.stack(found, -1)) for found in bent.values())
    control = interval(divided(seed) for seed in drawn[:3])
    broken, inside, count = against()
    steep = [interval(found) for found in (half, one, half - norm, one - norm)]
    line = interval(norm)
    return conditional(
        min(found.low for found in steep) > 0 and line.low <= 0 <= line.high and not inside,
        control.high >= 2 and not broken,
        ", and ".join(CONDITIONS),
        f"The logarithm's further growth is {said(steep[0])} with dynamic tanh, {said(steep[1])} "
        f"where alpha is 1, and {said(line)} with layer normalization; the differences are "
        f"{said(steep[2])} and {said(steep[3])}. With 64 blocks the gradient is {last:.1f} times "
        f"as large at the embeddings, with divided matrices {control.mean:.2f} times. Tried: "
        f"{count} cases of the adversary; "
        + (f"broken by {', '.join(broken)}." if broken else "none breaks it."),
        half=half.mean(),
        one=one.mean(),
        norm=norm.mean(),
    )


def near(found: Interval, exponent: float) -> bool:
    """Tell whether an interval lies within 0.1 of a theory's exponent."""
    return exponent - 0.1 < found.low and found.high < exponent + 0.1


Net = tuple[Transformer, Transformer, Tensor, float]


def nets() -> dict[str, Net]:
    """Networks with dynamic tanh, with its slope at 0 in its place, texts and alphas, by name."""
    made, (seed,) = {}, seeds(1)
    options = {"as drawn": {}, "alpha 50": {"alpha": 50.0}, "matrices ten times as large": {}}
    options |= {"64 blocks": {"depth": 64}}
    options |= {f"units: {n}": {"hidden": n, "heads": n} for n in adversary.SIZES}
    for name, given in options.items():
        model, text = without.build("dyt/much", seed=seed, **{"depth": 4, **given})
        for weight in model.requires_grad_(False).branches.parameters():
            if weight.dim() == 2 and name.startswith("matrices"):
                weight *= 10
        alpha = given.get("alpha", 0.5)
        factors = without.replaced(model, lambda _, alpha=alpha: without.Times(alpha))
        made[name] = model, factors, text, alpha
    return made


def off(net: Net, first: Tensor) -> tuple[Tensor, Tensor]:
    """The share by which the logits with curves are off those with factors, for a start of the
    stream, and the largest argument of a curve."""
    model, factors, _, alpha = net
    x, y, stream = first, first, [first]
    for one, other in zip(model.branches, factors.branches, strict=True):
        x, y = one(x), other(y)
        stream.append(x)
    x, y = model.output(model.norm(x)), factors.output(factors.norm(y))
    return (x - y).norm() / (1e-300 + y.norm()), alpha * size(*stream)


@claim(
    id="small-embeddings-make-dynamic-tanh-linear",
    statement="If embeddings start small, dynamic tanh and dynamic erf do little more than "
    "multiply by a constant, as in a network without norms.",
    rule="untrained networks, embeddings of standard deviation 0.01, 0.03 and 0.1, five seeds; how "
    "far the logits are from those with the curve's slope at 0 in the norms' place, as a share, "
    "and the exponent of the embeddings' scale in it. Refuted unless its 95% interval lies within "
    "0.1 of 2 for dynamic tanh and erf at 4 blocks and for dynamic tanh at 12, and within 0.1 of 0 "
    "for layer normalization. A case breaks the statement if with dynamic tanh the share is 0.1 or "
    "more: 15 random tables of such embeddings, a climb and an ascent; as tables the adversary's "
    "matrices, whose largest number is 0.1; with embeddings of 0.01 alpha 50, matrices ten times "
    "as large, 64 blocks, layers of 1, 2 and 3 units. Held if none does, conditional if only cases "
    "that miss the condition do, else refuted",
    sabotage=(TANH, lambda x, alpha, *_: alpha * x.sign() * x.abs().sqrt()),
)
def linear() -> Finding:
    @torch.no_grad()
    def found(arm: str, depth: int = 4) -> tuple[np.ndarray, Interval]:
        values = []
        for seed in seeds(5):
            model, text = without.build(arm, depth, seed)
            factors = without.replaced(model, lambda _: without.Times(1.0))
            for std in STDS:
                for owner, _ in without.norms(factors):
                    owner.norm.factor = SLOPE.get(arm, 1 / std)
                values.append(off((model, factors, text, 1.0), std * model.embed(text))[0].item())
        values = np.reshape(values, (-1, len(STDS)))
        return values, interval(np.polyfit(np.log(STDS), np.log(values).T, 1)[0])

    def seen(table: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        net = made[int(which)]
        return off(net, table[net[2]])

    curves = [found("dyt/much"), found("derf/much"), found("dyt/much", 12)]
    norm = found("layer")
    names, made = zip(*nets().items(), strict=True)
    cases = {}
    for i, (name, (model, *_)) in enumerate(zip(names, made, strict=True)):
        table = 0.01 * draw(*model.embedding.weight.shape)
        cases |= {name: (table, torch.tensor(float(i)))} if i else {}
    drawn = torch.zeros(())
    for name, table in adversary.matrices(len(ALPHABET), 48, huge=10.0).items():
        cases[f"embeddings: {name}"] = 0.01 * table, drawn
    searched = adversary.searched(
        0.1,
        f"The exponents are {said(curves[0][1])}, {said(curves[1][1])} and {said(curves[2][1])}, "
        f"with layer normalization {abs(norm[1].mean):.2f}. At 0.01 the logits are "
        f"{curves[0][0][:, 0].mean():.0e} apart; 0.1 breaks the statement.",
        lambda *case: seen(*case)[0],
        [(std * draw(len(ALPHABET), 48), drawn) for std in STDS * 5],
        cases,
        (
            "alpha times every number of the residual stream stays below 0.3, also after the last "
            "block",
            lambda *case: bool(seen(*case)[1] < 0.3),
        ),
    )
    fits = all(near(one, 2.0) for _, one in curves) and near(norm[1], 0.0)
    return searched if fits else held(False, searched.evidence)
