"""Claims that chapter 01 decides: what layer normalization does to summed inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from layernorm import functional as F
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import LAYER_NORM, conditional, draw, largest, less, worst

EDGE = 2.18  # where the slope of tanh falls below 5% of its largest


def bare(a: Tensor, eps: float = 0.0) -> Tensor:
    """Layer normalization over the last dimension, without gain, bias and, at first, eps."""
    return F.layer_norm(a, a.shape[-1:], eps=eps)


def as_it_is(x, *args, **options):
    """Mutant: does not normalize."""
    return x


def never_centers(x, *args, **options):
    """Mutant: divides by the root mean square."""
    return x / x.square().mean(-1, keepdim=True).sqrt()


@claim(
    id="inactive-region-avoided",
    statement="Normalization keeps the input of the activation function out of its inactive "
    "region.",
    rule=f"tanh, inactive beyond |a| = {EDGE}: held if no case has more than 1/{EDGE}² of its "
    "units there (layer), nor any unit of its cases (batch), whatever the gain and bias; "
    "conditional if so at gain 1 and bias 0 only; else refuted (random cases of 100 units, with "
    "common means and scales up to 100, the worst case, and the adversary's rows)",
    sabotage=(LAYER_NORM, as_it_is),
)
def inactive_region_avoided() -> Finding:
    worst_case = torch.tensor([1.0] * 10 + [-1.0] * 10 + [0.0] * 80).double()
    cases = [draw(100, 100) * s + m for s in (0.01, 1, 100) for m in (0, 100)]
    hard = torch.cat([*adversary.rows(100).values()])
    rows = torch.cat([*cases, worst_case[None]])

    def share(gain: float, bias: float) -> float:
        """The largest, of the units of a case and of the cases of a unit."""

        def affine(units: int) -> dict[str, Tensor]:
            ones = torch.ones(units).double()
            return {"weight": gain * ones, "bias": bias * ones}

        layer = [
            F.layer_norm(a, (100,), **affine(100), eps=eps)
            for a, eps in ((rows, 0.0), (hard, 1e-5))
        ]
        batch = F.batch_norm(rows.T, None, None, **affine(len(rows)), training=True, eps=0.0)
        active = torch.cat([*layer, batch.T]).abs() <= EDGE  # a row of it is a unit's cases
        return (~active).double().mean(1).max().item()

    shares, bound = [share(1, 0), share(10, 0), share(1, 5)], 1 / EDGE**2
    return conditional(
        shares[0] <= bound,
        max(shares) <= bound,
        "the gain is 1 and the bias 0: then at most a share 1/c² of a layer's units (layer), or of "
        "a unit's cases (batch), lies more than c standard deviations from the mean",
        f"At gain 1 and bias 0 at most {shares[0]:.0%} of them lie beyond {EDGE} (Chebyshev allows "
        f"{bound:.0%}); at gain 10 up to {shares[1]:.0%} do, at bias 5 up to {shares[2]:.0%}.",
        gain_1=shares[0],
        gain_10=shares[1],
    )


def off_standard(values: Tensor, dim: int) -> float:
    """How far means from 0 and variances from 1 are, along a dimension."""
    return largest(values.mean(dim), values.var(dim, correction=0) - 1)


@claim(
    id="layer-inputs-standardized",
    statement="Normalization gives the input of each layer mean 0 and variance 1, the same for "
    "every mini-batch.",
    rule="summed inputs whose units differ in mean and scale, two batches of 64 cases, 32 units, "
    "and the adversary's rows that vary: "
    "held if after layer (batch) normalization the moments over units and over cases are 0 and "
    "1 to 1e-9, also after gain and bias and after ReLU; conditional if over units (cases) before "
    "gain and bias only, all else off by more than 0.1; else refuted",
    sabotage=(LAYER_NORM, never_centers),
)
def layer_inputs_standardized() -> Finding:
    own, other, one = 0.0, [], torch.ones(32).double()
    for _ in range(2):
        a = draw(64, 32) * (1 + draw(32).abs()) + 3 * draw(32)
        layer = bare(a)
        batch = F.batch_norm(a, None, None, training=True, eps=0.0)
        own = worst(own, off_standard(layer, 1), off_standard(batch, 0))
        other += [off_standard(layer, 0), off_standard(batch, 1)]
        affine = F.layer_norm(a, (32,), 2 * one, one, 0.0)
        other += [off_standard(affine, 1), off_standard(torch.relu(layer), 1)]
    for a in filter(adversary.varies, adversary.rows(32).values()):
        batch = F.batch_norm(a.T, None, None, training=True, eps=0.0).T
        own = worst(
            own, *(off_standard(y, 1) / adversary.conditioning(a) for y in (bare(a), batch))
        )
    return conditional(
        own < 1e-9 and (min(other) > 0.1 or worst(*other) < 1e-9),
        worst(*other) < 1e-9,
        "it means the summed inputs before gain, bias and activation, over the units of each case "
        "(layer) or the cases of the batch for each unit (batch), eps = 0, and these do not all "
        "agree",
        f"Over the units of a case (layer) or the cases of a batch (batch) the moments are off by "
        f"{less(own, 1e-9)}; the other way round, after gain and bias or after ReLU always by "
        f"{less(min(other), 0.1)}.",
        own=own,
        other=min(other),
    )
