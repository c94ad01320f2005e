"""Verdicts as they were decided last, in `verdicts.json`, so that listing them decides nothing.

Each stands beside digests of the code, the rule (that of an experiment is made from its rows) and
the records that decided it. A digest over the bytes of all files answers first whether anything
changed at all, in milliseconds.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from layernorm.lab.claims.schema import NOT_YET_TESTED, Claim, Finding
from layernorm.lab.records import published, staleness
from layernorm.lab.records.files import write

FILE = Path(__file__).with_name("verdicts.json")
PACKAGE = Path(__file__).parents[2]
RUN = {"options": {}}  # to the digests of records a check is a run without options
FIELDS = ("verdict", "condition", "reason", "evidence", "table")
MISSING = Finding(NOT_YET_TESTED, "No verdict is stored; decide it with --check.")


class Stored:
    """The stored verdicts.

    Args:
        file: where they are, by default in the package; it need not exist.
    """

    def __init__(self, file: Path | None = None) -> None:
        file = FILE if file is None else file
        content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        self.file = file
        self.bytes = content.get("bytes", "")
        self.verdicts: dict[str, dict[str, str]] = content.get("verdicts", {})

    def finding(self, claim: Claim) -> Finding:
        """Return what was found when the claim was decided last."""
        if not (stored := self.verdicts.get(claim.id)):
            return MISSING
        found = {name: stored[name] for name in FIELDS if name in stored}
        return Finding(**{**found, "table": tuple(found.get("table", ()))})

    def outdated(self, claims: Iterable[Claim]) -> set[str]:
        """Return the ids of claims whose stored verdict belongs to other code or other records."""
        if self.bytes == _bytes(self.file):
            return set()
        return {claim.id for claim in claims if not self._current(claim)}

    def _current(self, claim: Claim) -> bool:
        stored = self.verdicts.get(claim.id)
        if stored is None or any(stored.get(k) != v for k, v in self._judged_by(claim).items()):
            return False
        return not staleness.changed(stored["code"], RUN, {})

    def save(self, decided: Iterable[tuple[Claim, Finding]], known: Iterable[Claim]) -> None:
        """Store these findings beside those of other claims; claims that are not known are dropped.

        Args:
            decided: what has just been found.
            known: all claims.
        """
        for claim, finding in decided:
            told = {name: getattr(finding, name) for name in FIELDS if getattr(finding, name)}
            self.verdicts[claim.id] = {**told, "code": code(claim), **self._judged_by(claim)}
        known = [claim for claim in known if claim.id in self.verdicts]
        self.verdicts = {claim.id: self.verdicts[claim.id] for claim in known}
        self.bytes = ""
        self.bytes = "" if self.outdated(known) else _bytes(self.file)
        content = {"bytes": self.bytes, "verdicts": self.verdicts}
        text = json.dumps(content, indent=1, ensure_ascii=False)
        write(self.file, text + "\n")

    def _judged_by(self, claim: Claim) -> dict[str, str]:
        """Return the digests of a claim's rule, and of all published records if they decide it."""
        records = self._records if claim.kind == "experiment" else ""
        return {"rule": _hash([(claim.rule or "").encode()]), "records": records}

    @cached_property
    def _records(self) -> str:
        folder = published.published_folder()
        files = (folder / f"{name}.json" for name in published.names())
        runs = (json.dumps(published.values(file.read_bytes())) for file in files)
        return _hash(text.encode() for text in runs)


def code(claim: Claim) -> str:
    """Return the digest of the code that a claim's check reaches; "" without a check.

    A check without a name of its own, a lambda, depends on all of its module.
    """
    if claim.check is None:
        return ""
    unnamed = "<lambda>" in claim.check.__qualname__
    root = sys.modules[claim.check.__module__] if unnamed else claim.check
    return staleness.digest([root], RUN, {})


def _bytes(apart_from: Path) -> str:
    files = (f for f in sorted(PACKAGE.rglob("*")) if f.is_file() and f.suffix != ".pyc")
    return _hash(file.read_bytes() for file in files if file not in (FILE, apart_from))


def _hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]
