"""Does it matter how the weights start? (chapter 01)

Four schemes beside torch's own: all hidden weights ten times smaller or larger, each unit's weight
vector by its own factor between 0.1 and 10, a constant added to all weights. Each arm is run at the
rate tuned for its method's default start, as somebody who changes nothing else would, and arms
`-tuned` at a rate of their own, since a scheme may ask for no more than another rate.

Two arms need a word. `weight` starts as its module does, the gain being the length of the weights
drawn; `weight/kept` draws the direction alone. The control `rescaled` brings the drawn weights to
unit-variance summed inputs, once and before training; a common factor is gone after that, so it
needs no arms `small` and `large`.

All comparisons are primary: summary C, who alone says it, expects layer normalization to be robust
to "how weights are initialized", of which these are four ways, and derives it from an invariance
that would let learning ignore the scale. At most twelve seeds: the published sweep had to stay
below 500 kB. Some 420 runs of about a second, seven minutes in all.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from layernorm.lab.experiments.contrasts import (
    GATES,
    Comparison,
    Comparisons,
    Contrast,
    Margin,
    Said,
    less,
    minus,
)
from layernorm.lab.experiments.experiment import TWO_STAGES, Experiment, Profile
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


NATS = Margin(
    *(0.02, "nats", "what another start costs in the mean of the training cross-entropy"),
    "as much as a tuned network has on average over its curve",
)


def cost(method: str, scheme: str, metric: str, suffix: str = "-tuned") -> Contrast:
    """The cost of another start to a method, at a rate of its own or (no suffix) the default's."""
    return less(f"{method}-{scheme}{suffix}", f"{method.split('/')[0]}-default", metric)


def robust(claim: Said, metric: str, margin: Margin, *schemes: str) -> Iterator[Comparison]:
    """The cost of other starts to `layer` less that to `none`, each at a rate of its own."""
    for scheme in schemes:
        costs = (cost(method, scheme, metric) for method in ("layer", "none"))
        yield Comparison(f"{scheme} start, layer - none", minus(*costs), margin, claim)


def same_rate(claim: Said, metric: str, margin: Margin) -> Iterator[Comparison]:
    """The cost of other scales to `layer` at the rate of the default start."""
    for scheme in ("small", "large"):
        contrast = cost("layer", scheme, metric, suffix="")
        yield Comparison(f"{scheme} start, layer", contrast, margin, claim, says="same")


# An arm that does not learn from another start has paid its cost.
STARTS = tuple(
    replace(gate, exempt=tuple(f"*-{s}*" for s in SCHEMES if s != "default")) for gate in GATES
)

COMPARISONS = Comparisons(
    chapter="01",
    profile="book",
    gates=STARTS,
    rows=(
        *robust(
            Said(
                "robust-to-initial-scale/digits",
                "Layer normalization makes learning robust to the scale of the initial weights.",
            ),
            *("mean_train_nll", NATS, "small", "large"),
        ),
        *robust(
            Said(
                "robust-to-shifted-weights/digits",
                "Layer normalization makes learning robust to a constant added to all initial "
                "weights.",
            ),
            *("mean_train_nll", NATS, "shifted"),
        ),
        *robust(
            Said(
                "robust-to-uneven-weights/digits",
                "Layer normalization makes learning robust to initial weight vectors whose scales "
                "differ from unit to unit.",
            ),
            *("mean_train_nll", NATS, "uneven"),
        ),
        *same_rate(
            Said(
                "learning-ignores-initial-scale/digits",
                "At one learning rate, a layer-normalized network learns as well from weights ten "
                "times smaller and ten times larger as from default ones.",
            ),
            *("mean_train_nll", NATS),
        ),
    ),
)

ARMS = {f"{m}-{s}": _options(m, s) for m, s in _PAIRS} | {
    f"{m}-{s}-tuned": _options(m, s) for m, s in _TUNED_PAIRS
}
_PLANNED = re.compile("none|layer")  # those that a comparison or a figure has at a rate of its own
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
EXPERIMENT = Experiment(
    name="initialization",
    question="Which ways of drawing the first weights does each method not care about?",
    arms=ARMS,
    profiles={
        "book": Profile(
            tuple(arm for arm in ARMS if not arm.endswith("tuned") or _PLANNED.match(arm)),
            learning_rates=RATES,
            **{**TWO_STAGES, "seeds": tuple(range(100, 112))},
        )
    },
    primary="mean_train_nll",
    rate_of={f"{m}-{s}": f"{m.split('/')[0]}-default" for m, s in _PAIRS if s != "default"},
    **ON_DIGITS,
    comparisons=COMPARISONS,
)
