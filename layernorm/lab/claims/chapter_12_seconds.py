"""The claim about training time on the digits: chapter 3's runs, timed by `bench training`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from layernorm.lab import records
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.chapter_12 import fastest, measured, of_model
from layernorm.lab.claims.chapter_19_mnist import over_seconds
from layernorm.lab.claims.judging import not_learning, one_verdict

if TYPE_CHECKING:
    import numpy as np
    from pandas import DataFrame

STUDY, MARGIN = "batch_size", 0.01
SIZES = (128, 4, 1)
ARMS = tuple(f"{method}-{n}" for method in ("layer", "none") for n in SIZES)


def seconds_of_updates() -> dict[str, float]:
    """The recorded time of an update of the digits' network by arm; empty where there is none."""
    rows = of_model(measured("cpu"), "digits")
    return {
        f"{method}-{row.shape[0]}": row.seconds
        for method in ("layer", "none")
        for row in fastest(rows, method)
    }


def timed(frame: DataFrame, seconds: Mapping[str, float]) -> DataFrame:
    """The runs of these arms with seconds that are updates times the time of one update."""
    kept = frame[frame.arm.isin(list(seconds))]
    return kept.assign(seconds=kept.step * kept.arm.map(seconds))


def pairs(frame: DataFrame) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """layer and none at each batch size: the mean test cross-entropy over equal seconds."""
    found = {}
    for n in SIZES:
        arms = f"layer-{n}", f"none-{n}"
        until = min(float(frame[frame.arm == arm].seconds.max()) for arm in arms)
        layer, none = (over_seconds(frame, arm, until) for arm in arms)
        found[f"layer - none, batch {n}"] = layer, none
    return found


@claim(
    id="faster-in-seconds/digits",
    statement="Although each update takes longer, layer normalization usually shortens training, "
    "counted in seconds.",
    kind="experiment",
    chapter="12",
    rule="study batch_size, batches of 128, 4 and 1: the mean test cross-entropy over the seconds "
    "that the quicker of the two arms takes, layer less none, each at its tuned rate, paired by "
    "seed; seconds are updates times the median time of one update in record bench_training, "
    f"profile cpu (fastest implementation); margin {MARGIN:g} nats, Holm at 5% over the three "
    "batch sizes, and the verdict they share, else inconclusive; so too if an arm only guesses or "
    "does not fit 32 examples",
)
def faster_in_seconds() -> Finding:
    seconds = seconds_of_updates()
    if set(ARMS) - set(seconds) or not records.runs(STUDY, "book"):
        return Finding("not yet tested")
    if reason := not_learning(STUDY, ARMS):
        return Finding("inconclusive", reason=reason)
    frame = timed(records.load(STUDY, "book"), seconds)
    return one_verdict(pairs(frame), MARGIN, "nats")
