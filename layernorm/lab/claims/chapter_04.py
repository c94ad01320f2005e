"""Claims about the family of normalizations that chapter 04 decides."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from layernorm import functional as F
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import LAYER_NORM, draw, largest, size

_weight_norm = F.weight_norm


@claim(
    id="layer-norm-mixes-features",
    statement="Layer normalization mixes the features of a case: where some of them are measured "
    "in units ten or more times smaller, so that their numbers grow, the outputs of all the others "
    "draw together.",
    rule="for 100 random cases of 12 features, 4 of which are multiplied by 1, 10, 100, 1000: "
    "held if in every case the standard deviation of the other 8 outputs falls at every step, by "
    "a factor of at least 50 in all, and so for the adversary's rows in which the 4 are not all 0 "
    "and the 8 do not all agree; conditional if only rows break it in which the 4 are below the "
    "largest of the 8; else refuted",
    # Mutant: every feature by its own statistics over the cases.
    sabotage=(LAYER_NORM, lambda x, n, **o: (x - x.mean(0)) / x.std(0, correction=0)),
)
def layer_norm_mixes_features() -> Finding:
    def off(x: Tensor) -> Tensor | float:
        """50 over the factor by which the spread of the others falls; infinite if it rises."""
        units = [torch.tensor([scale] * 4 + [1] * 8) for scale in (1, 10, 100, 1000)]
        spread = [F.layer_norm(x * unit, (12,), eps=0.0)[:, 4:].std(1) for unit in units]
        falls = all((b < a).all() for a, b in pairwise(spread))
        return 50 * (spread[-1] / spread[0]).max() if falls else math.inf

    def large(x: Tensor) -> bool:
        return bool(x[0, :4].abs().max() >= x[0, 4:].abs().max())

    hard = adversary.rows(12)
    hard["large others"] = (
        hard["nearly constant"].flip(1) * (torch.arange(12) > 3) + hard["one-hot"]
    )
    return adversary.searched(
        1.0,
        "With 4 of 12 features times 1000, the standard deviation of the other outputs falls at "
        "every step, by a factor of more than 50.",
        off,
        [(draw(1, 12),) for _ in range(100)],
        {k: (x,) for k, x in hard.items() if x[0, :4].any() and adversary.varies(x[:, 4:])},
        only_if=("the features that grow are not smaller than the others", large),
    )


@claim(
    id="weight-norm-divides-by-length",
    statement="Weight normalization divides the summed input of a unit by the L2 norm of its "
    "incoming weights, and subtracts no mean.",
    rule="held if for 100 random layers of 8 inputs and 5 units, and the adversary's without a "
    "weight vector of zeros, in float64, the summed inputs by the normalized weights equal "
    "g (v·x) / |v|, unit by unit, within 1e-12 of the largest",
    # Mutant: one length for the whole matrix instead of one for each weight vector.
    sabotage=("layernorm.functional.weight_norm", lambda v, g: _weight_norm(v, g.mean(), dim=None)),
)
def weight_norm_divides_by_length() -> Finding:
    def off(v: Tensor, g: Tensor, x: Tensor) -> Tensor:
        lengths = [math.hypot(*row) for row in v.tolist()]
        expected = g.flatten() * (x @ v.T) / torch.tensor(lengths, dtype=torch.float64)
        return size(x @ F.weight_norm(v, g).T - expected) / largest(expected)

    hard = adversary.matrices(5, 8)
    return adversary.searched(
        1e-12,
        "The largest difference is below 1e-12 of the largest output.",
        off,
        [(draw(5, 8), 1 + draw(5, 1).abs(), draw(20, 8, mean=3.0)) for _ in range(100)],
        {k: (v, draw(5, 1), draw(20, 8)) for k, v in hard.items() if v.any(1).all()},
    )
