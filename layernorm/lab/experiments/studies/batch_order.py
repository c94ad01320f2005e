"""Batches that are sorted by class rather than shuffled (chapter 02).

Sorting hurts every network: its updates pull toward one class at a time. What it does to batch
normalization beyond that is a difference of differences, (sorted − shuffled) of one arm against
(sorted − shuffled) of another, paired by seed. The shuffled arms also show how much each method
overfits: their test loss at the update where their training loss first falls to `LEVEL`.
"""

from layernorm.lab.experiments.experiment import Experiment, Profile
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
    profiles={"book": Profile(seeds=tuple(range(10)), learning_rates=(1e-3, 3e-3, 1e-2, 3e-2))},
    primary="test_error",
    margin=1.0,
    tuned_on="validation_nll",
    **ON_DIGITS,
)
