"""Where to put the norms of an LSTM, judged on the copy task (chapter 09).

Arms, comparisons and rule are those of the study `adding`, on a task of another kind: five symbols
of eight are to be named, in their order, after a lag of blanks. Guessing costs ln 8, about 2.08
nats a symbol. Lag and budget were set in a pilot of `none`, `rescaled` and
`paper` (lags 20 and 30, two rates, the seed of the tuning).

Three primary arms have 12 runs to tune and 10 to 20 seeds, the four other places of the norms nine
in all: 100 to 140 runs of 24 seconds, 40 to 55 minutes of one core.
"""

from layernorm.lab.experiments.contrasts import Margin
from layernorm.lab.experiments.experiment import TWO_STAGES, Experiment, Profile
from layernorm.lab.experiments.studies import adding
from layernorm.lab.experiments.studies.sequences import ON_LAGS

LAG = 20
CHANGED = {"task": "copy", "steps": LAG, "updates": 600, "evaluations": 20}

COMPARISONS = adding.compared(
    *("copy_memory", "the copy task"),
    Margin(
        *(0.05, "nats", "the mean of the test loss over the curve"),
        "what a fortieth of the budget, spent at guessing, adds to the mean",
    ),
)

RATES = (1e-3, 3e-3, 1e-2, 3e-2)
EXPERIMENT = Experiment(
    name="copy_memory",
    question="Where should an LSTM be normalized to learn to repeat symbols after a lag?",
    arms={arm: {**options, **CHANGED} for arm, options in adding.EXPERIMENT.arms.items()},
    profiles={"book": Profile(learning_rates=RATES, **TWO_STAGES)},
    primary="mean_test_loss",
    **ON_LAGS,
    comparisons=COMPARISONS,
)
