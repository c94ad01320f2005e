"""Handwritten lines: pen points with the text that they write, and a generator of such lines.

A stand-in for handwriting recorded on a whiteboard. Letters are the single strokes of two Hershey
fonts, and each writer has a font, size, width, slant, spacing, speed and steadiness of their own:
the pen goes along a letter's strokes at the writer's speed, and every point is off by some jitter.
Words are letters drawn evenly, so nobody can learn to spell: which letter comes next stands in the
text alone. A line has a given number of points and is cut there; its text ends with the letter that
was begun. Coordinates are whole numbers, as a tablet gives them.

Source: A. V. Hershey, Calligraphy for computers, 1967; strokes as in the package Hershey-Fonts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

LETTERS = " abcdefghijklmnopqrstuvwxyz"  # what generated lines are made of
ALPHABET = LETTERS + "ABCDEFGHIJKLMNOPQRSTUVWXYZ.,'"  # the window's characters, with one for others
FONTS = ("futural", "scripts")
UNITS = 64  # of the tablet, to one of the font
Polyline = Float[np.ndarray, "k 2"]


@dataclass(frozen=True)
class Lines:
    """Lines of handwriting.

    `points`: for each point the way from the one before, dx to the right and dy upwards, and 1
    where the pen is lifted after it, else 0; `text`: places in `ALPHABET`. Both are padded with 0,
    beyond `lengths` points and `text_lengths` characters. `scale`: the mean and the standard
    deviation by which dx and dy were standardized, (2, 2); 0 and 1 where they were not.
    """

    points: Float[Tensor, "n t 3"]
    lengths: Int[Tensor, " n"]
    text: Int[Tensor, "n u"]
    text_lengths: Int[Tensor, " n"]
    scale: Float[Tensor, "2 2"]

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, cases: Tensor | slice) -> Lines:
        parts = (self.points, self.lengths, self.text, self.text_lengths)
        return Lines(*(part[cases] for part in parts), self.scale)

    def to(self, device: torch.device | str) -> Lines:
        return Lines(*(part.to(device) for part in vars(self).values()))

    def standardized(self, like: Lines | None = None) -> Lines:
        """dx and dy with mean 0 and standard deviation 1 over all points, or as those of `like`."""
        scale = like.scale if like is not None else self._moments()
        there = torch.arange(self.points.shape[1]) < self.lengths[:, None]
        moved = (self.points[..., :2] - scale[0]) / scale[1] * there[..., None]
        points = torch.cat([moved, self.points[..., 2:]], -1)
        return Lines(points, self.lengths, self.text, self.text_lengths, scale)

    def _moments(self) -> Float[Tensor, "2 2"]:
        there = torch.arange(self.points.shape[1]) < self.lengths[:, None]
        moves = self.points[there][:, :2].double()
        return torch.stack([moves.mean(0), moves.std(0)]).to(self.points.dtype)

    def sha256(self) -> str:
        """Identifies the content."""
        digest = hashlib.sha256()
        for name, part in vars(self).items():
            digest.update(f"{name} {tuple(part.shape)}\n".encode())
            digest.update(part.cpu().contiguous().numpy())
        return digest.hexdigest()


@dataclass(frozen=True)
class Hand:
    """A writer: font, factors of size and width, slant (dx for each dy), space between letters and
    way between two points (both in font units), and the standard deviation of every point."""

    font: str
    size: float
    width: float
    slant: float
    spacing: float
    speed: float
    jitter: float

    def shaped(self, points: Polyline) -> Polyline:
        """The font's points as this writer's, whose y points up."""
        x, y = points[:, 0], -points[:, 1]
        return self.size * np.stack([self.width * x + self.slant * y, y], 1)


def hand(random: np.random.Generator) -> Hand:
    """A writer, drawn."""
    low = np.array([0.8, 0.8, -0.1, -1.0, 2.5, 0.08])
    high = np.array([1.25, 1.2, 0.4, 2.0, 4.0, 0.25])
    return Hand(FONTS[random.integers(len(FONTS))], *random.uniform(low, high).tolist())


def draw(lines: int, points: int, writers: int, seed: int, letters: str = LETTERS) -> Lines:
    """So many lines of so many points, by writers who take turns; letters are drawn evenly.

    Raises `ValueError` for letters that the fonts or the alphabet lack, and for numbers below 1.

    >>> drawn = draw(lines=2, points=60, writers=2, seed=0)
    >>> drawn.points.shape, said(drawn)
    (torch.Size([2, 60, 3]), ['abylo', 'jp'])
    """
    for name, value in (("lines", lines), ("points", points), ("writers", writers)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    numbers(letters, LETTERS)
    if not letters.strip():
        raise ValueError(f"letters must hold one that is written, got {letters!r}")
    random = np.random.Generator(np.random.PCG64(seed))
    hands = [hand(random) for _ in range(writers)]
    drawn = [_line(hands[i % writers], points, letters, random) for i in range(lines)]
    return gathered([(line, numbers(text)) for line, text in drawn])


def gathered(lines: Sequence[tuple[np.ndarray, Sequence[int]]]) -> Lines:
    """Points (t, 3) and text of each line, padded to the longest."""

    def padded(parts: list[Tensor]) -> Tensor:
        return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)

    points = [torch.as_tensor(line, dtype=torch.float32) for line, _ in lines]
    texts = [torch.tensor(text) for _, text in lines]
    lengths = (torch.tensor([len(part) for part in parts]) for parts in (points, texts))
    of_points, of_texts = lengths
    unscaled = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    return Lines(padded(points), of_points, padded(texts), of_texts, unscaled)


def numbers(text: str, known: str = ALPHABET) -> list[int]:
    """Places in `ALPHABET`. Raises `ValueError` for characters that are not known.

    >>> numbers("a cab")
    [1, 0, 3, 1, 2]
    """
    if unknown := sorted(set(text) - set(known)):
        named = ", ".join(map(repr, unknown))
        raise ValueError(f"unknown character {named}; there are {known!r}")
    return [ALPHABET.index(character) for character in text]


def said(lines: Lines) -> list[str]:
    """The text of each line."""
    each = zip(lines.text.tolist(), lines.text_lengths.tolist(), strict=True)
    return ["".join((ALPHABET + "?")[i] for i in text[:length]) for text, length in each]


def strokes(points: Float[Tensor, "t 3"]) -> list[Float[np.ndarray, "k 2"]]:
    """The places of the pen between liftings, from offsets, one array a stroke."""
    offsets = np.asarray(points, dtype=float)
    places = offsets[:, :2].cumsum(0)
    return np.split(places, np.flatnonzero(offsets[:-1, 2]) + 1)


def _line(
    by: Hand, points: int, letters: str, random: np.random.Generator
) -> tuple[Int[np.ndarray, "t 3"], str]:
    """A line of random words, in units of the tablet, cut after so many points; and its text."""
    places, lifted, text, x, word = [], [], "", 0.0, 0
    written = letters.replace(" ", "")
    count = 0
    while count < points:
        if word == 0:
            word = int(random.integers(2, 8))
            if text and " " in letters:
                text += " "
                x += by.size * by.width * 14
        letter = written[random.integers(len(written))]
        word -= 1
        text += letter
        parts, advance = _letter(by, letter)
        for part in parts:
            noise = random.normal(0, by.jitter, part.shape)
            places.append(part + noise + np.array([x, 0.0]))
            lifted.append(np.arange(1, len(part) + 1) == len(part))
            count += len(part)
        x += advance
    at = np.rint(UNITS * np.concatenate(places))[:points]
    moves = np.diff(at, axis=0, prepend=at[:1])
    return np.column_stack([moves, np.concatenate(lifted)[:points]]).astype(np.int32), text


@cache
def _letter(by: Hand, letter: str) -> tuple[list[Polyline], float]:
    """A writer's strokes of a letter, points evenly apart; and how far the next one starts."""
    glyph = _glyphs(by.font)[letter]
    found = []
    for stroke in glyph.strokes:
        at = by.shaped(np.array(stroke, dtype=float) - [glyph.left_offset, glyph.base_line])
        way = np.append(0.0, np.hypot(*np.diff(at, axis=0).T).cumsum())
        even = np.linspace(0, way[-1], max(2, 1 + round(way[-1] / by.speed)))
        found.append(np.stack([np.interp(even, way, axis) for axis in at.T], 1))
    return found, by.size * by.width * (glyph.char_width + by.spacing)


@cache
def _glyphs(font: str) -> dict:
    try:
        from HersheyFonts import HersheyFonts
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "handwriting is made from the package Hershey-Fonts, which is not installed; install "
            "it with: pip install 'layernorm[data]'"
        ) from error
    fonts = HersheyFonts()
    fonts.load_default_font(font)
    return fonts.all_glyphs


def straight_on(train: Lines, test: Lines) -> float:
    """The test lines' negative log-likelihood, in nats a point, of a guess without a text.

    Where the pen goes next is a normal distribution about a linear function of the last two
    offsets, one for a pen that was just lifted, one for a pen that was not; with what probability
    it is lifted depends on that, too. All are fitted to the training lines.
    """
    total, count = 0.0, 0
    for after_lift in (0, 1):
        (x, y), (x_test, y_test) = (_after(lines, after_lift) for lines in (train, test))
        weights = torch.linalg.lstsq(x, y[:, :2]).solution
        left, left_test = y[:, :2] - x @ weights, y_test[:, :2] - x_test @ weights
        normal = torch.distributions.MultivariateNormal(left.new_zeros(2), left.T.cov())
        lift = torch.distributions.Bernoulli(y[:, 2].mean())
        total -= float((normal.log_prob(left_test) + lift.log_prob(y_test[:, 2])).sum())
        count += len(y_test)
    return total / count


def _after(lines: Lines, lifted: int) -> tuple[Float[Tensor, "k 5"], Float[Tensor, "k 3"]]:
    """The last two offsets and 1, and the point that follows, of points at which the pen had just
    been lifted, or had not."""
    before = torch.zeros_like(lines.points[:, :2])
    before[:, 1, 2] = 1
    p = torch.cat([before, lines.points], 1).double()
    there = torch.arange(lines.points.shape[1]) < lines.lengths[:, None]
    rows = there & (p[:, 1:-1, 2] == lifted)
    x = torch.cat([p[:, 1:-1, :2], p[:, :-2, :2], torch.ones_like(p[:, 2:, :1])], -1)
    return x[rows], p[:, 2:][rows]
