"""The cases of each update's batch: by seed and update alone, so nothing has to be kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

Batch = TypeVar("Batch")


def generator(*seeds: int) -> torch.Generator:
    """A generator for several numbers together, for instance a run's seed and an update.

    Different numbers give streams without relation, as near as 63 bits can tell.
    """
    digest = hashlib.sha256(repr(seeds).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


class Shuffled:
    """Batches of whole epochs, each in an order of its own; a trailing partial batch is left out.

    >>> batches = Shuffled(cases=5, size=2, seed=0)
    >>> first, second = batches(1), batches(2)
    >>> len({*first.tolist(), *second.tolist()})
    4
    >>> torch.equal(batches(1), first)
    True

    Raises `ValueError` if a batch is larger than the data.
    """

    def __init__(self, cases: int, size: int, seed: int) -> None:
        if not 1 <= size <= cases:
            raise ValueError(
                f"batch_size must be from 1 to the {cases} training examples, got {size}; use a "
                "smaller one"
            )
        self.cases, self.size, self.seed = cases, size, seed
        self.epoch, self.order = -1, torch.empty(0, dtype=torch.int64)

    def __call__(self, step: int) -> Int[Tensor, " size"]:
        """The cases of an update, counted from 1."""
        epoch, batch = divmod(step - 1, self.cases // self.size)
        if epoch != self.epoch:
            self.epoch = epoch
            self.order = torch.randperm(self.cases, generator=generator(self.seed, epoch))
        return self.order[batch * self.size : (batch + 1) * self.size]


class InTurn(Generic[Batch]):
    """Batches that a generator draws one after another; an earlier one is drawn from the first on.

    >>> batches = InTurn(lambda: iter("abc"))
    >>> batches(2), batches(3), batches(1)
    ('b', 'c', 'a')
    """

    def __init__(self, first: Callable[[], Iterator[Batch]]) -> None:
        self.first, self.drawn, self.step = first, first(), 0

    def __call__(self, step: int) -> Batch:
        """The batch of an update, counted from 1."""
        if step <= self.step:
            self.drawn, self.step = self.first(), 0
        for _ in range(step - self.step):
            batch = next(self.drawn)
        self.step = step
        return batch
