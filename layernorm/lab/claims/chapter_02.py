"""Claims about batch normalization that chapter 02 decides: other cases, batch sizes, modes.

Those about sequences are in `chapter_02_sequences.py`.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import permutations, product

import torch
from torch.autograd.functional import jacobian

from layernorm import functional as F
from layernorm.lab.claims import Finding, adversary, checks, claim
from layernorm.lab.claims.checks import BATCH_NORM, below, conditional, held, largest, less, worst

EPS = 1e-5
_batch_norm, _layer_norm = F.batch_norm, F.layer_norm  # what mutants are made of
draw = partial(checks.draw, mean=2.0)


def train(a, **options):
    """Batch normalization by the batch's own statistics, without gain and bias."""
    return F.batch_norm(a, None, None, training=True, **options)


def population(units: int, mean: float = 2.0):
    """Running statistics: those of what `draw` gives, or of another mean."""
    return torch.full((units,), mean).double(), torch.ones(units).double()


def largest_across(derivatives, dim):
    """The largest of d output[n, i] / d input[m, j] with n != m (dim 0) or i != j (dim 1)."""
    blocks = derivatives.movedim((dim, dim + 2), (0, 1))
    return largest(*(blocks[i, j] for i, j in permutations(range(len(blocks)), 2)))


def by_case(x, *args, **options):
    """Mutant: every case by its own statistics."""
    return _layer_norm(x, x.shape[1:])


def unbiased(x, *args, **options):
    """Mutant: divides by N - 1."""
    return _batch_norm(x, *args, **options) * math.sqrt(1 - 1 / len(x))


def outside(x, *args, **options):
    """Mutant: eps added to the standard deviation instead of the variance."""
    deviation = x - x.mean(0)
    return deviation / (deviation.square().mean(0) + 1e-300).sqrt().add(EPS)


def own_statistics(x, mean, var, training=False, **options):
    """Mutant: the batch's own statistics, in evaluation too."""
    return _batch_norm(x, mean, var, training=True, **options)


@claim(
    id="batch-output-depends-on-other-cases",
    statement="In training, batch normalization makes the output for one case depend on the other "
    "cases of its batch; in evaluation it does not.",
    rule="refuted unless over 20 batches of 6 cases and 4 units the largest derivative of one "
    "case's output with respect to another case is above 0.01 in training and exactly 0 in "
    "evaluation, there also for the adversary's batches; held if it is above 0.01 in 20 batches of "
    "2 cases, too, eps = 0; else conditional",
    sabotage=(BATCH_NORM, by_case),
)
def batch_output_depends_on_other_cases() -> Finding:
    running = draw(4), draw(4).square()
    batches = [draw(6, 4) for _ in range(20)]
    training = min(largest_across(jacobian(train, a), 0) for a in batches)
    evaluation = worst(
        *(
            largest_across(jacobian(lambda a: F.batch_norm(a, *running), a), 0)
            for a in (*batches, *adversary.matrices(6, 4).values())
        )
    )
    pairs = (jacobian(partial(train, eps=0.0), draw(2, 4)) for _ in range(20))
    two = min(largest_across(derivatives, 0) for derivatives in pairs)
    return conditional(
        training > 0.01 and evaluation == 0,
        two > 0.01,
        "the batch has more than two cases: of two, each output is +1 or −1 at eps = 0, and only "
        "which of them is larger counts",
        f"Over 20 batches of 6 the largest derivative across cases is at least {training:.1f} in "
        f"training and, against the adversary, too, {evaluation:.0f} in evaluation; over 20 "
        f"batches of 2 it is {below(two, 0.01)} in some.",
        training=training,
        two=two,
        evaluation=evaluation,
    )


@claim(
    id="batch-treats-each-unit-apart",
    statement="Batch normalization normalizes every unit on its own: no unit's output depends on "
    "another unit.",
    rule="held if in 20 batches of 6 cases and 4 units, in a climb from one of them and in the "
    "adversary's batches all derivatives across units are exactly 0",
    sabotage=(BATCH_NORM, by_case),
)
def batch_treats_each_unit_apart() -> Finding:
    return adversary.searched(
        5e-324,
        "The largest derivative across units is 0.",
        lambda a: largest_across(jacobian(train, a), 1),
        [(draw(6, 4),) for _ in range(20)],
        {name: (a,) for name, a in adversary.matrices(6, 4).items()},
    )


@claim(
    id="batch-output-has-mean-0-variance-1",
    statement="Under batch normalization every unit has mean 0 and variance 1 in every mini-batch, "
    "so that a layer's input does not jitter from one mini-batch to the next.",
    rule="with the batch's statistics, 500 batches of 128 for each of the standard deviations 10, "
    "1 and √eps: refuted if a mean misses 0 by 1e-12, or the variance on average misses 1 by 0.001 "
    "at 10 or 1; conditional if it does at √eps, or if with running statistics the batches' means "
    "differ by 0.001; else held",
    sabotage=(BATCH_NORM, unbiased),
)
def batch_output_has_mean_0_variance_1() -> Finding:
    outputs = [train(s * draw(128, 500)) for s in (10.0, 1.0, math.sqrt(EPS))]
    mean = largest(*(y.mean(0) for y in outputs))
    missed = [(1 - y.var(0, correction=0)).abs().mean().item() for y in outputs]
    jitter = F.batch_norm(draw(128, 500), *population(500)).mean(0).std().item()
    return conditional(
        mean <= 1e-12 and worst(*missed[:2]) <= 1e-3,
        missed[2] < 1e-3 and jitter < 1e-3,
        "the batch's own statistics are used and the unit varies by much more than √eps",
        f"In training the means are {below(mean, 1e-12)}; the variances miss 1 by {missed[0]:.2f} "
        f"at standard deviation 10, by {missed[1]:.2f} at 1 and by {missed[2]:.2f} at √eps. With "
        f"running statistics the means of batches of 128 jitter by {jitter:.2f}.",
    )


@claim(
    id="no-batch-normalization-at-batch-size-1",
    statement="Batch normalization cannot be used at batch size 1, as in online learning.",
    rule="conditional if training on one case with one value a unit is refused, copies of one case "
    "give 0 to 1e-9, and both evaluation of one case and training on one case with positions "
    "work; held if these do not work either; else refuted",
    sabotage=(BATCH_NORM, by_case),
)
def no_batch_normalization_at_batch_size_1() -> Finding:
    one = draw(1, 5)
    refused = _refused(train, one)
    copies = largest(train(one.expand(8, 5)))
    positions = not _refused(train, draw(1, 5, 7))
    evaluation = not _refused(F.batch_norm, one, draw(5), draw(5).square())
    return conditional(
        refused and copies <= 1e-9,
        not (positions and evaluation),
        "it is in training, and the case has only one value a unit",
        f"In training, one case with one value a unit is {'refused' if refused else 'accepted'}, "
        f"copies of it give {copies:.0f}, and one case with seven positions is "
        f"{'accepted' if positions else 'refused'}. "
        f"Evaluation of one case {'works' if evaluation else 'fails'}.",
    )


def _refused(function, *args) -> bool:
    try:
        function(*args)
    except ValueError:
        return True
    return False


@claim(
    id="batch-of-n-bounds-the-output",
    statement="In a batch of N no normalized value exceeds √(N − 1), whatever the data; at N = 2 "
    "every output is ±1 and no gradient passes.",
    rule="held if at eps = 0 to 1e-9 no value exceeds the bound for N = 2 to 64, over Gaussian and "
    "heavy-tailed data and in an ascent along the gradient, a lone outlier reaches it, and at "
    "N = 2 all of 1000 units have size 1 and gradient 0, and so at the usual eps for the "
    "adversary's units; conditional if these break only what is said of N = 2; else refuted",
    sabotage=(BATCH_NORM, unbiased),
)
def batch_of_n_bounds_the_output() -> Finding:
    excess, reached = -math.inf, math.inf
    for n in (2, 3, 4, 8, 64):
        bound = math.sqrt(n - 1)
        for a in (draw(n, 1000), draw(n, 1000).pow(7)):
            excess = worst(excess, largest(train(a, eps=0.0)) - bound)
        ascent = adversary.ascend(lambda a: train(a, eps=0.0).max(), (draw(n, 5),))
        hard = torch.cat([*adversary.rows(n).values()]).T
        excess = worst(excess, ascent - bound, largest(train(hard)) - bound)
        reached = min(reached, train(torch.eye(n).double(), eps=0.0).max().item() / bound)
    pair = torch.tensor([[-1.0], [1.0]]).double() * (1 + torch.rand(1000).double()) + draw(1000)
    size, passed = at_two(pair, 0.0)
    pairs = adversary.rows(2)
    broken = [name for name, a in pairs.items() if not worst(*at_two(a.T, EPS)) < 1e-4]
    return conditional(
        worst(excess, abs(reached - 1), size, passed) < 1e-9,
        not broken,
        "what is said of N = 2 is said of values that differ by much more than √eps",
        f"For N = 2 to 64 {'nothing' if excess < 1e-9 else 'some value'} exceeds the bound, in an "
        "ascent along the gradient neither, and a "
        f"lone outlier reaches {reached:.2f} of it; at N = 2 sizes differ from 1 and gradients "
        f"from 0 by {less(worst(size, passed), 1e-9)}, except for {len(broken)} of the adversary's "
        f"{len(pairs)} pairs ({', '.join(broken) or 'none'}).",
        excess=excess,
        reached=reached,
        size=size,
        gradient=passed,
    )


def at_two(pair: torch.Tensor, eps: float) -> tuple[float, float]:
    """How far the outputs of two cases are from ±1, and the largest gradient."""
    pair = pair.clone().requires_grad_()
    y = train(pair, eps=eps)
    (gradient,) = torch.autograd.grad((y * draw(*y.shape)).sum(), pair)
    return largest(y.abs() - 1), largest(gradient)


def rarely(*shape: int, p: float = 0.01):
    """1 with probability p, else 0, of mean 0 and spread 1."""
    return ((torch.rand(*shape).double() < p).double() - p) / math.sqrt(p * (1 - p))


POPULATIONS = (  # how to draw it, its excess kurtosis, five standard errors over 4000 units
    (checks.draw, 0.0, 0.08),
    (lambda *shape: math.sqrt(12) * (torch.rand(*shape).double() - 0.5), -1.2, 0.08),
    (lambda *shape: torch.randn(*shape).double().sign(), -2.0, 0.15),
    (rarely, 1 / (0.01 * 0.99) - 6, 0.15),
)


@claim(
    id="small-batches-estimate-badly",
    statement="The smaller the batch, the worse its statistics estimate those of the whole data "
    "set, so batch normalization restricts how small a batch may be.",
    rule="4000 units, N = 8 to 512, values normal, uniform, ±1, or 1 once in a hundred cases and "
    "else 0, in units of their spread: held if the root mean square errors of the batch's mean and "
    "variance are 1/√N and √(2/(N - 1) + κ/N), to 8% for the former two and 15% for the latter "
    "(five standard errors); κ = 0, -1.2, -2 and 95 is the excess kurtosis",
    # Mutant: statistics of the first two cases alone.
    sabotage=(BATCH_NORM, lambda x, mean, var, **options: _batch_norm(x[:2], mean, var, **options)),
)
def small_batches_estimate_badly() -> Finding:
    off = {"mean": 0.0, "variance": 0.0}
    for (values, kurtosis, bound), n in product(POPULATIONS, (8, 32, 128, 512)):
        mean, var = population(4000, 0.0)
        F.batch_norm(values(n, 4000), mean, var, training=True, momentum=1.0)
        for name, error, expected in (
            ("mean", mean, n**-0.5),
            ("variance", var - 1, (2 / (n - 1) + kurtosis / n) ** 0.5),
        ):
            ratio = error.square().mean().sqrt().item() / expected
            off[name] = worst(off[name], abs(ratio - 1) / bound)
    said = {name: "are" if far < 1 else "are other than" for name, far in off.items()}
    return held(
        worst(*off.values()) < 1,
        f"For N = 8 to 512 and four distributions the errors of the mean {said['mean']} 1/√N, "
        f"those of the variance {said['variance']} √(2/(N − 1) + κ/N).",
        **off,
    )


@claim(
    id="batch-computes-otherwise-in-evaluation",
    statement="In evaluation batch normalization computes something else than in training, because "
    "it uses running statistics.",
    rule="held if, although the running statistics are exactly those of the population, the "
    "outputs of both modes differ by more than 0.01 (root mean square) for N = 2, 32 and 512",
    sabotage=(BATCH_NORM, own_statistics),
)
def batch_computes_otherwise_in_evaluation() -> Finding:
    gaps = {}
    for n in (2, 32, 512):
        a = draw(n, 1000)
        difference = train(a) - F.batch_norm(a, *population(1000))
        gaps[f"n{n}"] = difference.square().mean().sqrt().item()
    return held(
        min(gaps.values()) > 0.01,
        "With perfect running statistics the outputs of both modes still differ by "
        + ", ".join(f"{gap:.2f} (N = {n[1:]})" for n, gap in gaps.items())
        + ".",
        **gaps,
    )


@claim(
    id="running-statistics-stand-for-all-training-data",
    statement="The running averages estimate the mean and variance over all training cases.",
    rule="momentum 0.1, batches of 16, 1000 units: refuted if with weights at rest they miss mean "
    "0 or variance 1 by 0.01 on average over the units, or a unit's mean by another root mean "
    "square than √(m / ((2 − m) N)) to a tenth; conditional if a mean that moves by 1 an update is "
    "missed by the 9 updates that theory gives, to 0.1; held if by less than 0.1; else refuted",
    # Mutant: running statistics that keep the last batch alone.
    sabotage=(
        BATCH_NORM,
        lambda *args, **options: _batch_norm(*args, **options | {"momentum": 1.0}),
    ),
)
def running_statistics_stand_for_all_training_data() -> Finding:
    lags = {}
    for speed in (0.0, 1.0):
        mean, var = population(1000, 0.0)
        for update in range(100):
            F.batch_norm(draw(16, 1000) - 2 + speed * update, mean, var, training=True)
        lags[speed] = speed * update - mean.mean().item()
        if speed == 0:
            var_error = abs(var.mean().item() - 1)
            spread = mean.square().mean().sqrt().item()
    late, theory = abs(lags[1.0]), math.sqrt(0.1 / 1.9 / 16)
    near = worst(abs(lags[0.0]), var_error) <= 0.01 and abs(spread / theory - 1) < 0.1
    return conditional(
        near and min(abs(lags[1.0] - 9), late) < 0.1,
        late < 0.1,
        "the weights are at rest",
        f"With weights at rest mean and variance miss theirs by {abs(lags[0.0]):.2f} and "
        f"{var_error:.2f} on average over 1000 units, and a unit's mean by {spread:.2f} in the "
        f"root mean square, as √(m / ((2 − m) N)) says; if the mean moves, its running average is "
        f"{lags[1.0]:.1f} updates late.",
        at_rest=lags[0.0],
        variance=var_error,
        late=lags[1.0],
    )
