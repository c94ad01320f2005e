"""Statistics for each step of a recurrent net: what they need and where they fail (chapter 10).

The question is which of one to three digits, read row by row, came last (`digit_rows`). All arms
start from the same weights and have their own learning rate. Compared (`COMPARISONS`) are:

How fast an arm learns (the mean of its test curve): batch normalization with gains of 0.1
against 1, layer normalization with 1 against 0.1, padding left out against counted, layer against
batch (each at the gain its authors recommend), and both against `rescaled`, the LSTM without
normalization that starts at a good scale (`none`, the plain one, is shown beside it).

What a trained network does (final cross-entropies on test sequences), with gains of 0.1 for
batch and 1 for layer normalization: statistics of each step against shared ones; what three digits
cost against one, layer against batch (few training cases get that far); what six digits, twice
the longest training sequence, cost against three, layer against batch; the statistics of the last
step for all later ones against statistics of their own.

The budget and the shares of the lengths were set in a pilot of one seed, 777, at one rate, so that
all arms learn the task within 300 updates.

Seeds 100 to 119, at most twenty an arm, left two primary comparisons open, with half-widths above
the planned ones. A run takes seconds, so at most sixty new seeds, from 200 on, take their place;
the rule that fixes their number and the tuning are the same.

Four primary arms have 12 runs to tune and 10 to 60 seeds, the three others nine in all: 115 to 315
runs of some ten seconds, at most an hour of one core.
"""

from dataclasses import replace

from layernorm.lab.experiments.contrasts import (
    Comparison,
    Comparisons,
    Contrast,
    Margin,
    Said,
    families,
    less,
    minus,
)
from layernorm.lab.experiments.experiment import TWO_STAGES, Experiment, Profile
from layernorm.lab.experiments.studies.digit_rows import ON_DIGIT_ROWS

NATS = Margin(
    *(0.02, "nats", "the mean of the test cross-entropy over the curve"),
    "a twentieth of what the pilot had on average over its curves",
)
TRAINED = replace(NATS, of="final cross-entropies on test sequences")
BATCH, LAYER = "batch-0.1", "layer-1"


def _longer(long: str, short: str) -> Contrast:
    """The cost of longer sequences to `layer` less that to `batch`."""
    layer, batch = (((1, a, long), (-1, a, short)) for a in (LAYER, BATCH))
    return minus(layer, batch)


_ROWS = (  # name, contrast, margin; id, statement
    (
        *("batch, gain 0.1 - 1", less(BATCH, "batch-1", "mean_test_nll"), NATS),
        "batch-needs-small-gains",
        "An LSTM with batch normalization learns faster with gains that start at 0.1 than with "
        "gains that start at 1.",
    ),
    (
        *("layer, gain 1 - 0.1", less(LAYER, "layer-0.1", "mean_test_nll"), NATS),
        "layer-needs-gains-of-one",
        "An LSTM with layer normalization learns faster with gains that start at 1 than with gains "
        "that start at 0.1.",
    ),
    (
        "batch, padding left out - counted",
        *(less(BATCH, "batch-padded", "mean_test_nll"), NATS),
        "counting-padding-slows-learning",
        "An LSTM with batch normalization learns more slowly if padding counts in its statistics.",
    ),
    (
        *("layer - batch", less(LAYER, BATCH, "mean_test_nll"), NATS),
        "faster-than-batch-lstm",
        "An LSTM learns faster with layer normalization than with recurrent batch normalization.",
    ),
    (
        *("layer - rescaled", less(LAYER, "rescaled", "mean_test_nll"), NATS),
        "layer-lstm-faster-than-rescaled",
        "An LSTM with layer normalization learns faster than one without normalization whose "
        "weights start at a good scale.",
    ),
    (
        *("batch - rescaled", less(BATCH, "rescaled", "mean_test_nll"), NATS),
        "batch-lstm-faster-than-rescaled",
        "An LSTM with recurrent batch normalization learns faster than one without normalization "
        "whose weights start at a good scale.",
    ),
    (
        "each step's - shared",
        *(((1, BATCH, "test_nll"), (-1, BATCH, "shared_nll")), TRAINED),
        "shared-statistics-harm",
        "An LSTM with batch normalization that was trained with statistics of each step does worse "
        "if they are pooled in evaluation.",
    ),
    (
        "three digits - one, layer - batch",
        *(_longer("test_3_nll", "test_1_nll"), TRAINED),
        "late-steps-harm-batch-normalization",
        "If few training sequences are long, long test sequences raise the loss of an LSTM with "
        "batch normalization more than that of one with layer normalization.",
    ),
    (
        "six digits - three, layer - batch",
        *(_longer("test_6_nll", "test_3_nll"), TRAINED),
        "longer-sequences-harm-batch-normalization",
        "Test sequences longer than all training sequences harm an LSTM with batch normalization "
        "more than one with layer normalization.",
    ),
    (
        "last step's - own, six digits",
        *(((1, BATCH, "test_6_nll"), (-1, BATCH, "own_6_nll")), TRAINED),
        "last-statistics-suffice",
        "Beyond the longest training sequence the statistics of its last step serve as well as "
        "statistics that are measured at each additional step.",
    ),
)
_PRIMARY = (
    *("batch, gain 0.1 - 1", "layer, gain 1 - 0.1"),  # section 6.2
    "layer - batch",  # section 6.2, summaries A and C
    "each step's - shared",  # section 3.1, summaries A and C
    "three digits - one, layer - batch",  # summary D: the longer, the worse
    "six digits - three, layer - batch",  # section 3.1, summaries A and C
)
COMPARISONS = Comparisons(
    chapter="10",
    profile="book",
    rows=families(
        (
            Comparison(
                *(name, contrast, margin, Said(f"{id}/digit_rows", *said)),
                says="not worse" if id == "last-statistics-suffice" else "better",
            )
            for name, contrast, margin, id, *said in _ROWS
        ),
        *_PRIMARY,
    ),
)

RATES = (1e-3, 3e-3, 1e-2, 3e-2)
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
    profiles={
        "book": Profile(learning_rates=RATES, **{**TWO_STAGES, "seeds": tuple(range(200, 260))})
    },
    primary="mean_test_nll",
    **ON_DIGIT_ROWS,
    comparisons=COMPARISONS,
)
