"""Does it hurt that layer normalization feels a shift of the data set? (chapter 03)

Three preparations of the same digits: as they are (`plain`), with a constant added to every pixel
(`shifted`), and with each pixel's training mean subtracted from the shifted ones (`centered`). Each
arm is compared with its own method on plain data, paired by seed; the rate is tuned for each arm.
The constant is about eight standard deviations of the pixels: as a measurement far from zero is, a
year, say, or a temperature in kelvin. Rate and metric as in the study batch_size.

Primary: summary C's "harmless, since data are centered", its control, a shift that is not centered
away, and whether batch normalization, whose outputs a shift does not change (section 5.1 and table
1 of the paper), learns as without it, which no source says. Some 200 runs of half a second, two
minutes in all.
"""

from layernorm.lab.experiments.contrasts import Comparison, Comparisons, Margin, Said, less
from layernorm.lab.experiments.experiment import TWO_STAGES, Experiment, Profile
from layernorm.lab.experiments.studies.digits import ON_DIGITS

SHIFT = 3.0

_DATA = {
    "plain": {},
    "shifted": {"input_shift": SHIFT},
    "centered": {"input_shift": SHIFT, "centered": True},
}

NATS = Margin(
    *(0.01, "nats", "the mean of the test cross-entropy over the curve"),
    "a tenth of what a tuned network has on average over its curve",
)
_STATEMENTS = {
    ("layer", "centered"): Said(
        "data-shift-harmless-if-centered/digits",
        "Layer normalization is not invariant to a shift of the data set, but this does no harm if "
        "the data are centered.",
    ),
    ("layer", "shifted"): Said(
        "data-shift-harmless-if-not-centered/digits",
        "A shift of the data set that is not centered away does no harm to a network with layer "
        "normalization.",
    ),
    ("batch", "shifted"): Said(
        "data-shift-harmless-to-batch-normalization/digits",
        "Batch normalization, which is invariant to a shift of the data set, learns from shifted "
        "data as it does from plain ones.",
    ),
}
COMPARISONS = Comparisons(
    chapter="03",
    profile="book",
    rows=tuple(
        Comparison(
            f"{method}, {kind} - plain",
            less(f"{method}-{kind}", f"{method}-plain", "mean_test_nll"),
            NATS,
            claim,
            says="not worse",
        )
        for (method, kind), claim in _STATEMENTS.items()
    ),
)

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
EXPERIMENT = Experiment(
    name="data_shift",
    question="Who learns as fast from a shifted data set, and does centering it help?",
    arms={
        f"{method}-{kind}": {"method": method, **options, "updates": 90}
        for method in ("none", "batch", "layer")
        for kind, options in _DATA.items()
    },
    profiles={"book": Profile(learning_rates=RATES, **TWO_STAGES)},
    primary="mean_test_nll",
    **ON_DIGITS,
    comparisons=COMPARISONS,
)
