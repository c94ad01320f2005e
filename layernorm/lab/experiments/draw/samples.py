"""Pictures that recorded runs generate: a record holds numbers, so two runs are trained again.

`python -m layernorm.lab.experiments.draw` does so, some minutes of one core, and writes the file
that `load` reads. Each run's bound at the end stands beside its pictures; on the processor of the
record it is the record's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8

from layernorm.lab import records
from layernorm.lab.experiments import npz
from layernorm.lab.experiments.checkpoint import seeded
from layernorm.lab.experiments.draw.plan import EXPERIMENT
from layernorm.lab.experiments.experiment import Config
from layernorm.lab.experiments.trainer import Trainer

FILE = Path(__file__).with_name("samples.npz")
ARMS = ("none", "layer")
PICTURES = 10
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Samples:
    """Pictures that a run of an arm generates: probabilities of pixels, times 255, by glimpse.

    `seed` and `learning_rate` name the run among the arm's; `bound`: on the test pictures at its
    end, in nats.
    """

    pictures: UInt8[np.ndarray, "t n size size"]
    seed: int
    learning_rate: float
    bound: float


def recorded(arm: str) -> records.Record:
    """The arm's recorded run that is shown: of its first seed, at its chosen rate.

    Raises:
        ValueError: no run of this arm is recorded.
    """
    runs = [run for run in records.runs("draw", "standard") if run.config["arm"] == arm]
    if not runs:
        raise ValueError(
            f"arm must have a recorded run, {arm!r} has none; make them with: "
            "layernorm sweep draw --profile standard"
        )
    return min(runs, key=lambda run: run.config["seed"])


def generate(config: Config) -> Samples:
    """Train a run and let it generate; all runs get the same z."""
    options = config.options
    with seeded(config.seed, CPU):
        trainer = Trainer(EXPERIMENT, config, CPU)
        for step in range(1, options.updates + 1):
            trainer.update(step)
            trainer.look()  # empties the list of losses
        bound = trainer.evaluate()["test_bound"]
    random = torch.Generator().manual_seed(0)
    noise = torch.randn(options.glimpses, PICTURES, options.latent, generator=random)
    with torch.no_grad():
        shades = trainer.model.eval()(noise).canvases.sigmoid()
    pictures = (255 * shades).round().to(torch.uint8).numpy()
    return Samples(pictures, config.seed, options.learning_rate, bound)


def save(samples: dict[str, Samples], file: Path = FILE) -> None:
    """Write the pictures of some arms."""
    about = {
        arm: {"seed": one.seed, "learning_rate": one.learning_rate, "bound": one.bound}
        for arm, one in samples.items()
    }
    npz.save(file, about, {arm: one.pictures for arm, one in samples.items()})


def load(file: Path = FILE) -> dict[str, Samples]:
    """The pictures of each arm; raises as `npz.load`."""

    def made(about: Any, arrays: dict[str, np.ndarray]) -> dict[str, Samples]:
        return {arm: Samples(arrays[arm], **rest) for arm, rest in about.items()}

    return npz.load(file, made, "pictures", "layernorm.lab.experiments.draw")
