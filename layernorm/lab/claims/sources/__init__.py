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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from layernorm.lab.claims.schema import NOBODY, SOURCE, Claim, ClaimError

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Statement:
    """One thing that a source says, with what decides it.

    Args:
        number: its place in the source, from 1.
        says: the statement in our words.
        places: ids of claims by the place that says them ("" where the source has no places).
        uncheckable: why nothing can decide it; "" if there are claims.
        elsewhere: its claims are not credited to this source.
    """

    number: int
    says: str
    places: Mapping[str, tuple[str, ...]]
    uncheckable: str
    elsewhere: bool

    @property
    def claims(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable(self.places.values()))


@dataclass(frozen=True)
class Source:
    """The paper, a summary, or the others."""

    name: str
    title: str
    statements: tuple[Statement, ...]

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
    refuse = _Refusal(path.name)
    fields = refuse.unless_mapping(content, {"name", "title", "statements"}, set())
    if not isinstance(fields["statements"], list):
        refuse("statements must be a list", fields["statements"])
    statements = []
    for number, entry in enumerate(fields["statements"], 1):
        says = entry.get("says", "") if isinstance(entry, dict) else ""
        refuse = _Refusal(f"{path.name}, statement {number} ({says!r})")
        statements.append(_statement(number, entry, str(fields["name"]), refuse))
    return Source(fields["name"], fields["title"], tuple(statements))


@dataclass(frozen=True)
class _Refusal:
    """Raises errors that begin with where they are."""

    where: str

    def __call__(self, expected: str, came: object) -> None:
        raise ClaimError(f"{self.where}: {expected}; got {came!r}")

    def unless_mapping(self, content: Any, wanted: set[str], allowed: set[str]) -> dict[str, Any]:
        """Return a mapping that has the wanted keys and none that is not allowed."""
        if not isinstance(content, dict) or not wanted <= set(content) <= wanted | allowed:
            keys = list(content) if isinstance(content, dict) else content
            self(f"expected the keys {', '.join(sorted(wanted | allowed))}", keys)
        return content


def _statement(number: int, entry: Any, source: str, refuse: _Refusal) -> Statement:
    refuse.unless_mapping(entry, {"says"}, {"claims", "uncheckable", "elsewhere"})
    for name in ("says", "uncheckable"):
        if name in entry and not (isinstance(entry[name], str) and entry[name].strip()):
            refuse(f"{name} must be one sentence", entry[name])
    if ("claims" in entry) == ("uncheckable" in entry):
        refuse("expected claims or the reason why it is uncheckable, one of the two", list(entry))
    elsewhere = entry.get("elsewhere", False)
    places = entry.get("claims", {})
    places = {"": places} if isinstance(places, list) else places
    if elsewhere not in (True, False) or not isinstance(places, dict):
        refuse("elsewhere must be true or false, claims a list or lists by place", entry)
    ids = list(chain.from_iterable(places.values()))
    if "claims" in entry and not (ids and all(isinstance(id, str) for id in ids)):
        refuse("claims must name at least one id", ids)
    if len(set(ids)) < len(ids):
        refuse("a claim is named once", ids)
    cited = () if elsewhere else chain.from_iterable(map(_places, places))
    for place in cited:
        if place != NOBODY and not SOURCE.fullmatch(f"{source} {place}".strip()):
            refuse("a place must be like 'section 5.1' or 'eq. 4'", place)
    return Statement(
        number,
        entry["says"],
        {place: tuple(ids) for place, ids in places.items()},
        entry.get("uncheckable", ""),
        elsewhere,
    )


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
