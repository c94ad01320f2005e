"""Does the scale of the first weights matter in a deep network? (chapter 01)

The study `initialization` has two hidden layers, which forgive almost any scale whatever the
method. Through eight, a scale acts eight times. As there, each arm is run at the rate of its
method's default start and, as `-tuned`, at its own. The control `rescaled` is the same network from
any scale, so one arm stands for all. Here the question is whether a network still gets there, so
the metric is the test error at the end, in percent. All comparisons are primary, as there. Some 250
runs of a second and a half, six minutes in all.
"""

from layernorm.lab.experiments.contrasts import Comparisons, Margin, Said
from layernorm.lab.experiments.experiment import TWO_STAGES, Experiment, Profile
from layernorm.lab.experiments.studies.digits import ON_DIGITS
from layernorm.lab.experiments.studies.initialization import STARTS, robust, same_rate

SCALES = {"default": 1.0, "small": 0.1, "large": 10.0}
METHODS = ("none", "batch", "layer")
_COMMON = {"hidden": (64,) * 8, "updates": 300, "evaluations": 10}
_STARTS = {
    f"{method}-{name}": {"method": method, "initial_scale": scale, **_COMMON}
    for method in METHODS
    for name, scale in SCALES.items()
}
_OTHER = [arm for arm in _STARTS if not arm.endswith("default")]

POINTS = Margin(
    *(1.0, "points", "what another start costs in test error at the end"),
    "three of the 300 test examples",
    resolution=1 / 3,
)
COMPARISONS = Comparisons(
    chapter="01",
    profile="book",
    gates=STARTS,
    rows=(
        *robust(
            Said(
                "robust-to-initial-scale/deep_digits",
                "In a deep network, layer normalization makes learning robust to the scale of the "
                "initial weights.",
            ),
            *("test_error", POINTS, "small", "large"),
        ),
        *same_rate(
            Said(
                "learning-ignores-initial-scale/deep_digits",
                "At one learning rate, a deep layer-normalized network learns as well from weights "
                "ten times smaller and ten times larger as from default ones.",
            ),
            *("test_error", POINTS),
        ),
    ),
)

RATES = (1e-3, 3e-3, 1e-2, 3e-2)
EXPERIMENT = Experiment(
    name="initialization_deep",
    question="From which scales of the first weights does a deep network still learn?",
    arms=_STARTS
    | {f"{arm}-tuned": _STARTS[arm] for arm in _OTHER}
    | {"rescaled-default": {"method": "none", "rescaled": True, **_COMMON}},
    profiles={"book": Profile(learning_rates=RATES, **TWO_STAGES)},
    primary="test_error",
    rate_of={arm: f"{arm.split('-')[0]}-default" for arm in _OTHER},
    **ON_DIGITS,
    comparisons=COMPARISONS,
)
