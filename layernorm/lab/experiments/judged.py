"""The rule: one interval decides one comparison, and comparisons together a statement."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from layernorm.lab.analysis.statistics import Interval
from layernorm.lab.experiments.contrasts import Comparison

SUPPORTED, OPPOSITE, NOT_BETTER = "supported here", "opposite here", "not better here"
NO_DIFFERENCE = "no difference here"
INCONCLUSIVE, DEPENDS = "inconclusive", "depends"
AT_RATES = "at rates as good in tuning"
EXPLORATORY = "exploratory"  # shown with its interval, and no verdict


def verdict(low: float, high: float, margin: float, says: str = "better") -> str:
    """The verdict on a statement by the interval of a difference, better when negative."""
    if low > margin or (high < -margin and says == "same"):
        return OPPOSITE
    if high < -margin or (high <= margin and says == "not worse"):
        return SUPPORTED
    if -margin <= low and high <= margin:
        return SUPPORTED if says == "same" else NO_DIFFERENCE
    return NOT_BETTER if low >= -margin and says == "better" else INCONCLUSIVE


def of_ratio(low: float, high: float, margin: float, says: str, inverse: bool = False) -> str:
    """`verdict` on a ratio, better when below 1, or on its inverse, in logarithms."""
    low, high = math.log(low), math.log(high)
    return verdict(*((-high, -low) if inverse else (low, high)), math.log(margin), says)


def together(verdicts: Iterable[str]) -> str:
    """The verdict on a statement from those on its conditions: all of them must be decided."""
    found = set(verdicts)
    if len(found) == 1 or INCONCLUSIVE in found:
        return INCONCLUSIVE if INCONCLUSIVE in found else found.pop()
    one_side = found in ({NOT_BETTER, NO_DIFFERENCE}, {NOT_BETTER, OPPOSITE})
    return NOT_BETTER if one_side else DEPENDS


def stands(low: float, high: float, between: tuple[float, float], says: str) -> str:
    """The verdict on where the value of an interval stands: `says` "below" or "above" a range, or
    "outside" it on either side. The opposite is the other side, or inside; between is undecided."""
    middle, margin = (between[0] + between[1]) / 2, (between[1] - between[0]) / 2
    low, high = low - middle, high - middle
    if says == "outside":
        alike = verdict(low, high, margin, "same")
        return {SUPPORTED: OPPOSITE, OPPOSITE: SUPPORTED}.get(alike, INCONCLUSIVE)
    found = verdict(-high, -low, margin) if says == "above" else verdict(low, high, margin)
    return found if found in (SUPPORTED, OPPOSITE) else INCONCLUSIVE


def elsewhere(verdict: str, others: Iterable[str]) -> str:
    """Why a verdict does not stand that other rates contradict, which tuning found as good."""
    said = "At a learning rate that tuning cannot tell from the best, it is"
    return f"{said} {verdict}, at another {' or '.join(sorted(others))}"


@dataclass(frozen=True)
class Judged:
    """A comparison's interval and what follows from it; `problem`: why nothing does. `others`: the
    same at learning rates that tuning cannot tell from the best."""

    row: Comparison
    confidence: float
    difference: Interval | None = None
    problem: str | None = None
    others: tuple[Judged, ...] = ()

    @property
    def verdict(self) -> str:
        if self.row.family == EXPLORATORY:
            return EXPLORATORY
        return INCONCLUSIVE if self.problem else self._at(self.row.margin.size)

    @property
    def decided(self) -> bool:
        """Tell whether its interval gives its verdict."""
        return not self.problem and self.row.family != EXPLORATORY

    def _at(self, margin: float) -> str:
        return verdict(self.difference.low, self.difference.high, margin, self.row.says)

    def margins(self) -> tuple[float, float]:
        """From which margin to which the verdict would be the same."""
        edges = sorted({0.0, abs(self.difference.low), abs(self.difference.high), math.inf})
        middles = {span: min(sum(span) / 2, span[0] + 1) for span in pairwise(edges)}
        same = [span for span, at in middles.items() if self._at(at) == self.verdict]
        return same[0][0], same[-1][1]  # they follow each other

    def reach(self) -> str:
        """`margins` in words; "" where there is no verdict."""
        if not self.decided:
            return ""
        low, high = self.margins()
        span = [f"from {low:.3g}"] * (low > 0) + [f"up to {high:.3g}"] * (high < math.inf)
        return " ".join(span) or "any"

    def possible(self) -> str:
        """The outcomes that an interval without a decision still allows; "" for others."""
        if not self.decided or self.verdict != INCONCLUSIVE:
            return ""
        m, d = self.row.margin.size, self.difference
        may = ["an advantage that matters"] * (d.low < -m)
        may += ["none that matters"] * (d.high >= -m and d.low <= m)
        may += ["a disadvantage"] * (d.high > m)
        return ", ".join(may) if len(may) < 3 else "anything"

    def notes(self) -> list[str]:
        """For which margins this is the verdict; of an open one also its sign, and what may be."""
        if not self.decided:
            return []
        reach, may, d = self.reach(), self.possible(), self.difference
        said = ["for any margin" if reach == "any" else f"for margins {reach}"]
        if may:
            said += ["below 0"] * (d.high < 0) + ["above 0"] * (d.low > 0)
            said.append("anything is possible" if may == "anything" else f"possible: {may}")
        return said

    def elsewhere(self) -> str:
        """The intervals and verdicts of `others`; "" where there are none."""
        if self.row.family == EXPLORATORY:
            return ""
        shown = (f"{one.difference:.3g}, {one.verdict}" for one in self.others if one.difference)
        return " or ".join(dict.fromkeys(shown))

    def __str__(self) -> str:
        m, notes = self.row.margin, self.notes()
        notes += [f"{AT_RATES} {self.elsewhere()}"] * bool(self.elsewhere())
        shown = f"{self.difference:.3g} {m.unit}, margin {m.size:.3g}: " if self.difference else ""
        return f"{shown}{self.verdict}" + f" ({'; '.join(notes)})" * bool(notes)
