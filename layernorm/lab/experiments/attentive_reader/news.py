"""CNN's own questions in the place of drawn stories, where somebody has them: `--set data=cnn`. ::

    LAYERNORM_DATA=~/data layernorm run attentive_reader --arm layer --set data=cnn

They are read from `$LAYERNORM_DATA/cnn/questions/{training,validation,test}/*.question`, as the
scripts of github.com/deepmind/rc-data leave them, texts cut to the sentences that share most words
with the question. Words are those of the training questions, 65,829 with all markers at most, as in
the paper. Markers are permuted in each training batch, and stay as they are in validation and test,
as in the code that the paper uses. Nothing is downloaded: the texts belong to CNN.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch

from layernorm.lab.data.cloze import FIRST, Stories, permuted
from layernorm.lab.data.pinned import own_folder
from layernorm.lab.data.questions import Question, Vocabulary, encoded, read, shortened
from layernorm.lab.experiments.batches import Shuffled, generator

VOCABULARY = 65_829
PARTS = ("training", "validation", "test")


@dataclass(frozen=True)
class News:
    """Questions of the three parts as numbers; `cloze.World`'s numbers of them."""

    parts: dict[str, Stories]
    vocabulary: int
    entities: int

    @property
    def longest(self) -> int:
        """Words of the longest passage."""
        return max(int(stories.lengths.max()) for stories in self.parts.values())

    def held_out(self, cases: int) -> dict[str, Stories]:
        """The first so many questions of validation and test, by the names of their files."""
        return {part: self.parts[part][:cases] for part in ("validation", "test")}

    def fixed(self, cases: int, seed: int) -> Stories:
        """So many questions of the training part, other ones for another seed.

        Raises `ValueError` if it has fewer.
        """
        return self._cut(Shuffled(len(self.parts["training"]), cases, seed)(1))

    def fresh(self, cases: int, seed: int) -> Fresh:
        return Fresh(self, Shuffled(len(self.parts["training"]), cases, seed), seed)

    def _cut(self, cases: torch.Tensor) -> Stories:
        """These training questions, without the padding that none of them needs."""
        found = self.parts["training"][cases]
        words, asked = int(found.lengths.max()), int(found.question_lengths.max())
        short = {"passages": found.passages[:, :words], "questions": found.questions[:, :asked]}
        return Stories(**{**vars(found), **short})


@dataclass(frozen=True)
class Fresh:
    """The training questions of an update, counted from 1, their markers permuted."""

    news: News
    shuffled: Shuffled
    seed: int

    def __call__(self, step: int) -> Stories:
        stories = self.news._cut(self.shuffled(step))
        return permuted(stories, self.news.entities, generator(self.seed, step, 1))


def news(sentences: int) -> News:
    """The questions in the folder, cut to so many sentences.

    Raises `OSError` if they are not there, with what to do, and as `questions.read` does.
    """
    folder = own_folder("cnn")
    if folder is None or not all((folder / "questions" / part).is_dir() for part in PARTS):
        raise FileNotFoundError(
            "data=cnn: expected $LAYERNORM_DATA/cnn/questions/ with folders training, validation "
            f"and test of .question files, got {folder or 'no LAYERNORM_DATA'}; make them with "
            "github.com/deepmind/rc-data and set LAYERNORM_DATA, or leave out data=cnn for "
            "generated stories"
        )
    return _news(folder / "questions", sentences)


def _interned(question: Question) -> Question:
    """The same, each word once in memory, whatever number of questions has it."""
    text, asked = (tuple(map(sys.intern, words)) for words in (question.text, question.question))
    return replace(question, text=text, question=asked)


@cache
def _news(folder: Path, sentences: int) -> News:
    read_in = {}
    for part in PARTS:
        files = sorted((folder / part).glob("*.question"))
        if not files:
            raise FileNotFoundError(f"data=cnn: {folder / part} holds no .question file")
        read_in[part] = [_interned(shortened(read(file), sentences)) for file in files]
    everything = (question for part in PARTS for question in read_in[part])
    markers = Vocabulary.of(everything, VOCABULARY).entities
    frequent = Vocabulary.of(read_in["training"], VOCABULARY).words
    words = Vocabulary(markers, frequent[: VOCABULARY - FIRST - markers])
    parts = {part: encoded(questions, words) for part, questions in read_in.items()}
    return News(parts, len(words), markers)
