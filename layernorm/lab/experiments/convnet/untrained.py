"""Border units of networks that have learned nothing, on images of noise.

The null of `border.profile`: what it gives here, it says of images and padding, not of learning.
"""

from __future__ import annotations

from functools import cache

import torch

from layernorm.lab.experiments.convnet.border import distance, profile
from layernorm.lab.experiments.convnet.model import build
from layernorm.lab.experiments.convnet.plan import ConvNetOptions
from layernorm.lab.experiments.options import make

STARTS, IMAGES, SIZE = 10, 200, 28
EDGE = 4  # pixels of MNIST's images in which nothing is ever drawn


def variance(options: ConvNetOptions | dict, edge: int) -> float:
    """The variance of a border unit's summed input over images of noise, as a share of that of the
    other units of its layer: the mean over untrained networks with these options.

    `edge`: how many pixels at each side of the images are empty.
    """
    if isinstance(options, dict):
        options = make(ConvNetOptions, options)
    return _variance(options, edge)


@cache
def _variance(options: ConvNetOptions, edge: int) -> float:
    found = []
    with torch.random.fork_rng(devices=[]):
        for start in range(STARTS):
            torch.manual_seed(start)
            model = build(
                options, inputs=1
            )  # in training mode: batch normalization has no averages
            noise = torch.rand(IMAGES, 1, SIZE, SIZE) * (distance(SIZE, SIZE) >= edge)
            found.append(profile(model, noise)["border_variance"])
    return sum(found) / STARTS
