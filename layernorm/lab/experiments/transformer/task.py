"""The task, the next character, and how its model is trained: warm-up, AdamW, Muon."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layernorm.lab.data.characters import split, unigram
from layernorm.lab.experiments.batches import Shuffled, generator
from layernorm.lab.experiments.graphed import Graphed
from layernorm.lab.experiments.trainer import Trainer
from layernorm.lab.experiments.transformer.model import Attention, Transformer, rescale_
from layernorm.modules import DynamicErf, DynamicTanh

CHUNK = 32  # windows read at once when they are not trained on
LOOKED_AT = 32  # windows over which norms, curves and attention are looked at in the end
FLAT = 0.1  # of its largest slope: below it a curve counts as saturated
LOWEST = 0.1  # of the learning rate, at the end of a run
MOMENTUM, NEWTON_SCHULZ = 0.95, ((3.4445, -4.7750, 2.0315),) * 5


class Characters:
    """Predict each next character of windows of a text.

    Every update sees windows at random places of the training text's first `characters`, or, with
    `examples`, those at a few fixed places.
    """

    def __init__(self, options, seed: int, device: torch.device) -> None:
        self.options, self.seed, self.device = options, seed, device
        parts = split(options.text)
        self.train = parts["train"][: options.characters]
        size = options.context + 1
        if size > min(map(len, (self.train, *parts.values()))):
            raise ValueError(
                f"context {options.context} is longer than the training, validation or test "
                "characters; choose a shorter one, or more characters"
            )
        self.parts = {
            name: windows(parts[name], places(parts[name], size, options.held_out), size).to(device)
            for name in ("validation", "test")
        }
        self.few = None
        if options.examples is not None:
            self.few = self.draw(options.examples, 0)
            self.shuffled = Shuffled(options.examples, options.batch_size, seed)
            self.parts["train"] = self.few
        model = Transformer(options)
        if options.rescaled:
            rescale_(model, self.draw(CHUNK, 0).cpu()[:, :-1])
        self.model = model.to(device)

    def draw(self, count: int, step: int) -> Int[Tensor, "n t"]:
        """Windows at random places, by seed and update."""
        size = self.options.context + 1
        most = len(self.train) - size + 1
        at = torch.randint(most, (count,), generator=generator(self.seed, step))
        return windows(self.train, at, size).to(self.device)

    def loss(self, step: int) -> Tensor:
        if self.few is not None:
            text = self.few[self.shuffled(step)]
        else:
            text = self.draw(self.options.batch_size, step)
        return cross_entropy(self.model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    def evaluate(self) -> dict[str, float]:
        """`…_nll` in nats and `…_error` in percent, a character each, of validation and test, and
        with `examples` of the windows that are trained on."""
        found = {}
        for name, text in self.parts.items():
            nll, wrong = [], []
            for part in text.split(CHUNK):
                logits, right = self.model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten()
                nll.append(cross_entropy(logits.double(), right, reduction="none"))
                wrong.append(logits.argmax(1) != right)
            found[f"{name}_nll"] = float(torch.cat(nll).mean())
            found[f"{name}_error"] = 100 * float(torch.cat(wrong).double().mean())
        return found

    @torch.no_grad()
    def final(self) -> dict[str, float]:
        """`of_unigram`: test cross-entropy as a share of that of a model that knows how frequent
        each character is. Over some windows of the validation text: what `looked_at` tells."""
        self.model.eval()
        metrics, test = self.evaluate(), self.parts["test"][:, 1:].flatten().cpu()
        share = metrics["test_nll"] / unigram(self.train, test)
        return {"of_unigram": share} | looked_at(self.model, self.parts["validation"][:LOOKED_AT])


def places(text: Int[Tensor, " n"], size: int, count: int) -> Int[Tensor, " count"]:
    """The first characters of so many windows, evenly over a text."""
    return torch.linspace(0, len(text) - size, count).long()


def windows(
    text: Int[Tensor, " n"], at: Int[Tensor, " count"], size: int
) -> Int[Tensor, "count t"]:
    """The characters that follow each place."""
    return text[at[:, None] + torch.arange(size)]


@contextmanager
def inputs_of(modules: list[nn.Module]) -> Iterator[list[Tensor]]:
    """The inputs of modules, in the order of their calls, while it lasts."""
    seen: list[Tensor] = []
    hooks = [m.register_forward_pre_hook(lambda _, given: seen.append(given[0])) for m in modules]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def looked_at(model: Transformer, text: Int[Tensor, "n t"]) -> dict[str, float]:
    """Measure the inputs of norms, curves and attention in a model.

    `mean_share`: of the mean square of what norms are given, the part that is the squared mean over
    units, averaged over positions and norms. `saturated`: the share of numbers at which a curve is
    nearly flat, 0 without curves. `largest_logit`: of all attention. `stream`: the variance of the
    residual stream at its end, over that of the embeddings.
    """
    model.eval()
    main = [b.norm for b in model.branches]
    attention = [b.f for b in model.branches if isinstance(b.f, Attention)]
    with inputs_of(main) as given, inputs_of(attention) as attended:
        first, *_, last = model.stream(text[:, :-1])
    share = [float((x.mean(-1) ** 2 / x.square().mean(-1)).mean()) for x in given]
    curves = [flat(m, x) for m, x in zip(main, given, strict=True) if isinstance(m, DynamicTanh)]
    logits = (f.logits(x) for f, x in zip(attention, attended, strict=True))
    return {
        "mean_share": math.fsum(share) / len(share),
        "saturated": math.fsum(curves) / max(1, len(curves)),
        "largest_logit": max(float(one.max()) for one in logits),
        "stream": float(last.var() / first.var()),
    }


def flat(module: DynamicTanh, x: Float[Tensor, "n t d"]) -> float:
    """The share of a curve's arguments at which its slope is below `FLAT` of the largest."""
    if isinstance(module, DynamicErf):
        slope = torch.exp(-((module.alpha * x + module.shift) ** 2))
    else:
        slope = 1 - torch.tanh(module.alpha * x) ** 2
    return float((slope < FLAT).double().mean())


def schedule(step: int, updates: int, warmup: float) -> float:
    """The share of the learning rate at an update: a linear warm-up over a share `warmup` of the
    run, times half a cosine from 1 down to `LOWEST`."""
    cosine = (1 + math.cos(math.pi * step / updates)) / 2
    ramp = min(1.0, step / (warmup * updates)) if warmup else 1.0
    return ramp * (LOWEST + (1 - LOWEST) * cosine)


class Muon(torch.optim.AdamW):
    """AdamW, except for groups with `muon`, whose matrices move along an orthogonal direction.

        m ← 0.95 m + g,   w ← (1 − ηλ) w − 0.2 η √max(rows, columns) · orthogonal(g + 0.95 m)

    The factor gives an update the root mean square of AdamW's, so both have one learning rate.
    Sources: Jordan et al. 2024, "Muon"; the factor from Liu et al. 2025, arXiv:2502.16982.
    """

    @torch.no_grad()
    def step(self, closure=None):
        for group in (group for group in self.param_groups if group["muon"]):
            for p in group["params"]:
                state, g = self.state[p], p.grad
                if not state:
                    state["step"], state["momentum"] = torch.zeros(()), torch.zeros_like(p)
                state["momentum"].mul_(MOMENTUM).add_(g)
                direction = orthogonal(g + MOMENTUM * state["momentum"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(0.2 * group["lr"] * math.sqrt(max(p.shape)) * direction)
                p.grad = None  # AdamW leaves it alone
        return super().step(closure)


def orthogonal(g: Float[Tensor, "m n"]) -> Float[Tensor, "m n"]:
    """U p(S) Vᵀ of a matrix U S Vᵀ, p(S) being near 1: five steps of an odd polynomial."""
    x = g / (g.norm() + 1e-7)
    x = x.T if g.shape[0] > g.shape[1] else x
    for a, b, c in NEWTON_SCHULZ:
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x.T if g.shape[0] > g.shape[1] else x


class Scheduled(Trainer):
    """Updates with a schedule, weight decay on matrices, and Muon where the options ask for it.

    Muon takes the matrices of the blocks; embeddings, the matrix of the logits, gains and biases
    are AdamW's.
    """

    def __init__(self, experiment, config, device: torch.device) -> None:
        super().__init__(experiment, config, device)
        self.options = options = config.options
        inner = [p for p in self.model.branches.parameters() if p.dim() == 2]
        others = [p for p in self.parameters if p.dim() == 2 and all(p is not q for q in inner)]
        vectors = [p for p in self.parameters if p.dim() < 2]
        decays = (inner, options.weight_decay), (others, options.weight_decay), (vectors, 0.0)
        self.optimizer = Muon(
            [{"params": ps, "weight_decay": decay, "muon": False} for ps, decay in decays if ps],
            lr=options.learning_rate,
            betas=(0.9, 0.95),
            fused=True,
        )
        self.optimizer.param_groups[0]["muon"] = options.optimizer == "muon"

    def update(self, step: int) -> None:
        share = schedule(step, self.options.updates, self.options.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = share * self.options.learning_rate
        super().update(step)


class ScheduledGraph(Scheduled, Graphed):
    """The same by one process on a GPU: graphs, which read the learning rate of each update."""
