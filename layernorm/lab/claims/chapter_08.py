"""Claims that chapter 08 decides about recurrent networks over many steps: their states.

Those on the gradients of layer-normalized ones are in `chapter_08_exponents.py`.
"""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor

import layernorm
from layernorm import functional as F
from layernorm.lab.analysis import recurrence
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
    w_hh: Tensor | None = None,
) -> recurrence.Course:
    """Networks with W_hh times `recurrent` and W_xh times `drive`, from the same draws each time
    in one check: those of the seed that it began with. `w_hh`: one's own, a network each.

    Inputs and first states are normally distributed with variance 1.
    """
    (seed,) = seeds(1)
    nets, units = (nets, units) if w_hh is None else w_hh.shape[:2]
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(steps, nets, INPUTS, generator=generator, dtype=torch.float64)
    h = torch.randn(nets, units, generator=generator, dtype=torch.float64)
    w_ih, drawn = recurrence.draw(nets, units, INPUTS, seed)
    weights = drive * w_ih, recurrent * (drawn if w_hh is None else w_hh)
    return recurrence.follow(kind, x, h, *weights, gain, 0.0, directions=1)


@claim(
    id="plain-rnn-grows-or-shrinks",
    statement="In a standard RNN the summed inputs tend to grow or shrink at every time step, "
    "which leads to exploding or vanishing gradients.",
    rule="mean of 4 networks of 48 units, 200 steps, W_hh times 0.5 and 3. Refuted unless without "
    "input states and gradients of the ReLU network shrink tenfold (0.5) and grow tenfold (3) from "
    "step 50 to 200, and with and without input the tanh network's gradients; held if its states "
    "do, too, and those of both with inputs of variance 1, and if no network's gradients do "
    "neither: 40 tanh networks each of 1, 2 and 3 units, half with either scale, and tanh and ReLU "
    "with the adversary's W_hh, without input; else conditional",
    # Mutant: layer normalization in every network.
    sabotage=(STEP, lambda kind, *arguments: _step("ln-" + kind.removeprefix("ln-"), *arguments)),
)
def plain_rnn_grows_or_shrinks() -> Finding:
    size, slope, narrow = {}, {}, False
    for kind, drive, scale in product(("relu", "tanh"), (0.0, 1.0), (0.5, 3.0)):
        seen = course(kind, recurrent=scale, drive=drive)
        size[kind, drive, scale] = (seen.size[-1] - seen.size[50]).mean().item()
        slope[kind, drive, scale] = tenfold(seen).mean().item()

    def moves(found: dict, *key) -> bool:
        return found[*key, 0.5] < -1 and found[*key, 3.0] > 1

    for units in adversary.SIZES:
        w_hh = recurrence.draw(40, units, 1, *seeds(1))[1]
        w_hh[20:] *= 6
        slow = tenfold(course("tanh", 100, 0.5, 0.0, w_hh=w_hh)).abs() < 1
        narrow |= bool(slow.any())
    still = ["some of 1 to 3 units (tanh)"] * narrow
    hard = adversary.matrices(UNITS, UNITS, huge=1e6)
    for kind in ("relu", "tanh"):
        slow = tenfold(course(kind, 100, 1.0, 0.0, w_hh=torch.stack([*hard.values()]))).abs() < 1
        still += [f"{name} ({kind})" for name, is_slow in zip(hard, slow, strict=True) if is_slow]
    far = -slope["tanh", 0.0, 0.5] > 10 and slope["tanh", 0.0, 3.0] > 10
    gradients = [moves(slope, *k) for k in (("relu", 0.0), ("tanh", 0.0), ("tanh", 1.0))]
    return conditional(
        moves(size, "relu", 0.0) and all(gradients),
        not still and all(moves(size, *k) for k in product(("relu", "tanh"), (0.0, 1.0))),
        "it is said of gradients, and of the mean over random W_hh away from the critical scale; "
        "summed inputs cannot keep growing behind a bounded activation function, nor keep "
        "shrinking where inputs arrive",
        f"From step 50 to 200 ReLU states change by factors of 10^{size['relu', 0.0, 0.5]:.0f} and "
        f"10^{size['relu', 0.0, 3.0]:.0f}, tanh states by 10^{size['tanh', 0.0, 0.5]:.0f} and "
        f"{10 ** size['tanh', 0.0, 3.0]:.0f}, with inputs by {10 ** size['tanh', 1.0, 0.5]:.1f} "
        f"and {10 ** size['tanh', 1.0, 3.0]:.1f}; tanh "
        f"gradients shrink and grow by {'more' if far else 'less'} than 10^10 all the same. Those "
        f"that do neither tenfold: {', '.join(still) or 'none'}.",
    )


def tenfold(seen: recurrence.Course) -> Tensor:
    """The decimal logarithm of the growth of each network's gradients in 150 steps."""
    return 150 * seen.exponents[:, 0] / math.log(10)


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
    rule="LayerNormRNN of 1, 2, 3 and 16 units, one layer: held if its state holds one gain and "
    "one bias of as many numbers, its two matrices and nothing else, and with random gains and "
    "biases every state, of 1000 steps and of 50 of the adversary's inputs, is the step of eq. (4) "
    "with these from the state before, to 1e-12 of largest entry over root of variance and eps; "
    "else refuted",
    sabotage=("layernorm.LayerNormRNN", torch.nn.RNN),
)
def one_gain_and_bias_for_all_steps() -> Finding:
    holds, off = True, 0.0
    for units in (*adversary.SIZES, 16):
        net = layernorm.LayerNormRNN(5, units).double()
        shapes = {name: tuple(value.shape) for name, value in net.state_dict().items()}
        one_pair = {"ln_weight_l0": (units,), "ln_bias_l0": (units,)}
        holds &= shapes == one_pair | {"weight_ih_l0": (units, 5), "weight_hh_l0": (units, units)}
        hard = adversary.matrices(50, 5, huge=1e6).values()
        for x in (draw(1000, 1, 5), *(k[:, None] for k in hard)) if holds else ():
            pair = (draw(units), draw(units))
            with torch.no_grad():
                net.ln_weight_l0.copy_(pair[0])
                net.ln_bias_l0.copy_(pair[1])
                y, _ = net(x)
                a = torch.cat([0 * y[:1], y[:-1]]) @ net.weight_hh_l0.T + x @ net.weight_ih_l0.T
                gap = torch.tanh(F.layer_norm(a, (units,), *pair)) - y
            spread = (a.var(-1, correction=0) + 1e-5).sqrt()
            off = worst(off, largest(gap.abs().amax(-1) / (1 + a.abs().amax(-1) / spread)))
    return held(
        holds and off < 1e-12,
        f"The parameters are {', '.join(sorted(shapes))}; 1000 steps, and those of the adversary, "
        f"are eq. (4) with one gain and one bias to {less(off, 1e-12)}.",
        off=off,
    )
