"""Claims about how fast gradients of a layer-normalized RNN grow, which chapter 08 owns.

A Lyapunov exponent is the mean logarithmic growth of a small difference, or of a gradient, a step.
"""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor

from layernorm.lab.analysis import recurrence
from layernorm.lab.analysis.statistics import interval
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.chapter_08 import NETS, STEP, UNITS, _step, course, never_normalized, own
from layernorm.lab.claims.checks import conditional, less, worst


def independent(units: int, nets: int) -> dict[str, Tensor]:
    """Matrices W_hh of independent entries with mean square 1/H, so many for each distribution."""
    normal = own(nets, units)
    signs = normal.sign() / units**0.5
    uniform = (12 / units) ** 0.5 * (torch.rand(nets, units, units).double() - 0.5)
    return {"normal": normal, "signs": signs, "uniform": uniform}


def hard(units: int) -> dict[str, Tensor]:
    """Those of the adversary, of each one."""
    return {k: w[None] for k, w in adversary.matrices(units, units, huge=1e6).items()}


def exponents(kind: str, w_hh: dict[str, Tensor], drive=0.0, gain=1.0, steps=100):
    """The largest exponents of the networks with these W_hh, by name."""
    seen = course(kind, steps, 1.0, drive, gain, w_hh=torch.cat([*w_hh.values()]))
    return dict(zip(w_hh, seen.exponents[:, 0].split([len(w) for w in w_hh.values()]), strict=True))


@claim(
    id="ln-rnn-dynamics-more-stable",
    statement="Invariance to the scale of summed inputs gives a layer-normalized RNN much more "
    "stable hidden-to-hidden dynamics.",
    rule="the mean size of the largest Lyapunov exponents of tanh networks with inputs. Refuted "
    "unless it is less than half the plain networks' for 48 units, W_hh alone of independent "
    "entries (normal, uniform, signs; 4 networks each) times 10 and times 100, at gains 0.7, 1 and "
    "1.4; held if with W_hh times 0.1, 1, 1.5 and 2, with both matrices times 10, at gain 10, with "
    "the adversary's W_hh times 10, and for 20 networks each of 3 and 4 units (one or two have no "
    "exponent with normalization), W_hh times 10, too; else conditional. The evidence says how far "
    "one factor of 10 on both matrices, to which layer normalization is invariant, changes the "
    "exponents",
    sabotage=(STEP, never_normalized),
)
def ln_rnn_dynamics_more_stable() -> Finding:
    drawn = independent(UNITS, NETS)
    w_hh = {f"{k} × {c}": c * w for (k, w), c in product(drawn.items(), (10, 100))}
    inside = [*w_hh]
    w_hh |= {f"W_hh × {c:g}": c * drawn["normal"] for c in (0.1, 1.5, 2)}
    w_hh |= {k: 10 * w for k, w in hard(UNITS).items()}
    usual = {"W_hh × 1": drawn["normal"]}
    both = {"both matrices × 10": 10 * drawn["normal"]}

    def sizes(kind: str, w_hh: dict[str, Tensor], drive=1.0, gain=1.0) -> dict[str, float]:
        return {k: e.abs().mean().item() for k, e in exponents(kind, w_hh, drive, gain).items()}

    plain, normed = (
        sizes(kind, usual) | sizes(kind, both, 10.0) | sizes(kind, w_hh)
        for kind in ("tanh", "ln-tanh")
    )
    moved = abs(normed["both matrices × 10"] - normed["W_hh × 1"])
    gains = {g: sizes("ln-tanh", {k: w_hh[k] for k in inside}, 1.0, g) for g in (0.7, 1.4, 10.0)}
    stable = [2 * found[k] < plain[k] for found in (normed, gains[0.7], gains[1.4]) for k in inside]
    broken = [k for k in normed if k not in inside and not 2 * normed[k] < plain[k]]
    broken += ["gain 10"] * any(not 2 * gains[10.0][k] < plain[k] for k in inside)
    for units in (3, 4):
        narrow = {f"H = {units}": 10 * own(20, units)}
        ln, none = (sizes(kind, narrow)[f"H = {units}"] for kind in ("ln-tanh", "tanh"))
        broken += [*narrow] * (not 2 * ln < none)
    shown = "W_hh × 0.1", "W_hh × 1", "W_hh × 1.5", "W_hh × 2", "normal × 10", *both
    told = ", ".join(f"{normed[k]:.2f} and {plain[k]:.2f} ({k})" for k in shown)
    return conditional(
        all(stable),
        not broken,
        "W_hh alone is 10 to 100 times as large as usual and has independent entries, the layer is "
        "wide and the gain is near 1; at the usual scale and up to twice it, or if both matrices "
        "are ten times as large, normalization does not halve the exponents",
        f"The exponents have these sizes with and without normalization: {told}. One factor of 10 "
        f"on both matrices changes the size with normalization by {less(moved, 0.01)}. It is "
        f"broken by {', '.join(broken) or 'none'}.",
        **{f"{kind} {k}": v for kind, s in (("tanh", plain), ("ln", normed)) for k, v in s.items()},
    )


@claim(
    id="ln-rnn-gradients-explode-and-vanish",
    statement="The state of a layer-normalized RNN stays in range, yet its gradients through time "
    "can grow or vanish exponentially.",
    rule="tanh, 12 networks of 48 units, 200 steps: refuted unless the 99% interval of the mean of "
    "the largest exponents lies above 0.1 without input at gain 3, and below -0.2 with inputs as "
    "large as the state at gain 1, that of some of 400 networks of 3 units above 0.1, too, without "
    "input at gain 3, and the root mean square of no state above 1, with inputs and the "
    "adversary's W_hh neither; held if that of some of 400 networks of 2 units is above 0.1, too; "
    "else conditional",
    # Mutant: every state is halved.
    sabotage=(STEP, lambda kind, *arguments: 0.5 * _step(kind.removeprefix("ln-"), *arguments)),
)
def ln_rnn_gradients_explode_and_vanish() -> Finding:
    seen = [course("ln-tanh", nets=12, drive=0.0, gain=3.0), course("ln-tanh", nets=12)]
    free, driven = (interval(each.exponents[:, 0].tolist(), 0.99) for each in seen)
    grow, vanish = free.low > 0.1, driven.high < -0.2
    narrow = {
        units: course("ln-tanh", drive=0.0, gain=3.0, units=units, nets=400) for units in (2, 3)
    }
    some = {units: bool((each.exponents > 0.1).any()) for units, each in narrow.items()}
    seen += [narrow[3], course("ln-tanh", 100, w_hh=torch.cat([*hard(UNITS).values()]))]
    most = 10 ** worst(*(each.size[1:].max().item() for each in seen))
    return conditional(
        grow and vanish and some[3] and most < 1 + 1e-12,
        some[2],
        "the layer has three units or more (of two, normalization with eps = 0 leaves no gradient, "
        "of one no number)",
        f"Without input at gain 3 a step multiplies gradients by {math.exp(free.mean):.1f} in the "
        f"mean of 12 networks, and with inputs at gain 1 by {math.exp(driven.mean):.1f}; 1000 such "
        f"steps by 10^{1000 * free.low / math.log(10):.0f} at least and by "
        f"10^{1000 * driven.high / math.log(10):.0f} at most (ends of the 99% intervals). They "
        f"also grow in {'some' if some[3] else 'none'} of 400 networks of 3 units, in "
        f"{'some' if some[2] else 'none'} of 2. No state's root mean square is "
        f"above {'1' if most < 1 + 1e-12 else f'{most:.1f}'}, for the adversary's W_hh neither.",
        free=free.low,
        driven=driven.high,
        most=most,
    )


@claim(
    id="gain-sets-the-exponent",
    statement="Without input, the gain alone decides how fast the gradients of a layer-normalized "
    "tanh RNN grow: by ½ log(g² E[f'²]/E[f²]) per step, where f and f' are taken at g times a "
    "standard normal number. In a wide layer there is no gain for which they shrink.",
    rule="the mean of the largest exponents. Refuted unless it is within 0.01 of the formula at "
    "gain 1 (12 networks of 1024 units, W_hh of independent normal entries), within 0.02 at gain 3 "
    "(512 units, 16 networks each with normal and uniform entries, signs, normal ones plus 1/√H, "
    "and times 1e6), at gain 1 nearer to it than at 48 units (finite widths lie below it by a "
    "multiple of 1/H), and the formula is not negative (to 1e-12) for 100 gains from 0.01 to 10; "
    "held if it is within 0.02 for symmetric W_hh, Cauchy entries, three entries a row, none in "
    "half of the rows (2 each) and the adversary's W_hh that leave numbers at gain 3, and within "
    "0.01 for 20 networks each of 3 and 48 units at gain 1, too, and of those of 48 none has an "
    "exponent below 0; else conditional",
    # Mutant: the gain acts with its square root.
    sabotage=(STEP, lambda *args: _step(*args[:5], args[5] ** 0.5, args[6])),
)
def gain_sets_the_exponent() -> Finding:
    def formula(gain: float) -> float:
        return recurrence.wide_exponent("ln-tanh", drive=0.0, gain=gain)

    def off(found: dict[str, Tensor], gain: float) -> dict[str, float]:
        return {k: abs(e.mean().item() - formula(gain)) for k, e in found.items()}

    few = {
        f"H = {n}": course("ln-tanh", 100, drive=0.0, units=n, nets=nets).exponents
        for n, nets in ((3, 20), (UNITS, 20), (1024, 12))
    }
    inside = independent(512, 16)
    normal, two = inside["normal"], inside["normal"][:2]
    inside |= {"plus 1/√H": normal + 512**-0.5, "times 1e6": 1e6 * normal}
    outside = {
        "symmetric W_hh": two + two.mT,
        "Cauchy entries": torch.tan(math.pi * (torch.rand(2, 512, 512).double() - 0.5)),
        "three entries a row": two * (torch.rand(2, 512, 512) < 3 / 512),
        "none in half of the rows": two * (torch.arange(512) % 2)[:, None],
    }
    at_1 = off(few, 1.0)
    at_3 = off(exponents("ln-tanh", inside | outside | hard(512), gain=3.0), 3.0)
    wide_1, wide_3 = at_1.pop("H = 1024"), worst(*(at_3.pop(k) for k in inside))
    agrees = wide_1 < 0.01 and wide_3 < 0.02
    least = min(map(formula, torch.logspace(-2, 1, 100).tolist()))
    broken = [k for k, v in at_1.items() if v >= 0.01]
    broken += [k for k, v in at_3.items() if v >= 0.02]
    below = bool((few[f"H = {UNITS}"] < 0).any())
    return conditional(
        agrees and wide_1 < at_1[f"H = {UNITS}"] and least > -1e-12,
        not broken and not below,
        "the entries of W_hh are independent, of one distribution with a finite variance and not "
        "mostly 0, and the layer is wide: in a narrow one the exponents are smaller and scatter, "
        "below 0 as well",
        f"At gains 1 and 3 the formula says {formula(1.0):.2f} and {formula(3.0):.2f}; wide "
        f"networks are {'within' if agrees else 'not within'} 0.01 and 0.02 of it. It is broken by "
        f"{', '.join(broken) or 'none'}; of 48 units {'some' if below else 'none'} are below 0. "
        f"The formula is {'never' if least > -1e-12 else 'sometimes'} negative.",
        wide_1=wide_1,
        wide_3=wide_3,
        least=least,
        **at_1,
        **at_3,
    )
