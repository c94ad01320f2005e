"""A statement of a source and the source itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Statement:
    """One thing that a source says, in our words, with what decides it.

    Raises:
        ValueError: both or neither of `claims` and `uncheckable`, or nothing is said.
    """

    number: int
    says: str
    claims: tuple[str, ...] = ()
    uncheckable: str = ""
    elsewhere: bool = False  # said of layer normalization, but not by this source

    def __post_init__(self) -> None:
        if not self.says.strip():
            raise ValueError(f"statement {self.number}: says must be one sentence, got nothing")
        if bool(self.claims) == bool(self.uncheckable.strip()):
            raise ValueError(
                f"statement {self.number} ({self.says!r}): expected claims or the reason why it "
                f"is uncheckable, one of the two; got claims={self.claims!r} and "
                f"uncheckable={self.uncheckable!r}"
            )


@dataclass(frozen=True)
class Source:
    """The paper or a summary, with the number of statements it was found to make."""

    name: str
    title: str
    count: int
    statements: tuple[Statement, ...]


def says(number: int, text: str, *claims: str) -> Statement:
    return Statement(number, text, claims)


def elsewhere(number: int, text: str, *claims: str) -> Statement:
    return Statement(number, text, claims, elsewhere=True)


def uncheckable(number: int, text: str, reason: str) -> Statement:
    return Statement(number, text, uncheckable=reason)
