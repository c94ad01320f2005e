r"""An untrained transformer over depth: gradients, residual stream, half precision, attention.

`over_depth` measures networks of several depths and seeds on random characters; `exponents` fits
$\log y = a + p \log L$ for each seed, so that the spread of p over seeds gives it an interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layernorm import functional
from layernorm.lab.data.characters import ALPHABET
from layernorm.lab.experiments import get
from layernorm.lab.experiments.experiment import Experiment, Original
from layernorm.lab.experiments.transformer.model import Attention, Transformer

DEPTHS, SEEDS = (2, 4, 8, 16, 32), (0, 1, 2, 3, 4)
SMALL = {"hidden": 48, "context": 16, "held_out": 1}


def plan() -> Experiment:
    """The main sweep with the papers' experiments, for the box at the head of chapter 21."""
    experiment = get("transformer")
    original = Original(
        claim="Xiong et al. (2020): with norms before the blocks no warm-up is needed, with norms "
        "after them it is. Sun et al. (2025): LayerNorm scaling makes a deep network better.",
        data="Xiong: translations (IWSLT14, WMT14) and the text of BERT",
        ours="eight novels of Project Gutenberg",
        setup="Xiong: translation models and BERT; Sun: language models",
        updates="not said in the abstracts",
        seeds="not said in the abstracts",
        result="Xiong: without warm-up, results comparable with the baselines' in less time. Sun: "
        "perplexity lower by 5 to 8%",
        shown="{depth} blocks of {hidden} units, {heads} heads, {context} characters of context, "
        "batches of {batch_size}",
        rows=tuple(row.name for row in experiment.comparisons.rows if row.family == "primary"),
        network=Transformer,
        parameters="Sun: 130 million to 7 billion",
        by="Xiong and others, Sun and others",
    )
    question = "Where should a transformer normalize, and is it the norm or the scale of the start?"
    return replace(experiment, question=question, original=original)


def build(arm: str, depth: int, seed: int, **options) -> tuple[Transformer, Int[Tensor, "4 16"]]:
    """An arm's network at its start, in float64, and four windows of random characters."""
    made = get("transformer").config("book", arm, seed, depth=depth, **{**SMALL, **options}).options
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Transformer(made).double().eval()
        return model, torch.randint(len(ALPHABET), (4, made.context))


def measured(arm: str, depth: int, seed: int, **options) -> dict[str, float]:
    """`last`, `first`: the norm of the loss's gradient with respect to the second matrix of the
    last and the first MLP. `stream`: the variance of the residual stream at its end."""
    model, text = build(arm, depth, seed, **options)
    *_, stream = model.stream(text)
    targets = text.roll(-1, 1).flatten()
    loss = cross_entropy(model.output(model.norm(stream)).flatten(0, 1), targets)
    ends = [model.branches[i].f.out.weight for i in (-1, 1)]
    last, first = torch.autograd.grad(loss, ends)
    return {"last": last.norm().item(), "first": first.norm().item(), "stream": stream.var().item()}


def over_depth(
    arm: str, depths: Sequence[int] = DEPTHS, seeds: Sequence[int] = SEEDS, **options
) -> dict[str, Float[np.ndarray, "seeds depths"]]:
    """Each measured number by seed and depth."""
    rows = [[measured(arm, depth, seed, **options) for depth in depths] for seed in seeds]
    return {name: np.array([[one[name] for one in row] for row in rows]) for name in rows[0][0]}


def exponents(
    values: Float[np.ndarray, "seeds depths"], depths: Sequence[int] = DEPTHS
) -> Float[np.ndarray, " seeds"]:
    """The exponent of the power of depth that fits each seed's values best.

    >>> exponents(np.array([[2.0, 4.0, 8.0], [3.0, 3.0, 3.0]]), (1, 2, 4)).round(6).tolist()
    [1.0, 0.0]
    """
    return np.polyfit(np.log(depths), np.log(values).T, 1)[0]


@torch.no_grad()
def largest(arm: str, scale: float, depth: int = 24, seed: int = 0) -> float:
    """The largest number in the residual stream if all matrices of branches are `scale` times as
    large; beyond float16's largest, 65,504, it overflows in half precision."""
    model, text = enlarged(arm, scale, depth, seed)
    return max(float(x.abs().max()) for x in model.stream(text))


@torch.no_grad()
def overflows(arm: str, scale: float, depth: int = 24, seed: int = 0) -> bool:
    """Tell whether the residual stream is not finite somewhere if the network computes in half
    precision, all matrices of branches `scale` times as large."""
    model, text = enlarged(arm, scale, depth, seed)
    return not all(x.isfinite().all() for x in model.half().stream(text))


def enlarged(
    arm: str, scale: float, depth: int, seed: int
) -> tuple[Transformer, Int[Tensor, "4 16"]]:
    """As `build`, all matrices of branches `scale` times as large."""
    model, text = build(arm, depth, seed)
    with torch.no_grad():
        for branch in model.branches:
            for linear in (m for m in branch.f.children() if isinstance(m, nn.Linear)):
                linear.weight *= scale
    return model, text


@torch.no_grad()
def logits(arm: str, scale: float, seed: int = 0) -> float:
    """The largest attention logit if queries' and keys' matrices are `scale` times as large."""
    model, text = build(arm, 4, seed)
    found, x = [], model.embed(text)
    for branch in model.branches:
        if isinstance(branch.f, Attention):
            branch.f.qkv.weight[: 2 * x.shape[-1]] *= scale
            found.append(float(branch.f.logits(branch.input(x)).abs().nan_to_num(posinf=0).max()))
        x = branch(x)
    return max(found)


def unselectable(keys: Float[Tensor, "n d"]) -> Bool[Tensor, " n"]:
    """The keys that no query can give the largest logit: those inside the hull of the others.

    Key i is selectable if some q has q · (k_i − k_j) ≥ 1 for all other j: a linear program.

    >>> square = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [0.2, 0.1]])
    >>> unselectable(square).tolist()
    [False, False, False, False, True]
    """
    from scipy.optimize import linprog

    keys = (keys.detach().double() / keys.detach().double().std()).numpy()
    free = [(None, None)] * keys.shape[1]

    def infeasible(i: int) -> bool:
        others = np.delete(keys, i, axis=0) - keys[i]
        return linprog(np.zeros(len(free)), others, -np.ones(len(others)), bounds=free).status == 2

    return torch.tensor([infeasible(i) for i in range(len(keys))])


def decayed(
    steps: int, rate: float, decay: float, seed: int = 0, eps: float = 0.0
) -> tuple[Float[Tensor, "h d"], Float[Tensor, "h d"]]:
    r"""Directions of a scale-invariant weight after SGD with weight decay, and after SGD without
    it at the growing rate $\eta (1 - \eta\lambda)^{-2t-1}$ of update t = 0, 1, …

    The weight is a matrix under layer normalization; the loss, that of a regression.
    """
    generator = torch.Generator().manual_seed(seed)
    x, y, start = (torch.randn(*shape, generator=generator, dtype=torch.float64)
                   for shape in ((16, 5), (16, 4), (4, 5)))  # fmt: skip

    def gradient(w: Tensor) -> Tensor:
        w = w.detach().requires_grad_()
        loss = (functional.layer_norm(x @ w.T, (4,), eps=eps) - y).square().mean()
        return torch.autograd.grad(loss, w)[0]

    one, two = start.clone(), start.clone()
    for t in range(steps):
        one = (1 - rate * decay) * one - rate * gradient(one)
        two = two - growing(rate, decay, t) * gradient(two)
    return one / one.norm(), two / two.norm()


def growing(rate: float, decay: float, t: int) -> float:
    """The learning rate of update t that does what weight decay does."""
    return rate * (1 - rate * decay) ** (-2 * t - 1)


def keys(
    norm, count: int = 64, units: int = 4, size: int = 4, seed: int = 0
) -> Float[Tensor, "count size"]:
    """Keys of random states, normalized, by a random matrix to `size` numbers."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(count, units, generator=generator, dtype=torch.float64)
    matrix = torch.randn(units, size, generator=generator, dtype=torch.float64)
    return norm(states) @ matrix / math.sqrt(units)
