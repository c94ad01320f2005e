"""ConvNets (the paper's section 6.7): does layer normalization do less well there, and why?

The paper reports, without numbers and as preliminary, that in convolutional networks layer
normalization learns faster than no normalization and batch normalization does better than both. Its
explanation: units near the border of the image are rarely on, so that their statistics differ from
those of the others, with which they share mean and variance.

All arms have the same convolutions, starting from the same weights at the same seed, with a gain
and a bias per channel; they differ in what mean and variance are taken over (`model`).
Three kinds of arms take the border's part in the statistics away, each in its own way:

- `layer-interior`: units near the border are normalized, but not counted in mean and variance;
- `…-circular`: images and maps are wrapped around instead of padded with zeros;
- `…-borderless`: wrapped around, and MNIST's empty margin is cut off, too. As the network ends with
  the mean over all positions, no position then differs from another.

If the border is why layer normalization falls behind batch normalization, each of them closes most
of the gap between the two.

Budget and margin were set with single runs of some arms at seeds from 900 on, none of which is
recorded.

Plan of `standard` under the rule of evidence (its first runs had eight seeds and one for the
tuning). Primary is what section 6.7 says of methods and of the border, on the plain network, with
the control. Nine primary arms have 12 runs to tune and 10 to 18 seeds, at two rates where tuning
cannot tell them apart, the ten others nine in all: 290 to 380 runs of nine seconds, some 50 minutes
of one core.

Profile `trained` asks the same of a larger network that is trained longer, for a little more than
two epochs of MNIST, where those of `standard` end after half an epoch. Four arms, rates tuned on a
fifth of the updates: 48 runs of 20 seconds, 4 by heart, 80 of 100 seconds and 40 at the next best
rate, some 190 minutes of one core. The plan hoped for less than 1.5% test error in the best arms;
they ended at 1.7%. Profile `cifar10` is the same on CIFAR-10, for whoever has it, and decides no
claim; none of its runs has been made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from layernorm.lab.analysis.curves import logarithm
from layernorm.lab.data import DATASETS
from layernorm.lab.experiments.contrasts import (
    Comparison,
    Comparisons,
    Gate,
    Margin,
    Said,
    families,
    less,
    minus,
)
from layernorm.lab.experiments.convnet.model import METHODS, build
from layernorm.lab.experiments.convnet.task import ConvNet, splits
from layernorm.lab.experiments.experiment import TWO_STAGES, Experiment, Original, Profile
from layernorm.lab.experiments.options import Count, Options


class ConvNetOptions(Options):
    """The options of a run, besides those that all experiments share.

    `network`: `plain` (`channels`, one number a convolution; every second one halves the image) or
    `resnet` (`stages`, one number a stage of `blocks` blocks). `over`: what `layer` takes mean and
    variance over, `all` units of the layer, the `channels` of one position, or the `interior`.
    `groups`: of `group`. `crop`: positions cut off on each side of the images. The curves are read
    on `watched` examples of each part.
    """

    data: Literal["digits", "mnist", "cifar10"] = "digits"
    network: Literal["plain", "resnet"] = "plain"
    channels: tuple[Count, ...] = (8, 16, 16, 32)
    stages: tuple[Count, ...] = (8, 16, 32)
    blocks: Count = 1
    over: Literal["all", "channels", "interior"] = "all"
    groups: Count = 4
    padding: Literal["zeros", "circular"] = "zeros"
    crop: Annotated[int, Field(ge=0)] = 0
    watched: Count = 500

    def check(self) -> None:
        super().check()
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if self.over != "all" and self.method != "layer":
            raise ValueError(
                f"over={self.over!r} chooses among the statistics of method 'layer', got method "
                f"{self.method!r}; leave it out, or use --set method=layer"
            )
        sizes = {"plain": self.channels, "resnet": self.stages}[self.network]
        if not sizes:
            name = "channels" if self.network == "plain" else "stages"
            raise ValueError(f"{name} must hold at least one number, got an empty list")
        if self.method == "group" and any(size % self.groups for size in sizes):
            raise ValueError(
                f"groups must divide every number of channels, {list(sizes)}, got {self.groups}"
            )


METHOD_ARMS = {
    "none": {"method": "none"},
    "rescaled": {"method": "none", "rescaled": True},
    "batch": {"method": "batch"},
    "layer": {"method": "layer"},
    "layer-channels": {"method": "layer", "over": "channels"},
    "group": {"method": "group"},
    "instance": {"method": "instance"},
}
RESNET_ARMS = {f"{arm}-resnet": {**o, "network": "resnet"} for arm, o in METHOD_ARMS.items()}
BORDER_ARMS = {
    "layer-interior": {"method": "layer", "over": "interior"},
    **{
        f"{method}-{name}": {"method": method, "padding": "circular", "crop": crop}
        for name, crop in (("circular", 0), ("borderless", 4))
        for method in ("batch", "layer")
    },
}

SPEED, ERROR = "mean_test_nll", "best_test_error"
NATS = Margin(
    *(0.02, "nats", "the mean of the test cross-entropy over the curve"),
    "a twentieth of what batch normalization had on average over its curve in single runs",
)
POINTS = Margin(
    *(0.5, "points", "the test error where the validation cross-entropy is lowest"),
    "five of the 1000 test images that are read",
    resolution=0.1,
)
WITHOUT_BORDER = {
    "interior": ("layer-interior", "batch"),
    "circular": ("layer-circular", "batch-circular"),
    "borderless": ("layer-borderless", "batch-borderless"),
}
_STATEMENTS = (
    (
        "batch-beats-layer",
        "In a convolutional network batch normalization does better than layer normalization: it "
        "learns in fewer updates.",
        *("batch", "layer", SPEED, NATS),
    ),
    (
        "layer-beats-none",
        "In a convolutional network layer normalization is faster than no normalization.",
        *("layer", "none", SPEED, NATS),
    ),
    (
        "layer-beats-rescaled",
        "A convolutional network with layer normalization learns faster than one without "
        "normalization whose weights start at a good scale.",
        *("layer", "rescaled", SPEED, NATS),
    ),
    (
        "batch-ends-better-than-layer",
        "A convolutional network with batch normalization ends with a lower test error than one "
        "with layer normalization.",
        *("batch", "layer", ERROR, POINTS),
    ),
    (
        "layer-ends-better-than-none",
        "A convolutional network with layer normalization ends with a lower test error than one "
        "without normalization.",
        *("layer", "none", ERROR, POINTS),
    ),
)
_BORDER = Said(
    "border-explains-the-gap/convnet",
    "Border units are why layer normalization falls behind batch normalization in a convolutional "
    "network: without them, most of the gap closes.",
    given=("batch - layer",),
)
_PRIMARY = (
    *("batch - layer", "layer - none", "layer - rescaled"),  # section 6.7, B, E; and the control
    *(f"{way}: gap less half of it" for way in WITHOUT_BORDER),  # section 6.7's explanation
)
COMPARISONS = Comparisons(
    chapter="20",
    gates=(
        Gate("errs on 80% or more of the test examples", ERROR, 80.0),
        Gate("errs on 32 examples it was trained on", "train_error", 1e-9, by_heart=True),
    ),
    rows=families(
        (
            *(
                Comparison(
                    f"{favored} - {other}" + net.replace("-", ", ") + ", error" * (metric == ERROR),
                    less(favored + net, other + net, metric),
                    margin,
                    Said(f"{id}/convnet", statement),
                )
                for id, statement, favored, other, metric, margin in _STATEMENTS
                for net in ("", "-resnet")
            ),
            *(
                Comparison(
                    f"{way}: gap less half of it",
                    minus(less(*arms, SPEED), less("layer", "batch", SPEED), share=0.5),
                    replace(
                        NATS, of="what is left of the gap layer - batch, less half of the whole"
                    ),
                    _BORDER,
                )
                for way, arms in WITHOUT_BORDER.items()
            ),
        ),
        *_PRIMARY,
    ),
)

TENTH = Margin(
    *(0.1, "(logarithm)", "the logarithm of the mean of the test cross-entropy over the curve"),
    "a tenth of the cross-entropy",
)
IMAGES = replace(POINTS, size=0.2, why="ten of the 5000 test images that are read", resolution=0.02)


def _trained(profile: str, how: str | None, error: float) -> Comparisons:
    """The statements, all primary, about a network that is trained to below this error; claims
    begin with `how`, or there are none."""
    rows = []
    for id, statement, favored, other, metric, _ in _STATEMENTS:
        of, margin = (metric, IMAGES) if metric == ERROR else (logarithm(metric), TENTH)
        said = f"{how}, {statement[0].lower()}{statement[1:]}"
        claim = Said(f"{id}/convnet_{profile}", said) if how else None
        name = f"{favored} - {other}{', error' * (metric == ERROR)}"
        rows.append(Comparison(name, less(favored, other, of), margin, claim))
    learned = Gate(f"does not surely end below {error:g}% test error", ERROR, error, surely=True)
    gates = (learned, COMPARISONS.gates[1])
    return Comparisons(tuple(rows), "20", gates, profile)


TRAINED = {
    "data": "mnist",
    "batch_size": 32,
    "updates": 4000,
    "evaluations": 10,
    "channels": (16, 32, 32, 64),
    "watched": 5000,
}
RATES = (1e-3, 3e-3, 1e-2, 3e-2)

EXPERIMENT = Experiment(
    name="convnet",
    question="In a ConvNet, is batch normalization ahead of layer normalization, and is the border "
    "of the image the reason?",
    options=ConvNetOptions,
    arms={**METHOD_ARMS, **BORDER_ARMS, **RESNET_ARMS},
    task=ConvNet,
    data=lambda options: DATASETS[options.data].content or splits(options.data).sha256,
    profiles={
        "book": Profile(
            arms=(*METHOD_ARMS, "batch-circular", "layer-circular"),
            seeds=(0, 1, 2),
            learning_rates=RATES,
            options={"batch_size": 32, "updates": 150, "evaluations": 10, "watched": 300},
        ),
        "standard": Profile(
            arms=(*METHOD_ARMS, *BORDER_ARMS, *RESNET_ARMS),
            learning_rates=RATES,
            **{**TWO_STAGES, "seeds": tuple(range(100, 118))},  # more were beyond 500 kB
            options={
                "data": "mnist",
                "batch_size": 32,
                "updates": 800,
                "evaluations": 8,
                "watched": 1000,
            },
        ),
        "trained": Profile(
            *(("none", "rescaled", "batch", "layer"), TRAINED),
            learning_rates=RATES,
            tuning_share=0.2,
            comparisons=_trained(
                "trained", "If training goes on until few digits are misclassified", 2.5
            ),
            **TWO_STAGES,
        ),
        "cifar10": Profile(
            *(("none", "rescaled", "batch", "layer"),),
            options={**TRAINED, "data": "cifar10", "channels": (32, 64, 64, 128)},
            learning_rates=RATES,
            tuning_share=0.2,
            comparisons=_trained("cifar10", None, 60.0),
            **TWO_STAGES,
        ),
        "paper": Profile(
            arms=(*METHOD_ARMS, "batch-circular", "layer-circular", "layer-interior", *RESNET_ARMS),
            learning_rates=(3e-4, 1e-3, 3e-3, 1e-2),
            options={
                "data": "cifar10",
                "batch_size": 128,
                "updates": 64_000,
                "evaluations": 64,
                "channels": (64, 64, 128, 128, 256, 256),
                "stages": (16, 32, 64),
                "blocks": 3,
                "watched": 5000,
            },
        ),
    },
    primary="mean_test_nll",
    select="validation_nll",
    averaged=("validation_nll", "test_nll", "train_nll"),
    comparisons=COMPARISONS,
    overfit={"examples": 32, "batch_size": 32, "updates": 300, "evaluations": 5, "watched": 200},
    original=Original(
        claim="Section 6.7: in ConvNets layer normalization learns faster than no normalization, "
        "and batch normalization does better than both.",
        data="not said",
        ours="MNIST",
        setup="not said",
        updates="not said",
        seeds="not said",
        result="no numbers; the authors call it preliminary",
        shown="four convolutions of {channels[0]}, {channels[1]}, {channels[2]} and {channels[3]} "
        "channels, batches of {batch_size}",
        rows=("batch - layer", "layer - none", "layer - rescaled"),
        network=lambda options: build(options, 28 * 28),
        parameters="not said",
    ),
)
