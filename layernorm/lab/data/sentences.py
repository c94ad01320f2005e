"""Running prose as sentences in order: the reference of Python and its libraries, and novels.

A skip-thought model learns from three sentences that follow each other, so what matters here is
order. A `Document` holds the sentences of one chapter or one page of a manual; three sentences are
neighbours only inside one document.

- `manuals()`: the language reference that Python carries (`pydoc_data.topics`) and the docstrings
  of NumPy and PyTorch, without which this package does not run. Nothing is downloaded, and no text
  is copied into this package; it differs between versions, so a record names it by its hash.
- `novels()`: eight novels of Project Gutenberg in the layout of NLTK's data (`NLTK_DATA`).
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Sentence = tuple[str, ...]

NOVELS = (
    "austen-emma",
    "austen-persuasion",
    "austen-sense",
    "carroll-alice",
    "chesterton-ball",
    "chesterton-brown",
    "chesterton-thursday",
    "melville-moby_dick",
)
HEADING = re.compile(
    r"(?i:(chapter|volume)\s+[0-9ivxlc]+\b.*)|[IVXLC]+\. \S.*|ETYMOLOGY\.|Epilogue"
)
WORD = re.compile(
    r"[^\W\d_]+(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b|[^\W\d_]+|\d+(?:[.,]\d+)*|[^\w\s]|_"
)
ENDING = re.compile(r"""(?<=[.!?])["')\]]*\s+(?=["'(\[]*[A-Z0-9])""")
TITLES = re.compile(r"\b(?:Mrs?|Dr|St|Esq|Capt|Col|Rev|Vol|e\.g|i\.e|cf|vs)\.$|\b[A-Z]\.$")
CODE = re.compile(r">>>|::|[\\$|~{}=]|___|---|\.\. ")
MANUALS = ("numpy", "numpy.linalg", "numpy.random", "numpy.ma", "numpy.polynomial", "numpy.fft",
           "torch", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils",
           "torch.optim", "torch.optim.lr_scheduler", "torch.linalg", "torch.fft", "torch.special",
           "torch.utils.data", "torch.distributions", "torch.autograd", "torch.Tensor",
           "numpy.ndarray")  # fmt: skip


class CorpusError(ValueError):
    """A file that is not what its name says; the message begins with file and line."""


@dataclass(frozen=True)
class Document:
    """Sentences in order, of a chapter or a page: `source` says of which book or manual."""

    source: str
    sentences: tuple[Sentence, ...]


def words(text: str) -> Sentence:
    """The words and marks of a text in lower case, cut as in the Penn treebank.

    >>> words("You can't say it's Mr. Ray's, 1,200 times.")
    ('you', 'ca', "n't", 'say', 'it', "'s", 'mr', '.', 'ray', "'s", ',', '1,200', 'times', '.')
    """
    return tuple(WORD.findall(text.lower().replace("’", "'")))


def sentences(text: str) -> list[str]:
    """The sentences of a paragraph.

    >>> sentences('"Is it?" said Mr. Brown. It was. He asked: "Why?"')
    ['"Is it?" said Mr. Brown.', 'It was.', 'He asked: "Why?"']
    """
    found, begin = [], 0
    for match in ENDING.finditer(text):
        if not TITLES.search(text[begin : match.start()]):
            found.append(text[begin : match.end()].strip())
            begin = match.end()
    return [*found, text[begin:].strip()] if text[begin:].strip() else found


def triples(documents: Sequence[Document], longest: int) -> list[tuple[int, int]]:
    """Every sentence that has a neighbour on either side in its document, as (document, place).

    Sentence `place` and both neighbours have from one to `longest` words.
    """
    found = []
    for number, document in enumerate(documents):
        fits = [0 < len(sentence) <= longest for sentence in document.sentences]
        found += [(number, i) for i in range(1, len(fits) - 1) if all(fits[i - 1 : i + 2])]
    return found


def sha256(documents: Iterable[Document]) -> str:
    """Identifies the text: all words in order, with the borders of sentences and documents."""
    digest = hashlib.sha256()
    for document in documents:
        text = "\n".join(" ".join(sentence) for sentence in document.sentences)
        digest.update(f"{document.source}\n{text}\n\n".encode())
    return digest.hexdigest()


@cache
def manuals() -> tuple[Document, ...]:
    """The prose of Python's language reference and of the docstrings of NumPy and PyTorch.

    Each page is a document; code, tables and headings are left out, and so is a paragraph that an
    earlier page has. The longest page of the reference comes first, since shorter ones repeat it.

    Raises `ModuleNotFoundError` for a Python without `pydoc_data`.
    """
    try:
        from pydoc_data.topics import topics
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the text of this profile is Python's own reference, pydoc_data.topics, which this "
            "installation leaves out; use a complete Python, for instance from python.org"
        ) from error
    seen: set[str] = set()
    pages = sorted(topics.items(), key=lambda page: (-len(page[1]), page[0]))
    found = [("python", text) for _, text in pages] + [
        ("libraries", text) for text in _docstrings()
    ]
    documents = (Document(source, tuple(_prose(text, seen))) for source, text in found)
    return tuple(document for document in documents if len(document.sentences) > 2)


def _docstrings() -> Iterator[str]:
    """Those of all public names of `MANUALS`, each text once.

    `scipy.special` changes the docstring of `numpy.sinc` when it is imported. Functions that NumPy
    dispatches keep their own with their implementation.
    """
    from importlib import import_module

    for place in MANUALS:
        module, _, name = place.rpartition(".")
        owner = getattr(import_module(module), name) if module else import_module(place)
        for public in sorted(name for name in dir(owner) if not name.startswith("_")):
            item = inspect.getattr_static(owner, public, None)
            if inspect.ismodule(item):
                continue
            text = getattr(getattr(item, "_implementation", item), "__doc__", None)
            if isinstance(text, str):
                yield inspect.cleandoc(text)


def _prose(text: str, seen: set[str]) -> Iterator[Sentence]:
    """The sentences of a text's prose, without markup and without paragraphs that were seen."""
    for paragraph in re.split(r"\n\s*\n", text):
        line = re.sub(r"^(?:[*•-]|\d+\.)\s+", "", " ".join(paragraph.split()))
        plain = re.sub(r":\w+:(?=`)|[`*\"“”]", "", line)
        letters = sum(letter.isalpha() or letter == " " for letter in plain)
        whole = plain[:1].isupper() and plain.endswith((".", "!", "?", ":"))
        if not whole or CODE.search(line) or letters < 0.85 * len(plain) or plain in seen:
            continue
        seen.add(plain)
        yield from (words(sentence) for sentence in sentences(plain))


@cache
def novels() -> tuple[Document, ...]:
    """The chapters of `NOVELS`, each a document; paragraphs follow each other, headings are cut.

    A semicolon ends a sentence, too: these authors write sentences of a hundred words.

    Raises `FileNotFoundError` where NLTK's data are not found, and how to get them; `CorpusError`
    for a file that is not the plain text of a novel.
    """
    documents = []
    for name in NOVELS:
        file, lines = nltk_lines("gutenberg", f"{name}.txt", "latin-1")
        chapters = [Document(name, tuple(found)) for found in _chapters(lines) if len(found) > 2]
        if not chapters:
            raise CorpusError(f"{file}:1: expected a novel with chapters, found none; {_again()}")
        documents += chapters
    return tuple(documents)


def _chapters(lines: Sequence[str]) -> Iterator[list[Sentence]]:
    """The sentences of each chapter: a heading stands alone between blank lines."""
    chapter: list[Sentence] = []
    block: list[str] = []
    for line in (*lines, "", "CHAPTER I", ""):
        if line.strip():
            block.append(line.strip())
            continue
        if block and HEADING.fullmatch(block[0]) and len(block) < 3:
            yield chapter
            chapter = []
        elif block and not block[0].startswith("["):
            text = " ".join(" ".join(block).split()).replace("--", " -- ").replace("_", "")
            parts = re.split(r"(?<=;)\s+", text)
            chapter += [words(sentence) for part in parts for sentence in sentences(part)]
        block = []


def nltk_folders() -> list[Path]:
    """The folders in which NLTK would look for data: `NLTK_DATA` first."""
    own = [part for part in os.environ.get("NLTK_DATA", "").split(os.pathsep) if part]
    usual = (Path.home() / "nltk_data", Path(sys.prefix, "nltk_data"), "/usr/share/nltk_data",
             "/usr/local/share/nltk_data", "/usr/lib/nltk_data")  # fmt: skip
    return [Path(part) for part in (*own, *usual)]


def nltk_lines(package: str, name: str, encoding: str = "utf-8") -> tuple[str, list[str]]:
    """A file of an NLTK package, unpacked or in its zip: where it was found, and its lines.

    Raises `FileNotFoundError` if it is in no folder; `CorpusError` for bytes that are no text.
    """
    for folder in nltk_folders():
        place, archive = folder / "corpora" / package / name, folder / f"corpora/{package}.zip"
        if place.is_file():
            return str(place), text_lines(place.read_bytes(), str(place), encoding)
        if archive.is_file():
            file = f"{archive}/{name}"
            try:
                with zipfile.ZipFile(archive) as packed:
                    content = packed.read(f"{package}/{name}")
            except (zipfile.BadZipFile, KeyError) as error:
                raise CorpusError(
                    f"{file}:0: cannot be read ({error}); {_again(package)}"
                ) from None
            return file, text_lines(content, file, encoding)
    raise FileNotFoundError(
        f"{package}/{name} is in none of the folders of NLTK's data ("
        f"{', '.join(map(str, nltk_folders()))}); {_again(package)} and set NLTK_DATA to the folder"
    )


def text_lines(content: bytes, file: str, encoding: str = "utf-8") -> list[str]:
    """The lines of a text file. Raises `CorpusError` with file and line for what is no text."""
    lines = content.replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n")
    found = []
    for number, line in enumerate(lines, start=1):
        if bad := re.search(rb"[\x00-\x08\x0e-\x1f]", line):
            raise CorpusError(f"{file}:{number}: byte {bad[0][0]:#04x} is not text; get it again")
        try:
            found.append(line.decode(encoding))
        except UnicodeDecodeError as error:
            what = f"byte {line[error.start]:#04x} is no {encoding}"
            raise CorpusError(
                f"{file}:{number}: {what}; convert the file or get it again"
            ) from None
    return found


def _again(package: str = "gutenberg") -> str:
    return f"get it with `python -m nltk.downloader {package}`"
