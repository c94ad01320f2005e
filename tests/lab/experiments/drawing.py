"""Small models of DRAW, and pictures for them, which several test files use."""

import torch
from torch import nn

from layernorm.lab.experiments import get
from layernorm.lab.experiments.batches import generator
from layernorm.lab.experiments.checkpoint import seeded
from layernorm.lab.experiments.draw import model as task

CPU = torch.device("cpu")
EXPERIMENT = get("draw")
SIZES = {"hidden": 12, "glimpses": 3, "latent": 4, "read": 3, "write": 4, "batch_size": 16}
SMALL = {**SIZES, "held_out": 20, "updates": 4, "evaluations": 1, "samples": 4, "weighted": 10}
ARMS = ("none", "layer", "layer/full")


def options(arm="none", **changes):
    return EXPERIMENT.config("book", arm, 0, **{**SMALL, **changes}).options


def made(arm="none", **changes):
    with seeded(0, CPU):
        return task.Drawer(options(arm, **changes), 0, CPU)


def drawer(arm="none", size=7, **changes):
    """A model in float64 whose biases and gains are not where they start."""
    with seeded(0, CPU):
        model = task.Draw(options(arm, **changes), size).double()
        for name, parameter in model.named_parameters():
            if "bias" in name or "ln_" in name:
                nn.init.uniform_(parameter, 0.2, 0.9)
    return model


def normal(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


def pictures(n=5, size=7, seed=0):
    return (normal(n, size, size, seed=seed) > 0.5).double()
