"""How small may the batch be? The paper's section 6.6 on the digits (chapter 03).

Every arm trains for the same number of epochs, so a smaller batch means more updates, as in the
paper's figure 6. Arms are compared at one batch size (`COMPARISONS`): how fast an arm learns (the
mean of its test curve; the rate is chosen on the mean of its validation curve, so that no arm is
slowed by a rate chosen for something else), its test error where its validation loss is lowest, and
how fast it learns in seconds. Most of the half hour that the study takes goes to batches of 4 and 1
(two and seven seconds a run).

Seeds 100 to 119 were too few for the planned half-widths against batch normalization, and left
three of six primary comparisons open. At most a hundred new ones, from 200 on, take their place.
"""

import math
from dataclasses import replace

from layernorm.lab import records
from layernorm.lab.analysis.curves import over_seconds
from layernorm.lab.experiments.contrasts import (
    Comparison,
    Comparisons,
    Margin,
    Said,
    families,
    less,
    minus,
)
from layernorm.lab.experiments.experiment import TWO_STAGES, Experiment, Profile
from layernorm.lab.experiments.studies.digits import ON_DIGITS

EPOCHS = 10
TRAINING_EXAMPLES = 1197
SIZES = (128, 4, 1)

_METHODS = {
    "none": {"method": "none"},
    "rescaled": {"method": "none", "rescaled": True},
    "batch": {"method": "batch"},
    "weight": {"method": "weight"},
    "layer": {"method": "layer"},
}

NATS = Margin(
    *(0.01, "nats", "the mean of the test cross-entropy over the curve"),
    "a tenth of what a tuned network has on average over its curve",
)
POINTS = Margin(
    *(1.0, "points", "the test error where the validation cross-entropy is lowest"),
    "three of the 300 test examples",
    resolution=1 / 3,
)
PER_SECOND = replace(
    NATS,
    of="the mean of the test cross-entropy over the quicker arm's seconds, which are updates times "
    "the recorded time of one (bench_training, the fastest implementation)",
)


def seconds_of_updates() -> dict[str, float]:
    """The recorded time of an update of this network, by arm."""
    found: dict[str, float] = {}
    for run in records.runs("bench_training", "cpu"):
        options, timing = run.config["options"], run.timing
        arm = f"{run.config['method']}-{options['shape'][0]}"
        if options["model"] == "digits" and "ratio" in timing:
            found[arm] = min(timing["seconds"], found.get(arm, math.inf))
    return found


def over_updates_seconds(frame, arm, arms):
    """As `over_seconds`, with the seconds of updates that were measured alone."""
    frame = frame[frame.arm.isin(arms)]
    seconds = frame.step * frame.arm.map(seconds_of_updates())
    return over_seconds("test_nll")(frame.assign(seconds=seconds), arm, arms)


_WELL_SCALED = "one without normalization whose weights start at a good scale"
_STATEMENTS = (  # id, statement, other arm, end of the name
    (
        "faster-than-plain",
        "a network with layer normalization learns the digits in fewer updates than one without "
        "normalization that starts as PyTorch starts it.",
        *("none", ""),
    ),
    (
        "faster-per-update",
        "a network with layer normalization learns the digits in fewer updates than "
        f"{_WELL_SCALED}.",
        *("rescaled", ""),
    ),
    (
        "faster-than-batch",
        "a network with layer normalization learns the digits in fewer updates than one with batch "
        "normalization.",
        *("batch", ""),
    ),
    (
        "better-result",
        "a network with layer normalization ends with a lower test error on the digits than "
        f"{_WELL_SCALED}.",
        *("rescaled", ", error"),
    ),
    (
        "better-result-than-batch",
        "a network with layer normalization ends with a lower test error on the digits than one "
        "with batch normalization.",
        *("batch", ", error"),
    ),
)


def _row(other: str, n: int, of: str = "", claim: Said | None = None) -> Comparison:
    metric, margin = {
        "": ("mean_test_nll", NATS),
        ", error": ("best_test_error", POINTS),
        ", seconds": (over_updates_seconds, PER_SECOND),
    }[of]
    contrast = less(f"layer-{n}", f"{other}-{n}", metric)
    return Comparison(f"layer - {other}, {n}{of}", contrast, margin, claim)


_SMALL = Said(
    "robust-to-small-batches/digits",
    "Going from batches of 128 to batches of 4 costs layer normalization less test error on the "
    "digits than it costs batch normalization.",
)
_SECONDS = Said(
    "faster-in-seconds/digits",
    "Although each update takes longer, layer normalization usually shortens training, counted in "
    "seconds.",
    chapter="12",
)
_PRIMARY = (
    # section 6.6: robust to the size, and faster than batch normalization (there, of all layers)
    *("layer - batch, 128", "layer - batch, 4", "cost of batch 4, layer - batch"),
    # summaries A to C: faster than none; they name no batch size, so at the usual one; its control
    *("layer - none, 128", "layer - rescaled, 128"),
    "layer - batch, 128, error",  # summaries A and C: better in results, too, than batch
)
COMPARISONS = Comparisons(
    chapter="03",
    profile="book",
    rows=families(
        (
            *(
                _row(other, n, of, Said(f"{id}/digits_batch_{n}", f"In batches of {n}, {says}"))
                for id, says, other, of in _STATEMENTS
                for n in SIZES
                if n > 1 or (other != "batch" and not of)
            ),
            *(_row("none", n, ", error") for n in (128, 4)),
            Comparison(
                "cost of batch 4, layer - batch",
                minus(*(less(f"{m}-4", f"{m}-128", "best_test_error") for m in ("layer", "batch"))),
                POINTS,
                _SMALL,
            ),
            *(_row("none", n, ", seconds", _SECONDS) for n in SIZES),
        ),
        *_PRIMARY,
    ),
)

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
EXPERIMENT = Experiment(
    name="batch_size",
    question="How fast does each method learn the digits at batch 128, 4 and 1, and how well?",
    arms={
        f"{arm}-{size}": {
            **options,
            "batch_size": size,
            "updates": EPOCHS * (TRAINING_EXAMPLES // size),
        }
        for size in SIZES
        for arm, options in _METHODS.items()
        if not (arm == "batch" and size == 1)  # refused: one value per unit has no variance
    },
    overfit_of_arm={
        f"{arm}-{size}": {"batch_size": min(32, size)} for arm in _METHODS for size in SIZES
    },
    profiles={
        "book": Profile(learning_rates=RATES, **{**TWO_STAGES, "seeds": tuple(range(200, 300))})
    },
    primary="mean_test_nll",
    **ON_DIGITS,
    comparisons=COMPARISONS,
)
