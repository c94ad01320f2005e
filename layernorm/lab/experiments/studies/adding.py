"""Where to put the norms of an LSTM, judged on the adding problem (chapter 09).

Arms: `none` is torch's LSTM, `rescaled` the same with a well-scaled start, the others are the five
variants of `LayerNormLSTM`. All start from the same weights, see no sequence twice, and have their
own rate. Compared, paired by seed, are `paper` and each of the others (one family of six, Holm):
how fast an arm learns, as the mean of its test curve.

The margin is 0.01: what a sixteenth of the budget, spent at the error of guessing (1/6), adds to
the mean. Length and budget were set in a pilot of `none`, `rescaled` and `paper` (lengths 50, 75
and 100, rates around 0.01, the seed of the tuning and two more that are used nowhere else), so that
the plain LSTM solves the task within the budget.

A comparison is inconclusive if one of its arms does not learn: if the interval of its final test
loss is not all below the error of guessing, or if its loss on 32 sequences that it is trained on
(profile `book_overfit`) stays above a tenth of that.

Besides, every arm is tried on sequences of twice the length (`longer_loss`): `paper` generalizes to
them if the interval of this loss lies below a tenth of that of guessing, and does not if it lies
above half of it.
"""

from layernorm.lab.experiments.experiment import Experiment, Profile
from layernorm.lab.experiments.studies.sequences import ON_LAGS
from layernorm.recurrent.variants import VARIANTS

STEPS = 50
COMMON = {"task": "adding", "steps": STEPS, "updates": 700, "evaluations": 20}

EXPERIMENT = Experiment(
    name="adding",
    question="Where should an LSTM be normalized to learn to add over a long lag?",
    arms={"none": COMMON, "rescaled": {"rescaled": True, **COMMON}}
    | {variant: {"method": "layer", "variant": variant, **COMMON} for variant in VARIANTS},
    profiles={"book": Profile(seeds=tuple(range(8)), learning_rates=(1e-3, 3e-3, 1e-2, 3e-2))},
    primary="mean_test_loss",
    margin=0.01,
    **ON_LAGS,
)
