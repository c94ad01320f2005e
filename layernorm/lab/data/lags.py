"""Two tasks with a long lag between what must be remembered and where it is needed.

Sequences are drawn from a generator, as many as wanted and never the same twice, so that a network
cannot learn them by heart. Inputs are (steps, cases, features), as recurrent layers take them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy, mse_loss, one_hot

SYMBOLS, REMEMBERED = 8, 5


def adding(
    cases: int, steps: int, generator: Generator
) -> tuple[Float[Tensor, "{steps} {cases} 2"], Float[Tensor, "1 {cases}"]]:
    """The adding problem: the sum of two marked numbers, one in each half of the sequence.

    Each step has a number from [0, 1) and a marker that is 1 at two steps and else 0. Whoever
    always answers 1 has a mean squared error of 1/6, the variance of the sum of two such numbers.

    Raises `ValueError` for fewer than two steps.

    Source: Hochreiter and Schmidhuber 1997, section 5.4, in the form of Le, Jaitly and Hinton 2015,
    arXiv:1504.00941.
    """
    if steps < 2:
        raise ValueError(f"steps must be at least 2, one for each marked number, got {steps}")
    numbers = torch.rand(steps, cases, generator=generator)
    first = torch.randint(steps // 2, (cases,), generator=generator)
    second = torch.randint(steps // 2, steps, (cases,), generator=generator)
    marked = torch.stack([first, second])
    markers = torch.zeros_like(numbers).scatter_(0, marked, 1.0)
    return torch.stack([numbers, markers], -1), numbers.gather(0, marked).sum(0, keepdim=True)


def copy_memory(
    cases: int, lag: int, generator: Generator
) -> tuple[Float[Tensor, "steps {cases} 10"], Int[Tensor, "5 {cases}"]]:
    """The copy task: five symbols, a lag of blanks, and then the five symbols from memory.

    Inputs are one-hot over eight symbols, blank and "now": the symbols, `lag` blanks, "now" and
    four more blanks. At the last five steps the symbols are to be named in their order; whoever
    guesses has a cross-entropy of ln 8 nats for each.

    Raises `ValueError` for a negative lag.

    Source: Hochreiter and Schmidhuber 1997; Arjovsky, Shah and Bengio 2016, arXiv:1511.06464.
    """
    if lag < 0:
        raise ValueError(f"lag must be a number of blank steps, at least 0, got {lag}")
    blank, now = SYMBOLS, SYMBOLS + 1
    symbols = torch.randint(SYMBOLS, (REMEMBERED, cases), generator=generator)
    x = torch.full((lag + 2 * REMEMBERED, cases), blank)
    x[:REMEMBERED] = symbols
    x[-REMEMBERED] = now
    return one_hot(x, SYMBOLS + 2).float(), symbols


def _squared_error(answers: Float[Tensor, "reads b 1"], y: Float[Tensor, "reads b"]) -> Tensor:
    return mse_loss(answers.squeeze(-1), y)


def _cross_entropy(answers: Float[Tensor, "reads b k"], y: Int[Tensor, "reads b"]) -> Tensor:
    return cross_entropy(answers.flatten(0, 1), y.flatten())


@dataclass(frozen=True)
class Task:
    """A task: how cases are drawn, how answers are judged, and what guessing costs.

    `draw(cases, steps, generator)` gives inputs (steps, cases, `inputs`) and targets (reads,
    cases) for the last `reads` steps; `loss(answers, targets)` takes answers (reads, cases,
    `outputs`) and is in `unit`; `guess` is the loss of the best answer that ignores the input.
    """

    name: str
    inputs: int
    outputs: int
    draw: Callable[[int, int, Generator], tuple[Tensor, Shaped[Tensor, "reads b"]]]
    loss: Callable[[Tensor, Tensor], Tensor]
    guess: float
    unit: str


TASKS = {
    task.name: task
    for task in (
        Task("adding", 2, 1, adding, _squared_error, 1 / 6, "mean squared error"),
        Task("copy", SYMBOLS + 2, SYMBOLS, copy_memory, _cross_entropy, math.log(8), "nats"),
    )
}
