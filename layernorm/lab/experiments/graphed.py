"""A trainer for GPUs: one CUDA graph for each update, where the shapes of batches are fixed.

An update of a small network is some fifty kernels of a few microseconds, and Python takes longer to
launch them than they take. Captured once, they are launched together. Only the choice of a batch
stays outside: it is drawn on the CPU, by seed and update, and copied to where the graph reads it.

A learning rate that changes with every update is copied in the same way.

The experiments whose batches are as long as their longest sentence, line or story have no fixed
shapes; they are trained as elsewhere. So are those that draw more than a batch in an update.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from layernorm.lab.experiments.batches import generator
from layernorm.lab.experiments.experiment import Config, Experiment
from layernorm.lab.experiments.trainer import Trainer

WARM = 3  # updates before the capture, which libraries use to set themselves up


def _batches(task: Any, step: int) -> dict[str, Tensor]:
    return {"batches": task.batches(step)}


def _pictures(task: Any, step: int) -> dict[str, Tensor]:
    random = generator(task.seed, step)
    return {**_batches(task, step), "noise": task.noise(task.options.batch_size, random)}


def _windows(task: Any, step: int) -> dict[str, Tensor]:
    if task.few is not None:
        return {"shuffled": task.shuffled(step)}
    return {"draw": task.draw(task.options.batch_size, step)}


# By the name of a task's class: what an update draws, by the name of what draws it.
FEEDS: dict[str, Callable[[Any, int], dict[str, Tensor]]] = {
    "Mnist": _batches,
    "ConvNet": _batches,
    "Drawer": _pictures,
    "Characters": _windows,
}


def why_not(task: Any) -> str:
    """Return why the updates of a task cannot be one graph, or "" if they can."""
    kind = type(task).__name__
    if kind not in FEEDS:
        return f"the shapes of {kind}'s batches are not fixed"
    if kind == "Mnist" and task.noise:
        return "every update draws the noise of each layer"
    return ""


def capture(function: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Capture what a function computes; the result computes it again."""
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


class Graphed(Trainer):
    """A trainer whose updates, from the fourth on, are replays of one graph.

    A trainer that sets the learning rate of every update and then makes it by `super().update` has
    graphs as a class that inherits from both, from it first.
    """

    def __init__(self, experiment: Experiment, config: Config, device: torch.device) -> None:
        super().__init__(experiment, config, device)
        self.fixed = not why_not(self.task)
        self.replay: Callable[[], None] | None = None
        self.updates = 0
        if self.fixed:
            self.feed = FEEDS[type(self.task).__name__]
            if type(self.task).__name__ == "Drawer":  # it takes its pictures from the CPU
                self.task.x = self.task.x.to(device)
            self.loss = torch.zeros((), device=device)
            self.stream = torch.cuda.Stream(device)

    def update(self, step: int) -> None:
        if not self.fixed:
            super().update(step)
            return
        drawn = self.feed(self.task, step)
        if self.updates == 0:
            self._begin(drawn)
        for name, tensor in drawn.items():
            self.given[name].copy_(tensor)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=False):
            group["lr"] = rate.fill_(group["lr"])
        if self.updates < WARM:
            self._beside(step)
        else:
            self.replay = self.replay or capture(lambda: self._compute(step), self.device)
            self.replay()
        self.losses[self.kept] = self.loss
        self.updates, self.kept = self.updates + 1, self.kept + 1

    def _begin(self, drawn: dict[str, Tensor]) -> None:
        """Put what a graph reads where it stays: batches, steps, and learning rates that change."""
        self.given = {name: tensor.to(self.device, copy=True) for name, tensor in drawn.items()}
        self.drawn = {name: getattr(self.task, name) for name in drawn}
        groups = self.optimizer.param_groups
        changing = groups if type(self).update is not Graphed.update else []
        self.rates = [torch.zeros((), device=self.device) for _ in changing]
        for group in groups:
            group["capturable"] = True
        for state in self.optimizer.state.values():
            state["step"] = state["step"].to(self.device)

    def _beside(self, step: int) -> None:
        """An update on a stream of its own, as a capture wants it before."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            self._compute(step)
        torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def _compute(self, step: int) -> None:
        """An update on what was copied to where a graph reads it."""
        for name, tensor in self.given.items():
            setattr(self.task, name, lambda *_, tensor=tensor: tensor)
        try:
            with self.autocast():
                loss = self.task.loss(step)
        finally:
            for name, draw in self.drawn.items():
                setattr(self.task, name, draw)
        self.optimizer.zero_grad()
        loss.backward()
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    def restore(self, state: dict[str, Any]) -> None:
        """Adam's state is another tensor afterwards: a graph that was captured is of no use."""
        super().restore(state)
        self.replay, self.updates = None, 0
