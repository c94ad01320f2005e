"""Cloze stories: a short passage about somebody called @entity3, and a question with a gap.

A stand-in, drawn from a generator, for the questions that Hermann et al. (2015) made of news. ::

    @entity4 quietly sold bread . they built boats today . @entity7 sold boats .
    question: @placeholder built boats        answer: @entity4

Every sentence says who did what: subject, verb, object. Verbs and objects are drawn evenly; no two
sentences of a passage have both in common, but often one of them, so a question is answered by
verb and object together. The subject is somebody new, or "they", who is whoever the sentence before
is about. Where the first sentence begins with "they", the one that named the person was cut away,
and the name is lost: not every question can be answered. Fillers stand at random places. People get
their markers by a permutation of all markers, another one for each story, so no marker means
anything beyond its story.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Generator, Tensor

PAD, PLACEHOLDER, STOP, THEY, FIRST = range(5)  # FIRST: the first of the entity markers
VERBS = ("sold", "built", "found", "liked", "drew", "lost", "moved", "took")
OBJECTS = ("bread", "boats", "maps", "coins", "lamps", "books", "bells", "clocks")
FILLERS = ("today", "quietly", "often", "again", "gladly", "slowly", "soon", "alone")


@dataclass(frozen=True)
class World:
    """The ingredients of stories: how many markers, words and sentences there are.

    `filled`: at most that many fillers in a sentence or question. `coreference`: the chance that a
    subject is "they".

    Raises `ValueError` where no story can be made.
    """

    entities: int = 10
    verbs: int = 4
    objects: int = 4
    fillers: int = 8
    sentences: int = 4
    filled: int = 1
    coreference: float = 0.2

    def __post_init__(self) -> None:
        least = {
            "sentences": (1, "a story has some"),
            "entities": (self.sentences + 1, "a sentence can name somebody, and so one before all"),
            "fillers": (1, "a filler is one of them"),
            "filled": (0, "it is a number of words"),
        }
        for name, (low, why) in least.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be at least {low}, {why}; got {getattr(self, name)}")
        if self.verbs * self.objects < self.sentences:
            raise ValueError(
                f"verbs times objects must be at least the {self.sentences} sentences, none of "
                f"which says what another does; got {self.verbs} and {self.objects}"
            )
        if not 0 <= self.coreference < 1:
            raise ValueError(f"coreference must lie in [0, 1), got {self.coreference}")

    @property
    def vocabulary(self) -> int:
        return FIRST + self.entities + self.verbs + self.objects + self.fillers

    @property
    def longest(self) -> int:
        """Words of the longest passage."""
        return self.sentences * (4 + self.filled)

    def words(self) -> list[str]:
        """All words, by their number; those beyond the lists are numbered."""
        lists = (VERBS, self.verbs, "verb"), (OBJECTS, self.objects, "object")
        found = ["", "@placeholder", ".", "they", *(f"@entity{i}" for i in range(self.entities))]
        for names, count, kind in (*lists, (FILLERS, self.fillers, "filler")):
            found += [names[i] if i < len(names) else f"{kind}{i}" for i in range(count)]
        return found


@dataclass(frozen=True)
class Stories:
    """Passages and questions as numbers of words, padded at the end with 0, and the answers."""

    passages: Int[Tensor, "n t"]
    lengths: Int[Tensor, " n"]
    questions: Int[Tensor, "n u"]
    question_lengths: Int[Tensor, " n"]
    answers: Int[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, cases: Tensor | slice) -> Stories:
        return Stories(*(part[cases] for part in vars(self).values()))

    def to(self, device: torch.device | str) -> Stories:
        return Stories(*(part.to(device) for part in vars(self).values()))

    def sha256(self) -> str:
        """Identifies the content."""
        digest = hashlib.sha256()
        for name, part in vars(self).items():
            digest.update(f"{name} {tuple(part.shape)}\n".encode())
            digest.update(part.cpu().contiguous().numpy())
        return digest.hexdigest()


def draw(world: World, cases: int, generator: Generator) -> Stories:
    """Draw `cases` stories, independent of each other.

    >>> world = World(coreference=0.0, filled=0)
    >>> told = draw(world, 1, torch.Generator().manual_seed(0))
    >>> said(world, told.passages[0])
    '@entity9 liked boats . @entity0 built bread . @entity6 liked maps . @entity7 built boats .'
    >>> said(world, told.questions[0]), said(world, told.answers)
    ('@placeholder built bread', '@entity0')
    """

    def differing(high: int, count: int) -> Int[Tensor, "cases {count}"]:
        return torch.rand(cases, high, generator=generator).argsort(1)[:, :count]

    s = world.sentences
    they = torch.rand(cases, s, generator=generator) < world.coreference
    people = torch.where(they, 0, torch.arange(1, s + 1)).cummax(1).values  # 0: before the cut
    markers = FIRST + differing(world.entities, world.entities).gather(1, people)
    pairs = differing(world.verbs * world.objects, s)
    first_verb = FIRST + world.entities
    verbs = first_verb + pairs // world.objects
    objects = first_verb + world.verbs + pairs % world.objects

    subjects = torch.where(they, THEY, markers)
    core = torch.stack([subjects, verbs, objects, torch.full_like(verbs, STOP)], -1)
    asked = torch.randint(s, (cases, 1), generator=generator)
    question = torch.stack(
        [torch.full_like(asked, PLACEHOLDER), verbs.gather(1, asked), objects.gather(1, asked)], -1
    )
    passages, lengths = _laid_out(world, core, generator)
    questions, question_lengths = _laid_out(world, question, generator)
    answers = markers.gather(1, asked).squeeze(1)
    return Stories(passages, lengths, questions, question_lengths, answers)


def _laid_out(
    world: World, core: Int[Tensor, "n s k"], generator: Generator
) -> tuple[Int[Tensor, "n t"], Int[Tensor, " n"]]:
    """Sentences with fillers at random places, one after the other; and how long they are."""
    n, s, k = core.shape
    shape = (n, s, world.filled)
    first = FIRST + world.entities + world.verbs + world.objects
    fillers = torch.randint(first, first + world.fillers, shape, generator=generator)
    count = torch.randint(world.filled + 1, (n, s, 1), generator=generator)
    fillers = torch.where(torch.arange(world.filled) < count, fillers, PAD)
    place = 4 * torch.rand(shape, generator=generator)  # around three words, before a full stop
    order = torch.cat([torch.arange(1.0, k + 1).expand(n, s, k), place], -1)
    order = order + (k + 1) * torch.arange(s)[:, None]
    words = torch.cat([core, fillers], -1)
    order = order.masked_fill(words == PAD, torch.inf).flatten(1)
    words = words.flatten(1).gather(1, order.argsort(1))
    lengths = (words != PAD).sum(1)
    return words[:, : int(lengths.max())], lengths


def permuted(stories: Stories, entities: int, generator: Generator) -> Stories:
    """The same stories with the entity markers renamed, each story by a permutation of its own."""
    n = len(stories)
    table = FIRST + torch.rand(n, entities, generator=generator).argsort(1)
    table = table.to(stories.answers.device)

    def renamed(words: Int[Tensor, "n k"]) -> Int[Tensor, "n k"]:
        marker = (words >= FIRST) & (words < FIRST + entities)
        return torch.where(marker, table.gather(1, (words - FIRST).clamp(0, entities - 1)), words)

    answers = renamed(stories.answers[:, None]).squeeze(1)
    passages, questions = renamed(stories.passages), renamed(stories.questions)
    return Stories(passages, stories.lengths, questions, stories.question_lengths, answers)


def said(world: World, words: Int[Tensor, " k"]) -> str:
    """Numbers of words as text, padding left out."""
    names = world.words()
    return " ".join(names[word] for word in words.tolist() if word != PAD)
