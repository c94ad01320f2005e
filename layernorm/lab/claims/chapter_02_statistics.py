"""Claims that chapter 02 decides about what the statistics of batch normalization estimate."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from layernorm import functional as F
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.chapter_02 import (
    EPS,
    draw,
    own_statistics,
    population,
    train,
    units,
    wide,
)
from layernorm.lab.claims.checks import BATCH_NORM, largest

_batch_norm = F.batch_norm  # what mutants are made of


def every_batch(values: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """All batches of n of these values, (n, batches), and the probability of each; where there are
    only two values, one batch for each number of the second."""
    found, counts = values.unique(return_counts=True)
    if len(found) != 2:
        batches = torch.cartesian_prod(*[values] * n).T
        return batches, torch.full(batches.shape[1:], 1 / batches.shape[1]).double()
    k, (p, q) = torch.arange(n + 1).double(), (counts.double() / len(values)).log()
    ways = math.lgamma(n + 1) - (k + 1).lgamma() - (n - k + 1).lgamma()
    return found[(torch.arange(n)[:, None] < k).long()], (ways + (n - k) * p + k * q).exp()


@claim(
    id="small-batches-estimate-badly",
    statement="The smaller the batch, the worse its statistics estimate those of the whole data "
    "set.",
    rule="all batches of 2 to 5 of four values that are equally frequent, and of 2 to 512 of two "
    "values; 20 draws of the values, a climb, the adversary's rows, 1 in a hundred cases and "
    "else 0: conditional if, for values that vary, the root mean square errors of the batch's mean "
    "and of its unbiased variance, which the running average takes, are 1/√N and "
    "√(2/(N - 1) + κ/N) in units of the standard deviation and its square, and that of the biased "
    "one, by which training divides, is √((2N - 1)/N² + (1 - 1/N)² κ/N), to 1e-9 (times largest "
    "entry over standard deviation), "
    "all of which fall with N; κ is the excess kurtosis. Else refuted. Values that do not vary, "
    "and batches that take two values in turn, have no such errors, whatever is computed",
    # Mutant: statistics of the first two cases alone.
    sabotage=(BATCH_NORM, lambda x, mean, var, **options: _batch_norm(x[:2], mean, var, **options)),
)
def small_batches_estimate_badly() -> Finding:
    def off(values: Tensor, *in_turn: Tensor) -> float:
        found, spread = [], values.std(correction=0)
        kurtosis = ((values - values.mean()) / spread).pow(4).mean() - 3
        for n in (2, 3, 8, 32, 128, 512) if len(values.unique()) == 2 else (2, 3, 4, 5):
            batches, chances = in_turn or every_batch(values, n)
            batches = batches[:n]
            mean, var = population(len(chances), 0.0)
            eps = spread.square().item()  # of that size, so that outputs tell what they divide by
            y = F.batch_norm(batches, mean, var, training=True, momentum=1.0, eps=eps)
            left = y.square().mean(0)
            inside, share = left / (1 - left), 1 - 1 / n
            for error, expected in (
                ((mean - values.mean()) / spread, n**-0.5),
                (var / spread**2 - 1, (2 / (n - 1) + kurtosis / n).sqrt()),
                (inside - 1, ((2 * n - 1) / n**2 + share**2 * kurtosis / n).sqrt()),
            ):
                found.append((chances @ error.square()).sqrt() / expected - 1)
        return largest(*found) / adversary.conditioning(values)

    signs, half = adversary.rows(512)["two values"][0], torch.full((2,), 0.5).double()
    hard = {"one in a hundred": (torch.eye(100).double()[0],)}
    hard["two values in turn"] = signs, torch.stack([signs, -signs], 1), half
    return adversary.searched(
        1e-9,
        "For N = 2 to 512 the errors of the mean are 1/√N, those of the unbiased variance, which "
        "the running average takes, √(2/(N − 1) + κ/N), those of the biased one, by which "
        "training divides, √((2N − 1)/N² + (1 − 1/N)² κ/N).",
        off,
        [(draw(4),) for _ in range(20)],
        hard | {name: (a[0],) for name, a in adversary.rows(4).items()},
        only_if=(
            "the unit varies over the data set, and the cases of a batch are drawn independently "
            "of each other",
            lambda values, *in_turn: not in_turn and adversary.varies(values),
        ),
    )


@claim(
    id="batch-computes-otherwise-in-evaluation",
    statement="In evaluation batch normalization computes something else than in training, because "
    "it uses running statistics.",
    rule="20 batches of 16 to 512 cases under running statistics that are exactly those of the "
    "population, a climb, an ascent, and the adversary's units in batches of 2, 3 and 32 under "
    "running mean 0 and variance 1, and under their own: held if the outputs of both modes "
    "differ by more than 0.01 (root mean square); conditional if only units break it of a "
    "standard deviation below 100 √eps, or whose mean and standard deviation are the running "
    "ones to 2% of the standard deviation",
    sabotage=(BATCH_NORM, own_statistics),
)
def batch_computes_otherwise_in_evaluation() -> Finding:
    def apart(a: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return (train(a) - F.batch_norm(a, mean, var)).square().mean().sqrt()

    def other(a: Tensor, mean: Tensor, var: Tensor) -> bool:
        if not (wide(a) and (var > 0).all()):
            return False
        gaps = (a.mean(0) - mean) / var.sqrt(), a.std(0, correction=0) / var.sqrt() - 1
        return max(gap.square().mean().sqrt().item() for gap in gaps) > 0.02

    hard = {name: (a, *population(1, 0.0)) for name, (a,) in units(2, 3, 32).items()}
    hard |= {
        f"{name}, its own": (a, a.mean(0), a.var(0, correction=0)) for name, (a, *_) in hard.items()
    }
    gaps = {n: apart(draw(n, 1000), *population(1000)).item() for n in (2, 32, 512)}
    return adversary.searched(
        1.0,
        "With perfect running statistics the outputs of both modes still differ by "
        + ", ".join(f"{gap:.2f} (N = {n})" for n, gap in gaps.items())
        + ".",
        lambda *case: 0.01 / apart(*case),
        [(draw(n, 20), *population(20)) for n in torch.randint(16, 513, (20,)).tolist()],
        hard,
        only_if=(
            "the units vary by much more than √eps, and the batch's mean or standard deviation "
            "is not the running one (to 2% of the standard deviation)",
            other,
        ),
    )


@claim(
    id="running-statistics-stand-for-all-training-data",
    statement="The running averages estimate the mean and variance over all training cases.",
    rule="momentum 0.1. Refuted if in batches of 16 of 1000 units the running mean varies by "
    "another root mean square than √(m / ((2 − m) N)), to a tenth. Conditional if the expected "
    "running mean and variance, the average over all pairs of four values as batches, are those of "
    "the four to 1% of √(σ² + eps) and σ² + eps after 100 updates (5 draws, a climb) and 200 "
    "(the adversary's rows), unless more than 0.005 of the start is left; else refuted. The "
    "running average with this noise cannot follow a mean that moves by 1 an update, take sorted "
    "batches for all data, or forget its start in 10 updates; these three are tried",
    # Mutant: running statistics that keep the last batch alone.
    sabotage=(
        BATCH_NORM,
        lambda *args, **options: _batch_norm(*args, **options | {"momentum": 1.0}),
    ),
)
def running_statistics_stand_for_all_training_data() -> Finding:
    def expected(rows: Tensor) -> tuple[Tensor, Tensor]:
        """The averages over all pairs of a row as batches, a row for each update."""
        mean, var = population(rows.shape[1] ** 2, 0.0)
        for row in rows:
            F.batch_norm(torch.cartesian_prod(row, row).T, mean, var, training=True)
            mean[:], var[:] = mean.mean(), var.mean()
        return mean[0], var[0]

    def off(values: Tensor, *drawn: Tensor) -> float:
        mean, var = expected(drawn[0] if drawn else values.expand(100, -1))
        true = values.var(correction=0)
        scale = true + EPS
        return largest((mean - values.mean()) / scale.sqrt(), (var - true) / scale)

    def at_rest(values: Tensor, *drawn: Tensor) -> bool:
        rows, scale = (*drawn, values.expand(100, -1))[0], values.var(correction=0) + EPS
        start = largest(values.mean() / scale.sqrt(), 1 / scale)
        return bool((rows == values).all()) and 0.9 ** len(rows) * start < 0.005

    four, updates = torch.tensor([-2.0, -1.0, 1.0, 2.0]).double(), torch.arange(100.0)[:, None]
    mean, var = population(1000, 0.0)
    for _ in updates:
        F.batch_norm(draw(16, 1000) - 2, mean, var, training=True)
    spread = mean.square().mean().sqrt().item()
    near = abs(spread / math.sqrt(0.1 / 1.9 / 16) - 1) < 0.1
    moving = four + updates
    hard = {
        "a moving mean": (moving[-1], moving),
        "sorted batches": (four, four.view(2, 2).repeat(1, 2).repeat_interleave(50, 0)),
        "ten updates": (four, four.expand(10, 4)),
    }
    for name, row in adversary.rows(4).items():
        hard[name] = row[0], row.expand(200, 4)
    late = (moving[-1].mean() - expected(moving)[0]).item()
    return adversary.searched(
        0.01 if near else 0.0,
        f"In batches of 16 a unit's running mean varies by {spread:.2f} of its standard "
        f"deviation, {'as' if near else 'unlike what'} √(m / ((2 − m) N)) says; one that moves is "
        f"{late:.1f} updates late.",
        off,
        [(draw(4),) for _ in range(5)],
        hard,
        only_if=(
            "the weights are at rest, every batch is drawn from all training cases, and the start "
            "is forgotten, of which after k updates a share (1 − m)^k is left",
            at_rest,
        ),
    )
