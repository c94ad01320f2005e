"""Claims and findings; anything else is refused when it is written, not when it is read.

A *claim* is a statement that the paper or one of its summaries makes, put in our words, with the
rule by which it is decided. A *finding* is what running that rule gave.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import SupportsFloat

VERDICTS = {
    "proof": ("proved", "refuted", "conditional"),
    "property": ("held", "refuted", "conditional"),
    "experiment": (
        *("supported here", "not better here", "no difference here", "opposite here"),
        *("depends", "inconclusive"),
    ),
    "text": ("so printed", "not so printed"),
}
NOT_YET_TESTED = "not yet tested"
EXPLORATORY = "exploratory"  # counted, and shown with its intervals, but nothing is decided
ORDER = (*dict.fromkeys(v for verdicts in VERDICTS.values() for v in verdicts),)
ORDER += (EXPLORATORY, NOT_YET_TESTED)  # all verdicts, as they are listed
KINDS = tuple(VERDICTS)
CHAPTERS = tuple(f"{number:02d}" for number in range(1, 23))

_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*(/[a-z][a-z0-9_]*)?")
SOURCE = re.compile(
    r"paper (abstract|supplement|section \d(\.\d)*|eq\. \d+(-\d+)?|table \d|figure \d+)"
    r"|summary [A-E]|others|this book"
)
NOBODY = "this book"  # who says what no source says
_SOURCE_HELP = (
    "'paper abstract', 'paper section 5.1', 'paper eq. 4', 'paper eq. 20-22', 'paper table 1', "
    "'paper figure 2', 'paper supplement', 'summary A' to 'summary E', 'others', 'this book'"
)


class ClaimError(ValueError):
    """A claim, a finding or a check that breaks the rules; the message names the claim."""


@dataclass(frozen=True)
class Finding:
    """The result of a claim's check.

    Args:
        verdict: one of the verdicts of the claim's kind (`VERDICTS`), or of an experiment
            `exploratory` or `not yet tested`.
        evidence: one sentence with the computed numbers, the same text on every machine.
        condition: under which condition the claim holds; required by `conditional`, and only there.
        reason: why there is no single verdict; required by `inconclusive` and `depends` (on
            what), and only there.
        numbers: the computed numbers by name, as they are (they may differ between machines);
            whatever `float` accepts.
        table: of an experiment, a row for each comparison that its verdict rests on.

    Raises:
        ClaimError: an unknown verdict, or one whose evidence, condition or reason is missing or
            superfluous.
    """

    verdict: str
    evidence: str = ""
    condition: str | None = None
    reason: str | None = None
    numbers: Mapping[str, SupportsFloat] = field(default_factory=dict)
    table: tuple[Mapping[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.verdict not in ORDER:
            raise ClaimError(f"verdict {self.verdict!r} is none of {', '.join(ORDER)}")
        wanted = {
            "condition": self.verdict == "conditional",
            "reason": self.verdict in ("inconclusive", "depends"),
        }
        for name, required in wanted.items():
            given = getattr(self, name)
            if required and not (given or "").strip():
                raise ClaimError(f"verdict {self.verdict!r} needs {name}='…', none was given")
            if not required and given is not None:
                raise ClaimError(f"verdict {self.verdict!r} takes no {name}, got {given!r}")
        without = ("inconclusive", NOT_YET_TESTED)
        if self.verdict not in without and not self.evidence.strip():
            raise ClaimError(
                f"verdict {self.verdict!r} needs evidence='one sentence with the numbers'"
            )
        object.__setattr__(self, "table", tuple(self.table))
        object.__setattr__(self, "numbers", {k: float(v) for k, v in self.numbers.items()})

    @property
    def sentence(self) -> str:
        """Condition or reason and evidence in one piece of text, for tables."""
        parts = (
            f"Holds if {self.condition}." if self.condition else "",
            self.reason,
            self.evidence,
        )
        return " ".join(part.strip() for part in parts if part)


@dataclass(frozen=True)
class Claim:
    """One statement and how it is decided.

    Args:
        id: kebab-case; with `/experiment` where a statement is claimed of several experiments.
        statement: what is claimed, in our words, one sentence.
        said_by: who says it, for instance `("paper section 3", "summary A")`.
        kind: `proof` (symbolic or exact), `property` (tested over many inputs), `experiment` (read
            from published records) or `text` (a table or sentence of a source).
        chapter: the chapter that owns it, `"01"` to `"22"`.
        rule: what decides which verdict, fixed before looking; required by a check.
        check: computes the `Finding`; None stands for a claim that is not yet tested.
        sabotage: `(dotted target, mutant)`: put in place of the target, the mutant must change the
            verdict. It shows that the check can fail; tests require it of proofs and properties.
        runs: the published sweep that decides it, `<experiment>-<profile>`; "" if none does.

    Raises:
        ClaimError: naming the field, what was expected and what came.
    """

    id: str
    statement: str
    said_by: tuple[str, ...]
    kind: str
    chapter: str
    rule: str | None = None
    check: Callable[[], Finding] | None = None
    sabotage: tuple[str, object] | None = None
    runs: str = ""

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            self._refuse("id", "kebab-case, optionally with /experiment", self.id)
        if not self.statement.strip():
            self._refuse("statement", "one sentence", self.statement)
        if not self.said_by:
            self._refuse("said_by", f"at least one of the forms {_SOURCE_HELP}", self.said_by)
        for source in self.said_by:
            if not SOURCE.fullmatch(source):
                self._refuse("said_by", f"one of the forms {_SOURCE_HELP}", source)
        if self.kind not in KINDS:
            self._refuse("kind", f"one of {', '.join(KINDS)}", self.kind)
        if self.chapter not in CHAPTERS:
            self._refuse("chapter", "two digits from '01' to '22'", self.chapter)
        if self.check is not None and not (self.rule or "").strip():
            self._refuse("rule", "what decides the verdict, fixed beforehand", self.rule)
        if self.sabotage is not None and not self._is_pair(self.sabotage):
            self._refuse("sabotage", "('package.module.name', mutant)", self.sabotage)

    def _refuse(self, name: str, expected: str, came: object) -> None:
        raise ClaimError(f"claim {self.id!r}: {name} must be {expected}; got {came!r}")

    @staticmethod
    def _is_pair(sabotage: object) -> bool:
        return (
            isinstance(sabotage, tuple)
            and len(sabotage) == 2
            and isinstance(sabotage[0], str)
            and "." in sabotage[0]
        )

    def verdicts(self) -> tuple[str, ...]:
        """Return what its check may answer; an experiment of which nobody has said the outcome is
        exploratory, and one without published records not yet tested."""
        open_ones = (EXPLORATORY, NOT_YET_TESTED) if self.kind == "experiment" else ()
        return VERDICTS[self.kind] + open_ones
