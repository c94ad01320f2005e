"""Write any text with a trained network, and make the weights that come with the package.

    written = write("any text", bias=1.0, seed=0)
    written.strokes()                              # one array of places a stroke

`python -m layernorm.lab.experiments.handwriting` trains the profile `pen` again, some ten
minutes of one core, and writes the weights to the file in which `write` looks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from layernorm.lab.data import handwriting
from layernorm.lab.experiments import npz
from layernorm.lab.experiments.checkpoint import seeded
from layernorm.lab.experiments.handwriting.mixture import sample
from layernorm.lab.experiments.handwriting.model import Handwriting, Writer, build

WEIGHTS = Path(__file__).with_name("weights.npz")
PER_LETTER = 60  # points after which writing stops, if the window has not passed the text


@dataclass(frozen=True)
class Written:
    """A text as it was written.

    `points` (t, 3): offsets in units of the tablet, and 1 where the pen is lifted; `outputs`
    (t, 1 + 6M): what the network said before each point; `window` (t, u): its weights over the
    characters.
    """

    text: str
    points: Float[Tensor, "t 3"]
    outputs: Float[Tensor, "t outputs"]
    window: Float[Tensor, "t u"]

    def strokes(self) -> list[Float[np.ndarray, "k 2"]]:
        """The places of the pen, one array a stroke."""
        return handwriting.strokes(self.points)


def write(text: str, bias: float = 1.0, seed: int = 0, model: Pen | None = None) -> Written:
    """Write a text, point by point, each drawn from the density that the network gives.

    A space follows the text, as it follows words in training. Writing ends where a stroke would
    begin on it, that is, where the pen is lifted and the window's largest weight has come there.

    Args:
        text: characters that the network has learned.
        bias: how much narrower than they are the densities are taken; 0: not at all.
        seed: the same one writes the same points.
        model: a trained network; None: the weights that come with the package.

    Raises:
        ValueError: an empty text, unknown characters (named), or a bias below 0.
        FileNotFoundError: the weights are not there; says how to make them.

    Source: Graves 2013, Generating sequences with recurrent neural networks, sections 5.3 and 5.4.
    """
    pen = model or load()
    if not text.strip():
        raise ValueError(f"text must have a character that is written, got {text!r}")
    if bias < 0:
        raise ValueError(f"bias must be at least 0, which is none, got {bias}")
    places = torch.tensor([handwriting.numbers(text + " ", pen.letters)])
    with torch.no_grad():
        points, outputs, window = _drawn(pen.network, places, bias, seed)
    moved = points[:, :2] * pen.scale[1] + pen.scale[0]
    return Written(text, torch.cat([moved, points[:, 2:]], 1), outputs, window[:, :-1])


def _drawn(network: Writer, text: Tensor, bias: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Points, outputs and window weights, of a text that ends with a space."""
    random = torch.Generator().manual_seed(seed)
    characters, last = network.one_hot[text], text.shape[1] - 1
    at, x = network.start(1), torch.tensor([[[0.0, 0.0, 1.0]]])
    found, place = [], 0
    for _ in range(PER_LETTER * last):
        read, at = network.steps(x, characters, at)
        place = max(place, int(read.phi[0, 0].argmax()))  # far past the text all weights are 0
        if place == last and x[0, 0, 2] == 1 and found:
            break
        x = sample(read.y[0], bias, random)[None]
        found.append((x[0, 0], read.y[0, 0], read.phi[0, 0]))
    return tuple(map(torch.stack, zip(*found, strict=True)))


@dataclass(frozen=True)
class Pen:
    """A trained network, the mean and standard deviation of its offsets, and its characters."""

    network: Writer
    scale: Float[Tensor, "2 2"]
    letters: str


def trained(
    seed: int = 0, progress: Callable[[int, Pen], None] | None = None, **options: Any
) -> Pen:
    """Train the arm `layer` of the profile `pen`; `progress` is called now and then."""
    from layernorm.lab.experiments.handwriting.plan import EXPERIMENT
    from layernorm.lab.experiments.trainer import Trainer

    config = EXPERIMENT.config("pen", "layer", seed, **options)
    with seeded(seed, torch.device("cpu")):
        trainer = Trainer(EXPERIMENT, config, torch.device("cpu"))
        task: Handwriting = trainer.task
        pen = Pen(task.model, task.lines.scale, handwriting.LETTERS)
        for step in range(1, config.options.updates + 1):
            trainer.update(step)
            if trainer.kept == len(trainer.losses) or step == config.options.updates:
                trainer.look()
                if progress is not None:
                    progress(step, pen)
    return pen


def save(pen: Pen, options: Any, file: Path = WEIGHTS) -> None:
    """Write a network's weights, in half precision, with what `load` needs to make it again."""
    sizes = {name: getattr(options, name) for name in SIZES}
    weights = {name: w.numpy().astype(np.float16) for name, w in pen.network.state_dict().items()}
    about = {"sizes": sizes, "letters": pen.letters}
    npz.save(file, about, {"scale": pen.scale.numpy(), **weights})


SIZES = ("method", "hidden", "components", "windows", "advance")


@cache
def load(file: Path = WEIGHTS) -> Pen:
    """The network of a file that `save` wrote; raises as `npz.load`."""

    def made(about: Any, arrays: dict[str, np.ndarray]) -> Pen:
        scale = torch.from_numpy(arrays.pop("scale"))
        network = build(_Sizes(**about["sizes"]))
        weights = {name: torch.from_numpy(w.astype(np.float32)) for name, w in arrays.items()}
        network.load_state_dict(weights)
        return Pen(network.eval(), scale, about["letters"])

    return npz.load(file, made, "weights", "layernorm.lab.experiments.handwriting")


@dataclass(frozen=True)
class _Sizes:
    method: str
    hidden: int
    components: int
    windows: int
    advance: float
