"""The updates of a run, as most experiments make them; `graphed` captures them on GPUs."""

from __future__ import annotations

import contextlib
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
        self.optimizer = torch.optim.Adam(
            self.parameters, lr=options.learning_rate, fused=options.fused
        )
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
