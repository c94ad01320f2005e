"""A small attentive reader for the tests of its model and of its experiment."""

import torch

from layernorm.lab.data.cloze import Stories, World, draw
from layernorm.lab.experiments import get
from layernorm.lab.experiments.attentive_reader import model as task
from layernorm.lab.experiments.batches import generator
from layernorm.lab.experiments.checkpoint import seeded

CPU = torch.device("cpu")
EXPERIMENT = get("attentive_reader")
SMALL = {"hidden": 12, "embedding": 7, "batch_size": 16, "held_out": 40, "updates": 20}
WORLD = World()


def options(arm, **changes):
    return EXPERIMENT.config("book", arm, 0, **{**SMALL, **changes}).options


def stories(cases=10, seed=0) -> Stories:
    return draw(WORLD, cases, generator(seed))


def made(arm="none", **changes):
    with seeded(0, CPU):
        return task.AttentiveReader(options(arm, **changes), 0, CPU)
