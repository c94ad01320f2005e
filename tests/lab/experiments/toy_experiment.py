"""A small experiment for the tests of the engine: it runs in a tenth of a second, and can be told
to fail. A worker process that is sent one of its configurations imports this file, which registers
it there, too; one of a cluster does if `TOY_EXPERIMENT` is set."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import sys
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layernorm.lab import experiments
from layernorm.lab.experiments.batches import Shuffled, generator
from layernorm.lab.experiments.contrasts import Comparison, Comparisons, Margin, less
from layernorm.lab.experiments.experiment import Experiment, Profile
from layernorm.lab.experiments.options import Count, Options
from layernorm.lab.experiments.run import train

CASES = {"train": 40, "validation": 30, "test": 30}
NORMS = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": nn.BatchNorm1d}


class ToyOptions(Options):
    """`hidden`: units of each layer. `noise`: the loss is multiplied by 1 + that much times numbers
    from numpy's and torch's generators, with `pythons` from python's, too (which the type checker
    of the tests draws from). At the update `bad_at` the loss is not finite. `fault`: how the run
    fails at once. A run waits for the file `TOY_GATE`, if that is set where it is made."""

    batch_size: Count = 8
    updates: Count = 30
    evaluations: Count = 3
    hidden: tuple[Count, ...] = (6,)
    noise: float = 0.1
    pythons: bool = False
    bad_at: Count | None = None
    fault: Literal["", "raises", "dies"] = ""


class Toy:
    def __init__(self, options: ToyOptions, seed: int, device: torch.device) -> None:
        if options.fault == "raises":
            raise RuntimeError("the toy is broken")
        if options.fault == "dies":
            os._exit(3)
        while (gate := os.environ.get("TOY_GATE")) and not os.path.exists(gate):
            time.sleep(0.05)
        self.options = options
        self.parts = {name: _part(name, cases) for name, cases in CASES.items()}
        self.x, self.y = (t[: options.examples] for t in self.parts["train"])
        layers, width = [], 4
        for units in options.hidden:
            layers += [nn.Linear(width, units), NORMS[options.method](units), nn.ReLU()]
            width = units
        self.model = nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(width, 3)).to(device)
        self.batches = Shuffled(len(self.y), options.batch_size, seed)

    def loss(self, step: int) -> Tensor:
        chosen = self.batches(step)
        loss = cross_entropy(self.model(self.x[chosen]), self.y[chosen])
        drawn = np.random.rand() + torch.rand(())  # noqa: NPY002
        drawn += random.random() if self.options.pythons else 0
        bad = torch.inf if step == self.options.bad_at else 1
        return bad * loss * (1 + self.options.noise * drawn)

    def evaluate(self) -> dict[str, float]:
        return {
            f"{name}_nll": float(cross_entropy(self.model(x), y))
            for name, (x, y) in self.parts.items()
        }

    def final(self) -> dict[str, float]:
        return {"size": float(sum(p.detach().norm() for p in self.model.parameters()))}


def _part(name: str, cases: int) -> tuple[Tensor, Tensor]:
    """Points of three classes that overlap."""
    draw = generator(len(name), cases)
    y = torch.arange(cases) % 3
    x = torch.randn(cases, 4, generator=draw) + torch.eye(4)[y]
    return x, y


MARGIN = Margin(0.01, "nats", "the mean of the test cross-entropy", "it is a toy")


def compared(**pairs: tuple[str, str]) -> Comparisons:
    rows = [Comparison(name, less(*pair, "mean_test_nll"), MARGIN) for name, pair in pairs.items()]
    return Comparisons(tuple(rows), gates=())


COMPARISONS = compared(**{"layer against none": ("layer", "none")})

EXPERIMENT = Experiment(
    name="toy",
    question="Does the engine work?",
    options=ToyOptions,
    arms={
        **{name: {"method": name} for name in NORMS},
        "rescaled": {"rescaled": True},
        "broken": {"fault": "raises"},
        "deadly": {"fault": "dies"},
        "wide": {"method": "layer", "hidden": [9]},
    },
    profiles={
        "book": Profile(("none", "layer", "rescaled"), seeds=(0, 1), learning_rates=(0.01, 0.1)),
        "plain": Profile(
            ("none", "layer", "batch"),
            {"updates": 20, "evaluations": 2},
            of_arm={"batch": {"learning_rate": 0.05}},
            seeds=(0, 1, 2),
        ),
        "faulty": Profile(("none", "broken", "layer", "deadly"), seeds=(0,)),
    },
    task=Toy,
    data=lambda options: "0" * 64,
    primary="mean_test_nll",
    select="validation_nll",
    averaged=("validation_nll", "test_nll"),
    comparisons=COMPARISONS,
    rate_of={"rescaled": "none"},
    overfit={"examples": 8, "updates": 10},
)


class Here:
    """A pool that works in this process at once; `dies(config)`: the pool breaks with that run."""

    dies = staticmethod(lambda config: False)

    def __init__(self, workers, threads):
        self.broken = False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def submit(self, work, config):
        if self.broken:
            raise BrokenProcessPool
        future = Future()
        self.broken = self.dies(config)
        try:
            if self.broken:
                raise BrokenProcessPool
            future.set_result(work(config))
        except Exception as error:
            future.set_exception(error)
        return future


def stopped(at: int, config, **how) -> None:
    """Train until this update is told of; its readings before leave checkpoints."""

    def progress(step, metrics):
        if step == at:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        train(config, checkpoint_seconds=0, progress=progress, **how)
        raise AssertionError(f"the run ended before update {at}")


def register() -> None:
    """Make it known under its name to this process."""
    experiments.NAMES = tuple(dict.fromkeys((*experiments.NAMES, "toy")))
    sys.modules["layernorm.lab.experiments.toy.plan"] = sys.modules[__name__]


if multiprocessing.parent_process() is not None or "TOY_EXPERIMENT" in os.environ:
    register()


def by_name(outcome):
    """The records of a sweep by arm and seed."""
    return {f"{r.config['arm']} {r.config['seed']}": r for r in outcome.done.values()}


def reasons(outcome):
    """Why runs failed, by arm."""
    return {failure.config.arm: failure.reason for failure in outcome.failed.values()}
