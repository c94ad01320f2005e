"""A trainer for GPUs: one CUDA graph for each update, where the shapes of batches are fixed or few.

An update of a small network is some fifty kernels of a few microseconds, and Python takes longer to
launch them than they take. Captured once, they are launched together. Only the choice of a batch
stays outside: it is drawn on the CPU, by seed and update, and copied to where the graph reads it.

A learning rate that changes with every update is copied in the same way.

Where batches are as long as their longest sentence or story there is a graph for each length, at
most `MOST`; stories are padded to a multiple of `WIDTH` words, so that there are few, which changes
no result but its rounding. What cannot be captured is trained as elsewhere, kernel by kernel, and
the command says so (`why_not`): skip-thoughts, whose batches differ in three lengths and are cut to
their words, and batch normalization of stories, whose steps have as many rows as stories go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from layernorm.lab.experiments import checkpoint
from layernorm.lab.experiments.batches import generator
from layernorm.lab.experiments.experiment import Config, Experiment
from layernorm.lab.experiments.trainer import Trainer

WARM = 3  # updates before the first capture, which libraries use to set themselves up
MOST = 32  # graphs of a run: one for each form of its batches
WIDTH = 8  # words of which padded stories have a multiple


class Feed(NamedTuple):
    """How a task is fed. `draw`: what an update draws, by name. `put`: what stands in the task in
    place of its attributes while an update is computed from tensors of these names."""

    draw: Callable[[int], dict[str, Tensor]]
    put: Callable[[dict[str, Tensor]], dict[str, Any]]


def _given(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Functions of any arguments that give these tensors."""
    return {name: lambda *_, tensor=tensor: tensor for name, tensor in tensors.items()}


def _batches(task: Any) -> Feed:
    return Feed(lambda step: {"batches": task.batches(step)}, _given)


def _noisy(task: Any) -> Feed:
    """Noise is drawn into the layers, which stay where they are."""
    layers = task.noise

    def draw(step: int) -> dict[str, Tensor]:
        for depth, noise in enumerate(layers):
            noise.draw(generator(task.seed, step, depth))
        return {"batches": task.batches(step)}

    return Feed(draw, lambda tensors: {**_given(tensors), "noise": []})


def _pictures(task: Any) -> Feed:
    def draw(step: int) -> dict[str, Tensor]:
        noise = task.noise(task.options.batch_size, generator(task.seed, step))
        return {"batches": task.batches(step), "noise": noise}

    return Feed(draw, _given)


def _windows(task: Any) -> Feed:
    if task.few is not None:
        return Feed(lambda step: {"shuffled": task.shuffled(step)}, _given)
    return Feed(lambda step: {"draw": task.draw(task.options.batch_size, step)}, _given)


def _captions(task: Any) -> Feed:
    """Captions as long as the longest of a batch: a graph for each such length."""
    train = task.train
    here = replace(train, words=train.words.cpu(), lengths=train.lengths.cpu())

    def draw(step: int) -> dict[str, Tensor]:
        images, captions = task.batch(step)
        words, lengths = here.told(captions)
        return {"images": images, "words": words, "lengths": lengths}

    def put(given: dict[str, Tensor]) -> dict[str, Any]:
        told = SimpleNamespace(
            told=lambda _: (given["words"], given["lengths"]), features=train.features
        )
        return {"batch": lambda step: (given["images"], None), "train": told}

    return Feed(draw, put)


def _stories(task: Any) -> Feed:
    """Stories padded a little further, which no result depends on: a few graphs in all."""

    def draw(step: int) -> dict[str, Tensor]:
        drawn = dict(vars(task.batch(step)))
        for name in ("passages", "questions"):
            drawn[name] = pad(drawn[name], (0, -drawn[name].shape[1] % WIDTH))
        return drawn

    kind = type(task.batch(1))
    return Feed(draw, lambda given: {"batch": lambda step: kind(**given)})


# By the name of a task's class.
FEEDS: dict[str, Callable[[Any], Feed]] = {
    "Mnist": _noisy,
    "ConvNet": _batches,
    "Drawer": _pictures,
    "Characters": _windows,
    "Handwriting": _batches,
    "OrderEmbeddings": _captions,
    "AttentiveReader": _stories,
}


# Those whose shapes differ too much.
VARIED = {"Reading": "its batches differ in three lengths and in how many words are predicted"}


def why_not(task: Any) -> str:
    """Return why the updates of a task cannot be graphs, or "" if they can."""
    kind = type(task).__name__
    if kind not in FEEDS:
        return VARIED.get(kind, f"graphs are not made of the updates of {kind}")
    if any(type(module).__name__ == "BatchNormLSTM" for module in task.model.modules()):
        return "batch normalization of stories has as many rows at a step as stories go on"
    return ""


def capture(
    function: Callable[[], None], device: torch.device, memory: list[Any]
) -> Callable[[], None]:
    """Capture what a function computes; the result computes it again.

    `memory` is what graphs of one run share, as nothing in it is needed after a replay; [] at
    first.
    """
    torch.cuda.synchronize(device)
    memory[:] = memory or [torch.cuda.graph_pool_handle()]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=memory[0]):
        function()
    return graph.replay


class Form:
    """Where the batches of one form stay, and the graph that reads them, once there is one."""

    def __init__(self, drawn: dict[str, Tensor], device: torch.device) -> None:
        self.given = {name: tensor.to(device, copy=True) for name, tensor in drawn.items()}
        self.replay: Callable[[], None] | None = None
        self.seen = False


class Graphed(Trainer):
    """A trainer whose updates, from the fourth on, are replays of graphs, one for each form of its
    batches, of which the first is computed without.

    A trainer that sets the learning rate of every update and then makes it by `super().update` has
    graphs as a class that inherits from both, from it first.
    """

    def __init__(self, experiment: Experiment, config: Config, device: torch.device) -> None:
        super().__init__(experiment, config, device)
        reason = why_not(self.task)
        self.fixed = not reason
        self.forms: dict[tuple, Form] = {}
        self.memory: list[Any] = []
        self.updates = 0
        if not self.fixed:
            _tell(f"{experiment.name} is trained kernel by kernel, not by graphs: {reason}")
            return
        if type(self.task).__name__ == "Drawer":  # it takes its pictures from the CPU
            self.task.x = self.task.x.to(device)
        self.feed = FEEDS[type(self.task).__name__](self.task)
        self.loss = torch.zeros((), device=device)
        self.stream = torch.cuda.Stream(device)

    def update(self, step: int) -> None:
        if not self.fixed:
            super().update(step)
            return
        drawn = self.feed.draw(step)
        if self.updates == 0:
            self._begin()
        form = self._form(drawn)
        for name, tensor in drawn.items():
            form.given[name].copy_(tensor)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=False):
            group["lr"] = rate.fill_(group["lr"])
        compute = partial(self._compute, form.given, step)
        if self.updates < WARM or not form.seen:
            self._beside(compute)
        else:
            form.replay = form.replay or capture(compute, self.device, self.memory)
            form.replay()
        form.seen = True
        self.losses[self.kept] = self.loss
        self.updates, self.kept = self.updates + 1, self.kept + 1

    def _form(self, drawn: dict[str, Tensor]) -> Form:
        """That of these batches; one that is not kept where there are too many."""
        key = tuple((name, *tensor.shape) for name, tensor in drawn.items())
        if key in self.forms:
            return self.forms[key]
        form = Form(drawn, self.device)
        if len(self.forms) < MOST:
            self.forms[key] = form
        else:
            _tell(f"batches have more than {MOST} forms; the rest is launched kernel by kernel")
        return form

    def _begin(self) -> None:
        """Put what graphs read where it stays: steps, and learning rates that change."""
        groups = self.optimizer.param_groups
        changing = groups if type(self).update is not Graphed.update else []
        self.rates = [torch.zeros((), device=self.device) for _ in changing]
        for group in groups:
            group["capturable"] = True
        for state in self.optimizer.state.values():
            state["step"] = state["step"].to(self.device)

    def _beside(self, compute: Callable[[], None]) -> None:
        """An update on a stream of its own, as a capture wants it before."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            compute()
        torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def _compute(self, given: dict[str, Tensor], step: int) -> None:
        """An update on what was copied to where a graph reads it."""
        there = vars(self.task)
        put = self.feed.put(given)
        before = {name: there[name] for name in put if name in there}
        there.update(put)
        try:
            with self.autocast():
                loss = self.task.loss(step)
        finally:
            for name in put:
                del there[name]
            there.update(before)
        self.optimizer.zero_grad()
        loss.backward()
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    def restore(self, state: dict[str, Any]) -> None:
        """Adam's state is another tensor afterwards: a graph that was captured is of no use."""
        super().restore(state)
        self.forms, self.memory, self.updates = {}, [], 0


@cache
def _tell(sentence: str) -> None:
    """Once in a process."""
    checkpoint.say(sentence)
