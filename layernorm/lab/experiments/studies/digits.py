"""A fully connected net on the digits: what the runs of most studies of Part I train."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layernorm import functional
from layernorm.lab import data
from layernorm.lab.analysis import networks
from layernorm.lab.analysis.activations import Watch
from layernorm.lab.data.digits import SHA256
from layernorm.lab.experiments.batches import InTurn
from layernorm.lab.experiments.options import Count, Positive
from layernorm.lab.experiments.studies import StudyOptions
from layernorm.methods import method


class DigitsOptions(StudyOptions):
    """`order`: `shuffled` draws each batch at random; `sorted` takes runs of examples sorted by
    class. `rescaled` scales the weights after everything else. `initial_scale`, `initial_spread`,
    `initial_shift`, `initial_gains`: the hidden weights at the start (`networks.redraw_`).
    `input_scales`: factors on the columns of the input, repeated cyclically (features of different
    units). `input_shift`: a constant added to the whole data set. `centered`: after both, each
    feature's mean over the training set is subtracted. `input_norm`: what is done to the input
    last: `none`, `standardized` (each feature by its mean and standard deviation over the training
    set) or `layer` (each case by its mean and standard deviation over its features). `watch`: also
    record what happens to the summed inputs of the second hidden layer (`activations.Watch`, on the
    validation examples)."""

    updates: Count = 300
    evaluations: Count = 15
    hidden: tuple[Count, ...] = (128, 128)
    activation: Literal["tanh", "relu", "sigmoid"] = "tanh"
    initial_scale: Positive = 1.0
    initial_spread: float = 0.0
    initial_shift: float = 0.0
    initial_gains: bool = True
    order: Literal["shuffled", "sorted"] = "shuffled"
    input_scales: tuple[float, ...] = (1.0,)
    input_shift: float = 0.0
    centered: bool = False
    input_norm: Literal["none", "standardized", "layer"] = "none"
    watch: bool = False

    def check(self) -> None:
        super().check()
        method(self.method)


def batches(y: Int[Tensor, " n"], options: DigitsOptions, seed: int) -> Iterator[Tensor]:
    """Indices of one batch after another, without end; a trailing partial batch is left out."""
    generator = torch.Generator().manual_seed(seed)
    n, size = len(y), options.batch_size
    by_class = torch.argsort(y, stable=True)
    while True:
        order = torch.randperm(n, generator=generator)
        if options.order == "sorted":
            start = int(torch.randint(n, (), generator=generator))
            chunks = by_class.roll(-start)[: n // size * size].view(-1, size)
            yield from chunks[torch.randperm(len(chunks), generator=generator)]
        else:
            yield from order[: n // size * size].view(-1, size)


digits = cache(data.digits)


def prepared(options: DigitsOptions) -> dict[str, tuple[Tensor, Tensor]]:
    """Inputs and classes of training, validation and test examples, as the options ask for."""
    out = {}
    for part in ("train", "validation", "test"):
        examples = getattr(digits(), part)
        x = examples.x.flatten(1)
        scales = torch.tensor(options.input_scales)
        x = x * scales.repeat(x.shape[1] // len(scales) + 1)[: x.shape[1]] + options.input_shift
        out[part] = (x, examples.y)
    if options.centered:
        mean = out["train"][0].mean(0)
        out = {part: (x - mean, y) for part, (x, y) in out.items()}
    if options.input_norm == "layer":
        out = {part: (functional.layer_norm(x, x.shape[1:]), y) for part, (x, y) in out.items()}
    if options.input_norm == "standardized":
        mean, std = out["train"][0].mean(0), out["train"][0].std(0)
        std[std == 0] = 1  # a feature that never varies stays 0
        out = {part: ((x - mean) / std, y) for part, (x, y) in out.items()}
    if options.examples is not None:
        x, y = out["train"]
        out["train"] = (x[: options.examples], y[: options.examples])
    return out


def build(options: DigitsOptions, seed: int, x: Float[Tensor, "n features"]) -> nn.Sequential:
    """The network at its start; `x` are the training inputs (the control reads their scale)."""
    net = networks.mlp([x.shape[1], *options.hidden, 10], options.method, options.activation)
    start = (options.initial_scale, options.initial_spread, options.initial_shift)
    if start != (1, 0, 0):
        networks.redraw_(net, *start, options.initial_gains, seed)
    if options.rescaled:
        networks.rescale_(net, x)
    return net


class Digits:
    """The task: name the digit. Raises `ValueError` if a batch is larger than the data."""

    def __init__(self, options: DigitsOptions, seed: int, device: torch.device) -> None:
        parts = prepared(options)
        x, y = parts["train"]
        if options.batch_size > len(y):
            raise ValueError(
                f"batch_size {options.batch_size} exceeds the {len(y)} training examples; use at "
                f"most {len(y)}"
            )
        self.batches = InTurn(lambda: batches(y, options, seed))
        self.model = build(options, seed, x).to(device)
        self.parts = {part: (x.to(device), y.to(device)) for part, (x, y) in parts.items()}
        self.watch = None
        if options.watch:
            watched = self.parts["validation"][0]
            self.watch = Watch(self.model, watched, options.activation)

    def loss(self, step: int) -> Tensor:
        x, y = self.parts["train"]
        chosen = self.batches(step).to(y.device)
        return cross_entropy(self.model(x[chosen]), y[chosen])

    def evaluate(self) -> dict[str, float]:
        """Cross-entropy in nats and error in percent on every part; what is watched."""
        out = {}
        for part, (x, y) in self.parts.items():
            logits = self.model(x)
            out[f"{part}_nll"] = float(cross_entropy(logits.double(), y))
            out[f"{part}_error"] = float((logits.argmax(1) != y).double().mean() * 100)
        return out | (self.watch.curve(self.model) if self.watch else {})

    def final(self) -> dict[str, float]:
        return self.watch.final(self.model) if self.watch else {}


ON_DIGITS: dict[str, Any] = {
    "options": DigitsOptions,
    "task": Digits,
    "data": lambda options: SHA256,
    "select": "validation_nll",
    "averaged": ("train_nll", "validation_nll", "test_nll"),
    "overfit": {"examples": 32, "batch_size": 32},
}
