r"""A recurrence over many steps: the size of its state, and of its Jacobian (chapter 08).

A network is a pair of weight matrices; many run side by side, one a row. `ln-tanh` and `ln-relu`
are the layer-normalized RNN of the paper's eq. (4), `tanh` and `relu` the plain one of the same
weights, h' = f(W_hh h + W_xh x). The Jacobian of t steps is the product of t Jacobians, which no
floating-point number could hold; it is followed by its action on a few orthonormal directions
that are orthogonalized again and again, their stretching added up in logarithms (the usual way to
measure Lyapunov exponents).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layernorm import functional as F
from layernorm.lab.analysis import activations

KINDS = ("tanh", "relu", "ln-tanh", "ln-relu")
LARGEST = 1e50  # beyond it, and below its inverse, only the direction of a state is followed


@dataclass(frozen=True)
class Course:
    """The course of the networks that `follow` ran.

    `size`: decimal logarithm of the root mean square of the state, before the first step and after
    each. `stretch`: natural logarithm of how much each direction has been stretched so far; the
    first row is step 0, the next step `every`, and so on. Divided by the number of steps, the
    largest tends to the largest Lyapunov exponent; it is the logarithm of the Jacobian's largest
    singular value, the others of the next ones, but for a bounded term.
    """

    size: Float[Tensor, "steps nets"]
    stretch: Float[Tensor, "readings nets directions"]
    every: int

    @property
    def exponents(self) -> Float[Tensor, "nets directions"]:
        """Mean growth of each direction a step, over the second half of the course."""
        half = len(self.stretch) // 2
        steps = (len(self.stretch) - 1 - half) * self.every
        return (self.stretch[-1] - self.stretch[half]) / steps


def step(
    kind: str,
    x: Float[Tensor, "*batch i"],
    h: Float[Tensor, "*batch h"],
    w_ih: Float[Tensor, "h i"],
    w_hh: Float[Tensor, "h h"],
    gain: float = 1.0,
    eps: float = 1e-5,
) -> Float[Tensor, "*batch h"]:
    """One step of a network; `gain` and `eps` are those of layer normalization, the bias is 0.

    Raises `ValueError` for an unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if kind.startswith("ln-"):
        ln = torch.full_like(w_hh[0], gain), torch.zeros_like(w_hh[0])
        return F.ln_rnn_step(x, h, w_ih, w_hh, ln, eps, kind[3:])
    a = h @ w_hh.T + x @ w_ih.T
    return torch.tanh(a) if kind == "tanh" else torch.relu(a)


def draw(
    nets: int, units: int, inputs: int = 8, seed: int = 0
) -> tuple[Float[Tensor, "nets units inputs"], Float[Tensor, "nets units units"]]:
    """Weights (W_xh, W_hh) in float64 that give summed inputs of variance 1 to inputs and states
    of variance 1 each; the eigenvalues of W_hh fill the unit disk."""
    generator = torch.Generator().manual_seed(seed)
    w_ih = torch.randn(nets, units, inputs, generator=generator, dtype=torch.float64)
    w_hh = torch.randn(nets, units, units, generator=generator, dtype=torch.float64)
    return w_ih / inputs**0.5, w_hh / units**0.5


def follow(
    kind: str,
    x: Float[Tensor, "steps nets inputs"],
    h: Float[Tensor, "nets units"],
    w_ih: Float[Tensor, "nets units inputs"],
    w_hh: Float[Tensor, "nets units units"],
    gain: float = 1.0,
    eps: float = 1e-5,
    directions: int = 2,
    every: int = 5,
) -> Course:
    """Runs the networks over all inputs from the states h.

    A state whose root mean square leaves [1e-50, 1e50] is brought back, and its size counted in
    logarithms: out there inputs no longer matter, or tanh is linear.

    Raises:
        ValueError: an unknown kind, more directions than units, or steps that `every` does not
            divide.
    """
    steps, (nets, units) = len(x), h.shape
    if not 1 <= directions <= units:
        raise ValueError(f"directions must lie between 1 and the {units} units, got {directions}")
    if every < 1 or steps % every:
        raise ValueError(f"every must divide the {steps} steps, got {every}")

    def one(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor) -> Tensor:
        return step(kind, x.expand(len(h), -1), h, w_ih, w_hh, gain, eps)

    all_nets = torch.func.vmap(one)
    q = torch.linalg.qr(torch.randn(nets, units, directions).to(h))[0]
    offset, total = h.new_zeros(nets), h.new_zeros(nets, directions)
    sizes, stretch = [_size(h)], [total]
    for t in range(steps):
        same = h[:, None].expand(-1, directions, -1)  # the state once for every direction

        def here(h: Tensor, x: Tensor = x[t]) -> Tensor:
            return all_nets(x, h, w_ih, w_hh)

        after, moved = torch.autograd.functional.jvp(here, same, q.mT)
        h, q = after[:, 0], moved.mT
        size = _size(h)
        back = size.clamp(-_log10(LARGEST), _log10(LARGEST))
        h, offset = h * (10 ** (back - size))[:, None], offset + size - back
        sizes.append(back + offset)
        if (t + 1) % every == 0:
            q, r = torch.linalg.qr(q)
            total = total + r.diagonal(dim1=1, dim2=2).abs().clamp(min=1e-300).log()
            stretch.append(total)
    return Course(torch.stack(sizes), torch.stack(stretch), every)


def _normal_mean(values: Tensor, at: Tensor) -> float:
    """E[values] where `at` is standard normal, by a sum over an even grid."""
    weight = torch.exp(-at.square() / 2)
    return ((values * weight).sum() / weight.sum()).item()


def wide_exponent(
    kind: str, recurrent: float = 1.0, drive: float = 1.0, gain: float = 1.0
) -> float:
    """The largest exponent of a layer-normalized RNN with very many units and normal weights.

    ½ log(g² ρ² E[f'²] / (ρ² E[f²] + u²)), f at g times a standard normal; u² is the variance of
    W_xh x, ρ the scale of W_hh.
    """
    at = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    f = kind.removeprefix("ln-")
    slope = activations.slope(gain * at, f)  # 1 at its largest, as f' of tanh and ReLU is
    value = torch.tanh(gain * at) if f == "tanh" else torch.relu(gain * at)
    stretch = (gain * recurrent) ** 2 * _normal_mean(slope.square(), at)
    return math.log(stretch / (recurrent**2 * _normal_mean(value.square(), at) + drive**2)) / 2


def _size(h: Tensor) -> Tensor:
    return h.square().mean(-1).sqrt().clamp(min=1e-150).log10()


def _log10(value: float) -> float:
    return torch.tensor(value, dtype=torch.float64).log10().item()
