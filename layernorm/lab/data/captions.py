"""Image features with five captions each, read from the files that others publish; strict readers.

Two layouts, by what is in the folder:

- order-embedding (Vendrov et al. 2016, github.com/ivendrov/order-embedding): `train.txt` and
  `images/10crop/train.npy`, so for `val` and `test`.
- f8k/f30k (Kiros et al. 2014, github.com/ryankiros/visual-semantic-embedding):
  `f8k_train_caps.txt` and `f8k_train_ims.npy`, so for `dev` and `test`; features of held-out images
  may be repeated five times, once for each caption.

Captions have one line each, words between spaces; lines 5i + 1 to 5i + 5 belong to image i, counted
from 0. Features are of shape (images, units). None of these data are part of this package.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

EACH = 5  # captions of an image
PAD, UNKNOWN = 0, 1
NAMES = {"validation": ("val", "dev"), "train": ("train",), "test": ("test",)}


class CaptionError(ValueError):
    """A file that is not as its layout says; the message begins with the file, and line."""


@dataclass(frozen=True)
class Captioned:
    """Features of images, and the captions 5i to 5i + 4 of each image i."""

    features: Float[Tensor, "n units"]
    captions: list[str]

    def __len__(self) -> int:
        return len(self.features)


def files(folder: str | Path, part: str) -> tuple[Path, Path]:
    """The files of features and captions of a part: `train`, `validation` or `test`.

    Raises `ValueError` for another part, `FileNotFoundError` where neither layout is there.
    """
    if part not in NAMES:
        raise ValueError(f"part must be one of {', '.join(NAMES)}, got {part!r}")
    folder = Path(folder)
    for name in NAMES[part]:
        places = [(folder / "images" / "10crop" / f"{name}.npy", folder / f"{name}.txt")]
        for kind in ("f8k", "f30k"):
            places.append((folder / f"{kind}_{name}_ims.npy", folder / f"{kind}_{name}_caps.txt"))
        for features, captions in places:
            if features.exists() and captions.exists():
                return features, captions
    name = NAMES[part][0]
    raise FileNotFoundError(
        f"{folder}: expected {name}.txt and images/10crop/{name}.npy, or f8k_{name}_caps.txt and "
        f"f8k_{name}_ims.npy, and found neither pair; put both files there"
    )


def read(folder: str | Path, part: str) -> Captioned:
    """The images and captions of a part.

    Raises `CaptionError`, with file and line, for captions that are no UTF-8 or empty, for features
    that are no whole .npy file of finite numbers (images, units), and where there are not five
    captions for each image; as `files` does.
    """
    at, said = files(folder, part)
    features, captions = _features(at), _lines(said)
    if len(features) == len(captions) and len(features) % EACH == 0:
        features = _once(at, features)
    if len(captions) != EACH * len(features):
        short = len(captions) < EACH * len(features)
        where = len(captions) + 1 if short else EACH * len(features) + 1
        raise CaptionError(
            f"{said}:{where}: expected {EACH} captions for each of the {len(features)} images in "
            f"{at.name}, {EACH * len(features)} lines, got {len(captions)}"
        )
    return Captioned(torch.from_numpy(features), captions)


def _features(path: Path) -> np.ndarray:
    try:
        found = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise CaptionError(f"{path}: expected a whole .npy file of numbers: {error}") from None
    if not isinstance(found, np.ndarray) or found.ndim != 2 or 0 in found.shape:
        shape = getattr(found, "shape", "an archive")
        raise CaptionError(f"{path}: expected features of shape (images, units), got {shape}")
    if found.dtype.kind not in "fiu":
        raise CaptionError(f"{path}: expected real numbers, got {found.dtype}")
    found = found.astype(np.float32)
    if not (fine := np.isfinite(found).all(1)).all():
        row = int(fine.argmin())
        raise CaptionError(f"{path}: expected finite numbers, image {row} (from 0) has others")
    return found


def _once(path: Path, features: np.ndarray) -> np.ndarray:
    """Features that are repeated for each caption, once."""
    groups = features.reshape(-1, EACH, features.shape[1])
    if not (same := (groups == groups[:, :1]).all((1, 2))).all():
        row = EACH * int(same.argmin())
        raise CaptionError(
            f"{path}: one row for each caption, so rows {row} to {row + EACH - 1} (from 0) must be "
            "the same image, and they differ"
        )
    return np.ascontiguousarray(groups[:, 0])


def _lines(path: Path) -> list[str]:
    captions = []
    for number, raw in enumerate(path.read_bytes().removesuffix(b"\n").split(b"\n"), 1):
        try:
            words = raw.decode("utf-8").split()
        except UnicodeDecodeError as error:
            raise CaptionError(
                f"{path}:{number}: expected UTF-8, got byte {raw[error.start]:#04x} in column "
                f"{error.start + 1}; convert the file"
            ) from None
        if not words:
            raise CaptionError(f"{path}:{number}: expected a caption, got an empty line")
        captions.append(" ".join(words))
    return captions


def sha256(folder: str | Path) -> str:
    """Identifies the content of all three parts."""
    digest = hashlib.sha256()
    for part in NAMES:
        for path in files(folder, part):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def vocabulary(captions: Iterable[str], at_least: int = 1) -> dict[str, int]:
    """The number of each word that occurs so often: from 2 on, the most frequent first.

    >>> vocabulary(["a three above a seven"])
    {'a': 2, 'above': 3, 'seven': 4, 'three': 5}
    """
    counts = Counter(word for caption in captions for word in caption.split())
    often = [word for word, count in counts.items() if count >= at_least]
    ranked = sorted(often, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ranked, 2)}


def encoded(
    captions: Sequence[str], words: dict[str, int]
) -> tuple[Int[Tensor, "n t"], Int[Tensor, " n"]]:
    """Captions as numbers of words, padded with 0 at the end, and how long they are; a word that is
    not in the vocabulary is 1.

    >>> encoded(["a one", "a new word"], {"a": 2, "one": 3})
    (tensor([[2, 3, 0],
            [2, 1, 1]]), tensor([2, 3]))
    """
    rows = [[words.get(word, UNKNOWN) for word in caption.split()] for caption in captions]
    lengths = torch.tensor([len(row) for row in rows])
    table = torch.full((len(rows), max(map(len, rows), default=0)), PAD)
    for row, at in zip(rows, table, strict=True):
        at[: len(row)] = torch.tensor(row)
    return table, lengths
