"""The drift of summed inputs while the layers below learn (chapter 01).

The second hidden layer is watched (`activations.Watch`): its drift and the part of it that the
layer below causes, the units that saturate, their correlation. Every arm has its own tuned rate;
`layer/same` is layer normalization at the rate of the control `rescaled`, because a faster learner
moves its summed inputs more. Some 450 runs of a few seconds, half an hour in all.

Seeds 100 to 119 were too few for the planned half-widths, and left one of six primary comparisons
open. At most forty new ones, from 200 on, take their place.
"""

from layernorm.lab.experiments.contrasts import (
    Comparison,
    Comparisons,
    Margin,
    Said,
    families,
    less,
)
from layernorm.lab.experiments.experiment import TWO_STAGES, Experiment, Profile
from layernorm.lab.experiments.studies.digits import ON_DIGITS

ACTIVATIONS = ("tanh", "sigmoid", "relu")
UPDATES = 300
UNTRAINED = "both networks before training, between which there is no difference"

_METHODS = {
    "none": {"method": "none"},
    "rescaled": {"method": "none", "rescaled": True},
    "batch": {"method": "batch"},
    "layer": {"method": "layer"},
    "layer/same": {"method": "layer"},
}

_OF = {  # metric, margin, activations
    "drift from below": (
        "drift_below",
        Margin(
            *(0.1, "starting standard deviations", "the drift that the layers below cause"),
            "a tenth of how much a unit's summed inputs vary at the start",
            null=UNTRAINED,
        ),
        ACTIVATIONS,
    ),
    "saturated": (
        "saturated",
        Margin(
            *(0.05, "of all", "the share of saturated summed inputs"),
            "one in twenty",
            null=UNTRAINED,
        ),
        ("tanh", "sigmoid"),
    ),
    "correlation": (
        "correlation",
        Margin(
            *(0.02, "", "the mean squared correlation of two units"),
            "a correlation of 0.14, too weak to see",
            null=UNTRAINED,
        ),
        ACTIVATIONS,
    ),
}
_STATEMENTS = {
    "drift from below": Said(
        "drift-reduced/digits",
        "Fixing the mean and variance of the summed inputs within each layer reduces how far they "
        "drift because the layers below learn: they drift less than in a network without "
        "normalization whose weights start at a good scale.",
    ),
    "saturated": Said(
        "inactive-region-avoided/digits",
        "Over training, layer normalization keeps summed inputs out of the inactive region of the "
        "activation function: fewer of them saturate than in a network without normalization whose "
        "weights start at a good scale.",
    ),
    "correlation": Said(
        "removes-correlation/digits",
        "In a trained network, layer normalization makes the summed inputs to different units less "
        "correlated than they are in a network without normalization whose weights start at a good "
        "scale.",
    ),
}
_PRIMARY = (
    # paper, section 3; summaries A and D: less covariate shift, of any activation function
    *(f"layer - rescaled, {activation}, drift from below" for activation in ACTIVATIONS),
    # summary D: out of the inactive region
    *(f"layer - rescaled, {activation}, saturated" for activation in ("tanh", "sigmoid")),
    # summary A names no activation function: the network's own
    "layer - rescaled, tanh, correlation",
)
COMPARISONS = Comparisons(
    chapter="01",
    profile="book",
    rows=families(
        (
            Comparison(
                f"layer - rescaled, {activation}, {of}",
                less(f"layer-{activation}", f"rescaled-{activation}", metric),
                margin,
                _STATEMENTS[of],
            )
            for of, (metric, margin, activations) in _OF.items()
            for activation in activations
        ),
        *_PRIMARY,
    ),
)

RATES = (1e-3, 3e-3, 1e-2, 3e-2)
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
    profiles={
        "book": Profile(learning_rates=RATES, **{**TWO_STAGES, "seeds": tuple(range(200, 240))})
    },
    primary="drift_below",
    rate_of={f"layer/same-{activation}": f"rescaled-{activation}" for activation in ACTIVATIONS},
    **ON_DIGITS,
    comparisons=COMPARISONS,
)
