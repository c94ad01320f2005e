"""Claims about layer-normalized LSTMs that chapter 09 decides: lengths, scales, published cells.

Those about the GRU, and about how the layers start, are in `chapter_09_gru.py`.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from layernorm import recurrent
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import LAYER_NORM, below, conditional, draw, held, largest, worst
from layernorm.recurrent import definition, variants
from layernorm.recurrent.variants import VARIANTS, LSTMWeights

LSTM, TABLE = "layernorm.recurrent.definition.lstm", "layernorm.recurrent.variants.VARIANTS"
_lstm = definition.lstm


def layer(name: str = "LayerNormLSTM", inputs: int = 3, hidden: int = 5, **options):
    """A layer in float64, computed by the definition, its gains and biases away from 1 and 0."""
    made = getattr(recurrent, name)(inputs, hidden, backend="reference", **options).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return made


def every_layer():
    """Each layer, and each with gates held open, closed, and some open and some closed."""
    for name, gates in (("RNN", 1), ("LSTM", 4), ("GRU", 3)):
        made = layer(f"LayerNorm{name}")
        yield made
        for b in adversary.gates(5, gates).values() if gates > 1 else ():
            with torch.no_grad():
                made.bias_ih_l0.copy_(b)
            yield made


def sequences(steps: int) -> Tensor:
    """Four random sequences of three inputs, and the adversary's."""
    hard = torch.stack([*adversary.matrices(steps, 3, huge=1e6).values()], 1)
    return torch.cat([draw(steps, 4, 3), hard], 1)


def in_pieces(made, x: Tensor, *cuts: int) -> Tensor:
    """The outputs of a sequence that is handed over in pieces, each with the state before it."""
    outputs, state = [], None
    for start, end in pairwise([0, *cuts, len(x)]):
        y, state = made(x[start:end], state)
        outputs.append(y)
    return torch.cat(outputs)


def first_step_louder(x, batch_sizes, h0, c0, weights, eps=1e-5, variant="paper", reverse=False):
    """Mutant: the first step of a call has a gain of its own."""
    y, h, c = _lstm(x, batch_sizes, h0, c0, weights, eps, variant, reverse)
    scale = torch.ones_like(y)
    scale[: len(h0)] = 1.5
    return y * scale, h, c


@claim(
    id="parameters-independent-of-length",
    statement="One set of gains and biases is shared over all time steps: the number of parameters "
    "does not depend on the length of the sequences, and every step computes the same.",
    rule="RNN, LSTM and GRU, also with saturated gates, float64, sequences of 1, 10 and 100 steps "
    "and the adversary's inputs: held if the state dictionary keeps its entries and each bit of "
    "them, and a sequence handed over in pieces of 1, 6, 33 and 60 steps has the outputs of the "
    "whole to 1e-9",
    sabotage=(LSTM, first_step_louder),
)
def parameters_independent_of_length() -> Finding:
    same, apart = True, 0.0
    for made in every_layer():
        before = {key: value.clone() for key, value in made.state_dict().items()}
        for steps in (1, 10, 100):
            whole = made(x := sequences(steps))[0]
        after = made.state_dict()
        same &= list(before) == list(after) and all(torch.equal(before[k], after[k]) for k in after)
        apart = worst(apart, largest(in_pieces(made, x, 1, 7, 40) - whole))
    return held(
        same and apart < 1e-9,
        f"After 1, 10 and 100 steps the state dictionaries are {'the same' if same else 'others'}; "
        f"in pieces the outputs are {'equal' if apart < 1e-9 else 'not equal'} to 1e-9, with "
        "saturated gates and against the adversary, too.",
        largest_difference=apart,
    )


@claim(
    id="longer-sequences-need-no-statistics",
    statement="A recurrent net with layer normalization can process test sequences that are longer "
    "than all training sequences: there are no statistics that could be missing for the additional "
    "steps.",
    rule="RNN, LSTM and GRU, also with saturated gates, float64, after sequences of up to 20 steps "
    "in training, random inputs and the adversary's: held if the layer has no buffers, its outputs "
    "are the same in both modes to the last bit, and the first 20 outputs of 100 steps are those "
    "of the first 20 steps alone to 1e-9",
    # Mutant: inputs are centered over the steps of the sequence.
    sabotage=(LSTM, lambda x, *rest, **options: _lstm(x - x.mean(0), *rest, **options)),
)
def longer_sequences_need_no_statistics() -> Finding:
    stored, same, apart = 0, True, 0.0
    for made in every_layer():
        for steps in (5, 20):
            made(sequences(steps))
        stored += len(list(made.buffers()))
        x = sequences(100)
        training, evaluation = made.train()(x)[0], made.eval()(x)[0]
        same &= torch.equal(training, evaluation)
        apart = worst(apart, largest(made(x[:20])[0] - evaluation[:20]))
    return held(
        stored == 0 and same and apart < 1e-9,
        f"{stored} buffers; {'the same' if same else 'other'} outputs in both modes; the first 20 "
        f"of 100 steps are {'unchanged' if apart < 1e-9 else 'changed'} to 1e-9, with saturated "
        "gates and against the adversary, too.",
        largest_difference=apart,
    )


def centered_only(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Mutant: the mean is subtracted, the spread stays."""
    y = x - x.mean(-1, keepdim=True)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@claim(
    id="scale-of-the-input-is-lost",
    statement="An LSTM with eqs. (20) to (22) cannot tell a large input from a small one: "
    "multiplying the input of a step by a positive number changes nothing, and if the input has "
    "one feature, only its sign counts. Where both terms are normalized together, or not at all, "
    "the scale reaches the output.",
    rule="float64, each input of 20 steps times its own factor between 0.1 and 10: refuted unless "
    "with eps = 0 the outputs of paper and carried change by less than 1e-9, with saturated gates, "
    "too (where these make all cells equal, 0/0 in both is no change), and those of joint, "
    "per_gate and cell_only by more than 1e-3; so too for one feature, replaced by its sign; held "
    "if those of paper and carried change by less than 1e-9 with eps = 1e-5 as well; else "
    "conditional",
    sabotage=(LAYER_NORM, centered_only),
)
def scale_of_the_input_is_lost() -> Finding:
    deaf, heard, with_eps = [], [], []
    for inputs in (3, 1):
        x = draw(20, 4, inputs)
        factors = 10 ** (2 * torch.rand(20, 4, 1, dtype=torch.float64) - 1)
        other = x.sign() if inputs == 1 else factors * x
        for variant in VARIANTS:
            made = layer(inputs=inputs, variant=variant, eps=0.0)
            start = draw(1, 4, 5), draw(1, 4, 5)  # W_h 0 has no spread to divide by
            change = _apart(made(x, start)[0], made(other, start)[0])
            if variant not in ("paper", "carried"):
                heard.append(change)
                continue
            deaf.append(change)
            made.eps = 1e-5
            with_eps.append(_apart(made(x, start)[0], made(other, start)[0]))
            made.eps = 0.0
            for b in adversary.gates(5, 4).values():
                with torch.no_grad():
                    made.bias_ih_l0.copy_(b)
                deaf.append(_apart(made(x, start)[0], made(other, start)[0]))
    return conditional(
        worst(*deaf) < 1e-9 and min(heard) > 1e-3,
        worst(*with_eps) < 1e-9,
        "eps = 0",
        f"With eps = 0 paper and carried {'do not change' if worst(*deaf) < 1e-9 else 'change'} "
        "(to 1e-9), with saturated gates, too; joint, per_gate and cell_only "
        f"{'do' if min(heard) > 1e-3 else 'may not'}. With eps = 1e-5 the changes of the former "
        f"are {below(worst(*with_eps), 1e-9)}.",
        paper_and_carried=worst(*deaf),
        others=min(heard),
        with_eps=worst(*with_eps),
    )


def _apart(one: Tensor, other: Tensor) -> float:
    return largest(torch.where(one.isnan() & other.isnan(), 0.0, one - other))


def torchscript_example(x: Tensor, made) -> Tensor:
    """The cell of PyTorch's benchmarks/fastrnns/custom_lstms.py, from its three norms, one after
    the other; written here from its description, as a loop."""
    p = dict(made.named_parameters())

    def norm(name: str, a: Tensor) -> Tensor:
        gain, bias = p[f"ln_{name}_weight_l0"], p[f"ln_{name}_bias_l0"]
        return torch.nn.functional.layer_norm(a, a.shape[-1:], gain, bias)

    h = c = x.new_zeros(x.shape[1], made.hidden_size)
    outputs = []
    for step in x:
        gates = norm("ih", step @ p["weight_ih_l0"].T) + norm("hh", h @ p["weight_hh_l0"].T)
        i, f, g, o = gates.chunk(4, 1)
        c = norm("c", f.sigmoid() * c + i.sigmoid() * g.tanh())  # and this is what is carried
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
    return torch.stack(outputs)


@claim(
    id="published-cell-is-the-papers",
    statement="The layer-normalized cell of PyTorch's TorchScript example, which NeMo and others "
    "copied, computes the paper's eqs. (20) to (22).",
    rule="20 steps from a zero state, float64, the same weights, no b: held if the example's "
    "outputs equal those of the variant paper to 1e-9 at all steps; refuted if they do at the "
    "first step, differ by more than 1e-3 later, and equal those of the variant carried",
    sabotage=(TABLE, {**VARIANTS, "paper": VARIANTS["carried"]}),
)
def published_cell_is_the_papers() -> Finding:
    made = {name: layer(bias=False, variant=name) for name in ("paper", "carried")}
    made["carried"].load_state_dict(made["paper"].state_dict())
    x = draw(20, 4, 3)
    with torch.no_grad():
        example = torchscript_example(x, made["paper"])
        away = {name: (lstm(x)[0] - example).abs().amax((1, 2)) for name, lstm in made.items()}
    equal = {name: largest(steps) < 1e-9 for name, steps in away.items()}
    first, later = away["paper"][0].item(), largest(away["paper"][1:])
    if not equal["paper"] and not (first < 1e-9 and later > 1e-3 and equal["carried"]):
        raise ArithmeticError(f"neither rule applies: {away}")
    return held(
        equal["paper"],
        "From the same weights the first outputs agree to 1e-9; later ones "
        + ("agree too." if equal["paper"] else "do not, and equal those of the variant carried."),
        later=later,
    )


@claim(
    id="carried-normalized-cell-cannot-count",
    statement="A cell that is carried normalized cannot accumulate: with its gates held open it "
    "stays where it is after the first step, while the paper's cell counts the steps.",
    rule="input, forget and output gates open (b = 40), the gates' norms with gains of 0, so that "
    "the candidates stay as they are, 25 steps: held if after t steps the paper's cell is t times "
    "its candidates more than at the start and the carried one as after the first step, to 1e-9, "
    "for 20 draws of candidates of 2 to 8 units, a climb, and candidates, starts, gains and biases "
    "of the adversary; conditional if only starts, gains, biases, eps or candidates that all agree "
    "break it and no carried cell exceeds √(H - 1) gain + bias; else refuted",
    sabotage=(TABLE, {**VARIANTS, "carried": VARIANTS["paper"]}),
)
def carried_normalized_cell_cannot_count() -> Finding:
    fullest = []  # how much of its bound a carried cell reaches

    def off(g: Tensor, start: Tensor, more: Tensor, bias: Tensor, eps: Tensor) -> float:
        units, apart = g.shape[1], []
        b = adversary.gates(units, 4)["gates open"]
        b[2 * units : 3 * units] = g[0].detach()
        w_ih, w_hh, silent = draw(4 * units, 1), draw(4 * units, units), (0 * b, 0 * b)
        weights = LSTMWeights(w_ih, w_hh, b, silent, silent, (1 + more[0], bias[0]))
        for variant in ("paper", "carried"):
            step, cells = variants.VARIANTS[variant].step, [start]
            for _ in range(25):
                cells.append(step(draw(1, 1), draw(1, units), cells[-1], weights, eps.item())[1])
            after = torch.cat(cells[1:]).detach()
            counted = torch.cat([start, *25 * [g.tanh()]]).cumsum(0)[1:]
            wanted, scale = (counted, largest(g.tanh())) if variant == "paper" else (after[:1], 1.0)
            apart.append(largest(after - wanted) / max(scale, 1e-300))
        bound = largest(1 + more) * (units - 1) ** 0.5 + largest(bias)
        fullest.append(largest(after.nan_to_num(0.0)) / max(bound, 1e-300))
        return worst(*apart)

    zero = torch.zeros(1, 4, dtype=torch.float64)
    exact, g = torch.zeros(1, dtype=torch.float64), draw(1, 4)
    hard = {"eps = 1e-5": (g, zero, zero, zero, exact + 1e-5)}
    for name, row in adversary.rows(4).items():
        hard[f"start {name}"] = (g, row, zero, zero, exact)
        hard[f"gains {name}"] = (g, zero, row - 1, zero, exact)
        hard[f"biases {name}"] = (g, zero, zero, row, exact)
    for units in (*adversary.SIZES, 4):
        for name, row in adversary.rows(units).items():
            hard[f"candidates {name} (H = {units})"] = (row, *[0 * row] * 3, exact)
    sizes = torch.randint(2, 9, (20,)).tolist()
    found = adversary.searched(
        1e-9,
        "The paper's cell counts 25 steps, and the carried one stays, never beyond √(H - 1) gain + "
        "bias.",
        off,
        [(draw(1, n), *[torch.zeros(1, n).double()] * 3, exact) for n in sizes],
        hard,
        only_if=(
            "the cell starts at zero, its norm has gains of 1, biases of 0 and eps = 0, and the "
            "candidates of its units do not all agree",
            lambda g, *zero: adversary.varies(g.tanh()) and not any(a.any() for a in zero),
        ),
    )
    bounded = worst(*fullest) < 1 + 1e-9
    return found if bounded else held(False, f"A carried cell grows. {found.evidence}")
