"""Claims that chapter 09 decides about the GRU's gates, and about how an LSTM starts."""

from __future__ import annotations

from functools import partial
from itertools import product

import torch
from torch import Tensor

from layernorm import functional as F
from layernorm import recurrent
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import LAYER_NORM, conditional, draw, held, largest, size
from layernorm.recurrent import variants

STEP = "layernorm.functional.ln_gru_step"
H, I = 5, 3  # noqa: E741


def weights(hidden: int = H) -> tuple:
    """w_ih, w_hh, b, ln_ih, ln_hh of one step, random."""

    def pair():
        return 1 + 0.3 * draw(3 * hidden), 0.3 * draw(3 * hidden)

    b = 0.3 * draw(3 * hidden)
    return draw(3 * hidden, I), draw(3 * hidden, hidden), b, pair(), pair()


def printed(x, h, w_ih, w_hh, b, ln_ih, ln_hh, eps=1e-5, reset_first=False) -> Tensor:
    """The GRU of eqs. (26) to (28), where z admits the new state, with torch's stacking and its b.

    `reset_first`: the reset gate acts inside the norm of the candidate, which can undo it.
    """
    H2 = 2 * h.shape[-1]
    gates, last = slice(0, H2), slice(H2, None)

    def norm(a: Tensor, pair, where: slice) -> Tensor:
        return torch.nn.functional.layer_norm(a, a.shape[1:], pair[0][where], pair[1][where], eps)

    a_h, a_x = h @ w_hh.T, x @ w_ih.T
    r, z = (
        (norm(a_h[:, gates], ln_hh, gates) + norm(a_x[:, gates], ln_ih, gates) + b[gates])
        .sigmoid()
        .chunk(2, 1)
    )
    before, after = (r, 1) if reset_first else (1, r)
    old = after * norm(before * a_h[:, last], ln_hh, last)
    new = torch.tanh(norm(a_x[:, last], ln_ih, last) + b[last] + old)
    return (1 - z) * h + z * new


reset_before_norm = partial(printed, reset_first=True)


@claim(
    id="reset-must-act-after-the-norm",
    statement="In the layer-normalized GRU the reset gate acts after the norm of the recurrent "
    "term, as eq. (27) has it: before it, the norm would undo a reset that is the same for all "
    "units.",
    rule="pairs of resets that all units share, 100 draws of states and recurrent weights with "
    "resets of 0.9 and 0.1, a climb, an ascent, the adversary's recurrent terms, weights and "
    "sizes, saturated resets and eps = 1e-5. Refuted unless in each draw the new states differ "
    "by more than 0.01; held if with the reset before the norm they differ by less than 1e-12 "
    "(times largest recurrent term over its standard deviation) at all cases; conditional if "
    "only with eps above 0 or recurrent terms whose units agree they do not; else refuted",
    sabotage=(STEP, reset_before_norm),
)
def reset_must_act_after_the_norm() -> Finding:
    x, made = draw(1, I), {n: weights(n) for n in (*adversary.SIZES, H)}
    for n, (*_, ln_ih, ln_hh) in made.items():
        for parameter in (*ln_ih, *ln_hh):
            parameter[:n] = 0  # the norms leave the reset gates to b alone

    def change(step, h: Tensor, u: Tensor, resets: Tensor, eps: Tensor) -> Tensor:
        n = h.shape[1]
        w_ih, w_hh, b, ln_ih, ln_hh = made[n]
        w = torch.cat([w_hh[: 2 * n], u])
        new = (torch.cat([r.expand(n), b[n:]]) for r in resets)
        states = [step(x, h, w_ih, w, b, ln_ih, ln_hh, eps.item()) for b in new]
        return size(states[0] - states[1])

    def undone(h: Tensor, u: Tensor, *rest: Tensor) -> Tensor:
        times = adversary.conditioning((h @ u.T).detach())
        return change(reset_before_norm, h, u, *rest) / times

    usual, exact = torch.tensor([0.9, 0.1]).double().logit(), torch.zeros(1).double()
    draws = [(draw(1, H), draw(H, H), usual, exact) for _ in range(100)]
    h, u, *_ = draws[0]
    as_they_are = torch.eye(H, dtype=torch.float64)
    hard = {f"term {n}": (a, as_they_are, usual, exact) for n, a in adversary.rows(H).items()}
    one = adversary.rows(H)["one-hot"]
    hard |= {f"U {n}": (one, w, usual, exact) for n, w in adversary.matrices(H, H).items()}
    hard |= {f"H = {n}": (draw(1, n), draw(n, n), usual, exact) for n in adversary.SIZES}
    hard |= {
        "resets open and closed": (h, u, torch.tensor([40.0, -40.0]).double(), exact),
        "eps = 1e-5": (h, u, usual, exact + 1e-5),
    }
    after = min(change(F.ln_gru_step, *case).item() for case in draws)
    found = adversary.searched(
        1e-12,
        f"Another reset moves the new state by {'more' if after > 0.01 else 'less'} than 0.01, and "
        "not at all (to 1e-12) where it acts before the norm.",
        undone,
        draws,
        hard,
        only_if=(
            "eps = 0, and the units of the recurrent term do not all agree",
            lambda h, u, resets, eps: not eps.any() and adversary.varies(h @ u.T),
        ),
    )
    return found if after > 0.01 else held(False, found.evidence, after=after)


def negated(parameter):
    """With the sign of z's part changed: of a tensor, or of both of a pair."""
    if isinstance(parameter, tuple):
        return tuple(negated(p) for p in parameter)
    sign = torch.ones_like(parameter)
    sign.chunk(3)[1].neg_()
    return sign * parameter


@claim(
    id="update-gate-conventions-agree",
    statement="The GRU of eq. (28), whose update gate z admits the new state, and torch's, whose z "
    "keeps the old one, are the same cell.",
    rule="100 draws, a climb, an ascent, the adversary's states, inputs, weights, gates and sizes, "
    "float64: conditional if both give the same to 1e-12 (of the largest state) after z's gains "
    "and biases change sign, and do not after z's rows of the weights do; held if either way; "
    "refuted if neither",
    sabotage=(STEP, printed),
)
def update_gate_conventions_agree() -> Finding:
    norms = {n: weights(n)[3:] for n in (*adversary.SIZES, H)}

    def off(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
        ln_ih, ln_hh = norms[h.shape[1]]
        wanted = printed(x, h, w_ih, w_hh, b, ln_ih, ln_hh)
        new = F.ln_gru_step(x, h, w_ih, w_hh, negated(b), negated(ln_ih), negated(ln_hh))
        return size(new - wanted) / max(1.0, largest(h))

    def case(hidden: int = H) -> tuple[Tensor, ...]:
        return draw(1, I), draw(1, hidden), *weights(hidden)[:3]

    x, h, w_ih, w_hh, b = case()
    hard = {f"state {n}": (x, a, w_ih, w_hh, b) for n, a in adversary.rows(H).items()}
    hard |= {f"input {n}": (a, h, w_ih, w_hh, b) for n, a in adversary.rows(I).items()}
    hard |= {f"W {n}": (x, h, w, w_hh, b) for n, w in adversary.matrices(3 * H, I).items()}
    hard |= {f"U {n}": (x, h, w_ih, w, b) for n, w in adversary.matrices(3 * H, H).items()}
    hard |= {name: (x, h, w_ih, w_hh, bias) for name, bias in adversary.gates(H, 3).items()}
    hard |= {f"H = {n}": case(n) for n in adversary.SIZES}
    found = adversary.searched(
        1e-12,
        "With z's gains and biases negated both agree to 1e-12.",
        off,
        [case() for _ in range(100)],
        hard,
    )
    ln_ih, ln_hh = norms[H]
    wanted = printed(x, h, w_ih, w_hh, b, ln_ih, ln_hh)
    rows = F.ln_gru_step(x, h, negated(w_ih), negated(w_hh), negated(b), ln_ih, ln_hh)
    by_rows = largest(rows - wanted) < 1e-9
    return conditional(
        found.verdict == "held",
        by_rows,
        "z's gains and biases change sign, not its weights as in a plain GRU",
        f"{found.evidence} With its rows of the weights negated they "
        f"{'agree' if by_rows else 'do not'}.",
    )


def overwrites_gains(*args, **options):
    """Mutant: torch's initializer, applied to every parameter."""
    made = recurrent.layers.LayerNormLSTM(*args, **options)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.uniform_(-(made.hidden_size**-0.5), made.hidden_size**-0.5)
    return made


@claim(
    id="gains-start-at-one",
    statement="Gains start at 1 and biases at 0, so that each term of the gates' summed inputs "
    "starts with unit variance. An initializer that draws all parameters alike, as NeMo's copy "
    "does, overwrites the gains, and shrinks what a term's input contributes to a standard "
    "deviation of about 1/√(3H).",
    rule="RNN, LSTM, its variants and GRU of 1, 2, 3, 64 and 256 units: refuted unless all gains "
    "are 1 and all biases of norms 0 before and after reset_parameters. Terms of the LSTM, "
    "recurrent ones of 20 random states with 64 and 256 units, a climb, and the adversary's for "
    "all sizes: held if the normalized term has mean square 1 to 1e-3, and with gains from ±1/√H "
    "its root mean square (over 2000 initializations) is 1/√(3H) to 10%; conditional if only "
    "terms with a standard deviation below 40 √eps break it; else refuted",
    sabotage=("layernorm.recurrent.LayerNormLSTM", overwrites_gains),
)
def gains_start_at_one() -> Finding:
    sizes, norms, drawn = (*adversary.SIZES, 64, 256), {}, {}
    kinds = [("LSTM", {"variant": name}) for name in variants.VARIANTS]
    kept = True
    for hidden, (kind, options) in product(sizes, [("RNN", {}), ("GRU", {}), *kinds]):
        made = getattr(recurrent, f"LayerNorm{kind}")(8, hidden, **options).double()
        for _ in range(2):
            found = {k: v for k, v in made.named_parameters() if k.startswith("ln_")}
            kept &= all(bool((v == ("weight" in k)).all()) for k, v in found.items())
            made.reset_parameters()
        if options == {"variant": "paper"}:
            norms[4 * hidden] = made
            drawn[4 * hidden] = (2 * torch.rand(2000, 4 * hidden).double() - 1) / hidden**0.5

    def off(a: Tensor) -> float:
        """Below 1 if the term's mean square is 1 to 1e-3, and with drawn gains 1/(3H) to 10%."""
        n = a.shape[1]
        y = F.layer_norm(a, (n,), norms[n].ln_hh_weight_l0, norms[n].ln_hh_bias_l0).detach()
        shrunk = (y * drawn[n]).square().mean().sqrt() * (3 * n / 4) ** 0.5
        return max(1e3 * abs(y.square().mean().item() - 1), 10 * abs(shrunk.item() - 1))

    found = adversary.searched(
        1.0,
        f"Gains and biases {'are' if kept else 'are not'} 1 and 0; the terms have unit variance, "
        "and drawn gains shrink them to 1/√(3H), within 10%.",
        off,
        [(draw(1, h) @ norms[4 * h].weight_hh_l0.T,) for h in (64, 256) for _ in range(10)],
        {f"{name} (H = {n // 4})": (a,) for n in norms for name, a in adversary.rows(n).items()},
        only_if=(
            "the term varies over its units by much more than √eps, as the recurrent term of a "
            "state of zeros does not",
            lambda a: a.std(correction=0).item() > 40 * 1e-5**0.5,
        ),
    )
    return found if kept else held(False, found.evidence)


def gain_and_bias_swapped(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Mutant: what the printed line needs to make sense."""
    y = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + eps).sqrt()
    y = y if bias is None else y * bias
    return y if weight is None else y + weight


@claim(
    id="printed-start-can-learn",
    statement="The start that the supplement prints below eq. (22), every α at 0 and every β at 1, "
    "is usable, with α the gain and β the bias as in eq. (15).",
    rule="LSTM of eqs. (20) to (22), 10 steps: held if its output depends on its input and a "
    "gradient reaches both weight matrices; refuted if the output is the same for every input or a "
    "gradient exactly 0",
    sabotage=(LAYER_NORM, gain_and_bias_swapped),
)
def printed_start_can_learn() -> Finding:
    made = recurrent.LayerNormLSTM(3, 5, backend="reference").double()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.startswith("ln_"):
                parameter.fill_("bias" in name)
    x = draw(10, 4, 3)
    y = made(x)[0]
    (y * draw(*y.shape)).sum().backward()
    gradient = min(largest(made.weight_ih_l0.grad), largest(made.weight_hh_l0.grad))
    change = largest(made(draw(10, 4, 3))[0] - y)
    return held(
        change > 0 and gradient > 0,
        f"Another input {'changes' if change > 0 else 'does not change'} the output, and the "
        f"gradient of {'no' if gradient > 0 else 'a'} weight matrix is 0.",
        change=change,
        gradient=gradient,
    )
