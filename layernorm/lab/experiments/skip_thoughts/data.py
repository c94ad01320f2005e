"""The text that a run learns from, cut into parts and numbered, and the tasks that judge it.

A triple is a sentence with the one before it and the one after it. Every tenth document belongs to
validation and another tenth to test, whole, so that no sentence of theirs is a neighbour of one
that is trained on. Words are numbered by their frequency in the training documents.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from layernorm.lab.data import sentence_tasks, sentences
from layernorm.lab.data.sentence_tasks import Classes, Pairs
from layernorm.lab.data.sentences import Document, Sentence
from layernorm.lab.experiments.batches import generator

END, UNKNOWN, FIRST = range(3)  # the end of a sentence, any other word, the first that is known
VALIDATION, TEST = 3, 8  # the documents whose number ends in this digit
NEAR = (5.0, 3.0, 1.0)  # scores of pairs that follow each other, of one document, of two


@dataclass(frozen=True)
class Vocabulary:
    """The words that have numbers, the most frequent first; 0 ends a sentence, 1 is unknown."""

    words: tuple[str, ...]
    numbers: dict[str, int] = field(repr=False)

    @classmethod
    def of(cls, said: Sequence[Sentence], size: int) -> Vocabulary:
        counts = Counter(word for sentence in said for word in sentence)
        ranked = sorted(counts, key=lambda word: (-counts[word], word))[: size - FIRST]
        return cls(tuple(ranked), {word: FIRST + i for i, word in enumerate(ranked)})

    def encoded(self, sentence: Sentence, end: bool = True) -> list[int]:
        """
        >>> Vocabulary.of([("to", "be", "to")], 4).encoded(("be", "or", "to"))
        [3, 1, 2, 0]
        """
        return [self.numbers.get(word, UNKNOWN) for word in sentence] + [END] * end

    def said(self, numbers: Sequence[int]) -> str:
        """Numbers as words, up to the end of the sentence."""
        shown = ["</s>", "…", *self.words]
        numbers = list(numbers)
        return " ".join(shown[n] for n in numbers[: numbers.index(END) if END in numbers else None])


@dataclass(frozen=True)
class Batch:
    """Sentences of one length (n, t), and their neighbours, padded; masks say where words are."""

    sentence: Int[Tensor, "n t"]
    after: Int[Tensor, "n u"]
    after_mask: Bool[Tensor, "n u"]
    before: Int[Tensor, "n v"]
    before_mask: Bool[Tensor, "n v"]

    def to(self, device: torch.device | str) -> Batch:
        return Batch(*(part.to(device) for part in vars(self).values()))


class Triples:
    """The triples of some documents, as numbers; `triples[cases]` makes a batch of them."""

    def __init__(self, documents: Sequence[Document], words: Vocabulary, longest: int) -> None:
        self.places = sentences.triples(documents, longest)
        self.encoded = [[words.encoded(s) for s in d.sentences] for d in documents]
        self.lengths = np.array([len(self.encoded[d][i]) for d, i in self.places])

    def __len__(self) -> int:
        return len(self.places)

    def keep(self, cases: Sequence[int]) -> Triples:
        """Those cases alone."""
        other = object.__new__(Triples)
        other.encoded, other.lengths = self.encoded, self.lengths[list(cases)]
        other.places = [self.places[i] for i in cases]
        return other

    def few(self, count: int) -> Triples:
        """The first `count`, those with sentences of the most frequent length first of all."""
        often = Counter(self.lengths.tolist())
        order = sorted(range(len(self)), key=lambda i: (-often[self.lengths[i]], i))
        return self.keep(order[:count])

    def __getitem__(self, cases: Sequence[int]) -> Batch:
        """Raises `ValueError` for sentences of different lengths."""
        at = [self.places[i] for i in cases]
        if len(lengths := {len(self.encoded[d][i]) for d, i in at}) != 1:
            raise ValueError(f"cases must have sentences of one length, got {sorted(lengths)}")
        sentence = torch.tensor([self.encoded[d][i] for d, i in at])
        after = padded([self.encoded[d][i + 1] for d, i in at])
        return Batch(sentence, *after, *padded([self.encoded[d][i - 1] for d, i in at]))


def padded(rows: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "n t"], Bool[Tensor, "n t"]]:
    """Rows filled up with 0 to the length of the longest one, and where they have numbers."""
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    filled = torch.tensor([[*row, *[END] * (longest - len(row))] for row in rows])
    return filled, torch.arange(longest) < lengths[:, None]


class SameLength:
    """The cases of each update: sentences of one length, whole epochs, by seed and update alone.

    As in the original code a length's last batch of an epoch may be smaller than the others.
    """

    def __init__(self, lengths: Int[np.ndarray, " n"], size: int, seed: int) -> None:
        self.groups = [np.flatnonzero(lengths == length) for length in np.unique(lengths)]
        self.size, self.seed = size, seed
        self.count = sum(-(-len(group) // size) for group in self.groups)
        self.epoch, self.batches = -1, []

    def __call__(self, step: int) -> list[int]:
        """The cases of an update, counted from 1."""
        epoch, number = divmod(step - 1, self.count)
        if epoch != self.epoch:
            self.epoch, draw = epoch, generator(self.seed, epoch)
            cut = []
            for group in self.groups:
                mixed = group[torch.randperm(len(group), generator=draw).numpy()].tolist()
                cut += [mixed[i : i + self.size] for i in range(0, len(mixed), self.size)]
            self.batches = [cut[i] for i in torch.randperm(len(cut), generator=draw).tolist()]
        return self.batches[number]


@dataclass(frozen=True)
class Text:
    """A text's vocabulary and triples, the tasks, and the hash of all of it."""

    vocabulary: Vocabulary
    documents: dict[str, list[Document]]
    parts: dict[str, Triples]
    tasks: tuple[Classes | Pairs, ...]
    sha256: str


@cache
def text(name: str, vocabulary: int, longest: int, held_out: int) -> Text:
    """A text of `TEXTS` with at most `held_out` triples, evenly chosen, of validation and test.

    Raises as the readers of `sentences` and `sentence_tasks` do.
    """
    documents = TEXTS[name]()
    split = {
        "train": [d for i, d in enumerate(documents) if i % 10 not in (VALIDATION, TEST)],
        "validation": documents[VALIDATION::10],
        "test": documents[TEST::10],
    }
    split = {part: list(found) for part, found in split.items()}
    known = Vocabulary.of([s for d in split["train"] for s in d.sentences], vocabulary)
    parts = {part: Triples(found, known, longest) for part, found in split.items()}
    for part in ("validation", "test"):
        step = max(1, len(parts[part]) // held_out)
        parts[part] = parts[part].keep(range(0, len(parts[part]), step)[:held_out])
    own = "mr", "cr", "subj", "sick"
    real = name == "novels"
    tasks = tuple(sentence_tasks.TASKS[n]() for n in own) if real else tuple(made(split, longest))
    digest = hashlib.sha256(sentences.sha256(documents).encode())
    for task in tasks:
        digest.update(task.sha256().encode())
    return Text(known, split, parts, tasks, digest.hexdigest())


def made(split: dict[str, list[Document]], longest: int) -> list[Classes | Pairs]:
    """Two tasks from the documents that nothing was trained on, where there are no real ones.

    `source`: is a sentence from the first source or from another one? as many of either; `near`:
    do two sentences follow each other (5), stand in one document (3) or in different ones (1)?
    """
    documents = [*split["validation"], *split["test"]]
    draw = np.random.default_rng(0)
    sources = list(dict.fromkeys(d.source for d in documents))
    groups: list[list[Sentence]] = [[], []]
    for document in documents:
        groups[document.source != sources[0]] += fit(document, longest)
    count = min(map(len, groups))
    chosen = ([g[i] for i in np.sort(draw.permutation(len(g))[:count])] for g in groups)
    pairs = []
    fitting = [found for document in documents if len(found := fit(document, longest)) > 3]
    for i in range(1800):
        here, other = (fitting[j] for j in draw.choice(len(fitting), 2, replace=False))
        a = int(draw.integers(len(here) - 3))
        b = int(draw.integers(a + 2, len(here)))
        second = (here[a + 1], here[b], other[int(draw.integers(len(other)))])[i % 3]
        pairs.append((here[a], second, NEAR[i % 3], ("train", "development", "test")[i // 3 % 3]))
    first, second, scores, parts = zip(*pairs, strict=True)
    near = Pairs("near", first, second, np.array(scores), parts)
    return [sentence_tasks.shuffled("source", *chosen), near]


def fit(document: Document, longest: int) -> list[Sentence]:
    """The sentences of a document that are neither empty nor too long."""
    return [s for s in document.sentences if 0 < len(s) <= longest]


@cache
def generated() -> tuple[Document, ...]:
    """Documents of random words for sizes that no text here has: 20,000 words, as frequent as
    Zipf's law says; each document uses some of them more often, and one of two sources has others.
    """
    draw = np.random.default_rng(0)
    below = np.cumsum(1 / np.arange(1, 20_001))
    found = []
    for number in range(400):
        own = draw.integers(20_000, size=100)
        said = []
        for length in draw.integers(5, 30, size=30):
            ranks = np.searchsorted(below, below[-1] * draw.random(length))
            ranks = np.where(draw.random(length) < 0.3, own[draw.integers(100, size=length)], ranks)
            said.append(tuple(f"w{(rank + 7 * (number % 2)) % 20_000}" for rank in ranks))
        found.append(Document(("even", "odd")[number % 2], tuple(said)))
    return tuple(found)


TEXTS: dict[str, Callable[[], Sequence[Document]]] = {
    "manuals": sentences.manuals, "novels": sentences.novels, "generated": generated
}  # fmt: skip
