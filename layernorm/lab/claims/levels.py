"""Claims of experiments that ask where arms stand, not which of two is ahead.

They are no rows of a plan: a value is held against a level, not against another arm's, seeds were
not planned for it, and what lies between two levels decides nothing. Intervals of a final metric of
their arms decide, by the rule and the gates of comparisons. They are a family of their own, but as
wide as if it shared its 5% with the experiment's primary comparisons.

Where the metric scores nothing, its null is named, and where that is another network it is what
values are divided by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from layernorm.lab.analysis.curves import final
from layernorm.lab.analysis.statistics import Interval, interval
from layernorm.lab.claims import Finding, declare
from layernorm.lab.claims.checks import shared
from layernorm.lab.claims.schema import NOT_YET_TESTED
from layernorm.lab.experiments import get
from layernorm.lab.experiments.contrasts import SHARED
from layernorm.lab.experiments.convnet import untrained
from layernorm.lab.experiments.judged import AT_RATES, INCONCLUSIVE, elsewhere, stands, together
from layernorm.lab.experiments.report import recorded, share
from layernorm.lab.experiments.studies.adding import guess

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from layernorm.lab.experiments.compare import Verdicts


@dataclass(frozen=True)
class Level:
    """Supported if every arm's interval lies on that side of the range `between` which `says`
    names, as in `judged.stands`. `less`: a final metric of the same runs that is subtracted.
    `unit`: what values are divided by, given an arm's options. `null`: as in `Margin`. `gated`: an
    arm has to learn first, which is not asked where learning is the statement."""

    id: str
    statement: str
    chapter: str
    experiment: Callable[[], object]
    arms: tuple[str, ...]
    metric: str
    of: str
    between: tuple[float, float]
    says: str = "below"
    less: str = ""
    unit: Callable[[dict], float] = lambda options: 1
    null: str = ""
    gated: bool = True

    @property
    def sides(self) -> tuple[str, str]:
        """Where it is supported, and where it is the opposite."""
        low, high = self.between
        if self.says == "outside":
            return f"outside {low:g} to {high:g}", "inside"
        return f"below {low:g}", f"above {high:g}"

    @property
    def rule(self) -> str:
        side, other = self.sides
        gates = ", or if an arm does not pass the experiment's gates" * self.gated
        null = f"; null: {self.null}" * bool(self.null)
        return (
            f"experiment {self.experiment().name}, {', '.join(self.arms)}: {self.of}; supported if "
            f"all intervals lie {side}, each as wide as if it shared 5% with the primary "
            f"comparisons, which have 5% of their own; opposite if {other}, inconclusive if one "
            f"lies on neither side, or if a rate within one standard error of the best in tuning "
            f"decides otherwise{gates}{null}"
        )

    def finding(self, found: Verdicts | None = None) -> Finding:
        """The verdict on the published runs, or on those given; none while runs are missing that
        are planned for comparisons of its arms with others that have runs."""
        found = recorded(self.experiment()) if found is None else found  # without rows it is false
        if found is None or not set(self.arms) <= set(found.frame.arm):
            return Finding(NOT_YET_TESTED)
        beside = [row for row in found.rows.values() if {*row.arms} <= {*found.frame.arm}]
        if not all(found.made(row) for row in beside if {*row.arms} & {*self.arms}):
            return Finding(NOT_YET_TESTED)
        frame, *others = found.frames(self.arms)
        if problem := self._problem(found, frame):
            return Finding(INCONCLUSIVE, reason=problem)
        frames = [frame, *(other for other in others if not self._problem(found, other))]
        alike = {(level.metric, arm) for level in LEVELS for arm in level.arms
                 if level.experiment().name == self.experiment().name}  # fmt: skip
        primary = sum(row.family == "primary" for row in found.rows.values())
        confidence = 1 - SHARED / (primary + len(alike))
        bars, *others = ({arm: interval(self._values(frame, arm), confidence) for arm in self.arms}
                         for frame in frames)  # fmt: skip
        verdicts = {arm: self._stands(bar) for arm, bar in bars.items()}
        otherwise = {together(map(self._stands, other.values())) for other in others}
        otherwise -= {INCONCLUSIVE, together(verdicts.values())}
        said = ", ".join(f"{arm} {bar:.3g}" for arm, bar in bars.items())
        seeds = next(iter(bars.values())).n
        decided = shared(
            verdicts.values(),
            f"{self.of[0].upper()}{self.of[1:]} "
            f"({seeds} seeds, {confidence:.2%} intervals): {said}.",
            "Not all lie in one of the rule's ranges.",
            numbers={arm: bar.mean for arm, bar in bars.items()},
            table=tuple(
                {
                    "comparison": arm,
                    "n": str(bar.n),
                    "interval": f"{bar:.3g}",
                    "margin": " or ".join(self.sides),
                    "verdict": verdicts[arm] if len(bars) > 1 else "",
                    AT_RATES: self._elsewhere(bar, [other[arm] for other in others]),
                    "of the paper's updates": share(found, [arm]),
                }
                for arm, bar in bars.items()
            ),
        )
        if otherwise and decided.verdict != INCONCLUSIVE:
            reason = f"{elsewhere(decided.verdict, otherwise)}."
            decided = replace(decided, verdict=INCONCLUSIVE, reason=reason)
        return decided

    def _stands(self, bar: Interval) -> str:
        return stands(bar.low, bar.high, self.between, self.says)

    def _elsewhere(self, bar: Interval, others: list[Interval]) -> str:
        """The intervals and verdicts at rates as good in tuning; "" where there are none."""
        told = [f"{other:.3g}, {self._stands(other)}" for other in others if other != bar]
        return " or ".join(dict.fromkeys(told))

    def _problem(self, found: Verdicts, frame: DataFrame) -> str:
        """Why nothing follows from these runs; "" where something does."""
        if self.gated and (failed := found.gate(self.arms, frame)):
            return failed
        lost = [arm for arm in self.arms if not np.isfinite(self._values(frame, arm)).all()]
        return f"A run of {' or '.join(lost)} diverged." if lost else ""

    def _values(self, frame: DataFrame, arm: str) -> Series:
        values = final(frame, arm, self.metric)
        values = values - final(frame, arm, self.less) if self.less else values
        return values / self.unit(frame.loc[frame.arm == arm, "options"].iloc[0])


PLAIN = ("none", "batch", "layer")
TEST_ERROR = "the test error where the validation cross-entropy is lowest, in percent"
BORDER = "of a border unit, as a share of the other units' of its layer"
VARIANCE = f"the variance of the summed input over the cases {BORDER}"
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
            f"{task} of all training sequences ({steps} steps) are no problem for an LSTM with "
            "layer normalization.",
            *("09", lambda study=study: get(study), ("paper",)),
            "longer_loss",
            "the loss on these sequences, less that on test sequences as in training, as a share "
            "of the loss of guessing",
            between=(0.1, 0.5),
            less="test_loss",
            unit=guess,
        )
        for study, task, steps in (
            (
                "adding",
                "In the adding problem, test sequences of twice the length",
                "100 instead of 50",
            ),
            (
                "copy_memory",
                "In the copy task, test sequences with twice the lag",
                "50 instead of 30",
            ),
        )
    ),
    Level(
        "border-units-rarely-active/convnet",
        "Units near the border of the image are rarely active, less than half as often as the "
        "other units of their layer.",
        *("20", lambda: get("convnet"), PLAIN, "border_active"),
        f"how often the ReLU is on, {BORDER}",
        between=(0.4, 0.6),
        null="the other units of the layer; untrained networks on images of noise have about 1",
    ),
    Level(
        "border-units-differ/convnet",
        "Units near the border of the image have very different statistics from the other units of "
        "their layer: a variance less than half or more than twice as large, also beside the "
        "difference that padding makes.",
        *("20", lambda: get("convnet"), PLAIN, "border_variance"),
        f"{VARIANCE}, over that in untrained networks on images of noise",
        between=(0.5, 2),
        says="outside",
        unit=partial(untrained.variance, edge=0),
        null="these networks, in which only padding tells border units from others",
    ),
    Level(
        "border-units-differ-by-learning/convnet",
        "Learning is what makes the statistics of units near the border so different: their "
        "variance, beside that of the other units of their layer, is less than half or more than "
        "twice what it is in untrained networks on noise with MNIST's empty edge.",
        *("20", lambda: get("convnet"), PLAIN, "border_variance"),
        f"{VARIANCE}, over that in untrained networks on images of noise with an empty edge",
        between=(0.5, 2),
        says="outside",
        unit=partial(untrained.variance, edge=untrained.EDGE),
        null="these networks, in which only padding and empty pixels tell border units from others",
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
