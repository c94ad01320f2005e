"""Pictures that recorded runs generate: a record holds numbers, so two runs are trained again.

`python -m layernorm.lab.experiments.draw` does so, some minutes of one core, and writes the file
that `load` reads. Each run's bound at the end stands beside its pictures; on the processor of the
record it is the record's.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from jaxtyping import UInt8

from layernorm.lab import records
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
    """Write the pictures of some arms, under a temporary name first."""
    about = {
        arm: {"seed": one.seed, "learning_rate": one.learning_rate, "bound": one.bound}
        for arm, one in samples.items()
    }
    held = {arm: one.pictures for arm, one in samples.items()}
    writing = file.with_suffix(".writing.npz")
    np.savez_compressed(writing, about=np.array(json.dumps(about)), **held)
    writing.replace(file)


def load(file: Path = FILE) -> dict[str, Samples]:
    """The pictures of each arm.

    Raises:
        ValueError: the file is not one that `save` wrote.
        FileNotFoundError: it is not there; says how to make it.
    """
    if not file.exists():
        raise FileNotFoundError(
            f"{file}: no pictures are there; make them with: "
            "python -m layernorm.lab.experiments.draw"
        )
    try:
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as held:
            about = json.loads(str(held["about"]))
            return {arm: Samples(held[arm], **rest) for arm, rest in about.items()}
    except (BadZipFile, ValueError, LookupError, TypeError, AttributeError, EOFError) as error:
        raise ValueError(f"{file}: no pictures that `save` wrote: {error}") from None
