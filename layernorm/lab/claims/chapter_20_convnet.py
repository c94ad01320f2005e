"""Claims of chapter 20 that the experiment `convnet` decides, on MNIST (profile `standard`).

The 5% of the experiment are divided: 1.5% for each of three families of comparisons (how fast an
arm learns, what it ends with, what is left of a gap without the border), Holm within each; 0.25%
for each of the two measures of the border.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from layernorm.lab import records
from layernorm.lab.analysis.statistics import Comparison, compare, interval
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.judging import final

NAME, PROFILE = "convnet", "standard"
FAMILY, SINGLE = 0.985, 0.9975
SPEED, ERROR = "mean_test_nll", "best_test_error"
MARGINS = {SPEED: 0.02, ERROR: 0.5}
UNITS = {SPEED: "nats", ERROR: "points"}
WEAK = 80.0  # percent; guessing one of ten classes errs on 90
ENDS = {
    "batch - layer": ("batch", "layer"),
    "layer - none": ("layer", "none"),
    "batch - layer, resnet": ("batch-resnet", "layer-resnet"),
    "layer - none, resnet": ("layer-resnet", "none-resnet"),
}
WITHOUT_BORDER = {
    "interior": ("layer-interior", "batch"),
    "circular": ("layer-circular", "batch-circular"),
    "borderless": ("layer-borderless", "batch-borderless"),
}
PLAIN = ("none", "batch", "layer")


def unfit(arms: Iterable[str]) -> dict[str, str]:
    """The arms that did not learn, and why: one of their runs guesses, or does not fit."""
    frame, few = records.load(NAME, PROFILE), records.load(NAME, f"{PROFILE}_overfit")
    found = {}
    for arm in dict.fromkeys(arms):
        if arm not in set(frame.arm) or arm not in set(few.arm):
            found[arm] = f"{arm} has no run"
        elif not (final(frame, arm, ERROR) < WEAK).all():
            found[arm] = f"{arm} errs on {WEAK:.0f}% or more of the test examples"
        elif not (final(few, arm, "train_error") == 0).all():
            found[arm] = f"{arm} errs on 32 training examples"
    return found


def compared(
    comparisons: Mapping[str, tuple[str, str]], metric: str
) -> tuple[dict[str, Comparison], dict[str, str]]:
    """A family of comparisons, without those of arms that did not learn; and these arms."""
    frame, out = (
        records.load(NAME, PROFILE),
        unfit(arm for two in comparisons.values() for arm in two),
    )
    pairs = {
        name: tuple(final(frame, arm, metric).tolist() for arm in two)
        for name, two in comparisons.items()
        if not out.keys() & set(two)
    }
    return compare(pairs, MARGINS[metric], FAMILY) if pairs else {}, out


def verdict(
    found: Mapping[str, Comparison], out: Mapping[str, str], names: Sequence[str], what: str
) -> Finding:
    """The verdict that the named comparisons share, else `inconclusive`."""
    there = [name for name in names if name in found]
    parts = "; ".join(f"{name} {found[name].difference:.3f}" for name in there)
    evidence = f"{what} [{FAMILY * 100:g}% interval]: {parts}." if there else ""
    numbers = {name: found[name].difference.mean for name in there}
    if len(there) < len(names):
        reason = f"Not all arms learned: {'; '.join(out.values())}."
        return Finding("inconclusive", evidence, reason=reason, numbers=numbers)
    shared = {found[name].verdict for name in names}
    if len(shared) == 1 and shared != {"inconclusive"}:
        return Finding(shared.pop(), evidence, numbers=numbers)
    split = "; ".join(f"{name}: {found[name].verdict}" for name in names)
    return Finding("inconclusive", evidence, reason=f"{split}.", numbers=numbers)


def judged(start: str, metric: str) -> Finding:
    """The claim about a comparison, in the plain network and in the residual one."""
    from layernorm.lab.experiments import get

    if not records.runs(NAME, PROFILE):
        return Finding("not yet tested")
    comparisons = get(NAME).comparisons if metric == SPEED else ENDS
    found, out = compared(comparisons, metric)
    names = [start, f"{start}, resnet"]
    out = {arm: why for arm, why in out.items() if any(arm in comparisons[name] for name in names)}
    return verdict(found, out, names, f"Mean difference in {UNITS[metric]}")


RULE = (
    "experiment convnet on MNIST, plain and residual network: {metric}, {pair}, each arm at its "
    "tuned rate, eight seeds, paired, Holm over {count} comparisons at 1.5%, margin {margin}; the "
    "verdict if both networks share it, else inconclusive; so too if an arm errs on 80% of the "
    "test examples, or on any of 32 training examples"
)
SPEED_RULE = {
    "metric": "the mean of the test cross-entropy over the curve",
    "count": "six",
    "margin": "0.02 nats",
}
ERROR_RULE = {
    "metric": "the test error where the validation cross-entropy is lowest",
    "count": "four",
    "margin": "0.5 points",
}
FROM_PAPER = ("paper section 6.7", "summary B", "summary E")
COMMON = {"kind": "experiment", "chapter": "20"}


@claim(
    id="batch-beats-layer/convnet",
    statement="In a convolutional network batch normalization does better than layer "
    "normalization: it learns in fewer updates.",
    said_by=FROM_PAPER,
    rule=RULE.format(pair="batch - layer", **SPEED_RULE),
    **COMMON,
)
def batch_beats_layer() -> Finding:
    return judged("batch - layer", SPEED)


@claim(
    id="layer-beats-none/convnet",
    statement="In a convolutional network layer normalization is faster than no normalization.",
    said_by=FROM_PAPER,
    rule=RULE.format(pair="layer - none", **SPEED_RULE),
    **COMMON,
)
def layer_beats_none() -> Finding:
    return judged("layer - none", SPEED)


@claim(
    id="layer-beats-rescaled/convnet",
    statement="In a convolutional network it is layer normalization that makes learning faster, "
    "not the scale of the start: it is faster than a network without normalization whose weights "
    "start at a good scale, too.",
    said_by="this book",
    rule=RULE.format(pair="layer - rescaled", **SPEED_RULE),
    **COMMON,
)
def layer_beats_rescaled() -> Finding:
    return judged("layer - rescaled", SPEED)


@claim(
    id="batch-ends-better-than-layer/convnet",
    statement="A convolutional network with batch normalization ends with a lower test error than "
    "one with layer normalization.",
    said_by="this book",
    rule=RULE.format(pair="batch - layer", **ERROR_RULE),
    **COMMON,
)
def batch_ends_better_than_layer() -> Finding:
    return judged("batch - layer", ERROR)


@claim(
    id="layer-ends-better-than-none/convnet",
    statement="A convolutional network with layer normalization ends with a lower test error than "
    "one without normalization.",
    said_by="this book",
    rule=RULE.format(pair="layer - none", **ERROR_RULE),
    **COMMON,
)
def layer_ends_better_than_none() -> Finding:
    return judged("layer - none", ERROR)


def border(metric: str, what: str, low: float, high: float) -> Finding:
    """Whether a border unit's measure, as a share of the others', is outside of two bounds."""
    if not records.runs(NAME, PROFILE):
        return Finding("not yet tested")
    if out := unfit(PLAIN):
        return Finding("inconclusive", reason=f"Not all arms learned: {'; '.join(out.values())}.")
    frame = records.load(NAME, PROFILE)
    shares = {arm: interval(final(frame, arm, metric), SINGLE) for arm in PLAIN}
    parts = "; ".join(f"{arm} {share:.2f}" for arm, share in shares.items())
    evidence = f"{what} [{SINGLE * 100:g}% interval]: {parts}."
    numbers = {arm: share.mean for arm, share in shares.items()}
    if all(share.high < low or share.low > high for share in shares.values()):
        return Finding("supported here", evidence, numbers=numbers)
    if all(low < share.low and share.high < high for share in shares.values()):
        return Finding("opposite here", evidence, numbers=numbers)
    reason = "The three arms are not all on one side."
    return Finding("inconclusive", evidence, reason=reason, numbers=numbers)


BORDER_RULE = (
    "experiment convnet on MNIST, the trained plain networks none, batch and layer: {measure} of "
    "the units at distance 0 from the border, divided by that of all other units of their layer, "
    "the mean over the layers, 99.75% interval over eight seeds; supported if it is {yes} in all "
    "three, opposite if {no} in all three, else inconclusive; so too if an arm does not learn"
)


@claim(
    id="border-units-rarely-active/convnet",
    statement="Units near the border of the image are rarely active, less than half as often as "
    "the other units of their layer.",
    said_by="paper section 6.7",
    rule=BORDER_RULE.format(
        measure="the share of cases for which the ReLU is on", yes="below 1/2", no="above 1/2"
    ),
    **COMMON,
)
def border_units_rarely_active() -> Finding:
    return border("border_active", "A border unit's rate, as a share of the others'", 0.5, math.inf)


@claim(
    id="border-units-differ/convnet",
    statement="Units near the border of the image have very different statistics from the other "
    "units of their layer: a variance less than half or more than twice as large.",
    said_by="paper section 6.7",
    rule=BORDER_RULE.format(
        measure="the variance over the cases of the summed input",
        yes="below 1/2 or above 2",
        no="between 1/2 and 2",
    ),
    **COMMON,
)
def border_units_differ() -> Finding:
    return border("border_variance", "A border unit's variance, as a share of the others'", 0.5, 2)


@claim(
    id="border-explains-the-gap/convnet",
    statement="Border units are why layer normalization falls behind batch normalization in a "
    "convolutional network: without them, most of the gap closes.",
    said_by="paper section 6.7",
    rule="experiment convnet on MNIST, plain network; if batch - layer is supported in it, the gap "
    "layer - batch in the mean of the test cross-entropy over the curve, against half of it, in "
    "three networks whose statistics know no border: layer-interior - batch, layer-circular - "
    "batch-circular, layer-borderless - batch-borderless; eight seeds, paired, Holm over the three "
    "at 1.5%, margin 0.02 nats; supported if all three leave less than half of the gap, opposite "
    "if all three leave more, else inconclusive; so too without a gap, or if an arm does not learn",
    **COMMON,
)
def border_explains_the_gap() -> Finding:
    from layernorm.lab.experiments import get

    if not records.runs(NAME, PROFILE):
        return Finding("not yet tested")
    arms = ("batch", "layer", *(arm for two in WITHOUT_BORDER.values() for arm in two))
    if out := unfit(arms):
        return Finding("inconclusive", reason=f"Not all arms learned: {'; '.join(out.values())}.")
    gap, _ = compared(get(NAME).comparisons, SPEED)
    if gap["batch - layer"].verdict != "supported here":
        reason = f"There is no gap to explain: batch - layer is {gap['batch - layer'].verdict}."
        return Finding("inconclusive", reason=reason)
    frame = records.load(NAME, PROFILE)

    def behind(layer: str, batch: str):
        return final(frame, layer, SPEED) - final(frame, batch, SPEED)

    half = behind("layer", "batch") / 2
    pairs = {name: (behind(*two).tolist(), half.tolist()) for name, two in WITHOUT_BORDER.items()}
    found = compare(pairs, MARGINS[SPEED], FAMILY)
    what = "What is left of the gap, minus half of it, in nats"
    return verdict(found, {}, list(WITHOUT_BORDER), what)
