"""Claims that chapter 08 decides about gradients through time: they are not bounded by the state.

A Lyapunov exponent is the mean logarithmic growth of a small difference, or of a gradient, a step.
"""

from __future__ import annotations

import math

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
    rule="largest Lyapunov exponents of tanh networks with inputs, scales 0.1, 1 and 10. The "
    "range over scales of both matrices, and of W_hh alone: held if layer normalization's is "
    "below a tenth of the plain network's in both; conditional if in the first; else refuted",
    sabotage=(STEP, never_normalized),
)
def ln_rnn_dynamics_more_stable() -> Finding:
    scales, top, spread = (0.1, 1.0, 10.0), {}, {}
    for kind in ("tanh", "ln-tanh"):
        both = [course(kind, 100, c, c).exponents[:, 0].mean().item() for c in scales]
        alone = [course(kind, 100, c, 1.0).exponents[:, 0].mean().item() for c in scales]
        top[kind] = alone
        spread[kind] = [max(t) - min(t) for t in (both, alone)]
    calmer = [a < b / 10 for a, b in zip(spread["ln-tanh"], spread["tanh"], strict=True)]
    return conditional(
        calmer[0],
        all(calmer),
        "W_hh and W_xh keep their ratio; large W_hh alone is tamed as well, but small W_hh makes "
        "gradients vanish as without normalization",
        f"With both matrices scaled the exponents range over {spread['ln-tanh'][0]:.1f} with and "
        f"{spread['tanh'][0]:.1f} without; with W_hh alone, they reach from below "
        f"-2 {'in both' if max(map(min, top.values())) < -2 else 'in one'} to "
        f"{max(top['ln-tanh']):.1f} with and "
        f"{'above' if max(top['tanh']) > 0.5 else 'below'} 0.5 without.",
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
    rule="gains 0.3, 1 and 3, 4 networks of 256 units, 200 steps: held if the mean exponent is "
    "within 0.03 of the formula for each, and the formula is not negative for 100 gains from 0.01 "
    "to 10; else refuted",
    # Mutant: the gain acts with its square root.
    sabotage=(STEP, lambda *args: _step(*args[:5], args[5] ** 0.5, args[6])),
)
def gain_sets_the_exponent() -> Finding:
    def formula(gain: float) -> float:
        return recurrence.wide_exponent("ln-tanh", drive=0.0, gain=gain)

    off, wanted = 0.0, [formula(gain) for gain in (0.3, 1.0, 3.0)]
    for gain, expected in zip((0.3, 1.0, 3.0), wanted, strict=True):
        seen = course("ln-tanh", drive=0.0, gain=gain, units=256).exponents[:, 0].mean().item()
        off = max(off, abs(seen - expected))
    least = min(map(formula, torch.logspace(-2, 1, 100).tolist()))
    return held(
        off < 0.03 and least > -1e-6,
        f"At gains 0.3, 1 and 3 the formula says {', '.join(f'{g:.2f}' for g in wanted)}, and the "
        f"exponents are within {'0.03' if off < 0.03 else 'more than 0.03'}; it is "
        f"{'never' if least > -1e-6 else 'sometimes'} negative.",
        off=off,
        least=least,
    )
