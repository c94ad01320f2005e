"""Statistics for each step of a recurrent net: what they need and where they fail (chapter 10).

The question is which of one to three digits, read row by row, came last (`digit_rows`). All arms
start from the same weights and have their own learning rate. Two families of comparisons, paired
by seed, Holm within each, each at 2.5 %:

How fast an arm learns (the mean of its test curve), six: batch normalization with gains of 0.1
against 1, layer normalization with 1 against 0.1, padding left out against counted, layer against
batch (each at the gain its authors recommend), and both against `rescaled`, the LSTM without
normalization that starts at a good scale (`none`, the plain one, is shown beside it).

What a trained network does (final cross-entropies on test sequences), four, with gains of 0.1 for
batch and 1 for layer normalization: statistics of each step against shared ones; what three digits
cost against one, layer against batch (few training cases get that far); what six digits, twice
the longest training sequence, cost against three, layer against batch; the statistics of the last
step for all later ones against statistics of their own.

The margin is 0.02 nats, a twentieth of what the pilot had on average over its curves. The budget
and the shares of the lengths were set in that pilot of one seed, 777, at one rate, so that all
arms learn the task within 300 updates.
"""

from layernorm.lab.experiments.experiment import Experiment, Profile
from layernorm.lab.experiments.studies.digit_rows import ON_DIGIT_ROWS

CONFIDENCE = 0.975  # of each of the two families

EXPERIMENT = Experiment(
    name="step_statistics",
    question="What do statistics for each step need, and where do they fail?",
    arms={
        "none": {},
        "rescaled": {"rescaled": True},
        "batch-0.1": {"method": "batch", "gain": 0.1},
        "batch-1": {"method": "batch", "gain": 1.0},
        "batch-padded": {"method": "batch", "gain": 0.1, "padded": True},
        "layer-1": {"method": "layer", "gain": 1.0},
        "layer-0.1": {"method": "layer", "gain": 0.1},
    },
    profiles={"book": Profile(seeds=tuple(range(8)), learning_rates=(1e-3, 3e-3, 1e-2, 3e-2))},
    primary="mean_test_nll",
    margin=0.02,
    **ON_DIGIT_ROWS,
)
