"""A network on the digits whose weights take the steps of an optimizer of the study's choice.

The engine's loop steps with Adam. Here the task makes the update itself, when it is asked for the
loss of a batch in training mode, and gives the engine a loss without parameters, so that its Adam
finds no gradients and leaves everything alone. The optimizer's state is part of the model's, so
that a checkpoint holds it.
"""

from __future__ import annotations

import io
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layernorm.lab.analysis.weights import hidden, turned
from layernorm.lab.experiments.batches import generator
from layernorm.lab.experiments.options import Positive
from layernorm.lab.experiments.studies.digits import Digits, DigitsOptions

CLASSES = 10
OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, float]]] = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
}


class OwnStepsOptions(DigitsOptions):
    """`optimizer` steps with `learning_rate`, hidden weight matrices with `hidden_rate` times it,
    and `decay`, its weight decay. `frozen`: only the hidden matrices learn. `noise`: every batch
    has labels drawn afresh, so that there is nothing to learn."""

    optimizer: Literal["sgd", "momentum", "adam", "adamw"] = "sgd"
    hidden_rate: Positive = 1.0
    decay: float = 0.0
    frozen: bool = False
    noise: bool = False


class Stepping(nn.Module):
    """A network together with its optimizer and the norms and angles of its steps so far."""

    def __init__(self, net: nn.Sequential, options: OwnStepsOptions) -> None:
        super().__init__()
        self.net = net
        matrices = hidden(net)
        others = [p for p in net.parameters() if all(p is not w for w in matrices)]
        for p in others:
            p.requires_grad_(not options.frozen)
        kind, usual = OPTIMIZERS[options.optimizer]
        rate = options.learning_rate
        groups = [{"params": matrices, "lr": rate * options.hidden_rate}]
        groups += [] if options.frozen else [{"params": others, "lr": rate}]
        self.optimizer = kind(groups, lr=rate, weight_decay=options.decay, **usual)
        self.register_buffer("angles", torch.zeros(options.updates))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def step(self, loss: Tensor, number: int) -> None:
        """Take the step of an update, counted from 1, and keep by how much it turned the first
        hidden matrix, in degrees."""
        w = hidden(self.net)[0]
        before = w.detach().double().clone()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.angles[number - 1] = turned(before, w.detach().double())

    def get_extra_state(self) -> Tensor:
        """Return the optimizer's state as bytes, which a checkpoint takes for a tensor."""
        file = io.BytesIO()
        torch.save(self.optimizer.state_dict(), file)
        return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        file = io.BytesIO(state.cpu().numpy().tobytes())
        self.optimizer.load_state_dict(torch.load(file, weights_only=True))


class OwnSteps(Digits):
    """The task: name the digit, or random labels."""

    model: Stepping

    def __init__(self, options: OwnStepsOptions, seed: int, device: torch.device) -> None:
        super().__init__(options, seed, device)
        self.model = Stepping(self.model, options).to(device)
        self.noise, self.seed = options.noise, seed

    def loss(self, step: int) -> Tensor:
        x, y = self.parts["train"]
        chosen = self.batches(step).to(y.device)
        labels = y[chosen]
        if self.noise:
            draws = generator(self.seed, step)
            labels = torch.randint(CLASSES, (len(chosen),), generator=draws).to(y.device)
        loss = cross_entropy(self.model(x[chosen]), labels)
        if self.model.training:
            self.model.step(loss, step)
        return loss.detach().requires_grad_()

    def evaluate(self) -> dict[str, float]:
        return super().evaluate() | {"norm": float(hidden(self.model.net)[0].norm())}

    def final(self) -> dict[str, float]:
        """The mean angles of an eighth of the updates, after a quarter of them and at the end."""
        angles = self.model.angles.double()
        n = len(angles)
        share = max(1, n // 8)
        early, late = angles[n // 4 :][:share], angles[-share:]
        return {"early_angle": float(early.mean()), "late_angle": float(late.mean())}


STEPPING: dict[str, Any] = {"options": OwnStepsOptions, "task": OwnSteps}
