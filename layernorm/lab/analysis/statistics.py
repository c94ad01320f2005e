r"""Intervals over seeds, and how many seeds they need.

Five seeds are too few for a percentile bootstrap, so every interval is Student's t. Arms that
share their seeds are compared by their paired differences.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Interval:
    """A mean with its two-sided confidence interval, in the unit of the values.

    >>> f"{Interval(-0.001, -0.02, 0.02, n=5):.1f}"
    '0.0 [0.0, 0.0]'
    """

    mean: float
    low: float
    high: float
    n: int

    def __format__(self, spec: str) -> str:
        spec = f"z{spec or '.3g'}"  # no minus before a zero
        return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"

    def __str__(self) -> str:
        return format(self)


def _values(values: Iterable[float], name: str) -> np.ndarray:
    array = np.asarray(list(values), dtype=float)
    if array.ndim != 1 or array.size < 2:
        raise ValueError(
            f"{name} must be one number for each of at least two seeds, got shape {array.shape}; "
            "run more seeds"
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} holds a non-finite value: {array.tolist()}; a diverged run has no mean, "
            "report it as diverged instead"
        )
    return array


def interval(
    values: Iterable[float], confidence: float = 0.95, first: int | None = None
) -> Interval:
    r"""Student's t interval of the mean over seeds.

    $\bar v \pm t_{n-1,\,(1+c)/2}\; s/\sqrt{n}$, with the unbiased standard deviation $s$. With
    `first` it is Stein's: s and its degrees of freedom are those of the first so many values, which
    had fixed how many there are (`needed`); its confidence is exact for normal values.

    Raises `ValueError` for fewer than two values, a non-finite value, or a confidence outside
    (0, 1).

    Source: Stein 1945, A two-sample test for a linear hypothesis whose power is independent of the
    variance.

    >>> f"{interval([1.0, 2.0, 3.0]):.2f}"
    '2.00 [-0.48, 4.48]'
    >>> f"{interval([1.0, 2.0, 3.0, 3.5, 3.0, 2.5], first=3):.2f}"
    '2.50 [0.74, 4.26]'
    """
    v = _values(values, "values")
    half = _half_width(v[:first], v.size, confidence)
    return Interval(float(v.mean()), float(v.mean() - half), float(v.mean() + half), v.size)


def needed(first: Iterable[float], half_width: float, confidence: float, at_most: int) -> int:
    """The number of values whose interval has at most this half-width, from the spread of the
    first ones: between their number and `at_most`.

    >>> needed([1.0, 2.0, 3.0], 1.0, 0.95, at_most=20)
    19
    """
    v = _values(first, "first")
    enough = (_half_width(v, 1, confidence) / half_width) ** 2
    return min(max(math.ceil(enough), v.size), at_most)


def _half_width(first: np.ndarray, n: int, confidence: float) -> float:
    from scipy.stats import t

    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}; 0.95 is usual")
    return t.ppf((1 + confidence) / 2, first.size - 1) * first.std(ddof=1) / math.sqrt(n)


def sign_flip(values: Iterable[float]) -> float:
    """The chance that random signs make the sum of these values as low as it is, or lower: the
    exact one-sided test of values that are symmetric about zero, for at most 20 of them.

    >>> sign_flip([-1.0, -2.0, -4.0])
    0.125
    """
    v = _values(values, "values")
    if v.size > 20:
        raise ValueError(f"values must be at most 20, got {v.size}; more have too many signs")
    sums = np.zeros(1)
    for value in np.abs(v):
        sums = np.concatenate([sums - value, sums + value])
    return float((sums <= v.sum() + 1e-12 * np.abs(v).sum()).mean())


def paired_interval(a: Iterable[float], b: Iterable[float]) -> Interval:
    """The 95% interval of the mean of `a - b`, where `a[i]` and `b[i]` share their seed.

    Raises `ValueError` if the two differ in length, and as `interval` does.

    >>> f"{paired_interval([1.0, 2.0, 3.5], [0.0, 1.0, 2.0]):.2f}"
    '1.17 [0.45, 1.88]'
    """
    x, y = _values(a, "a"), _values(b, "b")
    if x.size != y.size:
        raise ValueError(
            f"a and b must hold the same seeds in the same order, got {x.size} and {y.size} values"
        )
    return interval(x - y)
