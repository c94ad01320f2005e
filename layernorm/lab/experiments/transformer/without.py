r"""Transformers without norms (chapter 22): at the start, after training, and with norms frozen.

Untrained: `over_depth` has how many times as large the loss's gradient is at the embeddings as at
the end of the residual stream, and the stream's variance the other way round; `apart` how far a
network is from the one that has a factor in each norm's place. `trained`: a network of the profile
`book`; `frozen` gives its norms one standard deviation for all tokens, which makes them linear.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layernorm.lab.experiments import checkpoint, get
from layernorm.lab.experiments.experiment import Experiment, Original
from layernorm.lab.experiments.transformer.comparisons import ON_DATA
from layernorm.lab.experiments.transformer.model import Transformer, rescale_
from layernorm.lab.experiments.transformer.task import (
    LOOKED_AT,
    Characters,
    Scheduled,
    flat,
    inputs_of,
    looked_at,
)
from layernorm.lab.experiments.transformer.untrained import SEEDS, build

DEPTHS = (4, 16, 64)  # evenly spaced in their logarithm, as `growth` needs them
RATE = 2e-3  # of all runs here: one rate, which decides nothing between arms
CPU = torch.device("cpu")


def plan() -> Experiment:
    """The sweep `data` with the papers' experiments, for the box at the head of the chapter."""
    original = Original(
        claim="Zhu et al. (2025): a transformer with dynamic tanh is as good as one with norms. "
        "Verma (2026): better with little text, worse with much.",
        data="Verma: text of 1 to 118 million tokens",
        ours="eight novels of Project Gutenberg, 10,000 or 3.7 million characters",
        setup="Verma: GPT-2",
        updates="not said in the abstract",
        seeds="not said in the abstract",
        result="Verma, 64 million parameters: validation loss 27.3% lower with 1 million tokens, "
        "18.8% higher with 118 million",
        shown="{depth} blocks of {hidden} units, {heads} heads, {context} characters of context, "
        "batches of {batch_size}",
        rows=tuple(row.name for row in ON_DATA.rows if row.family == "primary"),
        network=Transformer,
        parameters="Verma: 64 million to 3.78 billion",
        by="Zhu and others, Verma",
    )
    question = "Can a curve stand in for a transformer's norms, with little text and with much?"
    return replace(get("transformer"), question=question, original=original, comparisons=ON_DATA)


def amplified(
    arm: str, depth: int, seed: int, *, rescaled: bool = False, **options
) -> dict[str, float]:
    """`gradient`: the norm of the loss's gradient with respect to the embeddings of all positions,
    over that with respect to the stream's end. `stream`: the variance at its end over that of the
    embeddings. `rescaled`: for networks without norms, the control of this book."""
    model, text = build(arm, depth, seed, **options)
    if rescaled:
        rescale_(model, text)
    first, *_, last = model.stream(text)
    logits = model.output(model.norm(last)).flatten(0, 1)
    loss = cross_entropy(logits, text.roll(-1, 1).flatten())
    ends = torch.autograd.grad(loss, [first, last])
    return {
        "gradient": (ends[0].norm() / ends[1].norm()).item(),
        "stream": (last.var() / first.var()).item(),
    }


def over_depth(
    arm: str, depths: Sequence[int] = DEPTHS, seeds: Sequence[int] = SEEDS, **options
) -> dict[str, Float[np.ndarray, "seeds depths"]]:
    """The amplification by seed and depth."""
    rows = [[amplified(arm, depth, seed, **options) for depth in depths] for seed in seeds]
    return {name: np.array([[one[name] for one in row] for row in rows]) for name in rows[0][0]}


def growth(values: Float[np.ndarray, "seeds 3"]) -> Float[np.ndarray, "2 seeds"]:
    """The growth of the logarithm from the first depth to the second, and from it to the third.

    If each depth is four times the one before, both are the same for a power of depth, the second
    is twice the first for exp(√depth), and four times it for an exponential.

    >>> growth(np.exp([[2.0, 4.0, 8.0]])).round(6).tolist()
    [[2.0], [4.0]]
    """
    return np.diff(np.log(values), axis=1).T


class Times(nn.Module):
    """A factor in a norm's place."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return self.factor * x


@torch.no_grad()
def apart(arm: str, embedding_std: float, factor: float, seed: int, depth: int = 4) -> float:
    """How far an untrained network's logits are from those of the same network with a factor in the
    place of each norm, over the size of these."""
    model, text = build(arm, depth, seed, embedding_std=embedding_std)
    linear = replaced(model, lambda _: Times(factor))
    there = linear(text)
    return float((model(text) - there).norm() / there.norm())


def norms(model: Transformer) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Each norm or its replacement, after its owner, in the order of the calls."""
    for owner in (*model.branches, model):
        yield owner, owner.norm


def replaced(model: Transformer, by, which: Collection[int] | None = None) -> Transformer:
    """A copy in which `by(i)` stands in the place of norm i, for all or for those named."""
    other = copy.deepcopy(model)
    for i, (owner, _) in enumerate(list(norms(other))):
        if which is None or i in which:
            owner.norm = by(i)
    return other


def trained(arm: str, seed: int, until: int | None = None, **options) -> Scheduled:
    """A network trained as in the profile `book`, at one learning rate, for the first `until`
    updates or all; `options` override the profile's."""
    experiment = get("transformer")
    config = experiment.config("book", arm, seed, **{"learning_rate": RATE, **options})
    with checkpoint.seeded(seed, CPU):
        run = Scheduled(experiment, config, CPU)
        for step in range(1, (config.options.updates if until is None else until) + 1):
            run.update(step)
            run.look()
    run.model.eval()
    return run


def saturated(run: Scheduled) -> list[float]:
    """For every curve in a norm's place, the share of its arguments on a text at which its slope is
    below a tenth of the largest."""
    curves = [curve for _, curve in norms(run.model)]
    with torch.no_grad(), inputs_of(curves) as given:
        run.model(seen(run))
    return [flat(curve, x) for curve, x in zip(curves, given, strict=True)]


def grown(run: Scheduled) -> float:
    """The variance of a network's residual stream at its end, over that of the embeddings."""
    return looked_at(run.model, run.task.parts["validation"][:LOOKED_AT])["stream"]


def seen(run: Scheduled) -> Int[Tensor, "n t"]:
    """The windows of the validation text at which a network is looked at."""
    return run.task.parts["validation"][:LOOKED_AT, :-1]


class Frozen(nn.Module):
    """A layer normalization with one sigma for all tokens, g (x - mu) / sigma + b: linear in x."""

    def __init__(self, norm: nn.Module, sigma: float) -> None:
        super().__init__()
        self.weight, self.bias, self.sigma = norm.weight, norm.bias, sigma

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        return (x - x.mean(-1, keepdim=True)) / self.sigma * self.weight + self.bias


@torch.no_grad()
def sigmas(model: Transformer, text: Int[Tensor, "n t"]) -> list[float]:
    """For every norm, the root of the mean over tokens of σ² + ε."""
    layers = [norm for _, norm in norms(model)]
    with inputs_of(layers) as given:
        model(text)
    variances = (x.var(-1, correction=0).mean() for x in given)
    return [math.sqrt(v + norm.eps) for v, norm in zip(variances, layers, strict=True)]


def frozen(
    model: Transformer, text: Int[Tensor, "n t"], which: Collection[int] | None = None
) -> Transformer:
    """A copy whose layer norms, all or those named, have the sigma that they have on average over a
    text in the whole model."""
    layers, found = [norm for _, norm in norms(model)], sigmas(model, text)
    return replaced(model, lambda i: Frozen(copy.deepcopy(layers[i]), found[i]), which)


def folded(
    weight: Float[Tensor, "m d"], gain: Float[Tensor, " d"], bias: Float[Tensor, " d"], sigma: float
) -> tuple[Float[Tensor, "m d"], Float[Tensor, " m"]]:
    """The matrix and the bias that do what a frozen layer norm and then a matrix do:
    W diag(g) (I − 11ᵀ/d) / σ and W b."""
    scaled = weight * gain / sigma
    return scaled - scaled.mean(1, keepdim=True), weight @ bias


def nll(task: Characters, model: Transformer) -> float:
    """The test cross-entropy of a model, in nats a character."""
    whole, task.model = task.model, model.eval()
    try:
        with torch.no_grad():
            return task.evaluate()["test_nll"]
    finally:
        task.model = whole


def tuned(task: Characters, model: Transformer, updates: int = 40) -> float:
    """The test cross-entropy after some more updates of a model, by AdamW at the rate 0.001, on
    batches that depend on the update alone; the model learns in its place."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    whole, task.model = task.model, model.train()
    try:
        for step in range(10_001, 10_001 + updates):
            optimizer.zero_grad()
            task.loss(step).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    finally:
        task.model = whole
    return nll(task, model)
