"""Digits of black and white pixels: embedded ones, MNIST, and Larochelle's files.

DRAW models such pictures: a pixel is 0 or 1. `binarized("digits")` needs nothing, "mnist" the four
files of `layernorm.lab.data.mnist`, "amat" the three text files in which H. Larochelle published
one fixed binarization of MNIST, the paper's data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from layernorm.lab.data import idx
from layernorm.lab.data.digits import digits
from layernorm.lab.data.mnist import MNIST
from layernorm.lab.data.pinned import own_folder

NAMES = ("digits", "mnist", "amat")
SEED = 20160721  # of MNIST's binarization: the day of the paper
TRAINING = 50_000  # of the 60,000 pictures of MNIST's first file; the other 10,000 are validation
# The hashes of what the first two give, so that runs can be named without the data.
SHA256 = {
    "digits": "909f082c18c16b8532d872b8b00003b3c3449d59b628d7ffe52b9ab27fe52974",
    "mnist": "1ea72d57e634711e447a73f78fa36fe4276ecc85c75c90ec0ef572c450d66b0d",
}
AMAT = {"train": "train", "validation": "valid", "test": "test"}
FOLDER = "binarized_mnist"
LARGEST = 2**30  # bytes of a text file; the largest one of the paper's has 80 million


@dataclass(frozen=True)
class Binarized:
    """Pictures whose pixels are 0 or 1, in three fixed parts; `sha256` identifies all of them."""

    train: UInt8[Tensor, "n size size"]
    validation: UInt8[Tensor, "m size size"]
    test: UInt8[Tensor, "k size size"]
    sha256: str


@cache
def binarized(name: str) -> Binarized:
    """One of the three data sets, read once in a process.

    - "digits": 16x16 pixels, 1,197/300/300 pictures: those of `data.digits`, enlarged by linear
      interpolation; 1 from half of the largest value on.
    - "mnist": 28x28 pixels, 50,000/10,000/10,000 pictures; a pixel is 1 with the probability that
      is its gray value, drawn once and for all (NumPy's `RandomState(SEED)`, whose numbers never
      change). Larochelle's was drawn likewise, with other numbers.
    - "amat": the paper's data, from `binarized_mnist_train.amat`, `…_valid.amat` and `…_test.amat`
      in `$LAYERNORM_DATA/binarized_mnist`.

    Raises:
        ValueError: another name, data that are not the pinned ones, or a file that is no .amat.
        FileNotFoundError: a text file is not there; says where to put it.
        OSError: MNIST's files are not here and no mirror gave them.
    """
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, got {name!r}")
    found = _joined({"digits": _digits, "mnist": _mnist, "amat": _amat}[name]())
    if (expected := SHA256.get(name)) and found.sha256 != expected:
        raise ValueError(
            f"binarized {name}: expected content with sha256 {expected}, got {found.sha256}; "
            "results on other data cannot be compared: reinstall scikit-learn and NumPy"
        )
    return found


def content(name: str) -> str:
    """The hash that identifies a data set; only "amat" has to be read for it."""
    return SHA256.get(name) or binarized(name).sha256


Parts = Mapping[str, UInt8[Tensor, "n size size"]]


def _joined(parts: Parts) -> Binarized:
    digest = hashlib.sha256()
    for part, pixels in parts.items():
        digest.update(f"{part} {tuple(pixels.shape)}\n".encode())
        digest.update(pixels.contiguous().numpy())
    return Binarized(**parts, sha256=digest.hexdigest())


def _digits() -> Parts:
    there = digits()
    parts = {"train": there.train, "validation": there.validation, "test": there.test}
    return {part: enlarged(examples.x) for part, examples in parts.items()}


def enlarged(gray: Float[Tensor, "n height width"]) -> UInt8[Tensor, "n tall wide"]:
    """Twice as many rows and columns, 1 where the interpolated value is at least 0.5.

    The values of `data.digits` are sixteenths and the weights quarters, so nothing is rounded.
    """
    large = torch.nn.functional.interpolate(gray[:, None], scale_factor=2, mode="bilinear")
    return (large[:, 0] >= 0.5).to(torch.uint8)


def _mnist() -> Parts:
    training, _, test, _ = (idx.read(found.path, 1 + 2 * (n % 2 == 0))
                            for n, found in enumerate(MNIST.fetch()))  # fmt: skip
    drawn = sampled(torch.cat([training, test]), SEED)
    ends = TRAINING, len(training)
    return {
        "train": drawn[: ends[0]],
        "validation": drawn[ends[0] : ends[1]],
        "test": drawn[ends[1] :],
    }


def sampled(gray: UInt8[Tensor, "n height width"], seed: int) -> UInt8[Tensor, "n height width"]:
    """Pixels that are 1 with probability gray/255, independently.

    >>> sampled(torch.tensor([[[0, 255]]], dtype=torch.uint8), seed=0)
    tensor([[[0, 1]]], dtype=torch.uint8)
    """
    random = np.random.RandomState(seed).randint(0, 255, tuple(gray.shape), dtype=np.uint8)
    return (torch.from_numpy(random) < gray).to(torch.uint8)


def _amat() -> Parts:
    own = own_folder(FOLDER)
    parts = {}
    for part, end in AMAT.items():
        file = (own or Path("$LAYERNORM_DATA", FOLDER)) / f"{FOLDER}_{end}.amat"
        if own is None or not file.exists():
            raise FileNotFoundError(
                f"{file} is not there: put Larochelle's three files "
                f"{FOLDER}_{{train,valid,test}}.amat into one folder $LAYERNORM_DATA/{FOLDER}, or "
                'take the data set "mnist", which is binarized in the same way'
            )
        parts[part] = read_amat(file)
    return parts


def read_amat(path: Path, size: int = 28) -> UInt8[Tensor, "n size size"]:
    """The pictures of an .amat file: a line each, its pixels 0 or 1 row by row, blanks between.

    Raises `ValueError`, naming the file and the line, for a line with another number of pixels, for
    another value, and for an empty or too large file.
    """
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path}: expected at most {LARGEST} bytes, got {path.stat().st_size}")
    pictures = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            values = line.split()
            if not values:
                continue
            if len(values) != size * size:
                raise ValueError(
                    f"{path}, line {number}: expected {size} x {size} pixels, got {len(values)}"
                )
            if other := {*values} - {b"0", b"1"}:
                raise ValueError(
                    f"{path}, line {number}: expected pixels 0 or 1, got {min(other)[:20]!r}; "
                    "binarize the pictures first"
                )
            pictures.append(np.frombuffer(b"".join(values), np.uint8) - ord("0"))
    if not pictures:
        raise ValueError(f"{path}: expected a picture a line, got an empty file")
    return torch.from_numpy(np.stack(pictures)).unflatten(1, (size, size))
