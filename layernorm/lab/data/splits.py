"""The training, validation and test examples of a data set, and the hash of their content."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor


@dataclass(frozen=True)
class Examples:
    """Images x with pixels in [0, 1] (float32), and the class y of each (int64)."""

    x: Float[Tensor, "n *pixels"]
    y: Int[Tensor, "n"]

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Splits:
    """A data set in its three fixed parts; `sha256` identifies pixels, labels and split."""

    name: str
    train: Examples
    validation: Examples
    test: Examples
    sha256: str


Stored = tuple[UInt8[Tensor, "n *pixels"], UInt8[Tensor, "n"]]


def scaled(name: str, parts: Mapping[str, Stored], maximum: int) -> Splits:
    """Pixels as stored (whole numbers 0..maximum) and labels, made into `Splits` with x in [0, 1].

    The hash covers each part's name and shape, and its pixels and labels as stored.
    """
    digest = hashlib.sha256()
    for part, (pixels, labels) in parts.items():
        digest.update(f"{part} {tuple(pixels.shape)}\n".encode())
        digest.update(pixels.contiguous().numpy())
        digest.update(labels.contiguous().numpy())
    examples = {
        part: Examples(pixels.to(torch.float32).div_(maximum), labels.long())
        for part, (pixels, labels) in parts.items()
    }
    return Splits(name, **examples, sha256=digest.hexdigest())
