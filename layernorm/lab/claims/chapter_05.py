"""Claims of chapter 05: what the derived backward passes say, and that they are the derivatives."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from layernorm import functional as F
from layernorm.lab.claims import Finding, adversary, claim
from layernorm.lab.claims.checks import draw, largest, proved, spelled, worst

DERIVE = "layernorm.symbolic.gradients.derive"


def derived_for_rms(method):
    """Mutant: the backward pass of RMS normalization for every method."""
    from layernorm.symbolic.code import derive

    return derive("rms")


def without_second_reduction(method):
    """Mutant: the term along x_hat is forgotten."""
    from layernorm.symbolic.code import derive
    from layernorm.symbolic.gradients import X_HAT, K

    found = derive(method)
    return replace(found, backward=found.backward.subs(X_HAT[K], 0))


@claim(
    id="gradient-has-mean-zero",
    statement="The gradient with respect to the summed inputs of a layer-normalized layer has mean "
    "0 over the units of every case, whatever the loss.",
    kind="proof",
    rule="proved if the mean over the units of the derived gradient is 0 for a symbolic H, "
    "a symbolic gradient from above and a symbolic eps",
    sabotage=(DERIVE, derived_for_rms),
)
def gradient_has_mean_zero() -> Finding:
    from layernorm.symbolic import gradients
    from layernorm.symbolic.gradients import SIZE, J, K
    from layernorm.symbolic.sums import mean

    found = gradients.derive("layer")
    average = mean(lambda k: found.backward.subs(K, k), J, SIZE)
    rest = found.simplify(average)
    return proved(
        rest == 0,
        f"For every number of units and every eps the mean {'is 0' if rest == 0 else 'is not 0'}.",
    )


@claim(
    id="gradient-orthogonal-to-output",
    statement="The gradient with respect to the summed inputs has no component along the "
    "normalized summed inputs: the length of the deviations gets no gradient.",
    kind="proof",
    rule="proved if the sum over the units of gradient times x_hat is 0 for symbolic H and eps, "
    "conditional if it is only for eps = 0",
    sabotage=(DERIVE, without_second_reduction),
)
def gradient_orthogonal_to_output() -> Finding:
    import sympy

    from layernorm.symbolic import gradients
    from layernorm.symbolic.gradients import EPS, SIZE, X_HAT, C, J, K, S
    from layernorm.symbolic.sums import total

    found = gradients.derive("layer")
    left = found.simplify(total(lambda k: found.backward.subs(K, k) * X_HAT[k], J, SIZE))
    if left == 0:
        return Finding("proved", "For every number of units and every eps the component is 0.")
    if left.subs(EPS, 0) != 0:
        return Finding("refuted", "Even with eps = 0 a component along the output is left.")
    share = sympy.simplify(left * S / total(lambda k: C[k] * X_HAT[k], J, SIZE))
    return Finding(
        "conditional",
        "With eps = 0 the component is 0 for every number of units; else the share that is left of "
        f"the component arriving from above is {spelled(share)}, where s² is the variance plus ε.",
        condition="eps = 0",
    )


@claim(
    id="batch-and-layer-share-their-backward-pass",
    statement="Batch, layer and group normalization have the same backward formula, with two "
    "reductions; only what is averaged over differs. RMS normalization needs one of the two.",
    kind="proof",
    rule="proved if the formulas derived for vectors of symbolic length are identical expressions "
    "with two sums, and that for RMS normalization is theirs without the plain sum",
    sabotage=(DERIVE, derived_for_rms),
)
def batch_and_layer_share_their_backward_pass() -> Finding:
    import sympy

    from layernorm.symbolic import gradients
    from layernorm.symbolic.gradients import SIZE, C, J, S

    three = [gradients.derive(method).backward for method in ("batch", "layer", "group")]
    rms = gradients.derive("rms").backward
    plain = sympy.Sum(C[J], (J, 1, SIZE)) / (SIZE * S)
    sums = len(three[1].atoms(sympy.Sum))
    same = len(set(three)) == 1 and sums == 2 and sympy.expand(three[1] + plain - rms) == 0
    return proved(
        same,
        f"The three derived formulas are {'one' if len(set(three)) == 1 else 'different'}, with "
        f"{sums} sum{'s' * (sums != 1)}; RMS normalization's has {len(rms.atoms(sympy.Sum))}.",
    )


def statistics_as_constants(method):
    """Mutant: mu and s are treated as constants."""

    def backward(dy, a, gain, *rest):
        x_hat = F.layer_norm(a, a.shape[1:])
        return dy * gain / (a.var(1, correction=0, keepdim=True) + 1e-5).sqrt(), (dy * x_hat).sum(0)

    return backward


@claim(
    id="derived-code-is-the-gradient",
    statement="The code printed from SymPy's derivation computes the gradients of batch, weight, "
    "layer, RMS and group normalization.",
    rule="20 draws of cases, units and numbers for each method, a climb and the adversary's summed "
    "inputs (weights without a vector of zeros): held if all gradients equal those of automatic "
    "differentiation through layernorm.functional to 1e-10 of the largest, or of 1 (over the "
    "largest input, if that exceeds 1)",
    sabotage=("layernorm.symbolic.function", statistics_as_constants),
)
def derived_code_is_the_gradient() -> Finding:
    from layernorm import symbolic

    forward = {
        "batch": lambda a, g, b: F.batch_norm(a, None, None, g, b, training=True),
        "layer": lambda a, g, b: F.layer_norm(a, a.shape[1:], g, b),
        "group": lambda a, g, b: F.group_norm(a, 2, g, b),
        "rms": lambda a, g, b: F.rms_norm(a, a.shape[1:], g, 1e-5) + 0 * b,
        "weight": F.weight_norm,
    }

    def off(dy: Tensor, a: Tensor, gain: Tensor, bias: Tensor) -> float:
        found = []
        for method in forward:
            inputs, rest = (a, gain, bias), [2] if method == "group" else []
            ours = symbolic.function(method)
            if method == "weight":
                inputs = a, dy[:, :1].abs()  # a gain for each row
                if not a.any(1).all():
                    continue
                ours = ours(dy, *inputs)
            else:
                ours = ours(dy, a, gain, 1e-5, *rest)
            _, theirs = torch.autograd.functional.vjp(forward[method], inputs, dy)
            wanted = theirs[: 2 if method in ("rms", "weight") else 3]  # no bias
            if len(ours) != len(wanted):
                return math.inf  # a gradient is missing
            for one, two in zip(ours, wanted, strict=True):
                found.append(largest(one - two) / max(largest(two), 1 / max(1.0, largest(a))))
        return worst(*found)

    def case(cases: int, units: int) -> adversary.Case:
        return draw(cases, units), draw(cases, units, mean=2.0), draw(units), draw(units)

    sizes = [(n, 2 * k) for n, k in torch.randint(2, 9, (20, 2)).tolist()]
    hard = {(name, h): a for h in (2, 8) for name, a in adversary.matrices(6, h).items()}
    return adversary.searched(
        1e-10,
        "The largest difference is below 1e-10.",
        off,
        [case(*size) for size in sizes],
        {f"{name} (H = {h})": (draw(6, h), a, *case(6, h)[2:]) for (name, h), a in hard.items()},
    )


def forgetful(step):
    """Mutant: the term along x_hat is forgotten."""
    from layernorm.symbolic import recurrent
    from layernorm.symbolic.code import run

    text = recurrent.source(step).replace(" - mean_c_x_hat*x_hat", "")
    names = {"split": recurrent._split, "join": recurrent._join}
    return run(text, sigmoid=torch.sigmoid, tanh=torch.tanh, **names)


@claim(
    id="derived-recurrent-steps",
    statement="The chain rule over derived pieces gives the gradients of one step of the "
    "layer-normalized LSTM and GRU.",
    rule="20 draws each, and the adversary's recurrent weights and saturated gates: held if the "
    "gradients of all inputs and parameters equal those of automatic differentiation through "
    "layernorm.functional to 1e-10 of the largest, or of 1",
    sabotage=("layernorm.symbolic.recurrent.function", forgetful),
)
def derived_recurrent_steps() -> Finding:
    from layernorm.symbolic import recurrent

    def lstm(x, h, c, w_ih, w_hh, b, g1, b1, g2, b2, g3, b3):
        return F.ln_lstm_step(x, h, c, w_ih, w_hh, b, (g1, b1), (g2, b2), (g3, b3))

    def gru(x, h, w_ih, w_hh, b, g1, b1, g2, b2):
        return F.ln_gru_step(x, h, w_ih, w_hh, b, (g1, b1), (g2, b2))

    def off(*case: Tensor) -> float:
        states = 2 if len(case) == 14 else 1
        upstream, arguments = case[:states], case[states:]
        step = lstm if states == 2 else gru
        v = upstream if states == 2 else upstream[0]
        _, theirs = torch.autograd.functional.vjp(step, arguments, v)
        ours = recurrent.function(step.__name__)(*upstream, *arguments, 1e-5)
        pairs = zip(ours, theirs, strict=True)
        return worst(*(largest(one - two) / max(largest(two), 1) for one, two in pairs))

    def case(n: int, i: int, h: int, k: int, **given: Tensor) -> adversary.Case:
        states, small = (2, 2) if k == 4 else (1, 0)
        shapes = [(n, h)] * states + [(n, i)] + [(n, h)] * states + [(k * h, i), (k * h, h)]
        made = [draw(*s) for s in [*shapes, *[(k * h,)] * 5, *[(h,)] * small]]
        made[2 * states + 2] = given.get("w_hh", made[2 * states + 2])
        made[2 * states + 3] = given.get("b", made[2 * states + 3])
        return tuple(made)

    hard = {}
    for k in (3, 4):
        for name, w in adversary.matrices(4 * k, 4, huge=1e9).items():
            hard[f"{name} ({k} gates)"] = case(3, 2, 4, k, w_hh=w)
        for name, b in adversary.gates(4, k).items():
            hard[f"{name} ({k})"] = case(3, 2, 4, k, b=b)
    sizes = torch.randint(1, 7, (20, 3)).tolist()
    return adversary.searched(
        1e-10,
        "The largest difference is below 1e-10.",
        off,
        [case(*size, k) for size in sizes for k in (3, 4)],
        hard,
    )
