"""The images and captions that order-embeddings are trained and tested on.

Features of a scene are what a fixed map makes of its pixels, as those of the paper are what a fixed
network makes of photographs. Each image of a digit, its pixels less their mean over the training
images, gives the units max(0, P x), with a matrix P of normal numbers that is drawn once and never
trained; an empty place gives zeros; the units of the four places, one after another, scaled to
length 1, are the scene's features. Untrained units are cheap, and know nothing about digits that
the map W would not have to find; a network trained apart would know the classes, with bits that
depend on the machine that trained it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from random import Random

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from layernorm.lab.data import DATASETS, captions, pinned, scenes
from layernorm.lab.experiments.batches import generator

SCENES, REAL = ("digits", "mnist"), ("coco", "f8k", "f30k")
COMPARED = 500  # captions of a fold that are compared with more general ones


@dataclass(frozen=True)
class Part:
    """Images by the numbers of what is at their places, and captions, five an image, as `encoded`.

    `units` are shared by all parts of one kind; its last row, of zeros, is that of an empty place.
    """

    units: Float[Tensor, "any u"]
    places: Int[Tensor, "n p"]
    words: Int[Tensor, "m t"]
    lengths: Int[Tensor, " m"]

    def __len__(self) -> int:
        return len(self.places)

    def to(self, device: torch.device) -> Part:
        return Part(*(tensor.to(device) for tensor in vars(self).values()))

    def first(self, images: int) -> Part:
        each = images * captions.EACH
        return replace(
            self, places=self.places[:images], words=self.words[:each], lengths=self.lengths[:each]
        )

    def features(self, images: Tensor | slice = slice(None)) -> Float[Tensor, "k f"]:
        return normalize(self.units[self.places[images]].flatten(1), dim=1)

    def told(self, rows: Tensor) -> tuple[Int[Tensor, "k t"], Int[Tensor, " k"]]:
        """These captions, padded to the longest among them, and how long they are."""
        lengths = self.lengths[rows]
        return self.words[rows, : int(lengths.max())], lengths


@dataclass(frozen=True)
class Data:
    """`folds`: of test images. `pairs`: captions of the first fold, each after a more general one,
    that says only its first fact and says it anew; None for real data."""

    train: Part
    validation: Part
    folds: tuple[Part, ...]
    vocabulary: dict[str, int]
    pairs: Part | None = None
    scenes: dict[str, scenes.Scenes] | None = None


@cache
def made(dataset: str, count: int, held_out: int, folds: int, units: int) -> Data:
    """The data of a run: `count` training images, `held_out` of validation, folds of as many."""
    if dataset in REAL:
        return _read(dataset, count, held_out, folds)
    splits = DATASETS[dataset].load()
    mean = splits.train.x.mean(0)
    pixels = mean.numel()
    matrix = torch.randn(pixels, units, generator=generator(0, pixels, units)) / pixels**0.5
    wanted = [("train", count), ("validation", held_out), *[("test", held_out)] * folds]
    told, tables = [], {}
    for number, (part, size) in enumerate(wanted):
        images = getattr(splits, part)
        told.append(scenes.draw(images.y, size, part, seed=number))
        if part not in tables:
            seen = ((images.x - mean).flatten(1) @ matrix).relu()
            tables[part] = torch.cat([seen, torch.zeros(1, units)])
    words = captions.vocabulary(caption.text for caption in told[0].captions)
    parts = [
        _encoded(tables[part], drawn.images, [c.text for c in drawn.captions], words)
        for (part, _), drawn in zip(wanted, told, strict=True)
    ]
    train, validation, *tests = parts
    kept = {"train": told[0], "validation": told[1], "test": told[2]}
    pairs = _encoded(tables["test"], told[2].images[:0], general(told[2]), words)
    return Data(train, validation, tuple(tests), words, pairs, kept)


def general(drawn: scenes.Scenes) -> list[str]:
    """Captions of more than one fact, each after one that says its first fact alone."""
    several = [caption for caption in drawn.captions if len(caption.facts) > 1][:COMPARED]
    random = Random(0)
    return [text for c in several for text in (scenes.worded(c.facts[:1], random), c.text)]


def _encoded(units: Tensor, places: Tensor, texts: list[str], words: dict[str, int]) -> Part:
    return Part(units, places, *captions.encoded(texts, words))


def _read(dataset: str, count: int, held_out: int, folds: int) -> Data:
    """Real features and captions, from `$LAYERNORM_DATA/<dataset>`."""
    folder = folder_of(dataset)
    found = {part: captions.read(folder, part) for part in captions.NAMES}
    words = captions.vocabulary(found["train"].captions)
    least = {"train": count, "validation": held_out, "test": folds * held_out}
    for part, images in least.items():
        if len(found[part]) < images:
            raise ValueError(
                f"{folder}: {images} {part} images are wanted and there are {len(found[part])}; "
                "choose fewer scenes, held_out or folds"
            )

    def some(part: str, first: int, size: int) -> Part:
        one, each = found[part], captions.EACH
        texts = one.captions[first * each : (first + size) * each]
        return _encoded(one.features, torch.arange(first, first + size)[:, None], texts, words)

    return Data(
        some("train", 0, count),
        some("validation", 0, held_out),
        tuple(some("test", fold * held_out, held_out) for fold in range(folds)),
        words,
    )


def folder_of(dataset: str):
    if (folder := pinned.own_folder(dataset)) is None:
        raise ValueError(
            f"dataset {dataset!r} is read from $LAYERNORM_DATA/{dataset}, and LAYERNORM_DATA is "
            "not set; set it to the folder with the data sets"
        )
    return folder


def content(dataset: str) -> str | None:
    """The hash of the images; scenes and captions are drawn from them by code that a record knows.

    Real captions and features are read for it."""
    return captions.sha256(folder_of(dataset)) if dataset in REAL else DATASETS[dataset].content
