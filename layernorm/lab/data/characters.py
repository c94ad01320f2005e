"""Text for models that read one character after another: a manual's sentences, and novels.

- `manual()`: sentences of the language reference that every Python carries (`pydoc_data.topics`).
  Its editions differ, so only sentences that Python 3.10 to 3.13 all have are taken, in one order:
  `manual_sentences.txt` holds their checksums, no text. An edition that lacks one gives another
  hash, by which a record says so.
- `novels()`: eight novels of Project Gutenberg in the layout of NLTK's data (`NLTK_DATA`).

A character is one of `ALPHABET`; others are left out. `split` deals blocks of a text to training,
validation and test, so that all three have something of every author.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from layernorm.lab.data.sentences import NOVELS, nltk_lines

ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
PARTS = ("validation", "test")  # each has one block of ten, the training text the other eight
SENTENCE = re.compile(r"[A-Z][A-Za-z ,;'()-]{30,}[.]")
CHECKSUMS = Path(__file__).with_name("manual_sentences.txt")
_NUMBER = {letter: number for number, letter in enumerate(ALPHABET)}


def encode(text: str) -> Int[Tensor, " n"]:
    """The characters' numbers in `ALPHABET`, without those that it lacks.

    >>> encode("A\\nb€")
    tensor([34,  0, 67])
    """
    numbers = [_NUMBER[letter] for letter in text if letter in _NUMBER]
    return torch.tensor(numbers, dtype=torch.int64)


def decode(numbers: Int[Tensor, " n"]) -> str:
    """The text of these numbers.

    >>> decode(encode("A b"))
    'A b'
    """
    return "".join(ALPHABET[number] for number in numbers.tolist())


def sentences(topics: dict[str, str]) -> dict[int, str]:
    """The plain sentences of a manual by their checksums: no code, no figures, each once."""
    found: dict[int, str] = {}
    for name in sorted(topics):
        for part in re.split(r"(?<=[.:!?])\s", " ".join(topics[name].split())):
            sentence = re.sub(r'[*`"]', "", part)
            if SENTENCE.fullmatch(sentence):
                found.setdefault(zlib.crc32(sentence.encode()), sentence)
    return found


@cache
def manual() -> str:
    """The sentences of the manual that all editions have, one a line.

    Raises `ModuleNotFoundError` for a Python without `pydoc_data`.
    """
    try:
        from pydoc_data.topics import topics
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the text of this profile is Python's own reference, pydoc_data.topics, which this "
            "installation leaves out; use a complete Python, for instance from python.org"
        ) from error
    there = sentences(topics)
    wanted = (int(line, 16) for line in CHECKSUMS.read_text().split())
    return "\n".join(there[number] for number in wanted if number in there)


@cache
def novels() -> str:
    """All `NOVELS` in one piece, runs of spaces and blank lines made one.

    Raises `FileNotFoundError` where NLTK's data are not found, with what to do.
    """
    found = (nltk_lines("gutenberg", f"{name}.txt", "latin-1")[1] for name in NOVELS)
    text = "\n".join("\n".join(lines) for lines in found)
    return re.sub(r"\s*\n\s*\n\s*", "\n", re.sub(r"[ \t]+", " ", text))


TEXTS = {"manual": manual, "novels": novels}


@cache
def split(name: str) -> dict[str, Int[Tensor, " n"]]:
    """The numbers of a text's training, validation and test characters.

    The text is cut into blocks of 10,000 characters, a short one into forty; of each ten, the fifth
    is for validation, the tenth for test. The training blocks stand in an order drawn once, so that
    the first characters of the training text, however few, come from all over it.
    """
    text = encode(TEXTS[name]())
    blocks = text.split(min(10_000, len(text) // 40))
    parts: dict[str, list[Tensor]] = {"train": [], "validation": [], "test": []}
    for number, piece in enumerate(blocks):
        parts[{4: "validation", 9: "test"}.get(number % 10, "train")].append(piece)
    order = torch.randperm(len(parts["train"]), generator=torch.Generator().manual_seed(0))
    parts["train"] = [parts["train"][i] for i in order.tolist()]
    return {part: torch.cat(pieces) for part, pieces in parts.items()}


@cache
def sha256(name: str) -> str:
    """Identifies a text, as this Python or these novels have it."""
    return hashlib.sha256(decode(encode(TEXTS[name]())).encode()).hexdigest()


def unigram(train: Int[Tensor, " n"], text: Int[Tensor, " m"]) -> float:
    """The cross-entropy in nats of a model that knows how frequent each character is.

    Every character counts once more than it occurs.
    """
    counts = torch.bincount(train, minlength=len(ALPHABET)).double() + 1
    return float(-(counts / counts.sum()).log()[text].mean())


def bigram(train: Int[Tensor, " n"], text: Int[Tensor, " m"]) -> float:
    """The cross-entropy in nats of a model that knows the last character only, as `unigram`."""
    size = len(ALPHABET)
    pairs = torch.bincount(train[:-1] * size + train[1:], minlength=size**2).double() + 1
    table = pairs.view(size, size)
    given = (table / table.sum(1, keepdim=True)).log()
    return float(-given[text[:-1], text[1:]].mean())
