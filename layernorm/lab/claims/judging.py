"""What the checks of experiments share: final values, arms that do not learn, one verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from layernorm.lab import records
from layernorm.lab.analysis import statistics
from layernorm.lab.claims import Finding

if TYPE_CHECKING:
    from pandas import DataFrame, Series

GUESSING = 90.0  # percent error of guessing one of ten classes


def final(frame: DataFrame, arm: str, metric: str) -> Series:
    """The final values of an arm's metric, by seed; `ValueError` if there are none."""
    rows = frame[(frame.arm == arm) & (frame.metric == metric) & frame.step.isna()]
    if rows.empty:
        raise ValueError(f"no final {metric!r} of arm {arm!r}: arms are {sorted(set(frame.arm))}")
    return rows.set_index("seed").value.sort_index()


def not_learning(study: str, arms: Sequence[str]) -> str | None:
    """Why the arms of a study cannot be compared, or None: one guesses, or one does not fit."""
    return guessing(study, arms) or not_fitting(study, arms)


def guessing(study: str, arms: Sequence[str]) -> str | None:
    """Which arm has a seed whose test error is that of guessing, as a sentence; else None."""
    frame = records.load(study, "book")
    weak = [arm for arm in arms if not (final(frame, arm, "test_error") < GUESSING).all()]
    return f"No better than guessing ({GUESSING:.0f}% error): {', '.join(weak)}." if weak else None


def not_fitting(study: str, arms: Sequence[str]) -> str | None:
    """Which arm errs on 32 examples it was trained on (profile `book_overfit`), or None."""
    frame = records.load(study, "book_overfit")
    weak = [arm for arm in arms if not (final(frame, arm, "train_error") == 0).all()]
    return f"Errors on 32 training examples: {', '.join(weak)}." if weak else None


def one_verdict(
    pairs: Mapping[str, Sequence[Iterable[float]]],
    margin: float,
    unit: str,
    confidence: float = 0.95,
) -> Finding:
    """The verdict that all comparisons share (`statistics.compare`), else `inconclusive`.

    The evidence gives each mean difference, favored − other, with its interval. Claims that share
    a study divide the 5% between them: two take a confidence of 0.975 each.
    """
    found = statistics.compare(pairs, margin, confidence)
    shared = {c.verdict for c in found.values()}
    parts = [f"{name} {c.difference:.3g}" for name, c in found.items()]
    interval = f"[{confidence * 100:g}% interval]"
    evidence = f"Mean difference in {unit} {interval}: {'; '.join(parts)}."
    numbers = {name: c.difference.mean for name, c in found.items()}
    if len(shared) == 1 and shared != {"inconclusive"}:
        return Finding(shared.pop(), evidence, numbers=numbers)
    split = ", ".join(f"{name}: {c.verdict}" for name, c in found.items())
    return Finding("inconclusive", evidence, reason=f"Of the comparisons, {split}.")
