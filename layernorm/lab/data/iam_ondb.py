"""IAM-OnDB: lines written on a whiteboard, with their text, from files that the reader brings.

Whoever registers at the University of Bern gets the archives; unpacked, they lie in a folder, by
default `$LAYERNORM_DATA/iam_ondb`, as ::

    lineStrokes/a01/a01-000/a01-000u-01.xml     points of one line
    ascii/a01/a01-000/a01-000u.txt              the text of all lines of a form, after "CSR:"
    trainset.txt, testset_v.txt, testset_t.txt, testset_f.txt      one form a line

Readers of the data set disagree on what the lists are for. Here `trainset.txt` and `testset_t.txt`
are trained on, `testset_v.txt` validates, `testset_f.txt` tests.

Source: Liwicki and Bunke, IAM-OnDB: an on-line English sentence database acquired from handwritten
text on a whiteboard, 2005.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float

from layernorm.lab.data import pinned
from layernorm.lab.data.handwriting import ALPHABET, Lines, gathered

LISTS = {
    "train": ("trainset.txt", "testset_t.txt"),
    "validation": ("testset_v.txt",),
    "test": ("testset_f.txt",),
}


class HandwritingError(ValueError):
    """A file that is not as IAM-OnDB has it; the message names the file."""


@cache
def load(points: int, folder: Path | None = None) -> dict[str, Lines]:
    """Training, validation and test lines, cut after so many points; offsets are standardized as
    those of the training lines are.

    Raises:
        FileNotFoundError: the files are not there; says where they are looked for.
        HandwritingError: a file is not as it should be.
    """
    folder = folder or pinned.own_folder("iam_ondb")
    if folder is None or not Path(folder).is_dir():
        raise FileNotFoundError(
            f"IAM-OnDB is not in {folder or '$LAYERNORM_DATA/iam_ondb'}; register at its makers' "
            "site, unpack lineStrokes, ascii and the four lists there, and set LAYERNORM_DATA to "
            "the folder above"
        )
    found = {}
    for part, names in LISTS.items():
        every = [form for name in names for form in forms(Path(folder, name))]
        read = [line for form in every for line in lines_of(Path(folder), form)]
        found[part] = gathered([(line[:points], text) for line, text in read])
    train = found.pop("train").standardized()
    return {"train": train} | {name: lines.standardized(train) for name, lines in found.items()}


def forms(file: Path) -> list[str]:
    """The forms that a list names. Raises `HandwritingError` for a list without any."""
    named = _text(file).split()
    if not named:
        raise HandwritingError(f"{file}: names no form; expected one a line, such as a01-000u")
    return named


def lines_of(folder: Path, form: str) -> list[tuple[Float[np.ndarray, "t 3"], list[int]]]:
    """Points and text of each line of a form such as a01-000u.

    Raises `HandwritingError` for files that are missing, broken, or do not fit each other.
    """
    within = Path(form[:3], form[:7])
    transcript, place = folder / "ascii" / within / f"{form}.txt", folder / "lineStrokes" / within
    written = transcribed(transcript)
    files = sorted(place.glob(f"{form}-*.xml"))
    if len(files) != len(written):
        raise HandwritingError(
            f"{transcript}: has {len(written)} lines of text, but {place} has {len(files)} files "
            f"{form}-….xml; expected one for each line"
        )
    return [(points(file), text) for file, text in zip(files, written, strict=True)]


def transcribed(file: Path) -> list[list[int]]:
    """The text of a form's lines, as places in `ALPHABET`; all characters that it lacks count as
    one. Raises `HandwritingError` for a file that is missing or has no text after "CSR:"."""
    _, found, after = _text(file).partition("CSR:")
    texts = [line.strip() for line in after.splitlines() if line.strip()]
    if not found or not texts:
        raise HandwritingError(f'{file}: expected lines of text after a line "CSR:", found none')
    others = len(ALPHABET)
    places = {character: i for i, character in enumerate(ALPHABET)}
    return [[places.get(character, others) for character in text] for text in texts]


def points(file: Path) -> Float[np.ndarray, "t 3"]:
    """Offsets from point to point, y upwards, and 1 where the pen is lifted.

    Raises `HandwritingError` for XML that is broken, has no strokes, or a stroke without points.
    """
    try:
        strokes = ET.fromstring(_bytes(file)).findall("StrokeSet/Stroke")
        read = [[(float(p.attrib["x"]), -float(p.attrib["y"])) for p in s] for s in strokes]
    except (ET.ParseError, LookupError, ValueError) as error:
        raise HandwritingError(f"{file}: not the XML of a line's strokes: {error!r}") from None
    if not read:
        raise HandwritingError(f"{file}: has no strokes; expected StrokeSet with Stroke in it")
    for number, stroke in enumerate(read, 1):
        if not stroke:
            raise HandwritingError(f"{file}: stroke {number} has no points")
    at = np.concatenate([np.array(stroke) for stroke in read])
    if not np.isfinite(at).all():
        raise HandwritingError(f"{file}: has a coordinate that is not a finite number")
    lifted = np.zeros(len(at))
    lifted[np.cumsum([len(stroke) for stroke in read]) - 1] = 1
    return np.column_stack([np.diff(at, axis=0, prepend=at[:1]), lifted])


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise HandwritingError(f"{file}: cannot be read: {error.strerror}") from None


def _text(file: Path) -> str:
    return _bytes(file).decode("latin-1")
