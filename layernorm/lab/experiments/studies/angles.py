"""Does normalization make updates turn the weights less and less? (chapter 07)

Section 5.2.2 of the paper: where the norm of the weights grows, learning slows down by itself. In a
network that learns, gradients fall for another reason, too, so here the labels are drawn afresh for
every batch, and only the hidden matrix learns: nothing but its length changes for good. Every
optimizer is run with layer normalization and without any (the null: weights that walk away from
their start become longer without normalization, too), at ten times the rates of
`analysis.weights.OPTIMIZERS`, fixed, since there is nothing to tune for; decay balances the growth
of norms within the run (seen in a pilot of one seed, 999, which is used nowhere else).
"""

from layernorm.lab.analysis.curves import logarithm
from layernorm.lab.experiments.contrasts import Comparison, Comparisons, Margin, Said, minus
from layernorm.lab.experiments.experiment import Experiment, Profile
from layernorm.lab.experiments.studies.digits import ON_DIGITS
from layernorm.lab.experiments.studies.own_steps import STEPPING

STEPS = {
    "gradient descent": {"optimizer": "sgd", "learning_rate": 3.0},
    "momentum": {"optimizer": "momentum", "learning_rate": 0.3},
    "Adam": {"optimizer": "adam", "learning_rate": 0.03},
    "weight decay": {"optimizer": "sgd", "learning_rate": 3.0, "decay": 0.003},
    "AdamW": {"optimizer": "adamw", "learning_rate": 0.03, "decay": 1.0},
}
UPDATES = 400
_LATE, _EARLY = map(logarithm, ("late_angle", "early_angle"))
FIFTH = Margin(
    *(0.223, "(logarithm)", "the logarithm of the angle of late updates over that of early ones"),
    "a fifth less, as from one step of a usual schedule of learning rates to the next",
    null="a network without normalization, whose weights become longer, too; it is what the angle "
    "is compared with",
)
SAID = Said(
    "angle-per-update-shrinks",
    "Normalization slows learning down by itself, as a falling learning rate or early stopping "
    "would: from early updates to late ones the angle by which an update turns the weights falls "
    "more than without normalization.",
)


def arm(method: str, optimizer: str) -> str:
    return f"{method}-{optimizer.replace(' ', '_')}"


def falls(method: str, optimizer: str):
    """By what factor the angle falls from early updates to late ones, as a logarithm."""
    return (1, arm(method, optimizer), _LATE), (-1, arm(method, optimizer), _EARLY)


EXPERIMENT = Experiment(
    name="angles",
    question="Do updates turn normalized weights less and less, more so than others?",
    arms={
        arm(name, optimizer): {**options, **steps}
        for name, options in {
            "layer": {"method": "layer"},
            "none": {},
            "rescaled": {"rescaled": True},
        }.items()
        for optimizer, steps in STEPS.items()
    },
    profiles={
        "book": Profile(
            options={
                "updates": UPDATES,
                "evaluations": 8,
                "batch_size": 64,
                "hidden": (32,),
                "centered": True,
                "frozen": True,
                "noise": True,
            },
            seeds=tuple(range(10)),
        )
    },
    primary="late_angle",
    **ON_DIGITS | STEPPING,
    comparisons=Comparisons(
        chapter="07",
        profile="book",
        gates=(),
        rows=(
            *(
                Comparison(
                    f"{optimizer}, layer - {other}",
                    minus(falls("layer", optimizer), falls(other, optimizer)),
                    FIFTH,
                    SAID if other == "none" else None,
                    family="primary" if other == "none" else "exploratory",
                )
                for optimizer in STEPS
                for other in ("none", "rescaled")
            ),
        ),
    ),
)
