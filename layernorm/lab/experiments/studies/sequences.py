"""A recurrent layer on tasks with a long lag (`layernorm.lab.data.lags`), for chapter 09.

Every update sees fresh sequences, so a training loss is a test loss and nothing can be learned by
heart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from layernorm.lab.analysis.networks import rescale_lstm_
from layernorm.lab.data.lags import TASKS
from layernorm.lab.experiments.batches import InTurn
from layernorm.lab.experiments.options import Count
from layernorm.lab.experiments.studies import StudyOptions
from layernorm.recurrent.layers import LayerNormLSTM
from layernorm.recurrent.variants import VARIANTS

VALIDATION_SEED, TEST_SEED, LONGER_SEED = 10**6, 10**6 + 1, 10**6 + 2
HELD_OUT = 500  # sequences for validation, as many for the test
FORGET_BIAS = 1.0


class SequenceOptions(StudyOptions):
    """`method`: `none` is `torch.nn.LSTM`, `layer` is `LayerNormLSTM` in a `variant`. `task`,
    `steps`: see `layernorm.lab.data.lags`. `rescaled`: `nn.LSTM` with both terms of its summed
    inputs at unit variance, as both norms give them. `examples`: train on that many fixed
    sequences, None for fresh ones."""

    clip: ClassVar[float | None] = 1.0

    method: Literal["none", "layer"] = "none"
    batch_size: Count = 50
    updates: Count = 800
    evaluations: Count = 16
    task: Literal[tuple(TASKS)] = "adding"
    steps: Count = 100
    variant: Literal[tuple(VARIANTS)] = "paper"
    hidden: Count = 48


class Reader(nn.Module):
    """A recurrent layer, and a linear one that reads its outputs at the last steps."""

    def __init__(self, recurrent: nn.Module, hidden: int, outputs: int) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor, reads: int) -> Tensor:
        return self.head(self.recurrent(x)[0][-reads:])


def build(options: SequenceOptions) -> Reader:
    """The network at its start.

    All arms of a seed start from the same weights, those of torch's LSTM, with biases 0 and the
    forget gate's `FORGET_BIAS`.
    """
    task = TASKS[options.task]
    lstm = nn.LSTM(task.inputs, options.hidden)
    net = Reader(lstm, options.hidden, task.outputs)
    with torch.no_grad():
        lstm.bias_hh_l0.zero_()
        lstm.bias_ih_l0.zero_().chunk(4)[1].fill_(FORGET_BIAS)
    if options.method == "layer":
        net.recurrent = LayerNormLSTM(task.inputs, options.hidden, variant=options.variant)
        with torch.no_grad():
            for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"):
                getattr(net.recurrent, name).copy_(getattr(lstm, name))
    if options.rescaled:
        rescale_lstm_(lstm, task.draw(HELD_OUT, options.steps, generator(VALIDATION_SEED))[0])
    return net


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batches(options: SequenceOptions, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """One batch after another: fresh sequences, or again and again those of `examples`."""
    task, draw = TASKS[options.task], generator(seed)
    if options.examples is None:
        while True:
            yield task.draw(options.batch_size, options.steps, draw)
    x, y = task.draw(options.examples, options.steps, draw)
    while True:
        for index in torch.randperm(options.examples, generator=draw).split(options.batch_size):
            yield x[:, index], y[:, index]


def held_out(options: SequenceOptions, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Sequences by the name of their metric; those of `examples` are the run's own."""
    task, steps = TASKS[options.task], options.steps
    parts = {
        "validation": task.draw(HELD_OUT, steps, generator(VALIDATION_SEED)),
        "test": task.draw(HELD_OUT, steps, generator(TEST_SEED)),
    }
    if options.examples is not None:
        parts["train"] = task.draw(options.examples, steps, generator(seed))
    return parts


class Lagged:
    """The task: remember over a lag. Losses are the task's, on validation and test sequences (and
    on those of training where `examples` fixes them), at last on test sequences of twice the
    `steps`, `longer_loss`."""

    def __init__(self, options: SequenceOptions, seed: int, device: torch.device) -> None:
        self.options, self.device, self.task = options, device, TASKS[options.task]
        self.batches = InTurn(lambda: batches(options, seed))
        self.parts = held_out(options, seed)
        self.model = build(options).to(device)

    def on(self, x: Tensor, y: Tensor) -> Tensor:
        x, y = x.to(self.device), y.to(self.device)
        return self.task.loss(self.model(x, len(y)), y)

    def loss(self, step: int) -> Tensor:
        return self.on(*self.batches(step))

    def evaluate(self) -> dict[str, float]:
        return {f"{part}_loss": float(self.on(*drawn)) for part, drawn in self.parts.items()}

    @torch.no_grad()
    def final(self) -> dict[str, float]:
        longer = self.task.draw(HELD_OUT, 2 * self.options.steps, generator(LONGER_SEED))
        return {"longer_loss": float(self.on(*longer))}


ON_LAGS: dict[str, Any] = {
    "options": SequenceOptions,
    "task": Lagged,
    "data": lambda options: None,
    "select": "validation_loss",
    "averaged": ("validation_loss", "test_loss"),
    "overfit": {"examples": 32, "batch_size": 32},
}
