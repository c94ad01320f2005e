"""A run that several processes share, each with its part of every batch, as torchrun starts them.

Two processes::

    torchrun --nproc-per-node=2 -m layernorm run mnist --arm layer
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from layernorm.lab.experiments.batches import generator

PATIENCE = timedelta(hours=12)  # process 0 may wait for a lock, read curves, save
# Where a task's updates find their batch, by the name of its class.
BATCHES = {
    **dict.fromkeys(("Mnist", "ConvNet", "Digits", "Changes", "Lagged", "Rows"), ("batches",)),
    "Drawer": ("batches",),
    "Handwriting": ("batches",),
    "AttentiveReader": ("batch",),
    "Characters": ("draw", "shuffled"),
    "Reading": ("shuffled",),
}
TOGETHER = {
    "OrderEmbeddings": "its loss compares every caption with all images of the batch",
    "OwnSteps": "it takes the steps of its optimizer itself",
}


class Workers:
    """The processes of a run; one that is alone by default."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    def document(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A run's configuration that says by how many workers it is made, if by several.

        Raises `ValueError` if they cannot have equal parts of a batch.
        """
        options = document["options"]
        if self.size == 1:
            return dict(document)
        if options["batch_size"] % self.size:
            raise ValueError(
                f"batch_size {options['batch_size']} cannot be divided among {self.size} workers; "
                "choose another --nproc-per-node, or --set batch_size to a multiple of it"
            )
        return {**document, "options": {**options, "workers": self.size}}

    def told(self, value: Any) -> Any:
        """The value that process 0 has; all wait for it."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values)
        return values[0]

    def share(self, trainer: Any, seed: int) -> Any:
        """The trainer, with its batches and gradients shared.

        Raises `ValueError` for a task that cannot be divided.
        """
        return trainer if self.size == 1 else Shared(trainer, self, seed)


class Shared:
    """A trainer whose every update is on a part of the batch, with the mean of all workers'
    gradients. Curves are read by process 0, so running statistics are those of its parts."""

    def __init__(self, trainer: Any, workers: Workers, seed: int) -> None:
        self.trainer, self.workers, self.seed, self.waits = trainer, workers, seed, False
        cut(trainer.task, workers)
        for p in trainer.parameters:
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self._came)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trainer, name)

    def update(self, step: int) -> None:
        """An update in which every worker draws numbers of its own, for dropout for instance."""
        draws = generator(self.seed, step, self.workers.rank).initial_seed()
        torch.default_generator.manual_seed(draws)
        if self.trainer.device.type == "cuda":
            torch.cuda.manual_seed(draws)
        self.trainer.update(step)

    def look(self) -> list[float]:
        """The losses of whole batches since the last look."""
        self._mean(self.trainer.losses[: self.trainer.kept])
        return self.trainer.look()

    def evaluate(self) -> dict[str, float]:
        return self.workers.told(None if self.workers.rank else self.trainer.evaluate())

    def _came(self, parameter: Tensor) -> None:
        """Let gradients be averaged when the last one is there: the order in which they come may
        depend on the lengths of a part's sequences, and all workers must have the same."""
        if not self.waits:
            self.waits = True
            torch.autograd.Variable._execution_engine.queue_callback(self._average)

    def _average(self) -> None:
        self.waits = False
        for p in self.trainer.parameters:
            if p.grad is not None:
                self._mean(p.grad)

    def _mean(self, x: Tensor) -> None:
        dist.all_reduce(x)
        x /= self.workers.size


def cut(task: Any, workers: Workers) -> None:
    """Let the updates of a task see a worker's part of each batch, with its loss so weighted that
    the mean over workers is the loss of the batch.

    Raises `ValueError` for a task whose loss is not such a mean.
    """
    kind = type(task).__name__
    if kind not in BATCHES:
        why = TOGETHER.get(kind, f"nothing is known of the batches of {kind}")
        raise ValueError(f"this experiment cannot be divided among workers: {why}; run it by one")
    count = COUNTS.get(kind, lambda task, batch: _size(batch))
    loss, weight = task.loss, 1.0

    def part_of(batches: Callable[..., Any]) -> Callable[..., Any]:
        def part(*args: Any) -> Any:
            nonlocal weight
            batch = batches(*args)
            mine = _part(batch, workers)
            weight = workers.size * count(task, mine) / count(task, batch)
            return mine if _size(mine) else batch  # with weight 0: all average every gradient

        return part

    def weighted(step: int) -> Tensor:
        of_part = loss(step)
        return weight * of_part

    task.loss = weighted
    for name in BATCHES[kind]:
        if hasattr(task, name):
            setattr(task, name, part_of(getattr(task, name)))
    if kind == "Drawer":
        task.noise = _noise_of(task.noise, workers)


def _points(task: Any, cases: Tensor) -> Tensor:
    return task.lines.lengths[cases].sum()


def _words(task: Any, cases: list[int]) -> int:
    """Those of both neighbours. A sum over words is divided by nothing and counts as one."""
    if task.options.summed:
        return min(1, len(cases))
    at = [task.train.places[i] for i in cases]
    return sum(len(task.train.encoded[d][i + side]) for d, i in at for side in (-1, 1))


# How many terms the loss of a batch is a mean over, where these are not its examples.
COUNTS: dict[str, Callable[[Any, Any], Any]] = {"Handwriting": _points, "Reading": _words}


def _noise_of(noise: Callable[..., Tensor], workers: Workers) -> Callable[..., Tensor]:
    """The noise (steps, pictures, …) of a part's pictures, from that of the batch. Evaluations,
    which compute no gradients, are not divided."""

    def part(n: int, random: torch.Generator) -> Tensor:
        if not torch.is_grad_enabled():
            return noise(n, random)
        return noise(n * workers.size, random).chunk(workers.size, 1)[workers.rank]

    return part


def _size(batch: Any) -> int:
    return batch[0].shape[1] if isinstance(batch, tuple) else len(getattr(batch, "y", batch))


def _part(batch: Any, workers: Workers) -> Any:
    """Examples are dimension 0; of sequences (steps, examples, …) in a tuple or with lengths, 1."""
    ends = (_size(batch) * rank // workers.size for rank in (workers.rank, workers.rank + 1))
    rows = slice(*ends)
    if isinstance(batch, tuple):
        return tuple(x[:, rows] for x in batch)
    if hasattr(batch, "packed"):
        lengths = batch.lengths[rows]
        x = batch.x[: int(lengths.max()), rows]
        return replace(batch, x=x, lengths=lengths, y=batch.y[rows])
    return batch[rows]


@contextlib.contextmanager
def started(device: str) -> Iterator[Workers]:
    """The processes that torchrun started, while they last, each on its GPU if the device is one;
    else this process alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Workers()
        return
    on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=PATIENCE)
    try:
        yield Workers(dist.get_rank(), size)
    finally:
        dist.destroy_process_group()
