"""Claims about transformers that chapter 21 decides without training: range and attention.

Those on depth are in `chapter_21_depth.py`; those that need training are rows of the plan of the
experiment `transformer`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from layernorm import functional as F
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import LAYER_NORM, conditional, draw, largest, proved, seeds, worst
from layernorm.lab.data.characters import ALPHABET
from layernorm.lab.experiments.transformer import untrained as transformers
from layernorm.lab.experiments.transformer.model import Transformer

BRANCH = "layernorm.lab.experiments.transformer.model.Branch.forward"
PERI = 24  # blocks


@torch.no_grad()
def overflow(model: Transformer, text: Tensor, table: Tensor | None = None) -> str:
    """Where a network in half precision first is not finite: in what a "block" computes before a
    second norm, in the "stream", or, as an empty string, nowhere."""
    x, given = model.embed(text) if table is None else table.half()[text], []
    for branch in model.branches if x.isfinite().all() else ():
        hook = branch.f.register_forward_hook(lambda _, __, y: given.append(y))
        x = branch(x)
        hook.remove()
        if not given.pop().isfinite().all():
            return "block"
        if not x.isfinite().all():
            break
    return "" if x.isfinite().all() else "stream"


def enlarged(arm: str, seed: int) -> list[str]:
    """The same for matrices of the blocks 1, 10, 100, 1,000 and 10,000 times as large."""
    model, text = transformers.build(arm, PERI, seed)
    found, half = [], model.half()
    for _ in range(5):
        found.append(overflow(half, text))
        for branch in half.branches:
            for weight in (p for p in branch.f.parameters() if p.dim() == 2):
                weight.data *= 10
    return found


def hard_on_peri(seed: int) -> Iterator[tuple[str, str, bool]]:
    """Where the adversary's embeddings, gains and matrices make Peri-LN overflow, and whether the
    embeddings leave room and the gains are 1."""
    model, text = transformers.build("peri", PERI, seed)
    model, text, most = model.half(), text[:1], torch.finfo(torch.float16).max
    edge = {"near the edge": adversary.matrices(len(ALPHABET), 48, huge=6.5e4)["huge"]}
    for name, x in (adversary.matrices(len(ALPHABET), 48, huge=1e5) | edge).items():
        room = bool(x.abs().max() + 2 * PERI * 48**0.5 < most)
        yield f"embeddings: {name}", overflow(model, text, x), room
    gains = adversary.rows(48, huge=1e4, mean=1e3)
    for name, gain in (gains | {"one": torch.ones(1, 48)}).items():  # last
        for branch in model.branches:
            if branch.norm_out is not None:
                branch.norm_out.weight.data.copy_(gain[0])
        yield f"gains: {name}", overflow(model, text), name == "one"
    for name in adversary.matrices(1, 1):
        for weight in (p.data for p in model.branches.parameters() if p.dim() == 2):
            weight.copy_(adversary.matrices(*weight.shape, huge=1e4)[name])
        yield f"matrices: {name}", overflow(model, text), True


@claim(
    id="peri-layernorm-does-not-overflow-half-precision",
    statement="If each block's function has norms before and after it, the residual stream stays "
    "in the range of half precision whatever the size of the weights; if it has norms before it "
    "only, the stream does not (Kim et al. 2025).",
    rule="24 blocks of 48 units at gain 1, computed in float16, five seeds, matrices of the blocks "
    "1, 10, 100, 1,000 and 10,000 times as large; under Peri-LN also the adversary's embeddings up "
    "to 65,000 and 100,000, its rows up to 10,000 as gains and its matrices up to 10,000 in all "
    "blocks. Refuted unless under Peri-LN the stream is finite to 100 times and wherever the "
    "condition is met, and under Pre-LN to 10 and not at 100; held if under Peri-LN it is finite "
    "everywhere; else conditional. In float64 the evidence says how large Peri-LN's stream is",
    sabotage=(BRANCH, lambda branch, x: x + branch.f(branch.norm(x))),
)
def peri_overflow() -> Finding:
    drawn, hard = seeds(5), [*hard_on_peri(seeds(1)[0])]
    peri, pre = ([enlarged(arm, seed) for seed in drawn] for arm in ("peri", "layer"))
    never = all(one[2] for one in pre)
    kept, beyond = not any(map(any, (one[:3] for one in peri))), not any(map(any, peri))
    broken = [name for name, where, _ in hard if where]
    inside = [name for name, where, meets in hard if meets and where == "stream"]
    stream = worst(*(transformers.largest("peri", s, seed=drawn[0]) for s in (1e3, 1e4)))
    return conditional(
        kept and not any(map(any, (one[:2] for one in pre))) and never and not inside,
        beyond and not broken,
        "gains are 1, the largest embedding plus 2L√H is in range, and what a block "
        "computes before its second norm stays in range, too",
        "With matrices 100 times as large the stream of Pre-LN "
        f"{'overflows' if never else 'need not overflow'} and that of Peri-LN "
        f"{'does not' if kept else 'may'}; with matrices 1,000 times as large that of Peri-LN is "
        f"{'finite' if beyond else 'not finite either'}, although its own numbers are at most "
        f"{stream:.0f}. Of {len(hard)} embeddings, gains and matrices of the adversary "
        f"{', '.join(broken) or 'none'} make Peri-LN overflow.",
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


def unselectable(states: Tensor, matrix: Tensor, eps: float = 0.0, norm: bool = True) -> int:
    """How many keys, a matrix times normalized states, no query prefers: by linear programs."""
    x = F.layer_norm(states, states.shape[1:], eps=eps) if norm else states
    return int(transformers.unselectable(x @ matrix).sum())


def lead(states: Tensor, matrix: Tensor, eps: Tensor) -> float | Tensor:
    """By how much another key can beat a key whose query is made from itself, over the number of
    units; if one can, how many keys are unselectable."""
    x, units = F.layer_norm(states, states.shape[1:], eps=eps.item()), states.shape[1]
    keys = x @ matrix
    if not keys.isfinite().all() or not keys.std() > 1e-12 * matrix.abs().max():
        return math.inf
    logits = x @ torch.linalg.pinv(matrix - matrix.mean(0)).T @ keys.T
    others = (logits - logits.diagonal()[:, None])[~torch.eye(len(x), dtype=torch.bool)]
    most = others.max() / units
    return most if most < -1e-9 else unselectable(states, matrix, eps.item()) or -1.0


def distinct(states: Tensor, matrix: Tensor, eps: Tensor) -> bool:
    """Tell whether eps is 0, normalized states exist and differ, and the matrix keeps it so."""
    if eps != 0 or not adversary.varies(states):
        return False
    x = states - states.mean(1, keepdim=True)
    x = x / x.abs().amax(1, keepdim=True)  # no square overflows
    x = x / x.norm(dim=1, keepdim=True)
    rank = torch.linalg.matrix_rank(matrix - matrix.mean(0), rtol=1e-6)
    alike = (x @ x.T)[~torch.eye(len(x), dtype=torch.bool)].max()
    return bool(alike < 1 - 1e-6 and rank == x.shape[1] - 1)


@claim(
    id="layer-norm-leaves-no-key-unselectable",
    statement="Layer normalization leaves no key unselectable: any key can get the largest logit "
    "of some query (Brody et al. 2023).",
    rule="a key is selectable if it has the largest logit, by 1e-9 of the number of units, under "
    "the query that layer normalization of its own state suggests, or else by a linear program, "
    "exact. 10 draws of 64 states of 4 units, with a matrix to 4 numbers or to 3, which loses the "
    "direction of the ones alone; a climb, an ascent; the adversary's states of 1 to 4 units and "
    "its matrices, eps = 1, and a matrix to 2 numbers, as heads have fewer: held if all keys are "
    "selectable, conditional if only cases that miss the condition break it, else refuted. The "
    "evidence counts keys without a norm, too",
    sabotage=(LAYER_NORM, lambda x, *_, **__: x - x.mean(-1, keepdim=True)),
)
def unselectable_keys() -> Finding:
    states, to_two, zero = draw(64, 4), draw(4, 2), torch.zeros(())
    eye, one = torch.eye(4).double(), torch.ones(())
    cases = {"eps = 1": (states, eye, one), "to 2 numbers": (states, to_two, zero)}
    cases["states: nearly constant"] = (1e6 + draw(8, 4), draw(4, 4), zero)
    cases["states: rows"] = (torch.cat([*adversary.rows(4).values()]), draw(4, 4), zero)
    for units in (*adversary.SIZES, 4):
        for name, x in adversary.matrices(4, units).items():
            cases[f"states: {name} (H = {units})"] = (x, draw(units, units), zero)
    for name, matrix in adversary.matrices(4, 4).items():
        cases[f"matrix: {name}"] = (states[:8], matrix, zero)
    counts = [unselectable(states, *how) for how in ((eye, 0.0, False), (to_two,), (eye, 1.0))]
    return adversary.searched(
        -1e-9,
        f"Of 64 random keys {counts[0]} are unselectable without a norm; with it {counts[1]} are "
        f"after a matrix to 2 numbers, {counts[2]} with eps = 1.",
        lead,
        [(draw(64, 4), draw(4, size), zero) for size in (4, 3) for _ in range(5)],
        cases,
        (
            "eps = 0, the units of no state all agree, no two normalized keys agree, and the key "
            "matrix loses no direction in which they differ: H − 1 numbers are enough, and heads "
            "have fewer",
            distinct,
        ),
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
    "normalization; proved if they are lower, too, for 200 layer-normalized ones after a matrix "
    "from 48 numbers to 12; else conditional. The evidence adds 8 RMS-normalized keys of 64",
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
        head < 12,
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
