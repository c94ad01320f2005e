"""Claims that chapter 08 decides about gradients through time: they are not bounded by the state.

A Lyapunov exponent is the mean logarithmic growth of a small difference, or of a gradient, a step.
"""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor

from layernorm.lab.analysis import recurrence
from layernorm.lab.analysis.recurrence import step as _step
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.chapter_08 import STEP, course, never_normalized
from layernorm.lab.claims.checks import conditional, held


@claim(
    id="ln-rnn-dynamics-more-stable",
    statement="Invariance to the scale of summed inputs gives a layer-normalized RNN much more "
    "stable hidden-to-hidden dynamics.",
    rule="largest Lyapunov exponents of 4 tanh networks with inputs, W_hh times 0.1 and times 10 "
    "(that both matrices may take one factor is another claim): held if the mean of the exponents' "
    "sizes is less than half the plain networks' at both; conditional if at 10; else refuted",
    sabotage=(STEP, never_normalized),
)
def ln_rnn_dynamics_more_stable() -> Finding:
    size = {
        (kind, scale): course(kind, 100, scale, 1.0).exponents[:, 0].abs().mean().item()
        for kind, scale in product(("tanh", "ln-tanh"), (0.1, 10.0))
    }
    small, large = (2 * size["ln-tanh", scale] < size["tanh", scale] for scale in (0.1, 10.0))
    return conditional(
        large,
        small,
        "W_hh is large beside W_xh; where it is small, gradients vanish as fast as without "
        "normalization",
        f"At W_hh times 10 the exponents have size {size['ln-tanh', 10.0]:.1f} with and "
        f"{size['tanh', 10.0]:.1f} without normalization; at W_hh times 0.1 "
        f"{size['ln-tanh', 0.1]:.1f} and {size['tanh', 0.1]:.1f}.",
        **{f"{kind} {scale:g}": value for (kind, scale), value in size.items()},
    )


@claim(
    id="ln-rnn-gradients-explode-and-vanish",
    statement="The state of a layer-normalized RNN stays in range, yet its gradients through time "
    "can grow or vanish exponentially.",
    rule="tanh, gain 1, 4 networks of 48 units, 400 steps: held if without input the mean of the "
    "largest exponents is above 0.02, and with inputs as large as the state at W_hh times 1 every "
    "one is below -0.2; else refuted",
    # Mutant: every state is halved.
    sabotage=(STEP, lambda kind, *arguments: 0.5 * _step(kind.removeprefix("ln-"), *arguments)),
)
def ln_rnn_gradients_explode_and_vanish() -> Finding:
    free = course("ln-tanh", 400, drive=0.0).exponents[:, 0]
    driven = course("ln-tanh", 400).exponents[:, 0]

    def thousand(exponents: Tensor) -> float:
        return exponents.mean().item() * 1000 / math.log(10)

    holds = free.mean() > 0.02 and driven.max() < -0.2
    return held(
        holds,
        f"A step multiplies gradients by {free.mean().exp():.2f} without input and by "
        f"{driven.mean().exp():.1f} with inputs; 1000 such steps by "
        f"{'more' if thousand(free) > 10 else 'less'} than 10^10 and by "
        f"{'less' if thousand(driven) < -100 else 'more'} than 10^-100.",
        free=free.mean(),
        driven=driven.max(),
    )


@claim(
    id="gain-sets-the-exponent",
    statement="Without input, the gain alone decides how fast the gradients of a layer-normalized "
    "tanh RNN grow, by ½ log(g² E[f'²]/E[f²]) a step, f at g times a standard normal: for no gain "
    "do they shrink in a wide layer.",
    rule="gains 1 and 3, 200 steps: refuted unless the mean exponent of 4 networks of 256 units is "
    "within 20% of the formula, and the formula is not negative (to 1e-12) for 100 gains from "
    "0.01 to 10; held if so for networks of 48 units, none of which has an exponent below 0; else "
    "conditional",
    # Mutant: the gain acts with its square root.
    sabotage=(STEP, lambda *args: _step(*args[:5], args[5] ** 0.5, args[6])),
)
def gain_sets_the_exponent() -> Finding:
    def formula(gain: float) -> float:
        return recurrence.wide_exponent("ln-tanh", drive=0.0, gain=gain)

    def seen(gain: float, units: int) -> Tensor:
        return course("ln-tanh", drive=0.0, gain=gain, units=units).exponents[:, 0]

    off = {
        units: max(abs(seen(g, units).mean().item() / formula(g) - 1) for g in (1.0, 3.0))
        for units in (48, 256)
    }
    narrow = seen(1.0, 48)
    least = min(map(formula, torch.logspace(-2, 1, 100).tolist()))
    return conditional(
        off[256] < 0.2 and least > -1e-12,
        off[48] < 0.2 and narrow.min() > 0,
        "the layer is wide: in a narrow one the exponents scatter, below 0 as well",
        f"At gains 1 and 3 the formula says {formula(1.0):.2f} and {formula(3.0):.2f}; networks of "
        f"256 units are {'within' if off[256] < 0.2 else 'more than'} 20% of it, those of 48 "
        f"{'within' if off[48] < 0.2 else 'more than'} 20%, "
        f"{'some' if narrow.min() < 0 else 'none'} of them below 0. The formula is "
        f"{'never' if least > -1e-12 else 'sometimes'} negative.",
        off=off[256],
        narrow=off[48],
        least=least,
    )
