"""Features of different units, normalized over the case or over the data (chapter 04).

Summary D warns of normalizing age, gender and height together. Here every third pixel of the
digits is measured in a unit a hundred times smaller, so that its numbers are a hundred times
larger; `same` keeps one unit for all. Whatever happens to the input, the rest of the network is
the same; `layer-…` also normalizes the summed inputs of its hidden layers.

Primary are both conditions of the statement that answers the warning: that the standardized
features are ahead, and that the mixed units are why. Some 200 runs of a quarter of a second, one or
two minutes in all.
"""

from layernorm.lab.experiments.contrasts import Comparison, Comparisons, Margin, Said, less, minus
from layernorm.lab.experiments.experiment import TWO_STAGES, Experiment, Profile
from layernorm.lab.experiments.studies.digits import ON_DIGITS

UNITS = {"same": (1.0,), "mixed": (100.0, 1.0, 1.0)}
_INPUTS = {
    "raw": {},
    "rescaled": {"rescaled": True},
    "standardized": {"input_norm": "standardized"},
    "case": {"input_norm": "layer"},
    "layer": {"method": "layer"},
    "layer_standardized": {"method": "layer", "input_norm": "standardized"},
}

# Fixed beforehand: normalizing over the case is worse than standardizing each feature under mixed
# units; and worse by more under mixed units than under the same unit (difference in differences).
NATS = Margin(
    *(0.02, "nats", "the mean of the test cross-entropy over the curve"),
    "a seventh of what a network has on average on standardized features",
)
_UNITS = Said(
    "mixed-units/digits",
    "Where the units of features differ, a network learns worse from features normalized together, "
    "in each case, than from features standardized one by one, and by more than where they share "
    "one unit.",
)
_MIXED, _SAME = (
    less(f"standardized-{units}", f"case-{units}", "mean_test_nll") for units in ("mixed", "same")
)
COMPARISONS = Comparisons(
    chapter="04",
    profile="book",
    rows=(
        Comparison("standardized - case, mixed units", _MIXED, NATS, _UNITS),
        Comparison("from one unit to mixed ones", minus(_MIXED, _SAME), NATS, _UNITS),
    ),
)

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
EXPERIMENT = Experiment(
    name="mixed_units",
    question="Does normalizing over a case's features hurt when their units differ?",
    arms={
        f"{arm}-{units}": {**options, "input_scales": scales, "updates": 200}
        for units, scales in UNITS.items()
        for arm, options in _INPUTS.items()
    },
    profiles={"book": Profile(learning_rates=RATES, **TWO_STAGES)},
    primary="mean_test_nll",
    **ON_DIGITS,
    comparisons=COMPARISONS,
)
