"""Claims about batch normalization of sequences that chapter 02 decides: padding, steps, lengths.

Sequences are (cases, units, steps), as `batch_norm` takes them, with True in a mask (cases, steps)
where a step is valid.
"""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor

from layernorm import functional as F
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.chapter_02 import EPS, draw, outside, own_statistics, population, train
from layernorm.lab.claims.checks import BATCH_NORM, LAYER_NORM, largest, size, worst

_batch_norm = F.batch_norm


def unmasked(x, *args, mask=None, **options):
    """Mutant: padding counts."""
    return _batch_norm(x, *args, **options)


def first_steps(x, *args, mask=None, **options):
    """Mutant: the first twenty steps alone count."""
    steps = torch.arange(x.shape[-1]) < 20
    return _batch_norm(x, *args, mask=steps.expand(len(x), -1), **options)


@claim(
    id="padding-enters-batch-statistics",
    statement="Over [batch × steps, units], padded steps enter the mean and variance of batch "
    "normalization.",
    rule="16 sequences of 20 steps, or one of 2, 3 and 20, and as many steps of padding: held if "
    "the padding moves the mean of every unit by more than a tenth of the valid steps' root mean "
    "square, or the variance by a tenth of its square, for 20 draws, a climb, an ascent and the "
    "adversary's steps with padding of zeros, for padding that repeats the steps and for padding "
    "under a mask; conditional if only these two break it, or steps that are all 0",
    sabotage=(BATCH_NORM, first_steps),
)
def padding_enters_batch_statistics() -> Finding:
    def off(a: Tensor, padding: Tensor, *mask: Tensor) -> Tensor:
        found = []
        for x, valid in ((a, None), (torch.cat([a, padding], 2), mask[0] if mask else None)):
            mean, var = population(a.shape[1], 0.0)
            F.batch_norm(x, mean, var, training=True, momentum=1.0, mask=valid)
            found.append((mean, var))
        square = a.square().mean((0, 2))
        moves = [(x - y).abs() for x, y in zip(*found, strict=True)]
        return 0.1 / torch.maximum(moves[0] / square.sqrt(), moves[1] / square).min()

    a, zeros = draw(16, 8, 20), torch.zeros(16, 8, 20).double()
    hard = {
        "a mask": (a, zeros, torch.arange(40).expand(16, 40) < 20),
        "padding that repeats the steps": (a, a),
    }
    for name, steps in adversary.matrices(16, 20).items():
        hard[name] = steps[:, None], zeros[:, :1]
    for n in (2, 3, 20):
        for name, row in adversary.rows(n).items():
            hard[f"{name} (one sequence of {n})"] = row[:, None], zeros[:1, :1, :n]
    return adversary.searched(
        1.0,
        "Zeros appended to all steps move the mean of each unit, or its variance.",
        off,
        [(draw(16, 8, 20), zeros) for _ in range(20)],
        hard,
        only_if=(
            "no mask leaves them out, they are 0, and some valid step of the unit is not",
            lambda a, padding, *mask: not (mask or padding.any()) and bool(a.any(0).any(1).all()),
        ),
    )


@claim(
    id="padding-leaves-layer-normalization-alone",
    statement="Layer normalization over the innermost dimension does not conflict with padding.",
    rule="20 steps of 8 units and padding after them: held if it moves no output of the steps and "
    "no entry of the gain's gradient of their summed squares to more than 1e-12 (of the largest, "
    "or of 1), for 20 draws, a climb, the adversary's steps, and its rows, NaN, minus infinity and "
    "numbers near 1e200 as padding; conditional if only padding breaks it whose squares are not "
    "finite",
    # Mutant: averages over cases and steps too.
    sabotage=(LAYER_NORM, lambda x, _, gain=1.0, **options: gain * (x - x.mean()) / x.std()),
)
def padding_leaves_layer_normalization_alone() -> Finding:
    def found(a: Tensor, *padding: Tensor) -> tuple[Tensor, Tensor]:
        gain = torch.ones(8).double().requires_grad_()
        y = F.layer_norm(torch.cat([a, *padding]), (8,), gain)[: len(a)]
        return y, torch.autograd.grad(y.square().sum(), gain)[0]

    def off(a: Tensor, padding: Tensor) -> float:
        pairs = zip(found(a, padding), found(a), strict=True)
        return worst(*(largest(x - y) / max(1.0, largest(y)) for x, y in pairs))

    hard = {f"{name} as padding": (draw(20, 8), a) for name, a in adversary.rows(8).items()}
    for name, fill in (
        ("NaN", math.nan),
        ("minus infinity", -math.inf),
        ("numbers near 1e200", 1e200),
    ):
        hard[name] = draw(20, 8), draw(20, 8) * fill
    hard |= {
        name: (a, torch.zeros(20, 8).double()) for name, a in adversary.matrices(20, 8).items()
    }
    return adversary.searched(
        1e-12,
        "Padding moves no output of a valid step, and no entry of the gain's gradient.",
        off,
        [(draw(20, 8), draw(20, 8)) for _ in range(20)],
        hard,
        only_if=(
            "the squares of the padding are finite numbers: the gain's gradient is a sum over all "
            "positions, in which 0 times NaN is NaN",
            lambda a, padding: bool(padding.square().isfinite().all()),
        ),
    )


@claim(
    id="later-steps-rest-on-fewer-cases",
    statement="With sequences of different lengths, fewer and fewer cases are valid at later "
    "steps, which has the effect of a smaller batch.",
    rule="2, 3 or 64 sequences of up to 10 steps: held if the number of valid cases never grows "
    "with the step, and falls, and the outputs of every step with two or more are those of a batch "
    "of these alone to 1e-9 (times largest entry over spread), for 20 draws, a climb, the "
    "adversary's steps and its rows as lengths, and for padding in front; conditional if only "
    "padding in front and equal lengths break it",
    sabotage=(BATCH_NORM, unmasked),
)
def later_steps_rest_on_fewer_cases() -> Finding:
    def valid(lengths: Tensor) -> Tensor:
        return torch.arange(10) < lengths[:, None]

    def off(a: Tensor, lengths: Tensor, *in_front: Tensor) -> float:
        mask = valid(lengths).flip(1) if in_front else valid(lengths)
        counts, found = mask.sum(0), [0.0]
        counts = counts[counts > 0]
        if (counts.diff() > 0).any() or counts[-1] == counts[0]:
            return math.inf
        for x, now in zip(a.unbind(2), mask.T, strict=True):
            if now.sum() > 1:
                gap = largest(train(x, mask=now)[now] - train(x[now]))
                found.append(gap / adversary.conditioning(x[now].T))
        return worst(*found)

    def lengths(cases: int) -> Tensor:
        return torch.cat([torch.tensor([1.0, 10.0]), 1 + 9 * torch.rand(cases - 2)]).double()

    hard = {"padding in front": (draw(64, 4, 10), lengths(64), torch.ones(1))}
    for n in (2, 3, 64):
        for name, row in adversary.rows(n).items():
            hard[f"lengths by {name} (N = {n})"] = draw(n, 4, 10), 5 + 4 * row[0].clamp(-1, 1)
        for name, steps in adversary.matrices(n, 10).items():
            hard[f"{name} (N = {n})"] = steps[:, None], lengths(n)
    return adversary.searched(
        1e-9,
        "The valid cases get fewer, and a step's outputs are those of a batch of them alone.",
        off,
        [(draw(64, 4, 10), lengths(64)) for _ in range(20)],
        hard,
        only_if=(
            "the sequences differ in length, and padding stands at their ends",
            lambda a, lengths, *in_front: not in_front and len(valid(lengths).unique(dim=0)) > 1,
        ),
    )


@claim(
    id="no-statistics-beyond-the-longest-training-sequence",
    statement="Batch normalization of a recurrent network has a problem if a test sequence is "
    "longer than all training sequences: there are no statistics for the additional steps.",
    rule="states s ← Vs + u + noise of 1 to 8 units, from 0: held if under the mean and variance "
    "of step 20 the values of some unit at some step up to 80 have a mean of more than 0.1, or a "
    "spread that misses 1 by as much, for 20 rotations V, a climb, the adversary's matrices up to "
    "2, gates of memory cells, and a network that settles; conditional if only networks break it "
    "whose means and spreads change by less than 0.11 of the spread after step 20",
    sabotage=(BATCH_NORM, own_statistics),
)
def no_statistics_beyond_the_longest_training_sequence() -> Finding:
    signs = 1 - 2 * (torch.arange(10_000)[:, None] % 2).double()

    def moments(v: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and spread of each unit at steps 20 to 80, (steps, units)."""
        mean, covariance, found = 0 * u, 0 * v, []
        for _ in range(80):
            mean, covariance = v @ mean + u, v @ covariance @ v.T + torch.eye(len(v)).double()
            found.append(torch.stack([mean, covariance.diagonal().sqrt()]))
        means, spreads = torch.stack(found[19:], 1)
        return means, spreads

    def normalized(v: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """The same under the statistics of step 20."""
        means, spreads = moments(v, u)
        mean, var = population(len(v), 0.0)
        F.batch_norm(means[0] + signs * spreads[0], mean, var, training=True, momentum=1.0)
        pairs = torch.stack([means + spreads, means - spreads]).flatten(1)
        high, low = F.batch_norm(pairs, *(x.repeat(len(means)) for x in (mean, var)))
        return (high + low).view_as(means) / 2, (high - low).view_as(means) / 2

    def change(v: Tensor, u: Tensor) -> float:
        means, spreads = moments(v, u)
        return largest((means - means[0]) / spreads[0], spreads / spreads[0] - 1)

    def off(v: Tensor, u: Tensor) -> Tensor:
        means, spreads = normalized(v, u)
        return 0.1 / size(means, spreads - 1)

    cell, u = torch.eye(8).double(), torch.ones(8).double()
    hard = {"a network that settles": (cell / 2, u)}
    hard |= {f"H = {n}": (cell[:n, :n], u[:n]) for n in adversary.SIZES}
    hard |= {name: (v, u) for name, v in adversary.matrices(8, 8, huge=2.0).items()}
    hard |= {k: (bias.sigmoid().diag(), u) for k, bias in adversary.gates(1, 8).items()}
    last = [normalized(v, u)[1][-1].mean().item() for v in (cell, cell / 2)]
    return adversary.searched(
        1.0,
        f"Under the statistics of step 20 the spread at step 80 is {last[0]:.1f} in memory cells "
        f"and {last[1]:.1f} in a network that settles.",
        off,
        [(torch.linalg.qr(draw(8, 8))[0], draw(8)) for _ in range(20)],
        hard,
        only_if=(
            "each step has statistics of its own, and they change beyond the last step seen, by a "
            "tenth of the spread or more",
            lambda v, u: change(v, u) > 0.11,
        ),
    )


@claim(
    id="zero-variance-amplifies-gradients",
    statement="Where a unit has no variance over the batch, as at a first step with the same input "
    "for all cases, batch normalization multiplies gradients by 1/√eps; layer normalization does "
    "so where all units of a case agree.",
    rule="2 to 64 equal values of 0, 3, -1e6 or 1e100, eps = 1e-2, 1e-5 and 1e-12, both methods: "
    "refuted unless the output is NaN at eps = 0; held if the gradient that is passed on is the "
    "one that comes in, times 1/√eps, to 0.1% of the largest entry, for 20 drawn gradients of sum "
    "0, a climb and the adversary's rows less their mean, and for three gradients that do not "
    "sum to 0; conditional if only these break it",
    sabotage=(BATCH_NORM, outside),
)
def zero_variance_amplifies_gradients() -> Finding:
    def layer(a: Tensor, **options: float) -> Tensor:
        return F.layer_norm(a.T, a.T.shape[1:], **options).T

    def methods(n: int) -> tuple:
        return (train, layer) if n > 1 else (layer,)  # one case is refused

    def off(value: Tensor, gradient: Tensor, *mean: Tensor) -> float:
        found, came = [], gradient - gradient.mean() + sum(mean)
        for normalize, eps in product(methods(len(came)), (1e-2, EPS, 1e-12)):
            same = value.expand(len(came), 1).clone().requires_grad_()
            y = normalize(same, eps=eps)[:, 0]
            (passed,) = torch.autograd.grad(y, same, came)
            found.append(largest(passed[:, 0] * math.sqrt(eps) - came))
        return worst(*found) / (largest(came) or 1.0)

    values = torch.tensor([[0.0], [3.0], [-1e6], [1e100]], dtype=torch.float64)
    six = values[1].expand(6, 1)
    undefined = all(normalize(six, eps=0.0).isnan().any() for normalize in (train, layer))
    hard = {"a mean of 1": (values[1], draw(6), torch.ones(1).double())}
    hard["equal gradients"] = values[1], torch.zeros(6).double(), torch.ones(1).double()
    hard["one unit"] = values[1], draw(1), torch.ones(1).double()
    for n in (*adversary.SIZES, 64):
        for (name, row), value in zip(adversary.rows(n).items(), values.repeat(2, 1), strict=True):
            hard[f"{name} (N = {n})"] = value, row[0]
    return adversary.searched(
        1e-3 if undefined else 0.0,
        f"Gradients of sum 0 grow 1/√eps-fold, {1 / math.sqrt(EPS):.0f}-fold at the usual eps. "
        f"Without eps the output is {'not a number' if undefined else 'a number'}.",
        off,
        [(values[i % 4], draw(2 + i)) for i in range(20)],
        hard,
        only_if=(
            "the gradients sum to 0 over the cases of the batch, or the units of the layer: their "
            "mean does not pass",
            lambda value, gradient, *mean: not mean,
        ),
    )
