"""Batches that are sorted by class rather than shuffled (chapter 02).

Sorting hurts every network: its updates pull toward one class at a time. What it does to batch
normalization beyond that is a difference of differences, (sorted − shuffled) of one arm against
(sorted − shuffled) of another, paired by seed. The shuffled arms also show how much each method
overfits: their test loss at the update where their training loss first falls to `LEVEL`.

All six comparisons are primary: summary D says that batches must be scattered, and that batch
normalization avoids overfitting, as section 1 of the paper suggests; neither says compared with
what, so each has the plain network, the control and layer normalization, which both compare with.
Some 180 to 260 runs of about a second and a half, five minutes in all.
"""

from dataclasses import replace

from layernorm.lab.analysis.curves import at_level
from layernorm.lab.experiments.contrasts import (
    GATES,
    Comparison,
    Comparisons,
    Contrast,
    Margin,
    Said,
    less,
    minus,
)
from layernorm.lab.experiments.experiment import TWO_STAGES, Experiment, Profile
from layernorm.lab.experiments.studies.digits import ON_DIGITS

UPDATES = 500
BATCH_SIZE = 32  # about 120 training examples a class, so most sorted batches hold one class
LEVEL = 0.05  # nats

_METHODS = {
    "none": {"method": "none"},
    "rescaled": {"method": "none", "rescaled": True},
    "batch": {"method": "batch"},
    "layer": {"method": "layer"},
}

POINTS = Margin(
    *(1.0, "points", "what sorting costs, in test error at the end"),
    "three of the 300 test examples",
    resolution=1 / 3,
)
NATS = Margin(
    *(0.01, "nats", f"test cross-entropy where training's first falls to {LEVEL} nats"),
    "a fifth of that level",
)
SCATTERED = Said(
    "batches-must-be-scattered/digits",
    "Batch normalization suffers more than other networks from batches of mostly one class.",
)
OVERFITTING = Said(
    "batch-normalization-avoids-overfitting/digits",
    "Batch normalization ties the cases of a batch together and so avoids overfitting.",
)
AT_LEVEL = at_level("test_nll", LEVEL, of="train_nll")


def _costs(method: str) -> Contrast:
    return less(f"{method}-sorted", f"{method}-shuffled", "test_error")


COMPARISONS = Comparisons(
    chapter="02",
    profile="book",
    gates=(replace(GATES[0], exempt=("*-sorted",)), GATES[1]),
    rows=(
        *(
            Comparison(f"{m} - batch", minus(_costs(m), _costs("batch")), POINTS, SCATTERED)
            for m in ("none", "rescaled", "layer")
        ),
        *(
            Comparison(
                f"batch - {m}, at one training loss",
                less("batch-shuffled", f"{m}-shuffled", AT_LEVEL),
                NATS,
                OVERFITTING,
            )
            for m in ("none", "rescaled", "layer")
        ),
    ),
)

RATES = (1e-3, 3e-3, 1e-2, 3e-2)
EXPERIMENT = Experiment(
    name="batch_order",
    question="Does batch normalization need batches that are scattered over the classes?",
    arms={
        f"{arm}-{order}": {
            **options,
            "order": order,
            "batch_size": BATCH_SIZE,
            "updates": UPDATES,
            "evaluations": 25,
        }
        for order in ("shuffled", "sorted")
        for arm, options in _METHODS.items()
    },
    profiles={"book": Profile(learning_rates=RATES, **TWO_STAGES)},
    primary="test_error",
    tuned_on="validation_nll",
    **ON_DIGITS,
    comparisons=COMPARISONS,
)
