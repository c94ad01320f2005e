"""Small runs of order-embeddings, for its tests."""

import torch

from layernorm.lab.experiments import get
from layernorm.lab.experiments.checkpoint import seeded
from layernorm.lab.experiments.order_embeddings import model

CPU = torch.device("cpu")
EXPERIMENT = get("order_embeddings")
SMALL = {"hidden": 12, "embedding": 7, "units": 6, "scenes": 40, "held_out": 12, "batch_size": 8}
SMALL |= {"updates": 4, "evaluations": 2}


def made(arm="none", seed=0, **changes):
    options = EXPERIMENT.config("book", arm, 0, **{**SMALL, **changes}).options
    with seeded(0, CPU):
        return model.OrderEmbeddings(options, seed, CPU)
