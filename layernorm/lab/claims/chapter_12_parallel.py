"""Claims about a batch that is spread over workers: what they compute, and what they must tell each
other."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from layernorm import functional as F
from layernorm.lab.analysis import networks, parallel
from layernorm.lab.analysis.parallel import Group, Synchronized, in_threads
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import BATCH_NORM, LAYER_NORM, draw, held, worst

SIZES = (5, 8, 6, 3)
CASES, WORKERS = 12, 3  # to divide by three is not exact, unlike by two and four
ROUNDING = 1e-11  # 45,000 roundings; each sum here has at most 12 terms, and 3 layers follow
ANOTHER = 1e-6  # a difference of this size is not rounding
EPS = 1e-5
_batch_norm, _layer_norm = F.batch_norm, F.layer_norm  # what mutants are made of


def of_own_cases(x, shape, weight=None, bias=None, eps=EPS):
    """Mutant: each unit by the statistics of the worker's own cases."""
    return _batch_norm(x, None, None, weight, bias, training=True, eps=eps)


def by_case(x, mean, var, weight=None, bias=None, *settings, **options):
    """Mutant: every case by its own statistics."""
    return _layer_norm(x, x.shape[1:], weight, bias)


def network(method: str) -> nn.Sequential:
    net = networks.mlp(SIZES, method).double()
    for norm in net[:-1:2]:
        norm[1].backend = "reference"  # the book's definition, whatever is fastest here
    return net


def cases(method: str, count: int) -> list[tuple[Tensor, Tensor]]:
    """Inputs and all parameters of a network, gains and biases that are not 1 and 0."""
    weights = nn.utils.parameters_to_vector(network(method).parameters()).detach()
    return [(draw(CASES, SIZES[0]), weights + 0.3 * draw(len(weights))) for _ in range(count)]


def hard(method: str) -> dict[str, tuple[Tensor, Tensor]]:
    """The adversary's inputs, and a batch of which every shard is the same."""
    (shard, weights), *_ = cases(method, 1)
    inputs = adversary.matrices(CASES, SIZES[0])
    inputs["copies of a few cases"] = shard[:2].repeat(CASES // 2, 1)
    return {name: (x, weights) for name, x in inputs.items()}


def apart(method: str, shared: bool = False) -> Callable[[Tensor, Tensor], float]:
    """By how much the mean gradient of several workers is off that of one, as a share of it."""
    y = torch.randint(SIZES[-1], (CASES,))

    def distance(x: Tensor, weights: Tensor) -> float:
        net = network(method)
        nn.utils.vector_to_parameters(weights.detach(), net.parameters())
        one = parallel.update(Group(), net, x, y).gradient
        several = in_threads(WORKERS, parallel.update, net, x, y, shared)[0].gradient
        return float((several - one).norm() / one.norm())

    return distance


def amplified(a: Tensor, dim: int) -> float:
    """By how much a norm over `dim` enlarges the rounding errors of summed inputs."""
    a = a.detach()
    sigma = (a.var(dim, correction=0) + EPS).sqrt()
    return max(1.0, float((a.abs().amax(dim) / sigma).max()))


def first(x: Tensor, weights: Tensor) -> Tensor:
    """The summed inputs of the first layer."""
    return x @ weights[: SIZES[0] * SIZES[1]].view(SIZES[1], SIZES[0]).T


def off(method: str, dim: int, shared: bool = False) -> Callable[[Tensor, Tensor], float]:
    """The same, over the factor by which the first norm enlarges rounding errors."""
    distance = apart(method, shared)
    return lambda x, w: distance(x, w) / amplified(first(x, w), dim)


SEARCH = "in 6 draws of inputs and parameters, a climb and the adversary's batches of 12 cases"


@claim(
    id="layer-normalization-ignores-workers",
    statement="With layer normalization the mean gradient of a batch is the same however many "
    "workers share it.",
    rule="a network of 5-8-6-3 units, 3 workers against one, float64: held if the mean "
    "gradients differ by less than 1e-11 of their length (times largest summed input over spread) "
    + SEARCH,
    sabotage=(LAYER_NORM, of_own_cases),
)
def layer_normalization_ignores_workers() -> Finding:
    return adversary.searched(
        ROUNDING,
        "For 3 workers the mean gradient is that of one to rounding.",
        off("layer", 1),
        cases("layer", 6),
        hard("layer"),
    )


def differ(x: Tensor, weights: Tensor) -> bool:
    """Tell whether some shard's statistics are not the batch's."""
    a = first(x, weights)
    shards = torch.stack(a.chunk(WORKERS))
    means = (shards.mean(1) - a.mean(0)).abs()
    variances = (shards.var(1, correction=0) - a.var(0, correction=0)).abs()
    return max(float(means.max()), float(variances.max().sqrt())) > EPS**0.5


@claim(
    id="shards-make-batch-normalization-another-function",
    statement="If each worker batch-normalizes by its own statistics, the mean gradient of a batch "
    "is not the one that a single worker would compute.",
    rule="a network of 5-8-6-3 units, 3 workers against one, float64: held if the "
    "mean gradients differ by more than 1e-6 of their length " + SEARCH + "; conditional "
    "if it is so wherever a shard's means or standard deviations are off the batch's by more than "
    "√eps, and not elsewhere; else refuted",
    sabotage=(BATCH_NORM, by_case),
)
def shards_make_batch_normalization_another_function() -> Finding:
    distance = apart("batch")
    return adversary.searched(
        1.0,
        "Where the shards' statistics differ, the mean gradient differs by more than 1e-6.",
        lambda x, w: ANOTHER / max(1e-300, distance(x, w)),
        cases("batch", 6),
        hard("batch"),
        ("the statistics of the shards differ, and by more than √eps", differ),
    )


def means(group: Group, x: Tensor) -> Tensor:
    """The mean of each unit over the worker's shard, as batch normalization takes it."""
    shard = x.chunk(group.size)[group.rank]
    mean, var = torch.zeros(x.shape[1]).double(), torch.ones(x.shape[1]).double()
    F.batch_norm(shard, mean, var, training=True, momentum=1.0)
    return mean


@claim(
    id="statistics-of-shards-vary-more",
    statement="If a batch is spread over N workers that each use their own statistics, batch "
    "normalization acts as in batches N times smaller: the variance of its means is N times as "
    "large.",
    rule="4000 normally distributed units, a batch of 64 cases over 1, 2, 4 and 8 workers: held "
    "if the variance of a worker's means over the units is the number of workers over 64, to 12% "
    "(five standard errors), for every number and worker; else refuted",
    # Mutant: statistics of the first two cases alone.
    sabotage=(BATCH_NORM, lambda x, mean, var, **options: _batch_norm(x[:2], mean, var, **options)),
)
def statistics_of_shards_vary_more() -> Finding:
    x, ratios = draw(64, 4000), []
    for n in (1, 2, 4, 8):
        ratios += [64 / n * float(m.square().mean()) for m in in_threads(n, means, x)]
    off = worst(*(abs(ratio - 1) for ratio in ratios))
    return held(
        off < 0.12,
        f"For 1, 2, 4 and 8 workers the variance of a worker's means is "
        f"{'' if off < 0.12 else 'not '}the number of workers over 64, to 12%.",
        off=off,
    )


class Apart(Synchronized):
    """Mutant: the gradient does not reach the other workers' cases."""

    @staticmethod
    def backward(ctx, dy):
        y, sigma = ctx.saved_tensors
        return (dy - dy.mean(0) - y * (dy * y).mean(0)) / sigma, None, None


class InTurn(Synchronized):
    """Mutant: the mean first, then the variance, as their formulas stand."""

    @staticmethod
    def forward(ctx, a, eps, group):
        group.gather(a.mean(0))
        return Synchronized.forward(ctx, a, eps, group)


@claim(
    id="synchronized-statistics-restore-the-batch",
    statement="If the workers batch-normalize by the statistics of the whole batch, its mean "
    "gradient is the one that a single worker would compute.",
    rule="a network of 5-8-6-3 units, 3 workers against one, float64: held if the mean "
    "gradients differ by less than 1e-11 of their length (times largest summed input over spread) "
    + SEARCH,
    sabotage=("layernorm.lab.analysis.parallel.Synchronized", Apart),
)
def synchronized_statistics_restore_the_batch() -> Finding:
    return adversary.searched(
        ROUNDING,
        "For 3 workers the mean gradient is that of one to rounding.",
        off("batch", 0, shared=True),
        cases("batch", 6),
        hard("batch"),
    )


def told(method: str, workers: int, sizes: list[int], shared: bool) -> parallel.Update:
    net = networks.mlp(sizes, method)
    batch = torch.randn(CASES, sizes[0]), torch.randint(sizes[-1], (CASES,))
    return in_threads(workers, parallel.update, net, *batch, shared)[0]


@claim(
    id="synchronizing-takes-two-collectives-a-layer",
    statement="One collective operation a layer forward and one backward, each of two numbers a "
    "unit, are enough to synchronize batch normalization; layer normalization takes none.",
    rule="counted in networks of one to three hidden layers of 1 to 33 units, float32, 2 and 4 "
    "workers: held if synchronized batch normalization hands 8 bytes a unit to one operation a "
    "layer forward and to one backward, layer normalization nothing to any, and both the bytes of "
    "all parameters to one more; else refuted. That it is enough, "
    "synchronized-statistics-restore-the-batch decides",
    sabotage=("layernorm.lab.analysis.parallel.Synchronized", InTurn),
)
def synchronizing_takes_two_collectives_a_layer() -> Finding:
    wrong, tried = [], 0
    for hidden in ([1], [33], [8, 5], [7, 33, 2]):
        for n in (2, 4):
            sizes, bytes_ = [4, *hidden, 3], tuple(8 * h for h in hidden)
            all_ = 4 * sum(p.numel() for p in networks.mlp(sizes, "layer").parameters())
            synchronized, layer = (told(m, n, sizes, m == "batch") for m in ("batch", "layer"))
            found = synchronized.forward, synchronized.backward[::-1], synchronized.averaging
            none = layer.forward, layer.backward, layer.averaging
            right = found == (bytes_, bytes_, (all_,)) and none == ((), (), (all_,))
            wrong, tried = wrong + [sizes] * (not right), tried + 1
    return held(
        not wrong,
        f"In {tried} networks the counts are {'not all ' if wrong else ''}one operation a layer "
        "and direction, of 8 bytes a unit in float32, and none for layer normalization.",
    )
