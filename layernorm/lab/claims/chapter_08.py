"""Claims that chapter 08 decides about recurrent networks over many steps: states and gradients.

A Lyapunov exponent is the mean logarithmic growth of a small difference, or of a gradient, a step.
"""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor

import layernorm
from layernorm import functional as F
from layernorm.lab.analysis import recurrence
from layernorm.lab.analysis.statistics import interval
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import (
    LAYER_NORM,
    conditional,
    draw,
    held,
    largest,
    less,
    seeds,
    within,
    worst,
)

STEP = "layernorm.lab.analysis.recurrence.step"
_step, _layer_norm = recurrence.step, F.layer_norm  # what mutants are made of
NETS, UNITS, INPUTS = 4, 48, 8


def never_normalized(kind, *arguments):
    """Mutant: no normalization in any network."""
    return _step(kind.removeprefix("ln-"), *arguments)


def course(
    kind: str,
    steps=200,
    recurrent=1.0,
    drive=1.0,
    gain=1.0,
    units=UNITS,
    nets=NETS,
    symmetric=False,
) -> recurrence.Course:
    """Networks with W_hh times `recurrent` and W_xh times `drive`, from the same draws each time
    in one check: those of the seed that it began with. `symmetric`: W_hh is the sum of the drawn
    matrix and its transpose, over √2.

    Inputs and first states are normally distributed with variance 1.
    """
    (seed,) = seeds(1)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(steps, nets, INPUTS, generator=generator, dtype=torch.float64)
    h = torch.randn(nets, units, generator=generator, dtype=torch.float64)
    w_ih, w_hh = recurrence.draw(nets, units, INPUTS, seed)
    w_hh = (w_hh + w_hh.mT) / math.sqrt(2) if symmetric else w_hh
    weights = drive * w_ih, recurrent * w_hh
    return recurrence.follow(kind, x, h, *weights, gain, 0.0, directions=1)


@claim(
    id="plain-rnn-grows-or-shrinks",
    statement="In a standard RNN the summed inputs tend to grow or shrink at every time step, "
    "which leads to exploding or vanishing gradients.",
    rule="4 networks of 48 units, 200 steps without input, W_hh times 0.5 and 3. Refuted unless "
    "states and gradients of the ReLU network shrink tenfold (0.5) and grow tenfold (3) from step "
    "50 to 200, and the tanh network's gradients; held if its states do, too, and those of both "
    "with inputs of variance 1; else conditional",
    # Mutant: layer normalization in every network.
    sabotage=(STEP, lambda kind, *arguments: _step("ln-" + kind.removeprefix("ln-"), *arguments)),
)
def plain_rnn_grows_or_shrinks() -> Finding:
    size, slope = {}, {}
    for kind, drive, scale in product(("relu", "tanh"), (0.0, 1.0), (0.5, 3.0)):
        seen = course(kind, recurrent=scale, drive=drive)
        size[kind, drive, scale] = (seen.size[-1] - seen.size[50]).mean().item()
        slope[kind, drive, scale] = seen.exponents[:, 0].mean().item() * 150 / 2.302585

    def moves(*key) -> bool:
        return all(t[*key, 0.5] < -1 and t[*key, 3.0] > 1 for t in (size, slope))

    far = -slope["tanh", 0.0, 0.5] > 10 and slope["tanh", 0.0, 3.0] > 10
    gradients = slope["tanh", 0.0, 0.5] < -1 and slope["tanh", 0.0, 3.0] > 1
    return conditional(
        moves("relu", 0.0) and gradients,
        moves("tanh", 0.0) and moves("tanh", 1.0) and moves("relu", 1.0),
        "it is said of gradients; summed inputs cannot keep growing behind a bounded activation "
        "function, nor keep shrinking where inputs arrive",
        f"From step 50 to 200 ReLU states change by factors of 10^{size['relu', 0.0, 0.5]:.0f} and "
        f"10^{size['relu', 0.0, 3.0]:.0f}, tanh states by 10^{size['tanh', 0.0, 0.5]:.0f} and "
        f"{10 ** size['tanh', 0.0, 3.0]:.0f}, with inputs by {10 ** size['tanh', 1.0, 0.5]:.1f} "
        f"and {10 ** size['tanh', 1.0, 3.0]:.1f}; tanh "
        f"gradients shrink and grow by {'more' if far else 'less'} than 10^10 all the same.",
    )


def states(w_ih: Tensor, w_hh: Tensor, x: Tensor, h: Tensor, eps: float) -> Tensor:
    """The states of one layer-normalized tanh network after each step."""
    seen = []
    for k in x:
        h = recurrence.step("ln-tanh", k, h, w_ih, w_hh, 1.0, eps)
        seen.append(h)
    return torch.stack(seen)


@claim(
    id="ln-rnn-ignores-the-scale-of-summed-inputs",
    statement="A layer-normalized RNN is invariant to re-scaling all of its summed inputs.",
    rule="4 networks and the adversary's W_hh, 100 steps with inputs: refuted if W_xh and W_hh "
    "both times 0.01 or 100 change a state by 1e-9 at eps = 0; held if the same holds at "
    "eps = 1e-5, for a negative factor and for W_hh alone; else conditional",
    sabotage=(STEP, never_normalized),
)
def ln_rnn_ignores_the_scale_of_summed_inputs() -> Finding:
    off = dict.fromkeys(("both", "eps", "negative", "one"), 0.0)
    drawn = [[w[0] for w in recurrence.draw(1, UNITS, INPUTS, seed)] for seed in seeds(4)]
    hard = [(drawn[0][0], w) for w in adversary.matrices(UNITS, UNITS, huge=1e6).values()]
    for w_ih, w_hh in (*drawn, *hard):
        x, h = torch.randn(100, INPUTS).double(), torch.randn(UNITS).double()
        base = {eps: states(w_ih, w_hh, x, h, eps) for eps in (0.0, 1e-5)}
        for name, a, b, eps in (
            ("both", 0.01, 0.01, 0.0),
            ("both", 100.0, 100.0, 0.0),
            ("eps", 0.01, 0.01, 1e-5),
            ("negative", -1.0, -1.0, 0.0),
            ("one", 1.0, 3.0, 0.0),
        ):
            moved = states(a * w_ih, b * w_hh, x, h, eps) - base[eps]
            off[name] = worst(off[name], largest(moved))
    return conditional(
        off["both"] < 1e-9,
        worst(*off.values()) < 1e-9,
        "both weight matrices take the same positive factor, and eps = 0",
        f"Both matrices times 0.01 or 100 change the states by {less(off['both'], 1e-9)}; at "
        f"eps = 1e-5 by up to {off['eps']:.2f}, both times -1 by up to {off['negative']:.1f}, W_hh "
        f"alone times 3 by up to {off['one']:.1f}.",
        **off,
    )


@claim(
    id="ln-rnn-state-stays-in-range",
    statement="Layer normalization stabilizes the hidden states of recurrent networks: they stay "
    "in one range, whatever the weights.",
    rule="tanh and ReLU, random W_hh times 0.01 to 100 and the adversary's W_hh with both signs, "
    "with and without inputs, 50 steps, gain 1: held if the root mean square of every state from "
    "step 10 on lies between 0.3 and 1; conditional if for random weights, and below 1 for all; "
    "else refuted. The evidence adds the plain networks of the same random weights",
    sabotage=(STEP, never_normalized),
)
def ln_rnn_state_stays_in_range() -> Finding:
    drawn, plain = [], []
    for f, scale in product(("tanh", "relu"), (0.01, 1.0, 100.0)):
        drawn += [course("ln-" + f, 50, scale, drive).size[10:] for drive in (0.0, 1.0)]
        plain += course(f, 50, scale, 0.0).size[-1].tolist()
    low, high = (10 ** end(torch.stack(drawn)).item() for end in (torch.min, torch.max))
    hard = adversary.matrices(UNITS, UNITS, huge=1e6)
    w_hh = torch.stack([sign * w for sign in (1, -1) for w in hard.values()])
    nets = len(w_hh)
    x, h = draw(50, nets, INPUTS), draw(nets, UNITS)
    w_ih, _ = recurrence.draw(nets, UNITS, INPUTS, *seeds(1))
    against = torch.stack(
        [
            10 ** recurrence.follow("ln-" + f, x, h, drive * w_ih, w_hh, directions=1).size[10:]
            for f, drive in product(("tanh", "relu"), (0.0, 1.0))
        ]
    )
    least = dict(zip(hard, against.amin((0, 1)).view(2, -1).amin(0).tolist(), strict=True))
    told = ", ".join(f"{size:.2f} ({name})" for name, size in least.items() if size < 0.3)
    return conditional(
        low > 0.3 and max(high, against.max()) < 1 + 1e-12,
        min(least.values()) > 0.3,
        "the weights are random, or the upper bound alone is meant: at gain 1 the root mean square "
        "is at most 1 for any weights, but no lower bound holds for all",
        f"For random weights the states have root mean squares "
        f"{'between 0.3 and 1' if low > 0.3 and high < 1 else 'outside 0.3 to 1'}; the adversary "
        f"brings them down to {told or '0.3 at least'} and not above 1. Those of plain networks, "
        f"without input, reach from 10^{min(plain):.0f} to 10^{max(plain):.0f} after 50 steps.",
        low=low,
        high=high,
        adversary=min(least.values()),
    )


def remembering(x, normalized_shape, weight=None, bias=None, eps=1e-5, seen=[]):  # noqa: B006
    """Mutant: normalizes by what it has seen before, too."""
    seen.append(x.detach().mean())
    return _layer_norm(
        x - torch.stack(seen[-9:]).mean() * x.square(), normalized_shape, weight, bias, eps
    )


@claim(
    id="statistics-of-the-current-step",
    statement="The normalization of a layer-normalized RNN depends on the summed inputs of the "
    "current time step alone, so sequences may have any length.",
    rule="LayerNormRNN, 3 random sequences of 50 steps and the adversary's inputs: held if its "
    "first 1, 7 and 49 states do not change by 1e-12 when the rest is cut off or replaced, and the "
    "state of step t is one step of eq. (4) from that of step t - 1 to 1e-12; else refuted",
    sabotage=(LAYER_NORM, remembering),
)
def statistics_of_the_current_step() -> Finding:
    net, off = layernorm.LayerNormRNN(5, 16).double(), 0.0
    hard = adversary.matrices(150, 5, huge=1e6).values()
    with torch.no_grad():
        for x in (torch.randn(50, 3, 5).double(), *(a.view(50, 3, 5) for a in hard)):
            y, _ = net(x)
            for t in (1, 7, 49):
                other = torch.cat([x[:t], 9 * torch.randn(50 - t, 3, 5).double()])
                off = worst(
                    off, *(largest(net(inputs)[0][:t] - y[:t]) for inputs in (x[:t], other))
                )
            a = y[:-1] @ net.weight_hh_l0.T + x[1:] @ net.weight_ih_l0.T
            spread = (a.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
            one_step = torch.tanh((a - a.mean(-1, keepdim=True)) / spread)
            off = worst(off, largest(one_step - y[1:]))
    return within(
        1e-12,
        "Other inputs at later steps change the states by {less}, and each state is one step of "
        "eq. (4) from the state before, to {less}.",
        off=off,
    )


@claim(
    id="one-gain-and-bias-for-all-steps",
    statement="A layer-normalized RNN has one set of gains and biases, shared over all time steps.",
    rule="LayerNormRNN of 16 units: held if its state holds one gain and one bias of 16 numbers, "
    "its two matrices and nothing else, and the same after sequences of 1, 10 "
    "and 1000 steps; else refuted",
    sabotage=("layernorm.LayerNormRNN", torch.nn.RNN),
)
def one_gain_and_bias_for_all_steps() -> Finding:
    net = layernorm.LayerNormRNN(5, 16)
    names = sorted(net.state_dict())
    for steps in (1, 10, 1000):
        net(torch.randn(steps, 2, 5))
    shapes = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    one_pair = {"ln_weight_l0": (16,), "ln_bias_l0": (16,)}
    matrices = {"weight_ih_l0": (16, 5), "weight_hh_l0": (16, 16)}
    holds = names == sorted(net.state_dict()) and shapes == one_pair | matrices
    return held(holds, f"The parameters are {', '.join(names)}, whatever the number of steps.")


@claim(
    id="ln-rnn-dynamics-more-stable",
    statement="Invariance to the scale of summed inputs gives a layer-normalized RNN much more "
    "stable hidden-to-hidden dynamics.",
    rule="largest Lyapunov exponents of 4 tanh networks with inputs, W_hh times 0.1 and times 10 "
    "(that both matrices may take one factor is another claim): held if the mean of the exponents' "
    "sizes is less than half the plain networks' at both, at gain 1 and at gain 10; conditional if "
    "at 10 and gain 1; else refuted",
    sabotage=(STEP, never_normalized),
)
def ln_rnn_dynamics_more_stable() -> Finding:
    def exponent(kind: str, scale: float, gain: float = 1.0) -> float:
        return course(kind, 100, scale, 1.0, gain).exponents[:, 0].abs().mean().item()

    size = {
        (kind, scale): exponent(kind, scale)
        for kind, scale in product(("tanh", "ln-tanh"), (0.1, 10.0))
    }
    small, large = (2 * size["ln-tanh", scale] < size["tanh", scale] for scale in (0.1, 10.0))
    steep = {scale: exponent("ln-tanh", scale, 10.0) for scale in (0.1, 10.0)}
    return conditional(
        large,
        small and all(2 * steep[scale] < size["tanh", scale] for scale in steep),
        "W_hh is large beside W_xh and the gain is near 1; where W_hh is small, gradients vanish "
        "as fast as without normalization",
        f"At W_hh times 10 the exponents have size {size['ln-tanh', 10.0]:.1f} with and "
        f"{size['tanh', 10.0]:.1f} without normalization; at W_hh times 0.1 they have size "
        f"{size['ln-tanh', 0.1]:.1f} and {size['tanh', 0.1]:.1f}. At gain 10 those with "
        f"normalization have size {steep[10.0]:.1f} and {steep[0.1]:.1f}.",
        **{f"{kind} {scale:g}": value for (kind, scale), value in size.items()},
    )


@claim(
    id="ln-rnn-gradients-explode-and-vanish",
    statement="The state of a layer-normalized RNN stays in range, yet its gradients through time "
    "can grow or vanish exponentially.",
    rule="tanh, 12 networks of 48 units, 200 steps: held if the 99% interval of the mean of the "
    "largest exponents lies above 0.1 without input at gain 3, and below -0.2 with inputs as large "
    "as the state at gain 1; else refuted",
    # Mutant: every state is halved.
    sabotage=(STEP, lambda kind, *arguments: 0.5 * _step(kind.removeprefix("ln-"), *arguments)),
)
def ln_rnn_gradients_explode_and_vanish() -> Finding:
    free, driven = (
        interval(course("ln-tanh", nets=12, **options).exponents[:, 0].tolist(), 0.99)
        for options in ({"drive": 0.0, "gain": 3.0}, {})
    )
    grow, vanish = free.low > 0.1, driven.high < -0.2
    return held(
        grow and vanish,
        f"Without input at gain 3 a step multiplies gradients by {math.exp(free.mean):.1f} in the "
        f"mean of 12 networks, and with inputs at gain 1 by {math.exp(driven.mean):.1f}; 1000 such "
        f"steps by 10^{1000 * free.low / math.log(10):.0f} at least and by "
        f"10^{1000 * driven.high / math.log(10):.0f} at most (ends of the 99% intervals).",
        free=free.low,
        driven=driven.high,
    )


@claim(
    id="gain-sets-the-exponent",
    statement="Without input, the gain alone decides how fast the gradients of a layer-normalized "
    "tanh RNN grow: by ½ log(g² E[f'²]/E[f²]) per step, where f and f' are taken at g times a "
    "standard normal number. In a wide layer there is no gain for which they shrink.",
    rule="gains 1 and 3, 4 networks each of 48 and of 256 units, 200 steps: refuted unless the "
    "mean exponent at 256 units is within 0.035 of the formula and nearer to it than at 48 (finite "
    "widths lie below it by a multiple of 1/H), and the formula is not negative (to 1e-12) for 100 "
    "gains from 0.01 to 10; held if at 48 units, and at 256 with symmetric W_hh, it is within "
    "0.035, too, and no network has an exponent below 0; else conditional",
    # Mutant: the gain acts with its square root.
    sabotage=(STEP, lambda *args: _step(*args[:5], args[5] ** 0.5, args[6])),
)
def gain_sets_the_exponent() -> Finding:
    def formula(gain: float) -> float:
        return recurrence.wide_exponent("ln-tanh", drive=0.0, gain=gain)

    def seen(gain: float, units: int, symmetric=False) -> Tensor:
        made = course("ln-tanh", drive=0.0, gain=gain, units=units, symmetric=symmetric)
        return made.exponents[:, 0]

    off = {
        units: [abs(seen(g, units).mean().item() - formula(g)) for g in (1.0, 3.0)]
        for units in (48, 256)
    }
    mirrored = [seen(g, 256, symmetric=True).mean().item() for g in (1.0, 3.0)]
    alike = all(abs(x - formula(g)) < 0.035 for g, x in zip((1.0, 3.0), mirrored, strict=True))
    nearer = all(wide < narrow for wide, narrow in zip(off[256], off[48], strict=True))
    narrow = seen(1.0, 48)
    least = min(map(formula, torch.logspace(-2, 1, 100).tolist()))
    return conditional(
        worst(*off[256]) < 0.035 and nearer and least > -1e-12,
        worst(*off[48]) < 0.035 and narrow.min() > 0 and alike,
        "the entries of W_hh are independent and the layer is wide: in a narrow one the exponents "
        "are smaller and scatter, below 0 as well",
        f"At gains 1 and 3 the formula says {formula(1.0):.2f} and {formula(3.0):.2f}; networks of "
        f"256 units are {'within' if worst(*off[256]) < 0.035 else 'more than'} 0.035 of it, "
        f"those of 48 {'within' if worst(*off[48]) < 0.035 else 'more than'} 0.035, "
        f"{'some' if narrow.min() < 0 else 'none'} of them below 0, those of 256 with symmetric "
        f"W_hh {'within' if alike else 'more than'} 0.035. The formula is "
        f"{'never' if least > -1e-12 else 'sometimes'} negative.",
        off=worst(*off[256]),
        narrow=worst(*off[48]),
        least=least,
    )
