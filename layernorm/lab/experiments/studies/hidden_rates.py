"""Does normalization make learning more stable at rates that are too large? (chapter 07)

Gradient descent; the hidden weights learn at 1, 10 and 100, all else at 0.1, on digits as they are
and on digits from which the mean image was subtracted. Rates are what is asked about, so none is
tuned. A network that survives its rate ends with a low training loss; one that does not, with that
of guessing, so losses are compared as ratios.

Seeds 0 to 9 left one of the twelve comparisons open; 22 new ones, from 100 on, take their place:
as many as fit a published file, with three readings of a curve instead of ten.
"""

from layernorm.lab.analysis.curves import logarithm
from layernorm.lab.experiments.contrasts import Comparison, Comparisons, Margin, Said, less
from layernorm.lab.experiments.experiment import Experiment, Profile
from layernorm.lab.experiments.studies.digits import ON_DIGITS
from layernorm.lab.experiments.studies.own_steps import STEPPING

REST = 0.1
RATES = (1, 10, 100)
DATA = {"raw": {}, "centered": {"centered": True}}
METHODS = {"none": {}, "rescaled": {"rescaled": True}, "layer": {"method": "layer"}}
TWICE = Margin(
    *(0.693, "(logarithm)", "the logarithm of the training loss after 150 updates"),
    "a factor of two",
)
SAID = Said(
    "sigma-makes-learning-stable",
    "The normalization scalar σ makes learning more stable: at large learning rates the training "
    "loss stays lower than without normalization, whatever the scale of the first weights.",
)

EXPERIMENT = Experiment(
    name="hidden_rates",
    question="Which networks bear a learning rate that is far too large?",
    arms={
        f"{method}-{kind}-{rate}": {**options, **data, "hidden_rate": rate / REST}
        for method, options in METHODS.items()
        for kind, data in DATA.items()
        for rate in RATES
    },
    profiles={
        "book": Profile(
            options={
                "updates": 150,
                "evaluations": 3,
                "batch_size": 64,
                "hidden": (32, 32),
                "learning_rate": REST,
            },
            seeds=tuple(range(100, 122)),
        )
    },
    primary="train_nll",
    **ON_DIGITS | STEPPING,
    comparisons=Comparisons(
        chapter="07",
        profile="book",
        gates=(),
        rows=tuple(
            Comparison(
                f"{kind} digits, rate {rate}, layer - {other}",
                less(f"layer-{kind}-{rate}", f"{other}-{kind}-{rate}", logarithm("train_nll")),
                TWICE,
                SAID,
            )
            for kind in DATA
            for rate in RATES
            for other in ("none", "rescaled")
        ),
    ),
)
