"""Claims that chapter 09 decides about the GRU's gates, and about how an LSTM starts."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from layernorm import functional as F
from layernorm import recurrent
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.checks import LAYER_NORM, conditional, draw, held, largest

STEP = "layernorm.functional.ln_gru_step"
H, I = 5, 3  # noqa: E741


def weights(gain: float = 1.0) -> tuple:
    """w_ih, w_hh, b, ln_ih, ln_hh of one step, random."""

    def pair():
        return gain + 0.3 * draw(3 * H), 0.3 * draw(3 * H)

    return draw(3 * H, I), draw(3 * H, H), 0.3 * draw(3 * H), pair(), pair()


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
    rule="100 states, eps = 0, all reset gates 0.9 or all 0.1: held if the new states differ by "
    "more than 0.01, and by less than 1e-9 where the reset acts before the norm",
    sabotage=(STEP, reset_before_norm),
)
def reset_must_act_after_the_norm() -> Finding:
    w_ih, w_hh, b, ln_ih, ln_hh = weights()
    for parameter in (*ln_ih, *ln_hh):
        parameter[:H] = 0  # the norms leave the reset gates to b alone
    x, h, change = draw(100, I), draw(100, H), []
    for step in (F.ln_gru_step, reset_before_norm):
        states = []
        for reset in (0.9, 0.1):
            b[:H] = torch.tensor(reset).logit()
            states.append(step(x, h, w_ih, w_hh, b, ln_ih, ln_hh, 0.0))
        change.append(largest(states[0] - states[1]))
    after, before = change
    return held(
        after > 0.01 and before < 1e-9,
        f"After the norm the reset {'changes' if after > 0.01 else 'does not change'} the state; "
        f"before it the state {'stays the same to 1e-9' if before < 1e-9 else 'changes'}.",
        after=after,
        before=before,
    )


def negated(parameter):
    """With the sign of z's part changed: of a tensor, or of both of a pair."""
    if isinstance(parameter, tuple):
        return tuple(negated(p) for p in parameter)
    sign = torch.ones_like(parameter)
    sign[H : 2 * H] = -1
    return sign * parameter


@claim(
    id="update-gate-conventions-agree",
    statement="The GRU of eq. (28), whose update gate z admits the new state, and torch's, whose z "
    "keeps the old one, are the same cell.",
    rule="100 states, float64: conditional if both give the same to 1e-9 after z's gains and "
    "biases change sign, and do not after z's rows of the weights do; held if either way; "
    "refuted if neither",
    sabotage=(STEP, printed),
)
def update_gate_conventions_agree() -> Finding:
    w_ih, w_hh, b, ln_ih, ln_hh = weights()
    x, h = draw(100, I), draw(100, H)
    wanted = printed(x, h, w_ih, w_hh, b, ln_ih, ln_hh)
    gains = F.ln_gru_step(x, h, w_ih, w_hh, negated(b), negated(ln_ih), negated(ln_hh))
    rows = F.ln_gru_step(x, h, negated(w_ih), negated(w_hh), negated(b), ln_ih, ln_hh)
    by_gains, by_rows = (largest(new - wanted) < 1e-9 for new in (gains, rows))
    return conditional(
        by_gains,
        by_rows,
        "z's gains and biases change sign, not its weights as in a plain GRU",
        f"With z's gains and biases negated both agree {'' if by_gains else 'not '}to 1e-9; with "
        f"its rows of the weights negated they {'agree' if by_rows else 'do not'}.",
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
    "does, overwrites the gains and leaves a spread of about 1/√(3H).",
    rule="H of 64 and 256, float64: held if all gains are 1 and all biases of norms 0 before and "
    "after reset_parameters, each normalized term has mean square 1 to 1e-3, and with gains drawn "
    "uniformly from +-1/sqrt(H) its root mean square is 1/sqrt(3 H) to 10%",
    sabotage=("layernorm.recurrent.LayerNormLSTM", overwrites_gains),
)
def gains_start_at_one() -> Finding:
    kept, unit, overwritten = True, [], []
    for hidden in (64, 256):
        made = recurrent.LayerNormLSTM(8, hidden).double()
        for _ in range(2):
            norms = {k: v for k, v in made.named_parameters() if k.startswith("ln_")}
            kept &= all(bool((v == ("weight" in k)).all()) for k, v in norms.items())
            made.reset_parameters()
        a = draw(50, hidden) @ made.weight_hh_l0.T
        drawn = (2 * torch.rand(4 * hidden, dtype=torch.float64) - 1) / hidden**0.5
        shape = (4 * hidden,)
        unit.append(F.layer_norm(a, shape, made.ln_hh_weight_l0).square().mean().item())
        spread = F.layer_norm(a, shape, drawn).square().mean().sqrt().item()
        overwritten.append(spread * (3 * hidden) ** 0.5)
    ones = all(abs(value - 1) < 1e-3 for value in unit)
    shrunk = all(abs(value - 1) < 0.1 for value in overwritten)
    return held(
        kept and ones and shrunk,
        f"Gains and biases {'are' if kept else 'are not'} 1 and 0, and the terms "
        f"{'have' if ones else 'do not have'} unit variance; drawn gains "
        f"{'shrink' if shrunk else 'do not shrink'} them to 1/√(3H), within 10%.",
        overwritten_64=overwritten[0],
        overwritten_256=overwritten[1],
    )


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
