"""Claims about the layer-normalized GRU that chapter 09 decides: its reset and its update gate."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from layernorm import functional as F
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.checks import conditional, draw, held, largest

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
