"""Questions about CNN news (Hermann et al. 2015): a strict reader of their files.

A `.question` file holds one question in five parts with a blank line between them: the article's
address, its text, the question, the answer, and a line `@entity3:Name` for each marker. Words stand
between spaces; entities are markers `@entity3`, the gap of the question is `@placeholder`.

The texts belong to CNN and are not part of this package. Source: arXiv:1506.03340 with
github.com/deepmind/rc-data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from layernorm.lab.data.cloze import FIRST, PAD, PLACEHOLDER, Stories

GAP = "@placeholder"
MARKER = re.compile(r"@entity[0-9]{1,5}")
NAMED = re.compile(r"(@entity[0-9]{1,5}):(.*)")
TOO_LONG = re.compile(r"@entity[0-9]{6,}")
ENDS = (".", "?", "!")  # of a sentence
PARTS = ("the address", "the text", "the question", "the answer", "the names of the markers")


class QuestionError(ValueError):
    """A file that is no question; the message begins with file and line."""


@dataclass(frozen=True)
class Question:
    """Words of the text and of the question, the marker that answers it, and where it was read.

    `names`: what the markers stand for, by marker. `lost`: the answer
    is not in the text any more, because `shortened` cut it away.
    """

    text: tuple[str, ...]
    question: tuple[str, ...]
    answer: str
    names: Mapping[str, str] = field(default_factory=dict)
    file: str = ""

    @property
    def lost(self) -> bool:
        return self.answer not in self.text


def read(path: str | Path) -> Question:
    """One `.question` file.

    Raises `QuestionError`, with file and line, for bytes that are no UTF-8, a part that is missing,
    a question without gap, an answer that is no marker or not in the text, and a line of names that
    is none or names a marker twice; `OSError` if it cannot be read.
    """
    blocks = list(_blocks(path, _lines(path)))
    if len(blocks) > len(PARTS):
        _refuse(path, blocks[len(PARTS)][0][0], f"expected {len(PARTS)} parts, and here is another")
    if len(blocks) > 3 and NAMED.fullmatch(blocks[3][0][1]):
        _refuse(path, blocks[3][0][0], "the answer is missing: here the names of the markers begin")
    if len(blocks) < len(PARTS):
        end = blocks[-1][-1][0] if blocks else 0
        _refuse(path, end + 1, f"{PARTS[len(blocks)]} is missing: the file ends here")
    _, text, question, answer, names = blocks
    for (number, _), *more in (question, answer):
        if more:
            _refuse(path, number + 1, "expected one line and then a blank one, got another line")
    found: dict[str, str] = {}
    for number, line in names:
        if not (match := NAMED.fullmatch(line)):
            _refuse(path, number, f"expected a marker and its name, '@entity3:Name', got {line!r}")
        if match[1] in found:
            _refuse(path, number, f"{match[1]} has a name already, {found[match[1]]!r}")
        found[match[1]] = match[2]
    return _question(path, text, question[0], answer[0], found)


def shortened(question: Question, sentences: int = 4) -> Question:
    """The question with those sentences of the text alone that share most words with it.

    Of the question's different words, gap and punctuation left out; of equals the earlier sentence;
    in their order in the text. That is our reading of "string matching" in Cooijmans et al. (2017),
    section 5.3, whose exact rule is not published. The answer may be cut away: see `Question.lost`.
    """
    asked = {word for word in question.question if word != GAP and any(map(str.isalnum, word))}
    told = list(_sentences(question.text))
    shared = [len(asked.intersection(sentence)) for sentence in told]
    best = sorted(range(len(told)), key=lambda i: -shared[i])[:sentences]
    return replace(question, text=tuple(word for i in sorted(best) for word in told[i]))


@dataclass(frozen=True)
class Vocabulary:
    """The words that have numbers: padding, gap and "unknown" first, `entities` markers, words.

    They are numbered as those of `cloze` are, so that stories of both kinds are read alike.
    """

    entities: int
    words: tuple[str, ...]

    UNKNOWN = PLACEHOLDER + 1

    def __len__(self) -> int:
        return FIRST + self.entities + len(self.words)

    @classmethod
    def of(cls, questions: Iterable[Question], size: int) -> Vocabulary:
        """All markers and the most frequent words, `size` numbers in all.

        Raises `ValueError` if the markers alone are more.
        """
        counts: dict[str, int] = {}
        entities = 0
        for each in questions:
            for word in (*each.text, *each.question):
                if MARKER.fullmatch(word):
                    entities = max(entities, _marker(word) + 1)
                elif word != GAP:
                    counts[word] = counts.get(word, 0) + 1
        room = size - FIRST - entities
        if room < 0:
            least = FIRST + entities
            raise ValueError(f"size must be at least {least}, for {entities} markers, got {size}")
        return cls(entities, tuple(sorted(counts, key=lambda word: (-counts[word], word))[:room]))

    def numbers(self) -> dict[str, int]:
        """Every word's number but the unknown ones'."""
        first = FIRST + self.entities
        markers = {f"@entity{i}": FIRST + i for i in range(self.entities)}
        return {GAP: PLACEHOLDER, **markers, **{w: first + i for i, w in enumerate(self.words)}}


def encoded(questions: Sequence[Question], vocabulary: Vocabulary) -> Stories:
    """Questions as numbers, padded at the end.

    Raises `QuestionError` for a marker beyond the vocabulary's, `ValueError` for no question.
    """
    if not questions:
        raise ValueError("questions must hold at least one question, got none")
    known = vocabulary.numbers()

    def numbered(words: Sequence[str], file: str) -> list[int]:
        for word in words:
            if MARKER.fullmatch(word) and word not in known:
                what = f"{word} is beyond the vocabulary's {vocabulary.entities} markers"
                raise QuestionError(f"{file}: {what}; count them in the questions you read, too")
        return [known.get(word, Vocabulary.UNKNOWN) for word in words]

    texts = [numbered(each.text, each.file) for each in questions]
    asked = [numbered(each.question, each.file) for each in questions]
    answers = [numbered([each.answer], each.file)[0] for each in questions]
    return Stories(*_padded(texts), *_padded(asked), torch.tensor(answers))


def _padded(rows: list[list[int]]) -> tuple[Int[Tensor, "n t"], Int[Tensor, " n"]]:
    lengths = [len(row) for row in rows]
    padded = [row + [PAD] * (max(lengths) - len(row)) for row in rows]
    return torch.tensor(padded), torch.tensor(lengths)


def _marker(word: str) -> int:
    return int(word.removeprefix("@entity"))


Line = tuple[int, str]  # its number, counted from 1, and what it says


def _refuse(path: str | Path, line: int, what: str) -> None:
    raise QuestionError(f"{path}:{line}: {what}")


def _lines(path: str | Path) -> Iterator[Line]:
    if Path(path).exists() and not Path(path).is_file():
        _refuse(path, 0, "expected a file, got a folder, pipe or device")
    for number, line in enumerate(Path(path).read_bytes().split(b"\n"), start=1):
        try:
            yield number, line.decode().strip()
        except UnicodeDecodeError as error:
            what = f"byte {error.start + 1} of the line, {line[error.start]:#04x}, is no UTF-8"
            _refuse(path, number, f"{what}; convert the file, or fetch it again")


def _blocks(path: str | Path, lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Lines that no blank one parts."""
    block: list[Line] = []
    for number, line in lines:
        if line:
            block.append((number, line))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _question(
    path: str | Path, text: list[Line], question: Line, answer: Line, names: Mapping[str, str]
) -> Question:
    words = tuple(word for _, line in text for word in line.split())
    asked = tuple(question[1].split())
    for number, line in (*text, question, answer):
        if found := TOO_LONG.search(line):
            _refuse(path, number, f"a marker has at most five digits, got {found[0][:20]}…")
    if GAP not in asked:
        _refuse(path, question[0], f"the question has no {GAP}")
    if not MARKER.fullmatch(answer[1]):
        _refuse(path, answer[0], f"the answer must be one marker like @entity3, got {answer[1]!r}")
    if answer[1] not in words:
        _refuse(path, answer[0], f"the answer {answer[1]} is not in the text")
    return Question(words, asked, answer[1], names, str(path))


def _sentences(words: Sequence[str]) -> Iterator[list[str]]:
    sentence: list[str] = []
    for word in words:
        sentence.append(word)
        if word in ENDS:
            yield sentence
            sentence = []
    if sentence:
        yield sentence
