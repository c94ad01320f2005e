"""Claims about transformers that chapter 21 decides without training: depth, range, attention.

Those that need training are rows of the plan of the experiment `transformer`.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from layernorm import functional as F
from layernorm.lab.analysis.statistics import Interval, interval
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import (
    LAYER_NORM,
    conditional,
    draw,
    held,
    largest,
    proved,
    seeds,
    worst,
)
from layernorm.lab.experiments.transformer import untrained as transformers

BRANCH = "layernorm.lab.experiments.transformer.model.Branch.forward"
BUILD = "layernorm.lab.experiments.transformer.untrained.build"
_build = transformers.build  # what a mutant is made of
CLOSE = 0.15  # to theory, for an exponent of depth
ADVERSE = {"embedding_std": 10.0}  # a stream that starts ten times as large
RULE = (
    "untrained networks of 48 units, 2 to 32 blocks, five seeds, a power of depth fitted to each; "
    "95% intervals of its exponent"
)
ALSO = f"{RULE}; the adversary: embeddings ten times as large"
TERMS = "the blocks' terms, and not the embeddings, make most of the residual stream"


def plain(branch, x):
    """Mutant: the residual stream without any norm."""
    return x + branch.f(x)


def exponents(arm: str, what: str, **options) -> np.ndarray:
    """The power of depth of each of five networks."""
    return transformers.exponents(transformers.over_depth(arm, seeds=seeds(5), **options)[what])


def fitted(arm: str, what: str, **options) -> Interval:
    return interval(exponents(arm, what, **options))


def about(found: Interval, exponent: float) -> bool:
    """Tell whether an interval lies near a theory's exponent."""
    return exponent - CLOSE < found.low and found.high < exponent + CLOSE


def said(found: Interval) -> str:
    return f"{found.mean:.2f} [{found.low:.2f}, {found.high:.2f}]"


@claim(
    id="last-gradient-shrinks-with-depth-if-norms-come-first",
    statement="At the start of a transformer that normalizes before each block, the gradient of "
    "the last layer falls as the inverse root of the depth (Xiong et al. 2020).",
    rule=f"{ALSO}; held if the interval lies within {CLOSE} of -1/2, conditional if not for the "
    "adversary, else refuted",
    sabotage=(BRANCH, plain),
)
def last_gradient_pre() -> Finding:
    found, large = fitted("layer", "last"), fitted("layer", "last", **ADVERSE)
    return conditional(
        about(found, -0.5),
        about(large, -0.5),
        TERMS,
        f"The exponent of depth is {said(found)}; with embeddings ten times as large "
        f"{said(large)}.",
        exponent=found.mean,
        large=large.mean,
    )


@claim(
    id="last-gradient-ignores-depth-if-norms-come-last",
    statement="At the start of a transformer that normalizes after each block, the gradient of the "
    "last layer is equally large at any depth (Xiong et al. 2020).",
    rule=f"{ALSO}; held if both intervals lie within {CLOSE} of 0, else refuted",
    # Mutant: norms come first.
    sabotage=(BRANCH, lambda branch, x: x + branch.f(branch.norm(x))),
)
def last_gradient_post() -> Finding:
    found, large = fitted("post", "last"), fitted("post", "last", **ADVERSE)
    return held(
        about(found, 0.0) and about(large, 0.0),
        f"The exponent of depth is {said(found)}; with embeddings ten times as large "
        f"{said(large)}; up to {CLOSE} counts as equally large.",
        exponent=found.mean,
        large=large.mean,
    )


@claim(
    id="stream-grows-exponentially-if-norms-come-first",
    statement="Before training, the variance of the residual stream grows exponentially with "
    "depth if norms stand before each block (Sun et al. 2025 do not restrict it to the start).",
    rule=f"{RULE}, at 48 and at 32 units, and, the adversary, at 48 with embeddings a tenth as "
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
    rule=f"{ALSO}; held if the interval of the difference of exponents, scaling less plain "
    "Pre-LN, paired by seed, lies below -0.25, conditional if not for the adversary, else refuted",
    sabotage=(BRANCH, lambda branch, x: x + branch.f(branch.norm(x))),
)
def scaling_stream() -> Finding:
    pair, large = (
        [exponents(arm, "stream", **options) for arm in ("layer/scaling", "layer")]
        for options in ({}, ADVERSE)
    )
    found, other = (interval(one[0] - one[1]) for one in (pair, large))
    return conditional(
        found.high < -0.25,
        other.high < -0.25,
        TERMS,
        f"The exponents are {np.mean(pair[0]):.2f} and {np.mean(pair[1]):.2f}, the difference "
        f"{said(found)}; with embeddings ten times as large {said(other)}.",
        difference=found.mean,
        large=other.mean,
    )


@claim(
    id="a-scaled-start-keeps-the-stream-and-the-gradients",
    statement="Dividing the initial residual matrices by √(2L) does before training what LayerNorm "
    "scaling is meant to do, and also keeps the last layer's gradient equally large at any depth.",
    rule=f"{ALSO}; held if the interval of the stream's exponent lies below that under LayerNorm "
    f"scaling, and that of the last gradient within {CLOSE} of 0, and if, for the adversary, under "
    f"which neither stream grows, both lie within {CLOSE} of 0; else refuted",
    # Mutant: the scaled start is undone.
    sabotage=(BUILD, lambda arm, *given, **options: _build("layer", *given, **options)),
)
def scaled_start() -> Finding:
    stream, other = (fitted(arm, "stream") for arm in ("layer/scaled", "layer/scaling"))
    last = fitted("layer/scaled", "last")
    large = [fitted("layer/scaled", what, **ADVERSE) for what in ("stream", "last")]
    return held(
        stream.high < other.low and all(about(one, 0.0) for one in (last, *large)),
        f"Stream {said(stream)} against {said(other)} under LayerNorm scaling; last gradient "
        f"{said(last)}. With embeddings ten times as large {said(large[0])} and {said(large[1])}.",
        stream=stream.mean,
        last=last.mean,
    )


@claim(
    id="peri-layernorm-does-not-overflow-half-precision",
    statement="If each block's function has norms before and after it, the residual stream stays "
    "in the range of half precision whatever the size of the weights; if it has norms before it "
    "only, the stream does not (Kim et al. 2025).",
    rule="24 blocks at gain 1, computed in float16, five seeds, matrices of the blocks 1, 10, 100, "
    "1,000 and 10,000 times as large: refuted unless under Peri-LN the stream is finite to 100 "
    "times, and under Pre-LN to 10 and not at 100; held if under Peri-LN it is finite at all; else "
    "conditional. In float64 the evidence says how large Peri-LN's stream is",
    sabotage=(BRANCH, lambda branch, x: x + branch.f(branch.norm(x))),
)
def peri_overflow() -> Finding:
    def finite(arm: str, *scales: float) -> bool:
        return not any(transformers.overflows(arm, s, seed=k) for s in scales for k in drawn)

    drawn, large = seeds(5), (1e3, 1e4)
    never = all(transformers.overflows("layer", 100.0, seed=k) for k in drawn)
    beyond, kept = finite("peri", *large), finite("peri", 1.0, 10.0, 100.0)
    stream = worst(*(transformers.largest("peri", s, seed=drawn[0]) for s in large))
    return conditional(
        kept and finite("layer", 1.0, 10.0) and never,
        beyond,
        "what a block computes before its second norm stays in range, too",
        "With matrices 100 times as large the stream of Pre-LN "
        f"{'overflows' if never else 'need not overflow'} and that of Peri-LN "
        f"{'does not' if kept else 'may'}; with matrices 1,000 times as large that of Peri-LN is "
        f"{'finite' if beyond else 'not finite either'}, although its own numbers are at most "
        f"{stream:.0f}.",
        stream=stream,
    )


@claim(
    id="normalized-queries-and-keys-bound-the-logits",
    statement="If each head's queries and keys are layer-normalized with gains 1, no attention "
    "logit exceeds the root of the head's size, whatever the weights (after Henry et al. 2020).",
    kind="proof",
    rule="Cauchy and Schwarz: |q · k| / √d ≤ |q| |k| / √d, and a layer-normalized vector has "
    "length at most √d. Proved if for d = 2 to 64 the lengths of 200 random vectors and of the "
    "adversary's rows are at most √d to 1e-12, q = k reaches the bound to 1e-4 with eps, and a "
    "network's logits stay below it at weights 1 to 10,000 times as large; else refuted",
    # Mutant: centered alone.
    sabotage=(LAYER_NORM, lambda x, *_, **__: x - x.mean(-1, keepdim=True)),
)
def qk_bound() -> Finding:
    (seed,), over, reached = seeds(1), 0.0, 1.0
    for d in (2, 3, 8, 64):
        for x in (draw(200, d), *adversary.rows(d).values()):
            over = worst(over, float(F.layer_norm(x, (d,)).norm(dim=-1).max()) - math.sqrt(d))
        z = F.layer_norm(draw(200, d, spread=10.0), (d,))
        reached = min(reached, float((z * z).sum(-1).max() / d))
    bound = math.sqrt(transformers.SMALL["hidden"] / 4)
    seen = max(transformers.logits("qk", 10.0**k, seed) for k in range(5))
    plain = transformers.logits("layer", 1e4, seed)
    return proved(
        over < 1e-12 and reached > 1 - 1e-4 and seen <= bound,
        f"The largest logit is {seen:.1f}, the bound {bound:.1f}; without the norms it is "
        f"{plain:.0e} where the weights are 10,000 times as large.",
        largest=seen,
        bound=bound,
    )


@claim(
    id="layer-norm-leaves-no-key-unselectable",
    statement="Layer normalization leaves no key unselectable: any key can get the largest logit "
    "of some query (Brody et al. 2023).",
    rule="linear programs, exact: 64 random keys of 4 numbers, five seeds. Refuted unless "
    "layer-normalized ones are all selectable with eps = 0, also after a matrix to 3 numbers, "
    "which loses the direction of the ones alone; held if also after one to 2 numbers (heads have "
    "fewer) and with eps = 1; else conditional. The evidence counts keys without a norm, too",
    sabotage=(LAYER_NORM, lambda x, *_, **__: x - x.mean(-1, keepdim=True)),
)
def unselectable_keys() -> Finding:
    def lost(norm, size: int) -> int:
        drawn = (transformers.keys(norm, size=size, seed=seed) for seed in seeds(5))
        return sum(int(transformers.unselectable(k).sum()) for k in drawn)

    def layer(x, eps=0.0):
        return F.layer_norm(x, (4,), eps=eps)

    whole, three, two = (lost(layer, size) for size in (4, 3, 2))
    inside, without = lost(lambda x: layer(x, 1.0), 4), lost(lambda x: x, 4)
    return conditional(
        whole == three == 0,
        two == inside == 0,
        "eps = 0, no two normalized keys agree, and the key matrix loses no direction in which "
        "they differ: H − 1 numbers are enough, and heads have fewer",
        f"Of 320 keys, {whole} are unselectable with layer normalization, {without} without. With "
        f"it {three} are if a matrix leaves 3 of the 4 numbers, {two} if it leaves 2, and {inside} "
        "with eps = 1.",
        whole=whole,
        three=three,
        two=two,
        eps_1=inside,
        without=without,
    )


@claim(
    id="projection-lets-a-query-weigh-all-keys-alike",
    statement="Since layer normalization subtracts the mean, one query gives all keys the same "
    "logit; under RMS normalization none does (Brody et al. 2023).",
    kind="proof",
    rule="the sum of a layer-normalized vector with gain 1 is 0, so the query of ones gives 0 to "
    "all keys; a query weighs keys alike if their differences have a lower rank than they have "
    "numbers. Refuted unless the first holds to 1e-12 times the conditioning for 200 random keys "
    "of 2 to 64 numbers and the adversary's rows, and the ranks of 200 keys are full under RMS "
    "normalization; proved if they are for 8 RMS-normalized keys of 64 numbers, too, and lower for "
    "200 layer-normalized ones after a matrix from 48 numbers to 12; else conditional",
    # Mutant: RMS normalization.
    sabotage=(LAYER_NORM, lambda x, shape, *_, **__: F.rms_norm(x, shape)),
)
def alike() -> Finding:
    def rank(keys: Tensor) -> int:
        return int(torch.linalg.matrix_rank(keys[1:] - keys[0]))

    off, full = 0.0, True
    for d in (2, 3, 8, 64):
        for x in (draw(200, d), *filter(adversary.varies, adversary.rows(d).values())):
            total = F.layer_norm(x, (d,)).sum(-1)
            off = worst(off, largest(total) / d / adversary.conditioning(x))
        full &= rank(F.rms_norm(draw(200, d), (d,))) == d
    few = rank(F.rms_norm(draw(8, 64), (64,)))
    head = rank(F.layer_norm(draw(200, 48), (48,)) @ draw(48, 12))
    return conditional(
        off < 1e-12 and full,
        few == 64 and head < 12,
        "the keys are the normalized vectors, or a matrix of them that keeps the direction of the "
        "ones, and under RMS normalization there are more keys than each has numbers",
        "The query of ones gives every layer-normalized key 0; the differences of 200 "
        f"RMS-normalized keys {'have' if full else 'have not'} full rank. Those of 8 with 64 "
        f"numbers have rank {few}, so that some query weighs them alike; those of 200 "
        f"layer-normalized ones after a random matrix to 12 numbers have rank {head}, so that none "
        "but 0 does.",
        proved,
        off=off,
    )
