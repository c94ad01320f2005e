"""Claims that chapter 08 decides about recurrent networks over many steps: their states.

Those on the gradients of layer-normalized ones are in `chapter_08_exponents.py`.
"""

from __future__ import annotations

import math
from functools import partial
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
NETS, UNITS, INPUTS, EPS = 4, 48, 8, 1e-5


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
    of_weights, of_inputs = seeds(2)
    nets, units = (nets, units) if w_hh is None else w_hh.shape[:2]
    generator = torch.Generator().manual_seed(of_inputs)
    x = torch.randn(steps, nets, INPUTS, generator=generator, dtype=torch.float64)
    h = torch.randn(nets, units, generator=generator, dtype=torch.float64)
    w_ih, drawn = recurrence.draw(nets, units, INPUTS, of_weights)
    weights = drive * w_ih, recurrent * (drawn if w_hh is None else w_hh)
    return recurrence.follow(kind, x, h, *weights, gain, 0.0, directions=1)


def own(nets: int, units: int) -> Tensor:
    """W_hh of networks, from other draws than the inputs and the W_xh of `course`."""
    return recurrence.draw(nets, units, 1, seeds(3)[2])[1]


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
        w_hh = own(40, units)
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


def states(w_ih: Tensor, w_hh: Tensor, x: Tensor, h: Tensor, eps: float, kind="ln-tanh") -> Tensor:
    """The states of one layer-normalized network after each step."""
    seen = []
    for k in x:
        h = recurrence.step(kind, k, h, w_ih, w_hh, 1.0, eps)
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


def root_mean_squares(w_hh: Tensor, eps: float) -> Tensor:
    """Those of the states from step 10 to 50 of layer-normalized networks with these W_hh, tanh and
    ReLU, with and without inputs: (networks, steps of all four)."""
    nets, units = w_hh.shape[:2]
    x, h = draw(nets, 50, INPUTS), draw(nets, units)
    w_ih, _ = recurrence.draw(nets, units, INPUTS, *seeds(1))
    found = []
    for kind, drive in product(("ln-tanh", "ln-relu"), (0.0, 1.0)):
        of_all = torch.func.vmap(partial(states, eps=eps, kind=kind))
        found.append(of_all(drive * w_ih, w_hh, x, h)[:, 9:].square().mean(2).sqrt())
    return torch.cat(found, 1)


@claim(
    id="ln-rnn-state-stays-in-range",
    statement="Layer normalization stabilizes the hidden states of recurrent networks: they stay "
    "in one range, whatever the weights.",
    rule="tanh and ReLU, with and without inputs, 50 steps, gain 1, root mean squares from step 10 "
    "on. Refuted unless they lie between 0.3 and 1 for random W_hh times 0.01, 1 and 100, of 2, 3 "
    "and 48 units at eps = 0 (20 networks each) and, times 1 and 100, of 48 units at 1e-5, and "
    "never above 1; held if also for random W_hh times 0.0001 and one unit at eps = 1e-5, and for "
    "the adversary's W_hh with both signs at both, where these leave numbers; else conditional. "
    "The evidence adds the plain networks of 48 units",
    sabotage=(STEP, never_normalized),
)
def ln_rnn_state_stays_in_range() -> Finding:
    w_hh = {units: own(20, units) for units in (*adversary.SIZES, UNITS)}
    drawn = [root_mean_squares(c * w_hh[n], 0.0) for n in (2, 3, UNITS) for c in (0.01, 1, 100)]
    drawn += [root_mean_squares(c * w_hh[UNITS], EPS) for c in (1, 100)]
    low, high = min(k.min().item() for k in drawn), worst(*(k.max().item() for k in drawn))
    hard = adversary.matrices(UNITS, UNITS, huge=1e6)
    both = torch.stack([sign * w for w in hard.values() for sign in (1, -1)])
    at_0, at_eps = (
        dict(zip(hard, root_mean_squares(both, eps).split(2), strict=True)) for eps in (0.0, EPS)
    )
    at_eps["random W_hh × 0.0001"] = root_mean_squares(1e-4 * w_hh[UNITS], EPS)
    at_eps["one unit"] = root_mean_squares(w_hh[1], EPS)
    most = worst(high, *(k.nan_to_num(0).max().item() for k in (*at_0.values(), *at_eps.values())))
    none = [name for name, sizes in at_0.items() if sizes.isnan().any()]
    plain = torch.cat(
        [course(f, 50, c, 0.0).size[-1] for f in ("tanh", "relu") for c in (0.01, 1.0, 100.0)]
    )
    return conditional(
        low > 0.3 and most < 1 + 1e-12,
        not (low_ones(at_0) or low_ones(at_eps)),
        "the weights are random and independent, the layer has two units or more, and the summed "
        "inputs vary by much more than √eps; or the upper bound alone is meant: at gain 1 and "
        "eps > 0 the root mean square is at most 1 for any weights, but no lower bound holds for "
        "all",
        f"For random weights the states have root mean squares "
        f"{'between 0.3 and 1' if low > 0.3 and high < 1 else 'outside 0.3 to 1'}. They fall to "
        f"0.3 or below at eps = 0 with {low_ones(at_0) or 'none'}, at eps = 1e-5 with "
        f"{low_ones(at_eps) or 'none'}; {'never' if most < 1 + 1e-12 else 'some'} above 1. No "
        f"number is left at eps = 0 by {', '.join(none) or 'none'}. Those of plain networks, "
        f"without input, reach from 10^{plain.min():.0f} to 10^{plain.max():.0f} after 50 steps.",
        low=low,
        high=high,
        most=most,
    )


def low_ones(found: dict[str, Tensor]) -> str:
    """Those whose sizes fall to 0.3 or below, with the least."""
    least = {name: sizes.min().item() for name, sizes in found.items()}
    return ", ".join(f"{name} ({k:.2f})" for name, k in least.items() if k <= 0.3)


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
