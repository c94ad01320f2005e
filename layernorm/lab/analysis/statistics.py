r"""Intervals and verdicts over seeds.

Five seeds are too few for a percentile bootstrap, so every interval is Student's t. Arms that
share their seeds are compared by their paired differences. Where one experiment makes several
comparisons, their p-values are corrected by Holm's step-down rule before a verdict is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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


@dataclass(frozen=True)
class Comparison:
    """One paired comparison: the mean difference, its interval, Holm's p-value and the verdict."""

    difference: Interval
    p: float
    verdict: str


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


def holm(p_values: Iterable[float]) -> list[float]:
    r"""Holm's step-down adjustment: the $k$-th smallest of $m$ is multiplied by $m-k+1$.

    The result is monotone and at most 1, so comparing it with 0.05 keeps the chance of any false
    alarm in the family below 5 %. Raises `ValueError` for a value outside [0, 1].

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(list(p_values), dtype=float)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p_values must be numbers in [0, 1], got {p.tolist()}")
    order = np.argsort(p, kind="stable")
    steps = p[order] * (p.size - np.arange(p.size))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted.tolist()


def compare(
    pairs: Mapping[str, Sequence[Iterable[float]]],
    margin: float,
    confidence: float = 0.95,
) -> dict[str, Comparison]:
    """Compare pairs of arms whose metric is better when lower; one family, corrected by Holm.

    `pairs` maps a name to (values of the arm the claim favors, values of the other). With the
    difference favored − other and its interval, the verdict is

    - `no difference here` if the whole interval lies within ±`margin`;
    - otherwise `supported here` or `opposite here` if Holm's p is below 1 − `confidence`
      (paired t test of a zero difference), by the sign of the difference;
    - otherwise `inconclusive`.

    Raises `ValueError` for a margin that is not positive, and as `paired_interval` does.

    >>> better = ([1.0, 1.1, 0.9, 1.0], [2.0, 2.2, 1.9, 2.1])
    >>> compare({"layer against none": better}, margin=0.1)["layer against none"].verdict
    'supported here'
    """
    from scipy.stats import ttest_rel

    if not margin > 0:
        raise ValueError(
            f"margin must be positive, got {margin}; it is the difference too small to matter"
        )
    pairs = {name: (list(a), list(b)) for name, (a, b) in pairs.items()}
    intervals = {name: paired_interval(a, b, confidence) for name, (a, b) in pairs.items()}
    raw = []
    for name, (a, b) in pairs.items():
        d = intervals[name]
        constant = d.low == d.high  # the t test has no spread to divide by
        raw.append(float(d.mean == 0) if constant else float(ttest_rel(a, b).pvalue))
    out = {}
    for name, p in zip(pairs, holm(raw), strict=True):
        d = intervals[name]
        if -margin < d.low and d.high < margin:
            verdict = "no difference here"
        elif p < 1 - confidence:
            verdict = "supported here" if d.mean < 0 else "opposite here"
        else:
            verdict = "inconclusive"
        out[name] = Comparison(d, p, verdict)
    return out
