"""The window through which DRAW looks at a picture and writes to its canvas.

Source: Gregor et al. 2015, section 3.2, equations 21 to 29.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

LOG = 10.0  # the logarithms of a window's variance, stride and intensity lie within ± this


class Window(NamedTuple):
    """A grid of N x N Gaussian filters: `y` and `x` hold a filter a row, whose weights sum to 1."""

    y: Float[Tensor, "n points size"]
    x: Float[Tensor, "n points size"]
    intensity: Float[Tensor, " n"]
    centers: Float[Tensor, "n 2 points"]  # rows of pixels, then columns; the first pixel is 0


def window(parameters: Float[Tensor, "n 5"], size: int, points: int) -> Window:
    r"""Five numbers made into a window on pictures of size x size pixels.

    (g_y, g_x, log σ², log δ, log γ): with all at 0 the grid's center is the picture's, its N points
    reach from edge to edge, σ = 1 and γ = 1. Filter i has its center at

    $$ \mu_i = \tfrac{A + 1}{2} (g + 1) - 1 + (i - \tfrac{N - 1}{2})\, \delta\,
       \tfrac{A - 1}{N - 1}, \qquad F_{ia} \propto \exp(-(a - \mu_i)^2 / 2σ^2) $$

    Each row of F sums to 1, wherever the window is: a softmax over pixels cannot divide by 0.
    """
    log_variance, log_stride, log_intensity = parameters[:, 2:].clamp(-LOG, LOG).unbind(1)
    grid = torch.arange(points, device=parameters.device) - (points - 1) / 2
    pixels = torch.arange(size, device=parameters.device)
    middle = (size + 1) / 2 * (parameters[:, :2] + 1) - 1
    stride = log_stride.exp() * (size - 1) / (points - 1)
    centers = middle[..., None] + stride[:, None, None] * grid
    precision = torch.exp(-log_variance) / 2
    filters = (-(pixels - centers[..., None]).square() * precision[:, None, None, None]).softmax(-1)
    return Window(filters[:, 0], filters[:, 1], log_intensity.exp(), centers)


def read(
    through: Window, x: Float[Tensor, "n size size"], error: Float[Tensor, "n size size"]
) -> Float[Tensor, "n patches"]:
    """γ F_y x F_xᵀ of picture and error: 2 N N numbers, row by row."""
    rows = through.y @ torch.cat([x, error], -1)
    patches = rows.unflatten(-1, (2, -1)).flatten(1, 2) @ through.x.mT
    return through.intensity[:, None] * patches.flatten(1)


def write(through: Window, patch: Float[Tensor, "n points points"]) -> Float[Tensor, "n size size"]:
    """F_yᵀ w F_x / γ."""
    return through.y.mT @ (patch / through.intensity[:, None, None]) @ through.x
