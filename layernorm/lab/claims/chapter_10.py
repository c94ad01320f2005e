"""Claims about recurrent batch normalization that chapter 10 decides: steps, padding, the future.

Those about gradients are in `chapter_10_gradients.py`.
What holds of any sequence (padding in one mean over cases and steps, the noise of few cases, no
statistics beyond the longest) chapter 02 decides.
"""

from __future__ import annotations

import torch

from layernorm import LayerNormLSTM
from layernorm.lab.analysis import lstms
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.checks import held, less
from layernorm.recurrent import step_norm

BATCH_NORM = "layernorm.recurrent.step_norm.F.batch_norm"
_seen, _valid_rows = step_norm.StepNorm.seen, step_norm.valid_rows


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


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


@claim(
    id="separate-statistics-for-each-step",
    statement="Batch normalization of a recurrent network needs to store statistics of its own for "
    "each time step.",
    rule="500 sequences of 40 steps, every step's input from one distribution, normalized by the "
    "mean and variance of all steps together: conditional if the recurrent term or the cell has a "
    "size (root mean square, ideally 1) that is off by more than 0.25 within the first five steps, "
    "and no term one that is off by more than 0.1 after step 20; proved if terms are off there "
    "too; refuted if none is off at the first five",
    sabotage=("layernorm.recurrent.step_norm.StepNorm.seen", pooled),
)
def separate_statistics_for_each_step() -> Finding:
    layer = lstms.bn_lstm(hidden=64, max_length=40, momentum=1.0)
    with torch.no_grad():
        layer(draw(40, 500, 8))
    sizes = {}
    for term in lstms.TERMS:
        mean, var = (getattr(layer, f"running_{m}_{term}_l0") for m in ("mean", "var"))
        sizes[term] = sizes_under_shared_statistics(mean, var)
    early = {term: (size[:5] - 1).abs().max().item() for term, size in sizes.items()}
    late = max((size[20:] - 1).abs().max().item() for size in sizes.values())
    evidence = (
        f"Under shared statistics the first recurrent term has size {sizes['hh'][0]:.1f} and the "
        f"first cell {sizes['c'][0]:.1f} instead of 1; after step 20 every term is within "
        f"{'0.1' if late < 0.1 else 'more than 0.1'} of 1."
    )
    numbers = {f"early_{term}": value for term, value in early.items()} | {"late": late}
    if max(early["hh"], early["c"]) < 0.25:
        return Finding("refuted", evidence, numbers=numbers)
    if late > 0.1:
        return Finding("proved", evidence, numbers=numbers)
    condition = "the step is among the first, or the inputs themselves differ from step to step"
    return Finding("conditional", evidence, condition=condition, numbers=numbers)


@claim(
    id="padding-enters-statistics-of-late-steps",
    statement="With statistics for each step, the padding of sequences that are over still enters "
    "the statistics of late steps, and so the outputs of those that go on.",
    rule="sequences of 3 to 20 steps filled up with zeros, in training: conditional if that moves "
    "valid outputs of BatchNormLSTM by more than 0.05 (root mean square) where padding counts, and "
    "by less than 1e-12 with lengths; proved if lengths do not help; refuted if nothing moves, or "
    "if LayerNormLSTM's move by more than 1e-12",
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

    layer, by_layer = (
        lstms.bn_lstm(),
        LayerNormLSTM(8, 32, dtype=torch.float64, backend="reference"),
    )
    with torch.no_grad():
        counted = moved(lambda x: layer(x)[0])
        masked = moved(lambda x: layer(x, lengths=lengths)[0])
        without = moved(lambda x: by_layer(x)[0])
    evidence = (
        f"Other contents of the padding move valid outputs by {counted:.1f} where it counts, with "
        f"lengths by {less(masked, 1e-12)}, and those of layer "
        f"normalization by {less(without, 1e-12)}."
    )
    if counted < 0.05 or without > 1e-12:
        return Finding("refuted", evidence)
    if masked > 1e-12:
        return Finding("proved", evidence)
    return Finding("conditional", evidence, condition="padded rows are not left out")


@claim(
    id="sequence-statistics-see-the-future",
    statement="Statistics of the input term over the whole sequence let outputs depend on later "
    "inputs, in training only.",
    rule="other inputs after step 10 of 20: proved if they move outputs up to step 10 by more than "
    '0.01 (root mean square) in training with statistics="sequence", and by exactly 0 in '
    "evaluation and with statistics for each step",
    sabotage=(BATCH_NORM, by_case),
)
def sequence_statistics_see_the_future() -> Finding:
    x = draw(20, 16, 8)
    other = torch.cat([x[:10], draw(10, 16, 8) * 2 + 1])
    moved = {}
    for statistics in ("sequence", "per_step"):
        for mode in (True, False):
            layer = lstms.bn_lstm(statistics=statistics).train(mode)
            with torch.no_grad():
                change = layer(x)[0][:10] - layer(other)[0][:10]
            moved[statistics, mode] = change.square().mean().sqrt().item()
    leak = moved.pop(("sequence", True))
    holds = leak > 0.01 and not any(moved.values())
    return held(
        holds,
        f"Other inputs after step 10 move earlier outputs by {leak:.2f} under statistics of the "
        f"sequence in training, and {'not at all' if not any(moved.values()) else 'also'} in "
        "evaluation or under statistics of each step.",
        leak=leak,
    )
