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
    rule="2, 3 or 64 sequences of up to 10 steps. Refuted if in one draw of 64 the mean of some "
    "step varies over 2000 units, of independent normal numbers, by another root mean square than "
    "1/√cases, to a tenth. Conditional if the outputs of every step with two valid cases or more "
    "are those of a batch of these alone to 1e-9 (times largest entry over spread), for 20 draws, "
    "a climb, the adversary's steps and its rows as lengths; else refuted. That valid cases get "
    "fewer is arithmetic: they do if lengths differ and padding stands at the ends, and with "
    "padding in front or equal lengths, of which cases are tried, they do not",
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

    def noise(now: Tensor) -> float:
        """By how much the mean of a step varies over units."""
        mean, var = population(2000, 0.0)
        F.batch_norm(draw(64, 2000) - 2, mean, var, training=True, momentum=1.0, mask=now)
        return mean.square().mean().sqrt().item()

    def lengths(cases: int) -> Tensor:
        return torch.cat([torch.tensor([1.0, 10.0]), 1 + 9 * torch.rand(cases - 2)]).double()

    hard = {"padding in front": (draw(64, 4, 10), lengths(64), torch.ones(1))}
    for n in (2, 3, 64):
        for name, row in adversary.rows(n).items():
            hard[f"lengths by {name} (N = {n})"] = draw(n, 4, 10), 5 + 4 * row[0].clamp(-1, 1)
        for name, steps in adversary.matrices(n, 10).items():
            hard[f"{name} (N = {n})"] = steps[:, None], lengths(n)
    steps = [now for now in valid(lengths(64)).T if now.sum() > 1]
    noises, counts = [noise(now) for now in steps], [int(now.sum()) for now in steps]
    near = all(abs(k * n**0.5 - 1) < 0.1 for k, n in zip(noises, counts, strict=True))
    return adversary.searched(
        1e-9 if near else 0.0,
        f"From step 1, with {counts[0]} valid cases, to step {len(steps)}, with {counts[-1]}, the "
        f"noise of a step's mean grows from {noises[0]:.2f} to {noises[-1]:.2f}, "
        f"{'as' if near else 'unlike'} 1/√cases; a step's outputs are those of a batch of its "
        "valid cases alone.",
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
    rule="states s ← Vs + u + noise of 1 to 8 units, from 0, normalized at steps 1 to 20 by "
    "their own mean and variance and up to step 80 by those of step 20. Held if the normalized "
    "values of some unit at some step from 20 on have a mean of more than 0.1, or a standard "
    "deviation that misses 1 by as much, for states that never settle (20 rotations V, a climb, "
    "memory cells that keep all they add up), for those of the adversary's matrices up to 2, of "
    "gates of cells and of a network that settles, and where the next step multiplies the "
    "normalized values instead; conditional if only networks that settle (eigenvalues of V below "
    "1 in size) or feed back normalized values break it",
    sabotage=(BATCH_NORM, own_statistics),
)
def no_statistics_beyond_the_longest_training_sequence() -> Finding:
    signs = 1 - 2 * (torch.arange(10_000)[:, None] % 2).double()

    def normalized(v: Tensor, u: Tensor, *fed_back: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and spread of each unit's normalized values at steps 20 to 80, (steps, units)."""
        mean, covariance, found = 0 * u, 0 * v, []
        for step in range(1, 81):
            mean, covariance = v @ mean + u, v @ covariance @ v.T + torch.eye(len(v)).double()
            spread = covariance.diagonal().sqrt()
            if step == 20 or (fed_back and step < 20):
                own = population(len(v), 0.0)
                values = mean + signs * spread
                F.batch_norm(values, *own, training=True, momentum=1.0)
            if step >= 20 or fed_back:
                high, low = F.batch_norm(torch.stack([mean + spread, mean - spread]), *own)
                found.append(torch.stack([high + low, high - low]) / 2)
            if fed_back:
                mean, factors = found[-1][0], found[-1][1] / spread
                covariance = factors[:, None] * covariance * factors
        means, spreads = torch.stack(found[-61:], 1)
        return means, spreads

    def off(*network: Tensor) -> Tensor:
        means, spreads = normalized(*network)
        return 0.1 / size(means, spreads - 1)

    def grows(v: Tensor, u: Tensor, *fed_back: Tensor) -> bool:
        return not fed_back and torch.linalg.eigvals(v.detach()).abs().max().item() > 1 - 1e-9

    cell, u, back = torch.eye(8).double(), torch.ones(8).double(), torch.ones(1).double()
    rotations = [(torch.linalg.qr(draw(8, 8))[0], draw(8)) for _ in range(20)]
    hard = {"a network that settles": (cell / 2, u), "cells fed back normalized": (cell, u, back)}
    hard["rotations fed back normalized"] = (*rotations[0], back)
    hard |= {f"H = {n}": (cell[:n, :n], u[:n]) for n in adversary.SIZES}
    hard |= {name: (v, u) for name, v in adversary.matrices(8, 8, huge=2.0).items()}
    hard |= {k: (bias.sigmoid().diag(), u) for k, bias in adversary.gates(1, 8).items()}
    shown = (cell, u), (cell / 2, u), (cell, u, back)
    last = [normalized(*network)[1][-1].mean().item() for network in shown]
    return adversary.searched(
        1.0,
        f"Under the statistics of step 20 the standard deviation at step 80 is {last[0]:.1f} in "
        f"memory cells, {last[1]:.1f} in a network that settles and {last[2]:.1f} if cells are "
        "fed back normalized.",
        off,
        rotations,
        hard,
        only_if=(
            "each step has statistics of its own, and what is normalized is a state that is "
            "carried on unnormalized and never settles, as that of a memory cell with an open gate "
            "or under a rotation",
            grows,
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
