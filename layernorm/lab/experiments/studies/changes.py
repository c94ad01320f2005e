"""Are changes from the layer below more correlated than changes by noise? (chapter 01)

While the first hidden layer learns, its outputs change, and with them the summed inputs of the
second, whose weights are held at their start. In how many directions do these changes vary over
the examples (`activations.varied_directions`)? The number means something beside two others, which
every run measures, too: that of changes by noise, a step of random direction in the parameters of
the first layer that moves its outputs as far as learning did; and that of the summed inputs
themselves in the untrained network, which the data alone decide.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from layernorm.lab.analysis.activations import varied_directions
from layernorm.lab.analysis.curves import logarithm
from layernorm.lab.experiments.batches import generator
from layernorm.lab.experiments.contrasts import Comparison, Comparisons, Margin, Said, minus
from layernorm.lab.experiments.experiment import Experiment, Profile
from layernorm.lab.experiments.studies.digits import ON_DIGITS, Digits, DigitsOptions

ACTIVATIONS = ("tanh", "sigmoid", "relu")
HALVINGS = 40  # of the interval in which the noise's size is sought


def noisy(
    start: nn.Module, x: Tensor, distance: float, draws: torch.Generator
) -> tuple[Tensor, float]:
    """The outputs of a layer whose parameters took a step of random direction, and how long it was.

    The step moves the outputs as far, as one vector, as `distance`; if the layer saturates before,
    as far as it can. Each parameter moves in proportion to its length (biases of 0 do not).
    """
    steps = [torch.randn(p.shape, generator=draws) for p in start.parameters()]
    at, low, high = start(x), 0.0, 100.0
    for _ in range(HALVINGS):
        size = (low + high) / 2
        moved = copy.deepcopy(start)
        for p, step in zip(moved.parameters(), steps, strict=True):
            p += size * p.norm() * step / step.norm()
        out = moved(x)
        low, high = (size, high) if (out - at).norm() < distance else (low, size)
    return out, size


class Changes(Digits):
    """The task: name the digit; at the end, in how many directions summed inputs have changed."""

    def __init__(self, options: DigitsOptions, seed: int, device: torch.device) -> None:
        super().__init__(options, seed, device)
        if len(options.hidden) < 2:
            raise ValueError(
                "hidden must have two layers at least: the summed inputs that change are those of "
                f"the second; got {options.hidden}"
            )
        self.start, self.seed = copy.deepcopy(self.model[:3]), seed

    @torch.no_grad()
    def final(self) -> dict[str, float]:
        first, second, x = self.start[:2], self.start[2][0], self.parts["validation"][0]
        before, after = first(x), self.model[:2](x)
        at, distance = second(before), float((after - before).norm())
        noise, size = noisy(first, x, distance, generator(self.seed, 0))
        return {
            "change_directions": varied_directions(second(after) - at),
            "noise_directions": varied_directions(second(noise) - at),
            "start_directions": varied_directions(at),
            "noise_size": size,
            "noise_moves": float((noise - before).norm()) / distance,
        }


QUARTER = Margin(
    *(0.223, "(logarithm)", "the logarithm of the number of directions in which a change varies"),
    "a quarter more, or a fifth fewer",
    null="changes by noise as large as those by learning, and the untrained network; they are what "
    "it is compared with",
)
_CHANGED, _NOISE, _START = (logarithm(f"{of}_directions") for of in ("change", "noise", "start"))


def _beside(arm: str, null=_NOISE):
    """The directions of an arm's changes beside those of its null, as a logarithm of a ratio."""
    return (1, arm, _CHANGED), (-1, arm, null)


_CORRELATED = Said(
    "correlated-changes/digits",
    "Changes in the output of one layer cause highly correlated changes in the summed inputs to "
    "the next: these vary in fewer directions than changes caused by noise, and in fewer than the "
    "summed inputs of the untrained network.",
)
_RELU = Said(
    "relu-changes-more-correlated/digits",
    "Changes in summed inputs are especially correlated below ReLU units, whose outputs can change "
    "by a lot: compared with changes caused by noise, they vary in fewer directions there than "
    "below tanh or sigmoid units.",
)
_METHODS = {
    "none": {},
    "rescaled": {"rescaled": True},
    "layer": {"method": "layer"},  # before its normalization
}
COMPARISONS = Comparisons(
    chapter="01",
    profile="book",
    rows=(
        *(
            Comparison(f"{arm}, {activation}, changes - {name}", _beside(f"{arm}-{activation}", of),
                       QUARTER, _CORRELATED)
            for arm in ("none", "rescaled")
            for activation in ACTIVATIONS
            for name, of in (("noise", _NOISE), ("untrained", _START))
        ),
        *(
            Comparison(f"layer, {activation}, changes - noise", _beside(f"layer-{activation}"),
                       QUARTER, family="exploratory")
            for activation in ACTIVATIONS
        ),
        *(
            Comparison(f"relu - {other}",
                       minus(_beside("rescaled-relu"), _beside(f"rescaled-{other}")), QUARTER,
                       _RELU)
            for other in ("tanh", "sigmoid")
        ),
    ),
)  # fmt: skip

EXPERIMENT = Experiment(
    name="changes",
    question="Are the changes that learning causes more correlated than those by noise?",
    arms={
        f"{arm}-{activation}": {**options, "activation": activation}
        for arm, options in _METHODS.items()
        for activation in ACTIVATIONS
    },
    profiles={
        "book": Profile(
            options={"updates": 300, "evaluations": 10},
            seeds=tuple(range(20)),
            first=10,
            learning_rates=(1e-3, 3e-3, 1e-2, 3e-2),
            tuning_seeds=(1000, 1001, 1002),
        )
    },
    primary="change_directions",
    **ON_DIGITS | {"task": Changes},
    comparisons=COMPARISONS,
)
