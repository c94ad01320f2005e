"""What one update is, and what a run's readings come to: the code that decides a result."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch
from torch import nn

from layernorm.lab.experiments import checkpoint
from layernorm.lab.experiments.experiment import Config, Experiment

CHECK_EVERY = 64  # updates after which losses are looked at: on a GPU each look waits for it


class Trainer:
    """A run's model, optimizer and losses: what one update is."""

    def __init__(self, experiment: Experiment, config: Config, device: torch.device) -> None:
        options = config.options
        self.device = device
        self.task = experiment.task(options, config.seed, device)
        self.model = self.task.model.train()
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, lr=options.learning_rate, fused=True)
        self.clip = options.clip
        self.autocast = contextlib.nullcontext
        if options.precision == "bfloat16":
            self.autocast = lambda: torch.autocast(device.type, torch.bfloat16)
        self.losses = torch.zeros(CHECK_EVERY, device=device)  # of the last updates
        self.kept = 0

    def update(self, step: int) -> None:
        """One step of Adam on the batch of this update."""
        with self.autocast():
            loss = self.task.loss(step)
        self.optimizer.zero_grad()
        loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()
        self.losses[self.kept] = loss.detach()
        self.kept += 1

    def look(self) -> list[float]:
        """The losses since the last look."""
        seen, self.kept = self.losses[: self.kept].tolist(), 0
        return seen

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        self.model.eval()
        with self.autocast():
            metrics = self.task.evaluate()
        self.model.train()
        return metrics

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generators": checkpoint.generators(self.device),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        checkpoint.restore_generators(state["generators"], self.device)


class Progressed:
    """How far a run has come: the update, the curves so far, the losses since the last reading."""

    def __init__(self) -> None:
        self.step, self.seconds = 0, 0.0
        self.steps: list[int] = []
        self.rows: list[dict[str, float]] = []
        self.losses: list[float] = []

    def read(self, metrics: dict[str, float]) -> None:
        """A metric that is not a number is infinite: as bad as can be, and it can be compared."""
        row = {name: math.inf if math.isnan(value) else value for name, value in metrics.items()}
        mean = math.fsum(self.losses) / len(self.losses) if self.losses else math.nan
        self.steps.append(self.step)
        self.rows.append({**row, "batch_loss": mean})
        self.losses = []


def summary(
    experiment: Experiment, done: Progressed, diverged_at: int | None, final: dict[str, float]
) -> dict[str, Any]:
    """A record's `result`, as `loop.train` documents it."""
    names = list(done.rows[0])
    curves = {
        name: {"step": done.steps, "value": [row[name] for row in done.rows]}
        for name in names
        if name != "batch_loss"
    }
    curves["batch_loss"] = {
        "step": done.steps[1:],
        "value": [row["batch_loss"] for row in done.rows[1:]],
    }
    if diverged_at is None:
        last, later = done.rows[-1], done.rows[1:]
    else:
        last, later = dict.fromkeys(names, math.inf), [dict.fromkeys(names, math.inf)]
    best = min(later, key=lambda row: row[experiment.select])
    means = {f"mean_{name}": _mean([row[name] for row in later]) for name in experiment.averaged}
    tests = {f"best_{name}": best[name] for name in names if name.startswith("test_")}
    final = {**last, **means, **tests, **final}
    return {"curves": curves, "final": final, "diverged_at": diverged_at}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
