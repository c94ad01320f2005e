"""Claims of chapter 21 on the depth of untrained transformers, and the adversary's starts of them.

A start breaks a statement if an exponent of depth does not exist or its interval lies wholly
outside what the statement allows. One whose interval lies partly outside is told as undecided.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from layernorm.lab.analysis.statistics import Interval, interval
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import conditional, held, seeds
from layernorm.lab.data.characters import ALPHABET
from layernorm.lab.experiments.transformer import untrained as transformers
from layernorm.lab.experiments.transformer.model import Transformer

BRANCH = "layernorm.lab.experiments.transformer.model.Branch.forward"
BUILD = "layernorm.lab.experiments.transformer.untrained.build"
_build = transformers.build  # what a mutant is made of
CLOSE = 0.15  # to theory, for an exponent of depth
SEEDS = 8  # of networks that are tried from hard starts
INSIDE, UNDECIDED, OUTSIDE = WHERE = ("inside", "undecided", "outside")
RULE = (
    "untrained networks of 48 units, 2 to 32 blocks, {} seeds, a power of depth fitted to each; "
    "95% intervals of its exponent"
)
STARTS = RULE.format("eight") + (
    ". A network's first blocks are the shallower ones, unless they start scaled. The adversary: "
    "embeddings ten times as large; its matrices as embeddings; one block's matrices in all; "
    "networks of 1, 2 and 3 units. A start breaks the statement if there is no exponent or its "
    "interval lies wholly outside what is asked; if partly, it is told as undecided. Held if none "
    "breaks it, conditional if only starts that miss the condition do, else refuted. "
)
LAST, STREAM, SHARE, SPREAD = range(4)  # what `ends` measures
DRAWN, LARGE = "as drawn", "embeddings ten times as large"
TIED, NARROW = "one block's matrices in all", "layers of 1 to 3 units"
OWN, WIDE = "no two blocks share their matrices", "layers have more than three units"
VARIED = "each token's embedding varies over its units by more than √eps"
TERMS = (
    "the blocks' terms make two fifths of the residual stream's variance or more, with two blocks "
    "already"
)
MEETS: dict[str, Callable[[str, np.ndarray], bool]] = {
    OWN: lambda name, _: name != TIED,
    WIDE: lambda name, _: name != NARROW,
    VARIED: lambda _, found: found[..., SPREAD].min() > 1e-5**0.5,
    TERMS: lambda _, found: found[:, 0, SHARE].mean() > 0.4,
}
Tried = Mapping[str, np.ndarray]  # by a start's name: for each seed and depth, what `ends` measures


def ends(model: Transformer, text: Tensor, first: Tensor, depths: Sequence[int]) -> list:
    """For the first so many blocks: the size of the loss's gradient at their last matrix, the
    variance of the stream, the share that their terms have in it, the embeddings' least spread."""
    found, x, last = [], first.detach(), [2 * depth for depth in depths]
    spread = x.std(-1, correction=0).min()
    for i, branch in enumerate(model.branches, 1):
        with torch.set_grad_enabled(i in last):
            x = branch(x)
        if i in last:
            loss = cross_entropy(
                model.output(model.norm(x)).flatten(0, 1), text.roll(-1, 1).flatten()
            )
            (gradient,) = torch.autograd.grad(loss, branch.f.out.weight)
            x = x.detach()
            shown = gradient.norm(), x.var(), (x - first).var() / x.var(), spread
            found.append([one.item() for one in shown])
    return found


def starts(arm: str, seed: int, hidden: int = 48) -> dict[str, list]:
    """Measure one network by `ends`, from its embeddings and, if it is wide, from hard ones."""
    found = defaultdict(list)
    own = arm == "layer/scaled"  # whose matrices depend on how many blocks there are
    for depths in ([depth] for depth in transformers.DEPTHS) if own else [transformers.DEPTHS]:
        units = {"hidden": hidden, "heads": min(4, hidden)}
        model, text = transformers.build(arm, depths[-1], seed, **units)
        first, one = model.embed(text), text[:1]
        found[DRAWN] += ends(model, text, first, depths)
        found[LARGE] += ends(model, text, 10 * first, depths)
        if hidden == 48:
            for name, table in adversary.matrices(len(ALPHABET), hidden).items():
                found[f"embeddings: {name}"] += ends(model, one, table[one], depths)
            for i, branch in enumerate(model.branches):
                branch.f = model.branches[i % 2].f
            found[TIED] += ends(model, one, first[:1], depths)
    return found


def over_starts(arm: str) -> Tried:
    """Collect `starts` of networks of `SEEDS`, and of narrow ones."""
    found = defaultdict(list)
    for seed in seeds(SEEDS):
        for name, one in starts(arm, seed).items():
            found[name].append(one)
        found[NARROW] += [starts(arm, seed, units)[DRAWN] for units in adversary.SIZES]
    return {name: np.array(one) for name, one in found.items()}


def power(found: np.ndarray, what: int) -> np.ndarray:
    """The exponent of depth for each seed; NaN if there is none."""
    good = np.isfinite(found[..., what]) & (found[..., what] > 0)
    return transformers.exponents(found[..., what]) if good.all() else np.full(len(found), np.nan)


def where(exponents: np.ndarray, low: float, high: float) -> str:
    """Say where the interval of exponents lies by these bounds; outside if there is none."""
    if not np.isfinite(exponents).all():
        return OUTSIDE
    found = interval(exponents)
    if found.high < low or found.low > high:
        return OUTSIDE
    return INSIDE if low < found.low and found.high < high else UNDECIDED


def judged(
    holds: bool,
    tried: Tried,
    lies: Callable[[str], str],
    conditions: Sequence[str],
    evidence: str,
    **numbers: float,
) -> Finding:
    """The finding of a statement, conditional if only starts that miss its conditions break it."""
    places = {name: lies(name) for name in tried}
    broken, open_ones = ([n for n in tried if places[n] == at] for at in (OUTSIDE, UNDECIDED))
    inside = [n for n in broken if all(MEETS[one](n, tried[n]) for one in conditions)]
    evidence += f" Tried: {len(tried) - 1} starts of the adversary; "
    evidence += f"broken by {', '.join(broken)}" if broken else "none breaks it"
    evidence += f"; undecided: {', '.join(open_ones)}." if open_ones else "."
    condition = ", and ".join(conditions)
    return conditional(holds and not inside, not broken, condition, evidence, **numbers)


def plain(branch, x):
    """Mutant: the residual stream without any norm."""
    return x + branch.f(x)


def about(found: Interval, exponent: float) -> bool:
    """Tell whether an interval lies near a theory's exponent."""
    return exponent - CLOSE < found.low and found.high < exponent + CLOSE


def said(found: Interval) -> str:
    return f"{found:.2f}"


@claim(
    id="last-gradient-shrinks-with-depth-if-norms-come-first",
    statement="At the start of a transformer that normalizes before each block, the gradient of "
    "the last layer falls nearly as the inverse root of the depth, as a power of it between "
    f"{-0.5 - CLOSE:g} and {-0.5 + CLOSE:g} (Xiong et al. 2020 derive -1/2).",
    rule=f"{STARTS}Asked: the last gradient's exponent within {CLOSE} of -1/2. Refuted, too, "
    "unless the interval of the drawn start lies wholly there",
    sabotage=(BRANCH, plain),
)
def last_gradient_pre() -> Finding:
    tried = over_starts("layer")
    found, large = (interval(power(tried[name], LAST)) for name in (DRAWN, LARGE))
    return judged(
        about(found, -0.5),
        tried,
        lambda name: where(power(tried[name], LAST), -0.5 - CLOSE, -0.5 + CLOSE),
        (TERMS, VARIED, OWN, WIDE),
        f"The exponent of depth is {said(found)}; with embeddings ten times as large "
        f"{said(large)}.",
        exponent=found.mean,
        large=large.mean,
    )


@claim(
    id="last-gradient-ignores-depth-if-norms-come-last",
    statement="At the start of a transformer that normalizes after each block, the gradient of the "
    "last layer hardly depends on the depth, as a power of it between "
    f"{-CLOSE} and {CLOSE} (Xiong et al. 2020 derive 0).",
    rule=f"{STARTS}Asked: the last gradient's exponent within {CLOSE} of 0. Refuted, too, unless "
    "the intervals of the drawn start and of embeddings ten times as large lie wholly there",
    # Mutant: norms come first.
    sabotage=(BRANCH, lambda branch, x: x + branch.f(branch.norm(x))),
)
def last_gradient_post() -> Finding:
    tried = over_starts("post")
    found, large = (interval(power(tried[name], LAST)) for name in (DRAWN, LARGE))
    return judged(
        about(found, 0.0) and about(large, 0.0),
        tried,
        lambda name: where(power(tried[name], LAST), -CLOSE, CLOSE),
        (VARIED, WIDE),
        f"The exponent of depth is {said(found)}; with embeddings ten times as large "
        f"{said(large)}.",
        exponent=found.mean,
        large=large.mean,
    )


@claim(
    id="stream-grows-exponentially-if-norms-come-first",
    statement="Before training, the variance of the residual stream grows exponentially with "
    "depth if norms stand before each block (Sun et al. 2025 do not restrict it to the start).",
    rule=RULE.format("five")
    + ", at 48 and at 32 units, and, the adversary, at 48 with embeddings a tenth as "
    "large, which hide no growth; from 8 to 32 blocks the variance's logarithm grows four times as "
    "much as from 2 to 8 if it grows exponentially, as much if as a power; held if the interval of "
    "this ratio lies above 2.5 in all three, else refuted",
    # Mutant: no norms, and larger terms.
    sabotage=(BRANCH, lambda branch, x: x + 3 * branch.f(x)),
)
def stream_pre() -> Finding:
    seen = [
        transformers.over_depth("layer", seeds=seeds(5), **options)["stream"]
        for options in ({"hidden": 48}, {"hidden": 32}, {"embedding_std": 0.1})
    ]
    growth = [np.diff(np.log(one[:, ::2])) for one in seen]
    ratios = [interval(one[:, 1] / one[:, 0]) for one in growth]
    found = interval(transformers.exponents(seen[0]))
    return held(
        all(one.low > 2.5 for one in ratios),
        f"The ratio is {said(ratios[0])} with 48 units, {said(ratios[1])} with 32, and "
        f"{said(ratios[2])} with embeddings a tenth as large; a power of depth gives 1, an "
        f"exponential 4. With 48 units the variance grows as the power {said(found)} of depth.",
        ratio=ratios[0].mean,
        exponent=found.mean,
    )


@claim(
    id="layernorm-scaling-slows-the-stream",
    statement="LayerNorm scaling makes the residual stream grow more slowly with depth (Sun et al. "
    "2025).",
    rule=f"{STARTS}Asked: the difference of the stream's exponents, scaling less plain Pre-LN, "
    "paired by seed, below -0.25. Refuted, too, unless the interval of the drawn start lies wholly "
    "there",
    sabotage=(BRANCH, lambda branch, x: x + branch.f(branch.norm(x))),
)
def scaling_stream() -> Finding:
    scaling, tried = (over_starts(arm) for arm in ("layer/scaling", "layer"))
    pairs = {name: [power(one[name], STREAM) for one in (scaling, tried)] for name in tried}
    found, large = (interval(pairs[name][0] - pairs[name][1]) for name in (DRAWN, LARGE))
    return judged(
        found.high < -0.25,
        tried,
        lambda name: where(pairs[name][0] - pairs[name][1], -math.inf, -0.25),
        (TERMS,),
        f"The exponents are {np.mean(pairs[DRAWN][0]):.2f} and {np.mean(pairs[DRAWN][1]):.2f}, the "
        f"difference {said(found)}; with embeddings ten times as large {said(large)}.",
        difference=found.mean,
        large=large.mean,
    )


@claim(
    id="a-scaled-start-keeps-the-stream-and-the-gradients",
    statement="Dividing the initial residual matrices by √(2L) does before training what LayerNorm "
    "scaling is meant to do, and also keeps the last layer's gradient nearly the same at any "
    f"depth: both are powers of it between {-CLOSE} and {CLOSE}.",
    rule=f"{STARTS}Asked: the exponents of the stream and of the last gradient within {CLOSE} of "
    "0. Refuted, too, unless the drawn start's interval for the stream lies below that under "
    "LayerNorm scaling, and that for the gradient wholly there, as both do with embeddings ten "
    "times as large, where neither stream grows",
    # Mutant: the scaled start is undone.
    sabotage=(BUILD, lambda arm, *given, **options: _build("layer", *given, **options)),
)
def scaled_start() -> Finding:
    tried = over_starts("layer/scaled")
    stream, last = (interval(power(tried[DRAWN], what)) for what in (STREAM, LAST))
    large = [interval(power(tried[LARGE], what)) for what in (STREAM, LAST)]
    scaling = np.array([starts("layer/scaling", seed)[DRAWN] for seed in seeds(SEEDS)])
    other = interval(power(scaling, STREAM))
    return judged(
        stream.high < other.low and all(about(one, 0.0) for one in (last, *large)),
        tried,
        lambda name: max(
            (where(power(tried[name], k), -CLOSE, CLOSE) for k in (STREAM, LAST)), key=WHERE.index
        ),
        (VARIED, OWN, WIDE),
        f"Stream {said(stream)} against {said(other)} under LayerNorm scaling; last gradient "
        f"{said(last)}. With embeddings ten times as large {said(large[0])} and {said(large[1])}.",
        stream=stream.mean,
        last=last.mean,
    )
