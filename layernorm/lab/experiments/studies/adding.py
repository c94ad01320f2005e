"""Where to put the norms of an LSTM, judged on the adding problem (chapter 09).

Arms: `none` is torch's LSTM, `rescaled` the same with a well-scaled start, the others are the five
variants of `LayerNormLSTM`. All start from the same weights, see no sequence twice, and have their
own rate. Compared are `paper` and each of the others (`COMPARISONS`): how fast an arm learns, as
the mean of its test curve. Length and budget were set in a pilot of `none`, `rescaled` and `paper`
(lengths 50, 75 and 100, rates around 0.01, the seed of the tuning and two more that are used
nowhere else), so that the plain LSTM solves the task within the budget.

Besides, every arm is tried on sequences of twice the `steps` (`longer_loss`): `paper` generalizes
to them if the interval of `longer_loss` less `test_loss` lies below a tenth of the loss of
guessing, and does not if it lies above half of it. The two bounds are older than the runs and were
set for `longer_loss` itself. In the copy task `test_loss` alone is above a tenth, so they are now
applied to the difference. The verdicts are the same either way.
"""

from layernorm.lab.data.lags import TASKS
from layernorm.lab.experiments.contrasts import (
    Comparison,
    Comparisons,
    Gate,
    Margin,
    Said,
    families,
    less,
)
from layernorm.lab.experiments.experiment import TWO_STAGES, Experiment, Profile
from layernorm.lab.experiments.studies.sequences import ON_LAGS
from layernorm.recurrent.variants import VARIANTS

STEPS = 50
COMMON = {"task": "adding", "steps": STEPS, "updates": 700, "evaluations": 20}

_STATEMENTS = {  # id; the arm that `paper` is compared with; statement, about a task
    "faster-than-plain": (
        "none",
        "An LSTM with layer normalization, eqs. (20) to (22), learns {} in fewer updates than "
        "torch's LSTM.",
    ),
    "faster-per-update": (
        "rescaled",
        "An LSTM with layer normalization learns {} in fewer updates than one without "
        "normalization whose weights start at a good scale.",
    ),
    "separate-norms-are-better-than-joint": (
        "joint",
        "Normalizing the input term and the recurrent term by themselves, as in eq. (20), makes an "
        "LSTM learn {} in fewer updates than normalizing their sum once, as in eq. (4).",
    ),
    "better-than-a-norm-per-gate": (
        "per_gate",
        "An LSTM with eqs. (20) to (22) learns {} in fewer updates than TensorFlow's form, a norm "
        "for each gate and a normalized cell that is carried.",
    ),
    "better-than-the-cell-alone": (
        "cell_only",
        "Normalizing gates and cell, eqs. (20) to (22), makes an LSTM learn {} in fewer updates "
        "than normalizing the cell alone, eqs. (29) to (31).",
    ),
    "better-than-a-carried-cell": (
        "carried",
        "An LSTM that carries the cell as it is, eqs. (20) to (22), learns {} in fewer updates "
        "than one that carries the normalized cell.",
    ),
}


def guess(options: dict) -> float:
    """The loss of the best answer that ignores the input."""
    return TASKS[options["task"]].guess


GATES = (
    Gate("is not surely better than guessing", "test_loss", guess, surely=True),
    Gate(
        "does not fit 32 training sequences",
        *("train_loss", lambda options: guess(options) / 10),
        by_heart=True,
    ),
)


def compared(study: str, task: str, margin: Margin) -> Comparisons:
    """`paper` against each other arm, on this task. Primary is what the abstract and section 7 of
    the paper and the summaries A, C and E say, faster than without, and its control; that the
    paper's form is the best place of the norms nobody says."""
    return Comparisons(
        chapter="09",
        profile="book",
        gates=GATES,
        rows=families(
            (
                Comparison(
                    f"paper - {other}",
                    less("paper", other, "mean_test_loss"),
                    margin,
                    Said(f"{id}/{study}", statement.format(task)),
                    plateau=True,  # a run stays at guessing until it suddenly falls
                )
                for id, (other, statement) in _STATEMENTS.items()
            ),
            "paper - none",
            "paper - rescaled",
        ),
    )


COMPARISONS = compared(
    *("adding", "the adding problem"),
    Margin(
        *(0.01, "squared error", "the mean of the test loss over the curve"),
        "what a sixteenth of the budget, spent at guessing, adds to the mean",
    ),
)

RATES = (1e-3, 3e-3, 1e-2, 3e-2)
EXPERIMENT = Experiment(
    name="adding",
    question="Where should an LSTM be normalized to learn to add over a long lag?",
    arms={"none": COMMON, "rescaled": {"rescaled": True, **COMMON}}
    | {variant: {"method": "layer", "variant": variant, **COMMON} for variant in VARIANTS},
    profiles={"book": Profile(learning_rates=RATES, **TWO_STAGES)},
    primary="mean_test_loss",
    **ON_LAGS,
    comparisons=COMPARISONS,
)
