"""Claims of experiments that ask where arms stand, not which of two is ahead.

They are no rows of a plan: a value is held against a level, not against another arm's, seeds were
not planned for it, and what lies between two levels decides nothing. Intervals of a final metric of
their arms decide, by the rule and the gates of comparisons. They are a family of their own, but as
wide as if it shared its 5% with the experiment's primary comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from layernorm.lab.analysis.curves import final
from layernorm.lab.analysis.statistics import interval
from layernorm.lab.claims import Finding, declare
from layernorm.lab.claims.checks import shared
from layernorm.lab.claims.schema import NOT_YET_TESTED
from layernorm.lab.experiments import get
from layernorm.lab.experiments.contrasts import SHARED
from layernorm.lab.experiments.judged import INCONCLUSIVE, stands
from layernorm.lab.experiments.report import recorded
from layernorm.lab.experiments.studies.adding import guess

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from layernorm.lab.experiments.compare import Verdicts


@dataclass(frozen=True)
class Level:
    """Supported if every arm's interval lies on that side of the range `between` which `says`
    names, as in `judged.stands`. `unit`: what values are divided by, given an arm's options.
    `gated`: an arm has to learn first, which is not asked where learning is the statement."""

    id: str
    statement: str
    chapter: str
    experiment: Callable[[], object]
    arms: tuple[str, ...]
    metric: str
    of: str
    between: tuple[float, float]
    says: str = "below"
    unit: Callable[[dict], float] = lambda options: 1
    gated: bool = True

    @property
    def rule(self) -> str:
        low, high = self.between
        sides = {
            "below": (f"below {low:g}", f"above {high:g}"),
            "outside": (f"outside {low:g} to {high:g}", "inside"),
        }
        side, other = sides[self.says]
        gates = ", or if an arm does not pass the experiment's gates" * self.gated
        return (
            f"experiment {self.experiment().name}, {', '.join(self.arms)}: {self.of}; supported if "
            f"all intervals, which share 5% with the primary comparisons, lie {side}, opposite if "
            f"{other}, "
            f"inconclusive if one lies on neither side{gates}"
        )

    def finding(self, found: Verdicts | None = None) -> Finding:
        """The verdict on the published runs, or on those given."""
        found = found or recorded(self.experiment())
        if found is None or not set(self.arms) <= set(found.frame.arm):
            return Finding(NOT_YET_TESTED)
        if self.gated and (failed := found.gate(self.arms)):
            return Finding(INCONCLUSIVE, reason=failed)
        values = {arm: self._values(found.frame, arm) for arm in self.arms}
        if lost := [arm for arm, of_arm in values.items() if not np.isfinite(of_arm).all()]:
            return Finding(INCONCLUSIVE, reason=f"A run of {' or '.join(lost)} diverged.")
        primary = sum(row.family == "primary" for row in found.rows.values())
        confidence = 1 - SHARED / (primary + self._beside())
        bars = {arm: interval(of_arm, confidence) for arm, of_arm in values.items()}
        said = ", ".join(f"{arm} {bar:.3g}" for arm, bar in bars.items())
        seeds = next(iter(bars.values())).n
        return shared(
            (stands(bar.low, bar.high, self.between, self.says) for bar in bars.values()),
            f"{self.of[0].upper()}{self.of[1:]} "
            f"({seeds} seeds, {confidence:.2%} intervals): {said}.",
            "Not all lie in one of the rule's ranges.",
            numbers={arm: bar.mean for arm, bar in bars.items()},
            table=tuple(
                {"comparison": arm, "n": str(bar.n), "interval": f"{bar:.3g}"}
                for arm, bar in bars.items()
            ),
        )

    def _beside(self) -> int:
        """The intervals of all levels of the experiment."""
        alike = (level for level in LEVELS if level.experiment().name == self.experiment().name)
        return sum(len(level.arms) for level in alike)

    def _values(self, frame: DataFrame, arm: str) -> Series:
        options = frame.loc[frame.arm == arm, "options"].iloc[0]
        return final(frame, arm, self.metric) / self.unit(options)


PLAIN = ("none", "batch", "layer")
TEST_ERROR = "the test error where the validation cross-entropy is lowest, in percent"
BORDER = "of a border unit, as a share of the other units' of its layer"
LEVELS = (
    Level(
        "learns-online/digits",
        "A network with layer normalization learns the digits online, one case an update.",
        *("03", lambda: get("batch_size"), ("layer-1",), "best_test_error", TEST_ERROR),
        between=(10, 89.9),
        gated=False,
    ),
    Level(
        "learns-online/mnist",
        "A network with layer normalization learns MNIST online, one case an update.",
        *("19", lambda: get("mnist"), ("layer-1",), "best_test_error", TEST_ERROR),
        between=(20, 89.9),
        gated=False,
    ),
    *(
        Level(
            f"longer-sequences-are-no-problem/{study}",
            f"Test sequences of {task} that are twice as long as all training sequences are no "
            "problem for an LSTM with layer normalization.",
            *("09", lambda study=study: get(study), ("paper",)),
            *("longer_loss", "the loss at twice the length, as a share of that of guessing"),
            between=(0.1, 0.5),
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
        between=(0.5, 0.5),
    ),
    Level(
        "border-units-differ/convnet",
        "Units near the border of the image have very different statistics from the other units of "
        "their layer: a variance less than half or more than twice as large.",
        *("20", lambda: get("convnet"), PLAIN, "border_variance"),
        f"the variance of the summed input over the cases {BORDER}",
        between=(0.5, 2),
        says="outside",
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
