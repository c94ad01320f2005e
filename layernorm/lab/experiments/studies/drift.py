"""What happens to summed inputs while the layers below learn? (chapter 01)

The second hidden layer is watched (`activations.Watch`): its drift and the part of it that the
layer below causes, the units that saturate, their correlation. Every arm has its own tuned rate;
`layer/same` is layer normalization at the rate of the control `rescaled`, because a faster learner
moves its summed inputs more.
"""

from layernorm.lab.experiments.experiment import Experiment, Profile
from layernorm.lab.experiments.studies.digits import ON_DIGITS

ACTIVATIONS = ("tanh", "sigmoid", "relu")
UPDATES = 300

_METHODS = {
    "none": {"method": "none"},
    "rescaled": {"method": "none", "rescaled": True},
    "batch": {"method": "batch"},
    "layer": {"method": "layer"},
    "layer/same": {"method": "layer"},
}

EXPERIMENT = Experiment(
    name="drift",
    question="How do summed inputs drift, saturate and correlate while lower layers learn?",
    arms={
        f"{arm}-{activation}": {
            **options,
            "activation": activation,
            "updates": UPDATES,
            "watch": True,
        }
        for arm, options in _METHODS.items()
        for activation in ACTIVATIONS
    },
    profiles={"book": Profile(seeds=tuple(range(10)), learning_rates=(1e-3, 3e-3, 1e-2, 3e-2))},
    primary="drift_below",
    margin=0.1,
    rate_of={f"layer/same-{activation}": f"rescaled-{activation}" for activation in ACTIVATIONS},
    **ON_DIGITS,
)
