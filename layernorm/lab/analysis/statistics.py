r"""Intervals over seeds.

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
    """A mean with its two-sided confidence interval, in the unit of the values."""

    mean: float
    low: float
    high: float
    n: int

    def __format__(self, spec: str) -> str:
        spec = spec or ".3g"
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


def interval(values: Iterable[float], confidence: float = 0.95) -> Interval:
    r"""Student's t interval of the mean over seeds.

    $\bar v \pm t_{n-1,\,(1+c)/2}\; s/\sqrt{n}$, with the unbiased standard deviation $s$.

    Raises `ValueError` for fewer than two values, a non-finite value, or a confidence outside
    (0, 1).

    >>> f"{interval([1.0, 2.0, 3.0]):.2f}"
    '2.00 [-0.48, 4.48]'
    """
    from scipy.stats import t

    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}; 0.95 is usual")
    v = _values(values, "values")
    half = t.ppf((1 + confidence) / 2, v.size - 1) * v.std(ddof=1) / math.sqrt(v.size)
    return Interval(float(v.mean()), float(v.mean() - half), float(v.mean() + half), v.size)


def paired_interval(a: Iterable[float], b: Iterable[float], confidence: float = 0.95) -> Interval:
    """The interval of the mean of `a - b`, where `a[i]` and `b[i]` share their seed.

    Raises `ValueError` if the two differ in length, and as `interval` does.

    >>> f"{paired_interval([1.0, 2.0, 3.5], [0.0, 1.0, 2.0]):.2f}"
    '1.17 [0.45, 1.88]'
    """
    x, y = _values(a, "a"), _values(b, "b")
    if x.size != y.size:
        raise ValueError(
            f"a and b must hold the same seeds in the same order, got {x.size} and {y.size} values"
        )
    return interval(x - y, confidence)
