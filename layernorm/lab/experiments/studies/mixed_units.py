"""Features of different units, normalized over the case or over the data (chapter 04).

Summary D warns of normalizing age, gender and height together. Here every third pixel of the
digits is measured in a unit a hundred times smaller, so that its numbers are a hundred times
larger; `same` keeps one unit for all. Whatever happens to the input, the rest of the network is
the same; `layer-…` also normalizes the summed inputs of its hidden layers.
"""

from layernorm.lab.experiments.experiment import Experiment, Profile
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

# Primary metric: cross-entropy on test examples, averaged over the budget (fast and good learning
# are both low). Verdict, fixed beforehand: normalizing over the case is worse than standardizing
# each feature under mixed units, by more than the margin; and worse by more under mixed units than
# under the same unit (difference in differences). Both comparisons in one family.
EXPERIMENT = Experiment(
    name="mixed_units",
    question="Does normalizing over a case's features hurt when their units differ?",
    arms={
        f"{arm}-{units}": {**options, "input_scales": scales, "updates": 200}
        for units, scales in UNITS.items()
        for arm, options in _INPUTS.items()
    },
    profiles={"book": Profile(learning_rates=(3e-4, 1e-3, 3e-3, 1e-2, 3e-2))},
    primary="mean_test_nll",
    margin=0.02,
    **ON_DIGITS,
)
