"""Claims of experiments that ask where arms stand, not which of two is ahead.

Each is decided by the intervals of a final metric of its arms, which join the primary family of the
experiment's comparisons, and by the same gates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from layernorm.lab.analysis.curves import final
from layernorm.lab.analysis.statistics import interval
from layernorm.lab.claims import Finding, declare
from layernorm.lab.experiments import compare, get
from layernorm.lab.experiments.contrasts import SHARED
from layernorm.lab.experiments.studies.adding import guess

Range = tuple[float, float]


@dataclass(frozen=True)
class Level:
    """Supported if every arm's interval lies in one of the ranges `yes`, opposite if every one
    lies in one of `no`. `unit`: what values are divided by, given an arm's options. `each`: every
    seed must lie there, and no gate asks first whether the arm learns."""

    id: str
    statement: str
    chapter: str
    experiment: Callable[[], object]
    arms: tuple[str, ...]
    metric: str
    of: str
    yes: tuple[Range, ...]
    no: tuple[Range, ...]
    unit: Callable[[dict], float] = lambda options: 1
    each: bool = False

    @property
    def rule(self) -> str:
        yes, no = (
            " or ".join(f"{a:g} to {b:g}" for a, b in ranges) for ranges in (self.yes, self.no)
        )
        what = "all values" if self.each else "all intervals, at the level of the comparisons,"
        return (
            f"experiment {self.experiment().name}, {', '.join(self.arms)}: {self.of}; supported "
            f"if {what} lie within {yes}, opposite if within {no}, else inconclusive"
            + "; so too if an arm does not pass the experiment's gates"
            * (not self.each)
        )

    def finding(self, found: compare.Verdicts | None = None) -> Finding:
        """The verdict on the published runs, or on those given."""
        found = found or compare.recorded(self.experiment())
        if found is None:
            return Finding("not yet tested")
        gates = () if self.each else found.plan.gates
        for gate in gates:
            for arm in self.arms:
                if not gate.passed(found.few if gate.by_heart else found.frame, arm):
                    return Finding("inconclusive", reason=f"Gate failed: {arm} {gate.fails}.")
        bars, ends = {}, []
        primary = sum(row.family == "primary" for row in found.rows.values())
        confidence = 1 - SHARED / (primary + len(self.arms))
        for arm in self.arms:
            values = final(found.frame, arm, self.metric)
            values /= self.unit(found.frame.loc[found.frame.arm == arm, "options"].iloc[0])
            bars[arm] = interval(values, confidence)
            ends.append(
                (values.min(), values.max()) if self.each else (bars[arm].low, bars[arm].high)
            )
        said = ", ".join(f"{arm} {bar:.3g}" for arm, bar in bars.items())
        seeds = next(iter(bars.values())).n
        evidence = f"{self.of.capitalize()} ({seeds} seeds, {confidence:.2%} intervals): {said}."
        shown = {
            "numbers": {arm: bar.mean for arm, bar in bars.items()},
            "table": tuple(
                {"comparison": arm, "n": str(bar.n), "interval": f"{bar:.3g}"}
                for arm, bar in bars.items()
            ),
        }
        for verdict, ranges in (("supported here", self.yes), ("opposite here", self.no)):
            if all(any(a < low and high < b for a, b in ranges) for low, high in ends):
                return Finding(verdict, evidence, **shown)
        reason = "Not all lie in one of the rule's ranges."
        return Finding("inconclusive", evidence, reason=reason, **shown)


PLAIN = ("none", "batch", "layer")
TEST_ERROR = "the test error where the validation cross-entropy is lowest, in percent"
BORDER = "of a border unit, as a share of the other units' of its layer"
LEVELS = (
    Level(
        "learns-online/digits",
        "A network with layer normalization learns the digits online, one case an update.",
        *("03", lambda: get("batch_size"), ("layer-1",), "best_test_error", TEST_ERROR),
        yes=((-1, 10),),
        no=((89.9, math.inf),),
        each=True,
    ),
    Level(
        "learns-online/mnist",
        "A network with layer normalization learns MNIST online, one case an update.",
        *("19", lambda: get("mnist"), ("layer-1",), "best_test_error", TEST_ERROR),
        yes=((-1, 20),),
        no=((89.9, math.inf),),
        each=True,
    ),
    *(
        Level(
            f"longer-sequences-are-no-problem/{study}",
            f"Test sequences of {task} that are twice as long as all training sequences are no "
            "problem for an LSTM with layer normalization.",
            *("09", lambda study=study: get(study), ("paper",)),
            *("longer_loss", "the loss at twice the length, as a share of that of guessing"),
            yes=((-1, 0.1),),
            no=((0.5, math.inf),),
            unit=guess,
        )
        for study, task in (("adding", "the adding problem"), ("copy_memory", "the copy task"))
    ),
    Level(
        "border-units-rarely-active/convnet",
        "Units near the border of the image are rarely active, less than half as often as the "
        "other units of their layer.",
        *("20", lambda: get("convnet"), PLAIN, "border_active"),
        f"how often the ReLU is on, {BORDER}",
        yes=((-math.inf, 0.5),),
        no=((0.5, math.inf),),
    ),
    Level(
        "border-units-differ/convnet",
        "Units near the border of the image have very different statistics from the other units of "
        "their layer: a variance less than half or more than twice as large.",
        *("20", lambda: get("convnet"), PLAIN, "border_variance"),
        f"the variance of the summed input over the cases {BORDER}",
        yes=((-math.inf, 0.5), (2, math.inf)),
        no=((0.5, 2),),
    ),
)

for _level in LEVELS:
    declare(
        id=_level.id,
        statement=_level.statement,
        kind="experiment",
        chapter=_level.chapter,
        rule=_level.rule,
        check=_level.finding,
        runs="{0.name}-{0.comparisons.profile}".format(_level.experiment()),
    )
