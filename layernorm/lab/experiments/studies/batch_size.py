"""How small may the batch be? The paper's section 6.6 on the digits (chapter 03).

Every arm trains for the same number of epochs, so a smaller batch means more updates, as in the
paper's figure 6. Arms are compared at one batch size, paired by seed. Two families of comparisons,
each at 2.5 %: how fast an arm learns (the mean of its test curve; the rate is chosen on the mean of
its validation curve, so that no arm is slowed by a rate chosen for something else), and its test
error where its validation loss is lowest.

Margins. 0.01 nats is a tenth of what a tuned network without normalization has on average over its
curve at batch 128; 1 point is three of the 300 test examples. Ten seeds, because the interval of
five is three quarters wider and eight comparisons share the family's 2.5 %.
"""

from layernorm.lab.experiments.experiment import Experiment, Profile
from layernorm.lab.experiments.studies.digits import ON_DIGITS

EPOCHS = 10
TRAINING_EXAMPLES = 1197
SIZES = (128, 4, 1)
CONFIDENCE = 0.975  # of each of the two families
ERROR_MARGIN = 1.0  # points of test error

_METHODS = {
    "none": {"method": "none"},
    "rescaled": {"method": "none", "rescaled": True},
    "batch": {"method": "batch"},
    "weight": {"method": "weight"},
    "layer": {"method": "layer"},
}

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
        "book": Profile(seeds=tuple(range(10)), learning_rates=(3e-4, 1e-3, 3e-3, 1e-2, 3e-2))
    },
    primary="mean_test_nll",
    margin=0.01,
    **ON_DIGITS,
)
