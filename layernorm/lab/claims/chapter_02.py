"""Claims about batch normalization that chapter 02 decides: other cases, small batches.

Those about what its statistics estimate are in `chapter_02_statistics.py`, those about sequences in
`chapter_02_sequences.py`.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import permutations

import torch
from torch import Tensor
from torch.autograd.functional import jacobian

from layernorm import functional as F
from layernorm.lab.claims import Finding, adversary, checks, claim
from layernorm.lab.claims.checks import BATCH_NORM, conditional, largest, less, size, worst

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


def units(*sizes: int) -> dict[str, tuple[Tensor]]:
    """The adversary's rows as units of batches, (N, 1), by name."""
    return {f"{k} (N = {n})": (a.T,) for n in sizes for k, a in adversary.rows(n).items()}


def wide(a: Tensor) -> bool:
    """Tell whether every unit varies by much more than √eps."""
    return bool((a.std(0, correction=0) > 100 * math.sqrt(EPS)).all())


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
    rule="the last case of a batch is replaced, in turn by 20 drawn ones: held if this changes an "
    "output of another case by more than 0.01 in training (the largest change, at the usual eps), "
    "and none at all in evaluation, for 10 batches each of 2, 3, 6 and 64 cases of 4 units, a "
    "climb, and the adversary's batches of 2, 3 and 6",
    sabotage=(BATCH_NORM, by_case),
)
def batch_output_depends_on_other_cases() -> Finding:
    running = draw(4), draw(4).square()

    def changes(a: Tensor, others: Tensor) -> tuple[float, float]:
        """The largest change of another case's output in training, and in evaluation."""
        replaced = [torch.cat([a[:-1], other[None]]) for other in others]
        modes = train, lambda a: F.batch_norm(a, *running)
        return tuple(worst(*(largest((f(b) - f(a))[:-1]) for b in replaced)) for f in modes)

    def off(a: Tensor, others: Tensor) -> float:
        training, evaluation = changes(a, others)
        return math.inf if evaluation else 0.01 / max(training, 1e-300)

    draws = {n: [(draw(n, 4), draw(20, 4)) for _ in range(10)] for n in (2, 3, 6, 64)}
    least = {n: min(changes(*case)[0] for case in cases) for n, cases in draws.items()}
    most = worst(*(changes(*case)[1] for cases in draws.values() for case in cases))
    hard = {
        f"{name} (N = {n})": (a, draw(20, 4))
        for n in (2, 3, 6)
        for name, a in adversary.matrices(n, 4).items()
    }
    return adversary.searched(
        1.0,
        "In training the largest change of another case's output is at least "
        + ", ".join(f"{change:.1f} (N = {n})" for n, change in least.items())
        + f", in evaluation at most {most:.0f}.",
        off,
        [case for cases in draws.values() for case in cases],
        hard,
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
    "so that these two moments do not jitter from one mini-batch to the next.",
    rule="20 batches of 16 to 128 cases, a climb, an ascent and the adversary's units in batches "
    "of 2, 3 and 128: held if every mean is 0 to 1e-12 and every variance 1 to 0.001, also at "
    "standard deviation √eps, after a gain of 2 and a bias of 1, and under perfect running "
    "statistics; conditional if these alone break it, or units of a standard deviation below 100 "
    "√eps. The evidence adds how much single values jitter",
    sabotage=(BATCH_NORM, unbiased),
)
def batch_output_has_mean_0_variance_1() -> Finding:
    def off(a: Tensor, *parameters: Tensor) -> Tensor:
        y = F.batch_norm(a, *parameters) if parameters else train(a)
        return torch.maximum(size(y.mean(0)) / 1e-12, size(y.var(0, correction=0) - 1) / 1e-3)

    a, ones = draw(128, 500), torch.ones(500).double()
    hard = {
        "standard deviation √eps": (math.sqrt(EPS) * a,),
        "gain 2 and bias 1": (a, a.mean(0), a.var(0, correction=0), 2 * ones, ones),
        "running statistics": (a, *population(500)),
    }
    evaluated = F.batch_norm(*hard["running statistics"])
    moves = (train(a) - evaluated).square().mean().sqrt().item()
    return adversary.searched(
        1.0,
        "In training the means are 0 to 1e-12 and the variances 1 to 0.001; with running "
        f"statistics the means of batches of 128 jitter by {evaluated.mean(0).std():.2f}. Single "
        f"values jitter in training, too: in batches of 128 by {moves:.2f} from those by the whole "
        f"data's statistics, where √(1.5/N) is {math.sqrt(1.5 / 128):.2f}.",
        off,
        [(draw(n, 20),) for n in torch.randint(16, 129, (20,)).tolist()],
        hard | units(2, 3, 128),
        only_if=(
            "the batch's own statistics are used, before gain and bias, and the unit varies by "
            "much more than √eps",
            lambda a, *parameters: not parameters and wide(a),
        ),
    )


@claim(
    id="no-batch-normalization-at-batch-size-1",
    statement="Batch normalization cannot be used at batch size 1, as in online learning.",
    rule="one case of 1 to 64 units, drawn, from a climb and of the adversary's rows: held if it "
    "is refused, or gives 0 everywhere, and three copies of it give 0 to 1e-9, also in "
    "evaluation and for a case with seven positions; conditional if these two alone break it",
    sabotage=(BATCH_NORM, by_case),
)
def no_batch_normalization_at_batch_size_1() -> Finding:
    def used(a: Tensor, *running: Tensor) -> float:
        norm = partial(F.batch_norm, a, *running) if running else partial(train, a)
        if not _refused(norm) and (y := norm()).isfinite().all() and y.any():
            return math.inf
        return largest(train(a.expand(3, *a.shape[1:])))

    hard = {
        "seven positions": (draw(1, 5, 7),),
        "evaluation": (draw(1, 5), draw(5), draw(5).square()),
        "one position": (draw(1, 5, 1),),
    }
    for h in (*adversary.SIZES, 64):
        hard |= {f"{name} (H = {h})": (a,) for name, a in adversary.rows(h).items()}
    return adversary.searched(
        1e-9,
        "In training, one case with one value a unit is refused, and copies of it give 0.",
        used,
        [(draw(1, h),) for h in torch.randint(1, 65, (50,)).tolist()],
        hard,
        only_if=(
            "it is in training, and the case has only one value a unit",
            lambda a, *running: not running and a[0, 0].numel() == 1,
        ),
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
