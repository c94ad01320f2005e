"""Does it hurt that layer normalization feels a shift of the data set? (chapter 03)

Three preparations of the same digits: as they are (`plain`), with a constant added to every pixel
(`shifted`), and with each pixel's training mean subtracted from the shifted ones (`centered`). Each
arm is compared with its own method on plain data, paired by seed; the rate is tuned for each arm.
The constant is about eight standard deviations of the pixels: as a measurement far from zero is, a
year, say, or a temperature in kelvin. Rate, metric and margin as in the study batch_size.
"""

from layernorm.lab.experiments.experiment import Experiment, Profile
from layernorm.lab.experiments.studies.digits import ON_DIGITS

SHIFT = 3.0

_DATA = {
    "plain": {},
    "shifted": {"input_shift": SHIFT},
    "centered": {"input_shift": SHIFT, "centered": True},
}

EXPERIMENT = Experiment(
    name="data_shift",
    question="Who learns as fast from a shifted data set, and does centering it help?",
    arms={
        f"{method}-{kind}": {"method": method, **options, "updates": 90}
        for method in ("none", "batch", "layer")
        for kind, options in _DATA.items()
    },
    profiles={
        "book": Profile(seeds=tuple(range(10)), learning_rates=(3e-4, 1e-3, 3e-3, 1e-2, 3e-2))
    },
    primary="mean_test_nll",
    margin=0.01,
    **ON_DIGITS,
)
