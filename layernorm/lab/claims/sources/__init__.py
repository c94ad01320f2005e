"""The paper, its five summaries and others as lists of statements, and the claims that decide each.

Every file `*.yaml` of this folder is a source: its name, its title, and its statements in our
words. A statement names the claims that decide it, or the reason why nothing can::

    name: paper
    title: Ba, Kiros and Hinton 2016, Layer Normalization
    statements:
      - says: "Table 1: which method is invariant under what."
        claims:
          section 5.1, table 1: [table-1-row-batch, table-1-row-weight]
      - says: Equations (1) to (4).
        uncheckable: a definition; the chapters follow it

A claim is said by the sources whose statements name it, at the places under which they do so
(`said_by`). A statement that repeats another source's and is credited to that one alone says
`elsewhere: true`; what no more than others say of the paper's method is their own source. A place
`this book` stands beside others where a claim goes beyond what they say, as one does that compares
with the control alone; in a source without places it stands beside the source. That it is the norm
and not the scale of the start is this book's claim, and no source's: none has such a control.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from layernorm.lab.claims.schema import NOBODY, SOURCE, Claim, ClaimError

FOLDER = Path(__file__).parent
RULES = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)
Words = Annotated[str, Field(min_length=1)]


class Statement(BaseModel):
    """One thing that a source says, with what decides it.

    `number`: its place in the source, from 1. `says`: the statement in our words. `places`: the ids
    in `claims` by the place that says them ("" where the source has no places). `uncheckable`: why
    nothing can decide it. `elsewhere`: its claims are not credited to this source.
    """

    model_config = RULES

    number: int
    says: Words
    places: dict[str, tuple[str, ...]] = Field({}, alias="claims")
    uncheckable: Words = ""
    elsewhere: bool = Field(False, strict=True)

    @property
    def claims(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable(self.places.values()))

    @field_validator("places", mode="before")
    @classmethod
    def _by_place(cls, claims: Any) -> Any:
        return {"": claims} if isinstance(claims, list) else claims

    @model_validator(mode="after")
    def _decided(self) -> Statement:
        if bool(self.claims) == bool(self.uncheckable):
            raise ValueError("expected claims or the reason why it is uncheckable, one of the two")
        if len(set(self.claims)) < len(self.claims):
            raise ValueError("a claim must be named once")
        return self


class Source(BaseModel):
    """The paper, a summary, or the others."""

    model_config = RULES

    name: str
    title: str
    statements: tuple[Statement, ...]

    @field_validator("statements", mode="before")
    @classmethod
    def _numbered(cls, entries: Any) -> Any:
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError("must be a list of mappings")
        return [{**entry, "number": number} for number, entry in enumerate(entries, 1)]

    @model_validator(mode="after")
    def _cited(self) -> Source:
        credited = [s for s in self.statements if not s.elsewhere]
        places = [(s.number, place) for s in credited for p in s.places for place in _places(p)]
        for number, place in places:
            if not SOURCE.fullmatch(self._citation(place)):
                raise ValueError(f"statement {number}: must be a place like 'eq. 4', not {place!r}")
        return self

    def credits(self, id: str) -> list[str]:
        """Return how the source is cited as saying a claim; an empty list if it does not."""
        places = [
            self._citation(place)
            for statement in self.statements
            if not statement.elsewhere
            for together, ids in statement.places.items()
            if id in ids
            for place in _places(together)
        ]
        return list(dict.fromkeys(places))

    def _citation(self, place: str) -> str:
        return place if place == NOBODY else f"{self.name} {place}".strip()


@cache
def load() -> dict[str, Source]:
    """All sources by name, the paper first.

    Raises:
        ClaimError: a file breaks the rules above; the message names the file and the entry.
    """
    sources = [read(path) for path in sorted(FOLDER.glob("*.yaml"))]
    return {source.name: source for source in sources}


def read(path: Path) -> Source:
    """Read one source.

    Raises:
        ClaimError: as `load`.
    """
    import yaml

    try:
        content = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ClaimError(f"{path.name} is no YAML: {error}") from error
    try:
        return Source.model_validate(content)
    except ValidationError as error:
        wrong = error.errors()[0]
        place = [f"statement {at + 1}" if isinstance(at, int) else at for at in wrong["loc"]]
        said = wrong["msg"].removeprefix("Value error, ")
        where = ": ".join([path.name, *place, said])
        raise ClaimError(f"{where}; got {reprlib.repr(wrong['input'])}") from error


def _places(together: str) -> list[str]:
    return ["", NOBODY] if together == NOBODY else together.split(", ")


def said_by(id: str, sources: Iterable[Source] | None = None) -> tuple[str, ...]:
    """Return who says a claim: sources (of all, by default) that name it, or this book."""
    sources = load().values() if sources is None else sources
    return tuple(chain.from_iterable(s.credits(id) for s in sources)) or (NOBODY,)


def problems(sources: Iterable[Source], claims: Iterable[Claim]) -> list[str]:
    """Return one sentence for each statement whose claim does not exist, and for each claim whose
    `said_by` is not that of the sources."""
    sources = list(sources)
    known = {claim.id: claim for claim in claims}
    lost = [
        f"{source.name}, {statement.number}: there is no claim {id!r}"
        for source in sources
        for statement in source.statements
        for id in statement.claims
        if id not in known
    ]
    return lost + [
        f"claim {claim.id!r} says that it is said by {claim.said_by}; the sources say {derived}"
        for claim in known.values()
        if (derived := said_by(claim.id, sources)) != claim.said_by
    ]
