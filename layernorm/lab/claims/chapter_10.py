"""Claims about recurrent batch normalization that chapter 10 decides: steps, padding, the future.

What holds of any sequence (padding in one mean over cases and steps, the noise of few cases, no
statistics beyond the longest) chapter 02 decides.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from layernorm.lab.analysis import lstms
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.adversary import Case
from layernorm.lab.claims.checks import conditional, draw, held, largest, less, worst
from layernorm.recurrent import step_norm

BATCH_NORM = "layernorm.recurrent.step_norm.F.batch_norm"
ROWS, GAINS = adversary.rows(8), (0.1, 1.0)
START = "the layer is at its start with {} units or more"
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


def start(hidden: int = 16) -> Case:
    """Weights and biases of a start: w_ih, w_hh, b."""
    w_ih, w_hh = (
        (2 * torch.rand(4 * hidden, n, dtype=torch.float64) - 1) / hidden**0.5 for n in (8, hidden)
    )
    return w_ih, w_hh, torch.zeros(4 * hidden, dtype=torch.float64)


def networks(hidden: int = 16, huge: float = 1e100) -> dict[str, Case]:
    """Weights, biases and sizes of the adversary; what it leaves open is that of a start."""
    w_ih, w_hh, b = start(hidden)
    inputs, states = (adversary.matrices(4 * hidden, n, huge) for n in (8, hidden))
    found = {f"W_h {name}": (w_ih, w, b) for name, w in states.items()}
    found |= {f"W_x {name}": (w, w_hh, b) for name, w in inputs.items()}
    found |= {name: (w_ih, w_hh, gates) for name, gates in adversary.gates(hidden, 4).items()}
    for h in adversary.SIZES:
        waves = (adversary.matrices(4 * h, n, huge=1.0)["huge"] for n in (8, h))
        found[f"H = {h}"] = (*waves, torch.zeros(4 * h, dtype=torch.float64))
    return found


def at_start(w_ih: Tensor, w_hh: Tensor, b: Tensor, units: int = 16) -> bool:
    """Tell whether a layer of so many units or more may start with these."""
    h = w_hh.shape[1]
    sizes = torch.cat([h * w.square().mean(1) for w in (w_ih, w_hh)])  # on average 1/3
    return h >= units and not b.any() and bool(((sizes > 0.01) & (sizes < 1)).all())


def built(w_ih: Tensor, w_hh: Tensor, b: Tensor, gain=1.0, method="batch", **options) -> nn.Module:
    """A layer of these weights and biases."""
    hidden, gain = w_hh.shape[1], torch.as_tensor(gain).item()
    if method == "batch":
        layer = lstms.bn_lstm(hidden=hidden, gain=gain, **options)
    else:
        layer = lstms.at_start(method, gain, hidden)
    with torch.no_grad():
        for name, new in ("weight_ih", w_ih), ("weight_hh", w_hh), ("bias_ih", b):
            getattr(layer, f"{name}_l0").copy_(new)
    return layer.to(b.dtype)


def sizes_by_term(x: Tensor, *network: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """For each term of a layer that reads x, (T, B, 8), the root mean squares (over units) of each
    step's values by the mean and variance of all steps, and of their difference from what they are
    by those of the step."""
    layer, found = built(*network, max_length=len(x), momentum=1.0), {}
    with torch.no_grad():
        layer(x)
    for term in lstms.TERMS:
        mean, var = (getattr(layer, f"running_{m}_{term}_l0") for m in ("mean", "var"))
        square = var + (mean - mean.mean(0)) ** 2
        shared = (square / (square.mean(0) + layer.eps)).sqrt()
        own = (var / (var + layer.eps)).sqrt()
        found[term] = tuple(size.square().mean(1).sqrt() for size in (shared, shared - own))
    return found


@claim(
    id="separate-statistics-for-each-step",
    statement="Batch normalization of a recurrent network needs to store separate statistics for "
    "each time step.",
    rule="each step's values normalized by the mean and variance of all steps together, compared "
    "with those by its own: off is the root mean square over units of the difference in size. Five "
    "layers of 16 units at their start, a climb, the adversary's weights, gates, sizes and inputs. "
    "Refuted unless at a start, where inputs vary over the cases, the recurrent term or the cell "
    "is off by more than 0.25 within the first five steps; held if also in all other cases, or if "
    "some term of 64 units is off by more than 0.1 after step 20, with inputs from one "
    "distribution; else conditional. As an illustration, the evidence tells how far terms are off "
    "after step 20 where inputs grow by 5% a step",
    sabotage=("layernorm.recurrent.step_norm.StepNorm.seen", pooled),
)
def separate_statistics_for_each_step() -> Finding:

    def same(x: Tensor, *network: Tensor) -> float:
        """0.25 less what shared statistics miss in the first steps."""
        off = sizes_by_term(x, *network)
        return 0.25 - largest(*(off[term][1][:5] for term in ("hh", "c")))

    x, network = draw(25, 100, 8), start()
    hard = {name: (x, *other) for name, other in networks().items()}
    hard |= {f"inputs {name}": (row * x[..., :1], *network) for name, row in ROWS.items()}
    hard["equal cases"] = (x[:, :1].expand_as(x), *network)
    found = adversary.searched(
        0.0,
        "In the first five steps shared statistics miss a size by more than 0.25.",
        same,
        [(draw(25, 100, 8), *start()) for _ in range(5)],
        hard,
        only_if=(
            START.format(16),
            lambda x, *network: at_start(*network) and largest(x.std(1)) > 0.1,
        ),
    )
    x, wide = draw(40, 500, 8), start(64)
    growing = x * 1.05 ** torch.arange(40).double()[:, None, None]
    sizes, grown = (sizes_by_term(inputs, *wide) for inputs in (x, growing))
    late, shown = (largest(*(miss[20:] for _, miss in of.values())) for of in (sizes, grown))
    return conditional(
        found.verdict != "refuted",
        found.verdict == "held" or late > 0.1,
        f"{START.format(16)}, its inputs vary over the cases, and the step is among the first",
        f"Under shared statistics the first cell has size {sizes['c'][0][0]:.1f} instead of 1; "
        f"after step 20 every term is within {'0.1' if late < 0.1 else 'more than 0.1'} of its "
        f"size. Where inputs grow by 5% a step one is off by {shown:.1f} there. {found.evidence}",
        late=late,
    )


@claim(
    id="padding-enters-statistics-of-late-steps",
    statement="Even with separate statistics for each step, the padding of sequences that have "
    "ended enters the statistics of late steps, and so changes the outputs for sequences that "
    "continue.",
    rule="five batches of 12 steps with lengths of 3 to 12, a climb, and the adversary's inputs, "
    "contents of the padding, weights, gates, sizes and lengths. Refuted unless in training valid "
    "outputs of BatchNormLSTM differ by more than 0.05 (root mean square) between padding counted "
    "and left out by lengths, except where input weights are 0 or gates saturated, and unless "
    "LayerNormLSTM's are the same to 1e-12 whatever the padding contains; conditional if so are "
    "BatchNormLSTM's with lengths and in evaluation; else held",
    sabotage=("layernorm.recurrent.batch_norm.valid_rows", whole),
)
def padding_enters_statistics_of_late_steps() -> Finding:
    spared, by_layer = [], []

    @torch.no_grad()
    def unmoved(x: Tensor, fill: Tensor, ends: Tensor, *network: Tensor) -> float:
        """How far valid outputs are from depending on the padding; notes what must not move."""
        lengths = ends.round().clamp(1, 12).long()
        valid = torch.arange(12)[:, None] < lengths
        padded, zeros = (torch.where(valid[..., None], x, a) for a in (fill, 0 * fill))
        layer, other = built(*network), built(*network, method="layer")
        counted, masked = layer(padded)[0], layer(padded, lengths=lengths)[0]
        spared.append(largest((masked - layer(zeros, lengths=lengths)[0])[valid]))
        layer.eval()
        spared.append(largest((layer(padded)[0] - layer(zeros)[0])[valid]))
        by_layer.append(largest((other(padded)[0] - other(zeros)[0])[valid]))
        return -(counted - masked)[valid].square().mean().sqrt().item()

    x, ends, network = draw(12, 10, 8), torch.arange(3.0, 13.0), start()
    hard = {name: (x, draw(8), ends, *other) for name, other in networks().items()}
    hard |= {f"padding {name}": (x, row[0], ends, *network) for name, row in ROWS.items()}
    hard |= {
        f"inputs {name}": (x[..., :1] * row, draw(8), ends, *network) for name, row in ROWS.items()
    }
    for few in ([1, 12], [11, 12], [1, 2, 12]):
        hard[f"lengths {few}"] = (x[:, : len(few)], draw(8), torch.tensor(few).double(), *network)
    found = adversary.searched(
        -0.05,
        "Padding that counts moves valid outputs by more than 0.05.",
        unmoved,
        [(draw(12, 10, 8), draw(8), ends, *start()) for _ in range(5)],
        hard,
        only_if=(
            "it is in training, padded rows are not left out, input weights are not 0 and gates "
            "not saturated",
            lambda x, fill, ends, *network: _heard(*network),
        ),
    )
    with_lengths, without = worst(*spared), worst(*by_layer)
    return conditional(
        found.verdict != "refuted" and without <= 1e-12,
        with_lengths > 1e-12,
        found.condition or "padded rows are not left out",
        f"{found.evidence} With lengths and in evaluation contents of the padding move them by "
        f"{less(with_lengths, 1e-12)}, and those of layer normalization by {less(without, 1e-12)}.",
    )


def _heard(w_ih: Tensor, w_hh: Tensor, b: Tensor) -> bool:
    """Tell whether the inputs reach the outputs."""
    return bool((w_ih.abs().amax(1) > 1e-3).all()) and largest(b) < 40


@claim(
    id="sequence-statistics-see-the-future",
    statement="Statistics of the input term over the whole sequence let outputs depend on later "
    "inputs, in training only.",
    rule="other inputs after step 5 of 10, for 5 networks, a climb, and the adversary's inputs "
    "before and after, weights, gates, sizes, and batches of 2 and 3: held if outputs up to step 5 "
    "are equal to the last bit in evaluation and with statistics for each step, and each of the 5 "
    'moves by more than 0.01 (root mean square) in training with statistics="sequence"; else '
    "refuted",
    sabotage=(BATCH_NORM, by_case),
)
def sequence_statistics_see_the_future() -> Finding:
    @torch.no_grad()
    def moved(kind: str, x: Tensor, later: Tensor, *network: Tensor) -> tuple[float, float]:
        """How far other later inputs move earlier outputs, in training and in evaluation."""
        layer, other = built(*network, statistics=kind), torch.cat([x[:5], later])
        changes = [(layer.train(on)(x)[0] - layer(other)[0])[:5] for on in (True, False)]
        return tuple(change.square().mean().sqrt().item() for change in changes)

    def seen(*case: Tensor) -> float:
        return worst(moved("sequence", *case)[1], *moved("per_step", *case))

    draws = [(draw(10, 16, 8), draw(5, 16, 8) * 2 + 1, *start()) for _ in range(5)]
    x, later, *network = draws[0]
    hard = {name: (x, later, *other) for name, other in networks().items()}
    for name, row in ROWS.items():
        hard[f"later {name}"] = (x, row.expand_as(later), *network)
        hard[f"earlier {name}"] = (row * x[..., :1], later, *network)
    hard |= {f"{n} cases": (x[:, :n], later[:, :n], *network) for n in (2, 3)}
    leak = min(moved("sequence", *case)[0] for case in draws)
    found = adversary.searched(
        5e-324,
        f"Other inputs after step 5 of 10 move earlier outputs by {less(leak, 0.01)} under "
        "statistics of the sequence in training, and not at all in evaluation or under "
        "statistics of each step.",
        seen,
        draws,
        hard,
    )
    return held(found.verdict == "held" and leak > 0.01, found.evidence, leak=leak)
