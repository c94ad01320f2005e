"""Claims about the family of normalizations that chapter 04 decides."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from layernorm import functional as F
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.checks import LAYER_NORM, draw, held, largest, within

_weight_norm = F.weight_norm


@claim(
    id="layer-norm-mixes-features",
    statement="Layer normalization mixes the features of a case: where some of them are measured "
    "in smaller units, so that their numbers grow, the outputs of all the others shrink.",
    rule="for 100 random cases of 12 features, 4 of which are multiplied by 1, 10, 100, 1000: "
    "held if in every case the spread of the other 8 outputs falls at every step, by a factor of "
    "at least 50 in all",
    # Mutant: every feature by its own statistics over the cases.
    sabotage=(LAYER_NORM, lambda x, n: (x - x.mean(0)) / x.std(0)),
)
def layer_norm_mixes_features() -> Finding:
    x, spread = draw(100, 12), []
    for scale in (1, 10, 100, 1000):
        unit = torch.tensor([scale] * 4 + [1] * 8)
        spread.append(F.layer_norm(x * unit, (12,))[:, 4:].std(1))
    falls = all((b < a).all() for a, b in pairwise(spread))
    factor = (spread[0] / spread[-1]).min().item()
    holds = falls and factor >= 50
    return held(
        holds,
        f"With 4 of 12 features times 1000, the spread of the other outputs falls by a factor of "
        f"{'more' if holds else 'less'} than 50 in {'each' if holds else 'some'} of 100 cases.",
        smallest_factor=factor,
    )


@claim(
    id="weight-norm-divides-by-length",
    statement="Weight normalization divides the summed input of a unit by the L2 norm of its "
    "incoming weights, and subtracts no mean.",
    rule="held if for 100 random layers of 8 inputs and 5 units, in float64, the summed inputs "
    "by the normalized weights equal g (v·x) / |v|, unit by unit, within 1e-12 of the largest",
    # Mutant: one length for the whole matrix instead of one for each weight vector.
    sabotage=("layernorm.functional.weight_norm", lambda v, g: _weight_norm(v, g.mean(), dim=None)),
)
def weight_norm_divides_by_length() -> Finding:
    def off(v: Tensor, g: Tensor, x: Tensor) -> float:
        lengths = [sum(w * w for w in row) ** 0.5 for row in v.tolist()]
        expected = g.flatten() * (x @ v.T) / torch.tensor(lengths, dtype=torch.float64)
        return largest(x @ F.weight_norm(v, g).T - expected) / largest(expected)

    layers = [
        (torch.randn(5, 8).double(), 1 + torch.rand(5, 1).double(), 3 + torch.randn(20, 8).double())
        for _ in range(100)
    ]
    return within(
        1e-12,
        "The largest difference is {below} of the largest output.",
        largest_relative_difference=max(off(*layer) for layer in layers),
    )
