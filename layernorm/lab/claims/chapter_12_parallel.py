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
from layernorm.lab.claims.checks import BATCH_NORM, LAYER_NORM, conditional, draw, held, worst

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
    "workers share it in equal shards.",
    rule="a network of 5-8-6-3 units, 3 workers with 4 cases each against one, float64: held if "
    "the mean gradients differ by less than 1e-11 of their length (times largest summed input over "
    "spread) " + SEARCH,
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


def missed(x: Tensor, mean: float, var: float, kurtosis: float) -> float:
    """By how much the variance of a worker's means, over units, is off that of means of so many
    independent cases, for 1 to 24 workers, over five standard errors."""
    off = [0.0]
    for n in (1, 2, 3, 4, 8, 24):
        share = n / len(x)
        allowed = 5 * ((2 + kurtosis * share) / x.shape[1]) ** 0.5
        for found in in_threads(n, means, x):
            square = float((found - mean).square().mean())
            off.append(abs(square / (share * var) - 1) / allowed if var else float(square > 0))
    return worst(*off)


def resampled(values: Tensor, cases: int, units: int) -> tuple[Tensor, float, float, float]:
    """A batch drawn from a few values, and their mean, variance and excess kurtosis."""
    d = values - values.mean()
    var = float(d.square().mean())
    kurtosis = float((d / (var or 1.0) ** 0.5).pow(4).mean()) - 3
    return values[torch.randint(len(values), (cases, units))], float(values.mean()), var, kurtosis


@claim(
    id="statistics-of-shards-vary-more",
    statement="If a batch is spread in equal shards over N workers that each use their own "
    "statistics, batch normalization acts as in batches N times smaller: the variance of its means "
    "is N times as large.",
    rule="4000 units, a batch of 48 cases over 1, 2, 3, 4, 8 and 24 workers. Asked of every "
    "worker: the variance of its means over the units is the number of workers over 48 times that "
    "of the values, to five standard errors, 11% for normal values. Refuted unless it is so for "
    "normal values and for cases drawn from the adversary's rows of 64 numbers; held if, too, for "
    "normal cases that depend on each other: copies of one shard, each unit's in sorted order, and "
    "a whole data set of 48 cases; else conditional",
    # Mutant: statistics of the first two cases alone.
    sabotage=(BATCH_NORM, lambda x, mean, var, **options: _batch_norm(x[:2], mean, var, **options)),
)
def statistics_of_shards_vary_more() -> Finding:
    normal = draw(48, 4000)
    off = {"normal values": missed(normal, 0.0, 1.0, 0.0)}
    for name, values in adversary.rows(64, huge=1e50).items():
        off[name] = missed(*resampled(values[0], 48, 4000))
    whole = draw(48)[torch.rand(48, 4000).argsort(0)]
    dependent = {
        "copies of one shard": normal[:2].repeat(24, 1),
        "cases in sorted order": normal.sort(0).values,
        "the whole data set": (whole - whole.mean(0)) / whole.std(0, correction=0),
    }
    broken = [name for name, x in dependent.items() if missed(x, 0.0, 1.0, 0.0) >= 1]
    independent = [name for name, far in off.items() if not far < 1]
    return conditional(
        not independent,
        not broken,
        "the cases of a batch are drawn independently of each other",
        f"For 1 to 24 workers the variance of a worker's means is the number of workers over 48 "
        f"times that of the values, for normal values and {len(off) - 1} kinds of the adversary's; "
        f"broken by {', '.join((*independent, *broken)) or 'none'}.",
        off=worst(*off.values()),
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
    statement="If workers with equal shards batch-normalize by the statistics of the whole batch, "
    "its mean gradient is the one that a single worker would compute.",
    rule="a network of 5-8-6-3 units, 3 workers with 4 cases each against one, float64: held if "
    "the mean gradients differ by less than 1e-11 of their length (times largest summed input over "
    "spread) " + SEARCH,
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


def told(method: str, workers: int, sizes: list[int], x: Tensor) -> parallel.Update:
    net = networks.mlp(sizes, method)
    y = torch.randint(sizes[-1], (len(x),))
    return in_threads(workers, parallel.update, net, x, y, method == "batch")[0]


@claim(
    id="synchronizing-takes-two-collectives-a-layer",
    statement="In equal shards one collective operation a layer forward and one backward, each of "
    "two numbers a unit, are enough to synchronize batch normalization; layer normalization takes "
    "none.",
    rule="counted in networks of one to three hidden layers of 1 to 33 units, float32, a random "
    "batch over 2, 3, 4 and 12 workers, and for 8 units the adversary's batches over 3: "
    "held if synchronized batch normalization hands 8 bytes a unit to one operation a layer "
    "forward and to one backward, layer normalization nothing to any, and both the bytes of all "
    "parameters to one more; else refuted. That it is enough, for the adversary's batches, too, "
    "synchronized-statistics-restore-the-batch decides",
    sabotage=("layernorm.lab.analysis.parallel.Synchronized", InTurn),
)
def synchronizing_takes_two_collectives_a_layer() -> Finding:
    layers = [*([units] for units in (*adversary.SIZES, 33)), [8, 5], [7, 33, 2]]
    tried = [(hidden, n, torch.randn(CASES, 4)) for hidden in layers for n in (2, 3, 4, CASES)]
    hard = adversary.matrices(CASES, 4, huge=1e15).values()
    wrong = []
    for hidden, n, x in (*tried, *(([8], WORKERS, x.float()) for x in hard)):
        sizes, bytes_ = [4, *hidden, 3], tuple(8 * h for h in hidden)
        all_ = 4 * sum(p.numel() for p in networks.mlp(sizes, "layer").parameters())
        synchronized, layer = (told(m, n, sizes, x) for m in ("batch", "layer"))
        found = synchronized.forward, synchronized.backward[::-1], synchronized.averaging
        none = layer.forward, layer.backward, layer.averaging
        right = found == (bytes_, bytes_, (all_,)) and none == ((), (), (all_,))
        wrong += [] if right else [hidden]
    return held(
        not wrong,
        f"In {len(tried)} networks with random batches and one with {len(hard)} of the adversary's "
        f"the counts are {'not all ' if wrong else ''}one operation a layer and direction, of 8 "
        "bytes a unit in float32, and none for layer normalization.",
    )
