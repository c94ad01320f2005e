"""Does it matter how the weights start? (chapter 01)

Four schemes beside torch's own: all hidden weights ten times smaller or larger, each unit's weight
vector by its own factor between 0.1 and 10, a constant added to all weights. Each arm is run at the
rate tuned for its method's default start, as somebody who changes nothing else would, and arms
`-tuned` at a rate of their own, since a scheme may ask for no more than another rate.

Two arms need a word. `weight` starts as its module does, the gain being the length of the weights
drawn; `weight/kept` draws the direction alone. The control `rescaled` brings the drawn weights to
unit-variance summed inputs, once and before training; a common factor is gone after that, so it
needs no arms `small` and `large`.
"""

from layernorm.lab.experiments.experiment import Experiment, Profile
from layernorm.lab.experiments.studies.digits import ON_DIGITS

SCHEMES = {
    "default": {},
    "small": {"initial_scale": 0.1},
    "large": {"initial_scale": 10.0},
    "uneven": {"initial_spread": 1.0},
    "shifted": {"initial_shift": 1.0},
}
METHODS = {
    "none": {"method": "none"},
    "rescaled": {"method": "none", "rescaled": True},
    "batch": {"method": "batch"},
    "weight": {"method": "weight"},
    "weight/kept": {"method": "weight", "initial_gains": False},
    "layer": {"method": "layer"},
    "rms": {"method": "rms"},
}
TUNED = ("none", "rescaled", "batch", "layer")
UNCHANGED = {("rescaled", "small"), ("rescaled", "large"), ("weight/kept", "default")}
UPDATES = 300

_PAIRS = [(m, s) for m in METHODS for s in SCHEMES if (m, s) not in UNCHANGED]
_TUNED_PAIRS = [(m, s) for m, s in _PAIRS if m in TUNED and s != "default"]


def _options(method: str, scheme: str) -> dict:
    return {**METHODS[method], **SCHEMES[scheme], "updates": UPDATES, "evaluations": 10}


EXPERIMENT = Experiment(
    name="initialization",
    question="Which ways of drawing the first weights does each method not care about?",
    arms={f"{m}-{s}": _options(m, s) for m, s in _PAIRS}
    | {f"{m}-{s}-tuned": _options(m, s) for m, s in _TUNED_PAIRS},
    profiles={"book": Profile(learning_rates=(1e-3, 3e-3, 1e-2, 3e-2))},
    primary="mean_train_nll",
    margin=0.02,
    rate_of={f"{m}-{s}": f"{m.split('/')[0]}-default" for m, s in _PAIRS if s != "default"},
    **ON_DIGITS,
)
