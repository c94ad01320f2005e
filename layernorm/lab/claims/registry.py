"""The registry: claims are declared in files of chapters, found by their names, and decided."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from layernorm.lab.claims import sources
from layernorm.lab.claims.schema import CHAPTERS, KINDS, NOT_YET_TESTED, Claim, ClaimError, Finding
from layernorm.lab.experiments.checkpoint import seeded
from layernorm.lab.records import published_only

FOLDER = str(Path(__file__).parent)
NAMES = ("experiments", "levels", "paper")  # files of claims that span chapters
_registry: dict[str, Claim] = {}


def declare(
    *,
    id: str,
    statement: str,
    kind: str = "property",
    chapter: str | None = None,
    rule: str | None = None,
    check: Callable[[], Finding] | None = None,
    sabotage: tuple[str, object] | None = None,
    said_by: str | Sequence[str] | None = None,
    runs: str = "",
) -> Claim:
    """Add a claim to the registry; without a check it is `not yet tested`.

    Who says it follows from the sources, and the chapter from the name of the check's file, unless
    they are given.

    Raises:
        ClaimError: a field breaks the rules of `Claim`, or another claim has this id.
    """
    given = (said_by,) if isinstance(said_by, str) else said_by
    said = sources.said_by(id) if given is None else tuple(given)
    if chapter is None:
        chapter = getattr(check, "__module__", "").partition(".chapter_")[2][:2]
    new = Claim(id, statement, said, kind, chapter, rule, check, sabotage, runs)
    old = _registry.get(id)
    if old is not None and _identity(old) != _identity(new):
        raise ClaimError(
            f"claim {id!r} is declared twice: for chapter {old.chapter} ({old.statement!r}) and "
            f"chapter {chapter} ({statement!r}); give one of them another id "
            "(or restart Python if this is one claim, edited and loaded again)"
        )
    _registry[id] = new
    return new


def _identity(claim: Claim) -> tuple:
    """Equal when a chapter file is merely executed again, as test collectors and reloads do."""
    name = getattr(claim.check, "__qualname__", None)
    fields = (claim.statement, claim.said_by, claim.kind, claim.chapter, claim.rule)
    return (*fields, name)


def claim(**fields: Any) -> Callable[[Callable[[], Finding]], Callable[[], Finding]]:
    """Register the function that decides a claim, a decorator; arguments are those of `declare`.

    Raises:
        ClaimError: a field breaks the rules of `Claim`, or another claim has this id.
    """

    def register(check: Callable[[], Finding]) -> Callable[[], Finding]:
        declare(check=check, **fields)
        return check

    return register


def all() -> tuple[Claim, ...]:
    """Every claim, by chapter, in the order of declaration."""
    for module in pkgutil.iter_modules([FOLDER]):
        if module.name.startswith("chapter_") or module.name in NAMES:
            importlib.import_module(f"{__package__}.{module.name}")
    return tuple(sorted(_registry.values(), key=lambda claim: claim.chapter))


def get(id: str) -> Claim:
    """The claim with this id.

    Raises:
        ClaimError: there is none; the message names the nearest ones.
    """
    known = {claim.id: claim for claim in all()}
    if id not in known:
        near = difflib.get_close_matches(id, known, n=3, cutoff=0.6)
        near = near or [other for other in known if id in other][:3]
        hint = f"did you mean {', '.join(near)}?" if near else "`layernorm claims` lists them"
        raise ClaimError(f"there is no claim {id!r}; {hint}")
    return known[id]


def select(chapter: str | None = None, kind: str | None = None) -> tuple[Claim, ...]:
    """The claims of a chapter, of a kind, of both, or all.

    Raises:
        ClaimError: no such chapter or kind.
    """
    for name, value, known in (("chapter", chapter, CHAPTERS), ("kind", kind, KINDS)):
        if value is not None and value not in known:
            raise ClaimError(f"{name} must be one of {', '.join(known)}; got {value!r}")
    return tuple(
        claim for claim in all() if chapter in (None, claim.chapter) and kind in (None, claim.kind)
    )


@contextmanager
def _same_start(seed: int = 0) -> Iterator[None]:
    """Fixed seeds and gradients on; puts back every global state a check may have changed."""
    dtype = torch.get_default_dtype()
    try:  # of the generators the CPU's alone: a GPU's state stays as it is
        with seeded(seed, torch.device("cpu")), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)


def decide(id: str, seed: int = 0) -> Finding:
    """Run the check of a claim on what is published, its random draws begun with a seed.

    Raises:
        ClaimError: there is no such claim, its check raised (the cause is chained), or what it
            returned is not a finding of the claim's kind.
    """
    claim = get(id)
    if claim.check is None:
        return Finding(NOT_YET_TESTED, evidence=f"Chapter {claim.chapter} will decide it.")
    try:
        with _same_start(seed), published_only():
            finding = claim.check()
    except Exception as error:
        raise ClaimError(
            f"the check of claim {id!r} raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(finding, Finding):
        raise ClaimError(f"the check of claim {id!r} must return a Finding; got {finding!r}")
    if finding.verdict not in claim.verdicts():
        raise ClaimError(
            f"the check of claim {id!r} gave {finding.verdict!r}, but a claim of kind "
            f"{claim.kind!r} is one of {', '.join(claim.verdicts())}"
        )
    return finding
