"""Scenes of handwritten digits, and captions that are true of them.

A stand-in for photographs that people described. A scene has four places, two rows of two; each
holds the image of a digit or nothing. Five captions are drawn for a scene, each of one to three
facts, from a grammar of some 200 words. ::

    3 .     the picture shows a handwritten three on the left of the upper row and a pair of sevens
    7 7     the smallest digit is 3 and the top right corner is empty

A fact says where a digit stands, what stands beside, above or before what, how many there are, or
which number or row is larger. Most facts hold for many scenes, so a short caption is ambiguous;
`holds_for` counts how much a perfect reader could know. The same fact is said in many ways.

No caption belongs to two parts of the data: a hash of its text says to which one it may be given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import torch
from jaxtyping import Bool, Int
from torch import Tensor

PLACES, EMPTY, CAPTIONS = 4, -1, 5
PARTS = {"train": (0, 128), "validation": (128, 192), "test": (192, 256)}  # hash's first byte
VACANT = 0.15  # the chance that a place is empty
FACTS = (1, 2, 2, 3, 3)  # a caption has one of these numbers of facts

Scene = tuple[int, int, int, int]  # digits of the places, row by row; EMPTY
Fact = tuple[str | int, ...]

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PLURALS = tuple(f"{name}es" if name == "six" else f"{name}s" for name in NUMBERS)
ROWS = ("top", "upper"), ("bottom", "lower")
COLUMNS = ("left", "left-hand"), ("right", "right-hand")
NEIGHBOURS = {"beside": ((0, 1), (2, 3)), "above": ((0, 2), (1, 3))}
HALVES = {"top": (0, 1), "bottom": (2, 3), "left": (0, 2), "right": (1, 3)}
ACROSS = {"top": "bottom", "bottom": "top", "left": "right", "right": "left"}
PAIRS = tuple((p, q) for p in range(PLACES) for q in range(PLACES) if p != q)
OPENERS = (
    "the picture shows", "this image presents", "the scene has", "we see", "you can spot",
    "one sees", "somebody wrote", "someone drew", "the page contains", "the sheet holds",
    "the grid includes", "the drawing depicts", "a view of", "the paper displays", "here i find",
    "they noticed", "look at", "an image with", "a picture of", "the artist painted",
    "the camera caught", "a child scribbled", "notice", "observe", "behold", "it features",
    "the canvas bears", "my notes list", "there stands", "everybody recognizes", "the frame offers",
)  # fmt: skip
JOINTS = ("and", "also", "with", "plus", "besides", "then")
LINKS = ("and", "moreover", "while", "where", "whereas", "furthermore", "but", "yet")
ENDINGS = (
    "of course", "it seems", "for sure", "indeed", "apparently", "obviously", "clearly", "again",
    "evidently", "plainly", "no doubt", "surely",
)  # fmt: skip


def _true(scene: Scene) -> dict[str, list[Fact]]:
    """The facts that hold for a scene, by their kind."""
    there = [(p, d) for p, d in enumerate(scene) if d != EMPTY]
    digits = [d for _, d in there]
    odd = sum(d % 2 for d in digits)
    both = [(p, q) for p, q in PAIRS if EMPTY not in (scene[p], scene[q])]
    sums = {half: sum(max(scene[p], 0) for p in places) for half, places in HALVES.items()}
    found: dict[str, list[Fact]] = {
        "at": [("at", p, d) for p, d in there],
        "empty": [("empty", p) for p, d in enumerate(scene) if d == EMPTY],
        "before": [("before", scene[p], scene[q]) for p, q in both if p < q],
        "count": [("count", d, digits.count(d)) for d in set(digits)],
        "none": [("none", d) for d in range(10) if d not in digits],
        "digits": [("digits", len(digits))],
        "parity": [("parity", "odd", odd), ("parity", "even", len(digits) - odd)],
        "largest": [("largest", max(digits))],
        "smallest": [("smallest", min(digits))],
        "greater": [("greater", p, q) for p, q in both if scene[p] > scene[q]],
        "same": [("same", p, q) for p, q in both if p < q and scene[p] == scene[q]],
        "heavier": [("heavier", one) for one, other in ACROSS.items() if sums[one] > sums[other]],
    }
    for kind, places in NEIGHBOURS.items():
        found[kind] = [(kind, scene[p], scene[q]) for p, q in places if (p, q) in both]
    return found


LIKELY = {  # how often a fact of each kind is told, where there is one
    "at": 10, "beside": 3, "above": 3, "before": 2, "count": 3, "none": 1, "digits": 1, "parity": 1,
    "largest": 1, "smallest": 1, "greater": 1, "same": 1, "heavier": 1, "empty": 2,
}  # fmt: skip
_KINDS = tuple(kind for kind, times in LIKELY.items() for _ in range(times))


def facts(scene: Scene) -> frozenset[Fact]:
    """All that the grammar can say of a scene.

    >>> ("beside", 3, 8) in facts((3, 8, -1, 1)), ("above", 3, 1) in facts((3, 8, -1, 1))
    (True, False)
    """
    return frozenset(fact for of_kind in _true(scene).values() for fact in of_kind)


@dataclass(frozen=True)
class Caption:
    text: str
    facts: tuple[Fact, ...]


Pick = Callable[[Sequence], object]


def _picker(random: Random) -> Pick:
    """Choices by `Random.random` alone, whose numbers are the same in every version of Python."""
    return lambda options: options[int(random.random() * len(options))]


def _a(name: str) -> str:
    return f"an {name}" if name in ("eight", "8") else f"a {name}"


def _digit(d: int, pick: Pick) -> str:
    """A digit, one of many ways to say it."""
    name = pick((NUMBERS[d], str(d)))
    kinds = ("the digit", "the number", "the figure", "the numeral", "the symbol", "the character")
    hands = ("a handwritten", "a scribbled", "a written", "somebody's", "a penned", "a sketched")
    return pick((_a(name), _a(name), name, f"{pick(kinds)} {name}", f"{pick(hands)} {name}"))


def _corner(p: int, pick: Pick) -> str:
    return f"{pick(ROWS[p // 2])} {pick(COLUMNS[p % 2])}"


def _where(p: int, pick: Pick) -> str:
    row, column = pick(ROWS[p // 2]), COLUMNS[p % 2][0]
    ways = (
        f"in the {_corner(p, pick)}",
        f"at the {row} {column}",
        f"in the {_corner(p, pick)} corner",
        f"{row} {column}",
        f"{'up' if p < 2 else 'down'} on the {column}",
        f"{('north', 'south')[p // 2]}{('west', 'east')[p % 2]}",
    )
    return pick(ways)


def _worded(fact: Fact, pick: Pick) -> tuple[bool, str]:
    """A fact in words: whether these are a sentence or a thing that there is, and the words."""
    kind, *of = fact
    return kind in _SENTENCES, pick(_WAYS[kind](pick, *of))


def _neighbours(forward: Sequence[str], backward: Sequence[str]) -> Callable:
    def ways(pick: Pick, a: int, b: int) -> tuple[str, ...]:
        one, other = _digit(a, pick), _digit(b, pick)
        return f"{one} {pick(forward)} {other}", f"{other} {pick(backward)} {one}"

    return ways


def _extreme(most: str, than: Sequence[str], ends: Sequence[str]) -> Callable:
    def ways(pick: Pick, d: int) -> tuple[str, ...]:
        name = pick((NUMBERS[d], str(d)))
        return (
            f"the {most} digit is {_digit(d, pick)}",
            f"no digit is {pick(than)} than {name}",
            f"{name} is the {pick(ends)}",
        )

    return ways


def _count(pick: Pick, d: int, n: int) -> tuple[str, ...]:
    if n == 1:
        return tuple(f"{how} {NUMBERS[d]}" for how in ("exactly one", "a single", "just one"))
    how = {2: ("a pair of", "a couple of"), 3: ("a trio of", "a triple of")}.get(n, ("a lot of",))
    return f"{pick(how)} {PLURALS[d]}", f"{NUMBERS[n]} {PLURALS[d]}", f"{n} times {NUMBERS[d]}"


def _greater(pick: Pick, p: int, q: int) -> tuple[str, ...]:
    one, other = _corner(p, pick), _corner(q, pick)
    return (
        f"{one} is {pick(('larger', 'greater', 'bigger', 'higher'))} than {other}",
        f"{other} is {pick(('smaller', 'less', 'lower'))} than {one}",
        f"{one} {pick(('exceeds', 'beats', 'tops'))} {other}",
    )


def _heavier(pick: Pick, half: str) -> tuple[str, ...]:
    line = "row" if half in ("top", "bottom") else "column"
    other = ACROSS[half]
    return (
        f"the {half} {line} sums to more",
        f"the {other} {line} sums to less",
        f"the {half} {line} outweighs the {other}",
    )


_SENTENCES = {"before", "largest", "smallest", "greater", "same", "heavier", "empty"}
_WAYS: dict[str, Callable[..., tuple[str, ...]]] = {
    "at": lambda pick, p, d: (f"{_digit(d, pick)} {_where(p, pick)}",),
    "empty": lambda pick, p: (
        f"{_corner(p, pick)} is {pick(('empty', 'blank', 'vacant', 'free'))}",
        f"nothing {_where(p, pick)}",
    ),
    "beside": _neighbours(
        ("left of", "to the left of", "directly left of"),
        ("right of", "to the right of", "directly right of"),
    ),
    "above": _neighbours(
        ("above", "over", "on top of"), ("below", "under", "beneath", "underneath")
    ),
    "before": _neighbours(("comes before", "precedes"), ("comes after", "follows")),
    "count": _count,
    "none": lambda pick, d: (f"no {NUMBERS[d]}", f"not a single {NUMBERS[d]}", f"no {PLURALS[d]}"),
    "digits": lambda pick, n: (
        f"{NUMBERS[n]} digits in all",
        f"a total of {NUMBERS[n]} {pick(('numbers', 'digits', 'figures'))}",
        f"exactly {n} {pick(('symbols', 'numerals', 'signs'))}",
    ),
    "parity": lambda pick, kind, n: (
        f"{NUMBERS[n] if n else 'no'} {kind} digit{'s' * (n != 1)}",
        f"{n} {kind} {pick(('number', 'figure'))}{'s' * (n != 1)}",
    ),
    "largest": _extreme("largest", ("larger", "greater", "bigger"), ("maximum", "highest")),
    "smallest": _extreme("smallest", ("smaller", "less", "lower"), ("minimum", "lowest")),
    "greater": _greater,
    "same": lambda pick, p, q: (
        f"{_corner(p, pick)} equals {_corner(q, pick)}",
        f"{_corner(p, pick)} and {_corner(q, pick)} {pick(('agree', 'match'))}",
    ),
    "heavier": _heavier,
}


def worded(told: Sequence[Fact], random: Random) -> str:
    """These facts as one caption, in words drawn at random.

    >>> worded([("at", 0, 8), ("largest", 8)], Random(1))
    'the picture shows an eight in the top left-hand yet eight is the highest'
    """
    pick = _picker(random)
    said = [_worded(fact, pick) for fact in told]
    things = [words for sentence, words in said if not sentence]
    text = [words for sentence, words in said if sentence]
    if things:
        text.insert(0, f"{pick(OPENERS)} {f' {pick(JOINTS)} '.join(things)}")
    ending = [pick(ENDINGS)] if random.random() < 0.1 else []
    return " ".join([f" {pick(LINKS)} ".join(text), *ending])


def drawn(scene: Scene, random: Random, part: str) -> Caption:
    """A caption that is true of the scene and that this part of the data may have."""
    pick, true = _picker(random), _true(scene)
    low, high = PARTS[part]
    while True:
        told: dict[Fact, None] = {}
        count = pick(FACTS)
        while len(told) < count:
            if of_kind := true[pick(_KINDS)]:
                told[pick(of_kind)] = None
        text = worded(tuple(told), random)
        if low <= hashlib.sha256(text.encode()).digest()[0] < high:
            return Caption(text, tuple(told))


@dataclass(frozen=True)
class Scenes:
    """Scenes as numbers of the images at their places (EMPTY: none), their digits and captions;
    captions 5i to 5i + 4 are those of scene i."""

    images: Int[Tensor, "n 4"]
    digits: list[Scene]
    captions: list[Caption]

    def __len__(self) -> int:
        return len(self.digits)


def draw(labels: Int[Tensor, " images"], count: int, part: str, seed: int) -> Scenes:
    """So many scenes of images with these labels, at least two in each.

    Raises `ValueError` for an unknown part and where there is no image.
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, got {part!r}")
    if len(labels) == 0:
        raise ValueError("labels must be those of at least one image, got none")
    random = Random(seed)
    classes, images, captions = labels.tolist(), [], []
    while len(images) < count:
        scene = [
            EMPTY if random.random() < VACANT else int(random.random() * len(classes))
            for _ in range(PLACES)
        ]
        if sum(image != EMPTY for image in scene) > 1:
            images.append(scene)
    digits = [tuple(EMPTY if i == EMPTY else classes[i] for i in scene) for scene in images]
    for scene in digits:
        captions += [drawn(scene, random, part) for _ in range(CAPTIONS)]
    return Scenes(torch.tensor(images).reshape(-1, PLACES), digits, captions)


def holds_for(scenes: Scenes) -> Bool[Tensor, "captions n"]:
    """Tell which captions are true of which scenes."""
    true = [facts(scene) for scene in scenes.digits]
    told = [set(caption.facts) for caption in scenes.captions]
    return torch.tensor([[one <= all_true for all_true in true] for one in told])


def ceiling(holds: Bool[Tensor, "captions n"], k: int) -> float:
    """The Recall@k in percent, captions to scenes, of a reader that knows exactly what holds and
    guesses among the scenes for which it does."""
    there = holds.sum(1).double()
    return 100 * float((k / there).clamp(max=1).mean())
