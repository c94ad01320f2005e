"""The task of a run of `convnet`: images, a network, and the metrics of it."""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from layernorm.lab import data
from layernorm.lab.data.splits import Examples, Splits
from layernorm.lab.experiments.batches import Shuffled
from layernorm.lab.experiments.convnet.border import profile
from layernorm.lab.experiments.convnet.model import build, rescale_

LOADERS = {"digits": data.digits, "mnist": data.mnist, "cifar10": data.cifar10}
CHUNK = 500  # cases evaluated at once
SCALED_ON = 256  # training examples over which the control's summed inputs get unit variance


@cache
def splits(name: str) -> Splits:
    return LOADERS[name]()


def images(examples: Examples, crop: int) -> Float[Tensor, "n c h w"]:
    """The images with a dimension for their channels, `crop` positions cut off on each side.

    Raises `ValueError` if nothing would be left.
    """
    x = examples.x if examples.x.dim() == 4 else examples.x.unsqueeze(1)
    height, width = x.shape[2:]
    if 2 * crop >= min(height, width):
        raise ValueError(f"crop must be below half of {height}x{width} pixels, got {crop}")
    return x[:, :, crop : height - crop, crop : width - crop]


class Part:
    """Some examples on the device: all of them, or a number of them spread over the whole part."""

    def __init__(self, x: Tensor, y: Tensor, device: torch.device, cases: int | None = None):
        if cases is not None:
            every = max(1, len(y) // cases)
            x, y = x[::every][:cases], y[::every][:cases]
        self.x, self.y = x.to(device), y.to(device)

    def measured(self, model: torch.nn.Module) -> tuple[float, float]:
        """The mean cross-entropy in nats, and the error in percent."""
        nll = error = 0.0
        for x, y in zip(self.x.split(CHUNK), self.y.split(CHUNK), strict=True):
            logits = model(x)
            nll += float(cross_entropy(logits.double(), y, reduction="sum"))
            error += float((logits.argmax(1) != y).sum())
        return nll / len(self.y), 100 * error / len(self.y)


class ConvNet:
    """The task: classify images."""

    def __init__(self, options, seed: int, device: torch.device) -> None:
        found = splits(options.data)
        raw = {name: getattr(found, name) for name in ("train", "validation", "test")}
        parts = {name: (images(part, options.crop), part.y) for name, part in raw.items()}
        if options.examples is not None:
            x, y = parts["train"]
            parts["train"] = x[: options.examples], y[: options.examples]
        self.train = Part(*parts["train"], device)
        self.watched = {name: Part(*part, device, options.watched) for name, part in parts.items()}
        self.batches = Shuffled(len(self.train.y), options.batch_size, seed)
        model = build(options, inputs=self.train.x.shape[1])
        if options.rescaled:
            rescale_(model, parts["train"][0][:SCALED_ON])
        self.model = model.to(device)

    def batch(self, step: int) -> tuple[Float[Tensor, "n c h w"], Int[Tensor, " n"]]:
        at = self.batches(step).to(self.train.y.device)
        return self.train.x[at], self.train.y[at]

    def loss(self, step: int) -> Tensor:
        x, y = self.batch(step)
        return cross_entropy(self.model(x), y)

    def evaluate(self) -> dict[str, float]:
        """`…_nll` in nats and `…_error` in percent, each on the watched examples of a part."""
        found = {}
        for name, part in self.watched.items():
            found[f"{name}_nll"], found[f"{name}_error"] = part.measured(self.model)
        return found

    @torch.no_grad()
    def final(self) -> dict[str, float]:
        """`border.profile` over the watched validation examples."""
        return profile(self.model.eval(), self.watched["validation"].x)
