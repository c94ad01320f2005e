"""Claims about recurrent batch normalization that chapter 10 decides: steps, padding, the future.

What holds of any sequence (padding in one mean over cases and steps, the noise of few cases, no
statistics beyond the longest) chapter 02 decides.
"""

from __future__ import annotations

import math
from itertools import pairwise, product

import torch

from layernorm import LayerNormLSTM
from layernorm.lab.analysis import lstms
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.checks import conditional, draw, held, largest, less, seeds, worst
from layernorm.recurrent import step_norm

BATCH_NORM = "layernorm.recurrent.step_norm.F.batch_norm"
_seen, _valid_rows = step_norm.StepNorm.seen, step_norm.valid_rows


def pooled(self):
    """Mutant: all steps remember the same statistics."""
    mean, var = _seen(self)
    center = mean.mean(0)
    return center.expand_as(mean), (var + (mean - center) ** 2).mean(0).expand_as(var)


def whole(lengths, steps):
    """Mutant: padding counts."""
    return _valid_rows(torch.full_like(lengths, steps), steps)


def by_case(a, mean, var, gain=None, bias=None, training=False, eps=1e-5, **options):
    """Mutant: every case by its own statistics."""
    y = (a - a.mean(1, keepdim=True)) / (a.var(1, correction=0, keepdim=True) + eps).sqrt() * gain
    return y if bias is None else y + bias


def sizes_under_shared_statistics(mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    """Root mean square, over units, of each step's values by the mean and variance of all steps:
    ideally 1. Arguments are (steps, units)."""
    center = mean.mean(0)
    square = var + (mean - center) ** 2
    return (square / square.mean(0)).mean(1).sqrt()


def sizes_by_term(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Those of each term of an LSTM that reads x, (T, B, 8)."""
    layer, sizes = lstms.bn_lstm(hidden=64, max_length=len(x), momentum=1.0), {}
    with torch.no_grad():
        layer(x)
    for term in lstms.TERMS:
        mean, var = (getattr(layer, f"running_{m}_{term}_l0") for m in ("mean", "var"))
        sizes[term] = sizes_under_shared_statistics(mean, var)
    return sizes


@claim(
    id="separate-statistics-for-each-step",
    statement="Batch normalization of a recurrent network needs to store separate statistics for "
    "each time step.",
    rule="500 sequences of 40 steps, normalized by the mean and variance of all steps together: "
    "refuted unless the recurrent term or the cell has a size (root mean square, ideally 1) that "
    "is off by more than 0.25 within the first five steps, and some term one that is off by more "
    "than 0.25 after step 20 where the inputs grow by 5% a step; held if terms are off by 0.1 "
    "there where all steps' inputs are from one distribution, too; else conditional",
    sabotage=("layernorm.recurrent.step_norm.StepNorm.seen", pooled),
)
def separate_statistics_for_each_step() -> Finding:
    sizes = sizes_by_term(draw(40, 500, 8))
    early = {f"early_{term}": largest(size[:5] - 1) for term, size in sizes.items()}
    late = largest(*(size[20:] - 1 for size in sizes.values()))
    growing = sizes_by_term(draw(40, 500, 8) * 1.05 ** torch.arange(40)[:, None, None])
    late_if_growing = largest(*(size[20:] - 1 for size in growing.values()))
    return conditional(
        worst(early["early_hh"], early["early_c"]) >= 0.25 and late_if_growing >= 0.25,
        late > 0.1,
        "the step is among the first, or the inputs themselves differ from step to step",
        f"Under shared statistics the first recurrent term has size {sizes['hh'][0]:.1f} and the "
        f"first cell {sizes['c'][0]:.1f} instead of 1; after step 20 every term is within "
        f"{'0.1' if late < 0.1 else 'more than 0.1'} of 1. Where the inputs grow by 5% a step, the "
        f"last input term has {growing['ih'][-1]:.1f}.",
        **early,
        late=late,
        late_if_growing=late_if_growing,
    )


@claim(
    id="padding-enters-statistics-of-late-steps",
    statement="Even with separate statistics for each step, the padding of sequences that have "
    "ended enters the statistics of late steps, and so changes the outputs for sequences that "
    "continue.",
    rule="sequences of 3 to 20 steps, in training: conditional if filling them up with zeros or "
    "with other numbers makes valid outputs of BatchNormLSTM differ by more than 0.05 (root mean "
    "square) where padding counts, and by less than 1e-12 with lengths; held if lengths do not "
    "help; refuted if nothing moves, or if LayerNormLSTM's move by more than 1e-12",
    sabotage=("layernorm.recurrent.batch_norm.valid_rows", whole),
)
def padding_enters_statistics_of_late_steps() -> Finding:
    lengths = torch.arange(3, 21)
    valid = torch.arange(20)[:, None] < lengths
    x = draw(20, len(lengths), 8)

    def moved(call) -> float:
        """How far other contents of the padding move the valid outputs."""
        zeros, noise = (call(torch.where(valid[..., None], x, fill)) for fill in (0.0, draw(8)))
        return (zeros - noise)[valid].square().mean().sqrt().item()

    layer = lstms.bn_lstm()
    by_layer = LayerNormLSTM(8, 32, dtype=torch.float64, backend="reference")
    with torch.no_grad():
        counted = moved(lambda x: layer(x)[0])
        masked = moved(lambda x: layer(x, lengths=lengths)[0])
        without = moved(lambda x: by_layer(x)[0])
    return conditional(
        counted >= 0.05 and without <= 1e-12,
        masked > 1e-12,
        "padded rows are not left out",
        f"Other contents of the padding move valid outputs by {counted:.1f} where it counts, with "
        f"lengths by {less(masked, 1e-12)}, and those of layer "
        f"normalization by {less(without, 1e-12)}.",
    )


@claim(
    id="sequence-statistics-see-the-future",
    statement="Statistics of the input term over the whole sequence let outputs depend on later "
    "inputs, in training only.",
    rule="other inputs after step 10 of 20: held if they move outputs up to step 10 by more than "
    '0.01 (root mean square) in training with statistics="sequence", and by exactly 0 in '
    "evaluation and with statistics for each step",
    sabotage=(BATCH_NORM, by_case),
)
def sequence_statistics_see_the_future() -> Finding:
    x = draw(20, 16, 8)
    other = torch.cat([x[:10], draw(10, 16, 8) * 2 + 1])
    moved = []
    for statistics, training in product(("sequence", "per_step"), (True, False)):
        layer = lstms.bn_lstm(statistics=statistics).train(training)
        with torch.no_grad():
            change = layer(x)[0][:10] - layer(other)[0][:10]
        moved.append(change.square().mean().sqrt().item())
    leak, *others = moved
    return held(
        leak > 0.01 and not any(others),
        f"Other inputs after step 10 move earlier outputs by {leak:.2f} under statistics of the "
        f"sequence in training, and {'not at all' if not any(others) else 'also'} in "
        "evaluation or under statistics of each step.",
        leak=leak,
    )


GAINS = (0.1, 1.0)


def not_centered(a, mean, var, gain, bias, training=False, eps=1e-5, **options):
    """Mutant: divides by the spread alone, so that gradients of equal cases do not cancel."""
    y = a / (a.var(0, correction=0) + eps).sqrt() * gain
    return y if bias is None else y + bias


@claim(
    id="gradients-explode-on-equal-steps",
    statement="Each of the first steps whose input is the same for all cases multiplies the "
    "gradients of a batch-normalized LSTM, but not those of a layer-normalized one.",
    rule="3 networks, 0 to 4 equal first steps, five different ones, gains of 0.1 and of 1: held "
    "if each of them multiplies the gradient with respect to the first input by more than 10 "
    "under batch normalization, and four of them by less than 10 under layer normalization",
    sabotage=(BATCH_NORM, by_case),
)
def gradients_explode_on_equal_steps() -> Finding:
    each, total = {gain: [] for gain in GAINS}, 0.0
    for _, gain in product(range(3), GAINS):
        for method in ("batch", "layer"):
            layer = lstms.at_start(method, gain)
            steps = map(lstms.equal_steps, range(5))
            first = [lstms.input_gradients(layer, x)[0].item() for x in steps]
            if method == "batch":
                each[gain] += [b / a for a, b in pairwise(first)]
            else:
                total = worst(total, first[-1] / first[0])
    least = {f"least_{gain:g}": min(ratios) for gain, ratios in each.items()}
    bounds = ", ".join(
        f"{_power(value)} with gains of {name.removeprefix('least_')}"
        for name, value in least.items()
    )
    return held(
        min(least.values()) > 10 and total < 10,
        f"Each equal step multiplies the gradient by more than {bounds} under batch "
        f"normalization; four of them by {less(total, 10)} under layer normalization.",
        **least,
        layer=total,
    )


def _power(x: float) -> str:
    """The largest power of ten that x exceeds."""
    return f"{10 ** math.floor(math.log10(x)):,}" if x >= 1 else "0"


@claim(
    id="equal-steps-spare-the-weights",
    statement="The gradients that explode on equal steps cancel over the cases, so that the "
    "gradient of the weights stays as it is.",
    rule="three networks, four equal first steps, gains of 0.1, the gradient of the input weights: "
    "conditional if each is within a factor of 3 of that without them in float64 and more than 100 "
    "times as large in float32; held if float32 is within the factor too; else refuted",
    sabotage=(BATCH_NORM, not_centered),
)
def equal_steps_spare_the_weights() -> Finding:
    ratios = {torch.float64: [], torch.float32: []}
    for seed, dtype in product(seeds(3), ratios):
        layer, found = None, []
        for k in (0, 4):
            torch.manual_seed(seed)
            layer, x = lstms.at_start("batch", 0.1), lstms.equal_steps(4)
            found.append(lstms.weight_gradient(layer.to(dtype), x[4 - k :].to(dtype)))
        ratios[dtype].append(found[1] / found[0])
    double, single = ratios.values()
    kept = all(1 / 3 < ratio < 3 for ratio in double)
    return conditional(
        kept and (min(single) > 100 or worst(*single) < 3),
        worst(*single) < 3,
        "rounding errors are too small to be multiplied along",
        f"Four equal steps leave the gradient of the weights {'within' if kept else 'beyond'} a "
        f"factor of 3 in float64, and make it {'more' if min(single) > 100 else 'less'} than 100 "
        "times larger in float32.",
        float64=worst(*double),
        float32=min(single),
    )


def fading(layer, x):
    """Mutant: a step takes a fifth of the gradient with gains of 1, and nothing with others."""
    gain = next(p for n, p in layer.named_parameters() if n.endswith("n_hh_weight_l0")).mean()
    return (0.8 if gain == 1 else 1.0) ** torch.arange(len(x) - 1.0, -1.0, -1.0)


@claim(
    id="unit-gain-makes-gradients-vanish",
    statement="With gains of 1 the gradients of a batch-normalized LSTM vanish backward in time "
    "from the start, and gains of 0.1 prevent it.",
    rule="5 networks, 60 steps of random input, 64 units, 64 cases, forget gates with biases of 0 "
    "and 1: held if the gradient with respect to the first input is less than a tenth of that with "
    "respect to the last (geometric mean over the networks) with gains of 1, and not with gains "
    "of 0.1, with both biases; else refuted",
    sabotage=("layernorm.lab.analysis.lstms.input_gradients", fading),
)
def unit_gain_makes_gradients_vanish() -> Finding:
    kept, inputs = {}, [draw(60, 64, 8) for _ in range(5)]
    for method, gain, bias in product(("batch", "layer"), GAINS, (0, 1)):
        of_each = [lstms.input_gradients(lstms.at_start(method, gain, 64, bias), x)
                   for x in inputs]  # fmt: skip
        ratio = torch.stack([g[0] / g[-1] for g in of_each]).log().mean().exp().item()
        kept[f"{method}_{gain:g}_bias_{bias}"] = ratio

    def factors(method: str) -> str:
        of_gain = {gain: [kept[f"{method}_{gain:g}_bias_{bias}"] for bias in (0, 1)]
                   for gain in GAINS}  # fmt: skip
        return " and ".join(
            f"{none:.2g} and {one:.2g} with gains of {gain:g}"
            for gain, (none, one) in of_gain.items()
        )

    return held(
        all(kept[f"batch_1_bias_{b}"] < 0.1 <= kept[f"batch_0.1_bias_{b}"] for b in (0, 1)),
        "From the last step back to the first the gradient changes, with a forget gate's bias of 0 "
        f"and of 1, by factors of {factors('batch')}; under layer normalization by "
        f"{factors('layer')}.",
        **kept,
    )
