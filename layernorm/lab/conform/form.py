r"""The formula of a normalization, from its outputs alone.

The family, with statistics over a set A of axes:

    y = (g + offset) (x - mu) / D + b        mu = mean over A, or 0
    v = sum over A of (x - mu)^2 / (n - correction)
    D = sqrt(v + eps) | sqrt(v) + eps | max(sqrt(v), floor) | v^p

Every choice leaves a trace in float64. The answer to a parameter that grows by 1 is the normalized
input where it is a gain, and 1 where it is a bias. Multiplying the input by c multiplies the output
by c^(1 - 2p), where the variance is too large for eps to count. At one spread the axes, the mean
and the correction are those of the one candidate that agrees. The divisor D_0 of rows of nearly no
spread is sqrt(eps) or eps itself; at the spread D_0, the divisor is sqrt(2) D_0 where eps stands
under the root, 2 D_0 where it is added to the deviation, and D_0 where it is a floor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, combinations

import torch
from jaxtyping import Float
from torch import Tensor, nn

LARGE = 1e4  # a spread beside which no usual epsilon counts
AGREES = 1e-6  # relative; float64 leaves 1e-11, an epsilon of 0.01 beside LARGE 1e-10


class Unknown(ValueError):
    """No formula of the family gives these outputs."""


@dataclass(frozen=True)
class Form:
    """A formula of the family.

    Args:
        axes: those that the statistics are taken over, cases are axis 0.
        rank: how many axes the input has.
        centered: the mean is subtracted.
        correction: 0, or 1 for the unbiased variance.
        power: p of the divisor v^p; 1/2 is a standard deviation.
        place: of epsilon: "inside", "outside", "floor" or "none".
        eps: its value; 0 where there is none.
        gain, bias: the names of the parameters; None where there is none.
        gain_axes, bias_axes: those that their numbers stand along; none where there is none, or one
            number for all units.
        offset: what is added to the gain.
        shared: those of "gain" and "bias" that are one number for all units.
        training: it computes this in training alone.
    """

    axes: tuple[int, ...]
    rank: int
    centered: bool
    correction: int
    power: float
    place: str
    eps: float
    gain: str | None
    bias: str | None
    gain_axes: tuple[int, ...]
    bias_axes: tuple[int, ...]
    offset: float
    shared: tuple[str, ...]
    training: bool = False

    def normalized(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The formula without gain and bias."""
        centered, v = moments(x, self.axes, self.centered, self.correction)
        if self.place == "inside":
            return centered / (v + self.eps) ** self.power
        deviation = v**self.power
        if self.place == "floor":
            return centered / deviation.clamp_min(self.eps)
        return centered / (deviation + self.eps)

    def equation(self) -> str:
        """The formula as a line of text."""
        v = ("v" if self.centered else "mean(x^2)") if not self.correction else "v'"
        root = {0.5: f"sqrt({v})"}.get(self.power, f"{v}^{self.power:g}")
        divisor = {
            "inside": root.replace(v, f"{v} + {self.eps:.3g}", 1)
            if self.power == 0.5
            else f"({v} + {self.eps:.3g})^{self.power:g}",
            "outside": f"({root} + {self.eps:.3g})",
            "floor": f"max({root}, {self.eps:.3g})",
            "none": root,
        }[self.place]
        above = "(x - mu)" if self.centered else "x"
        gain = "" if self.gain is None else "g " if self.offset == 0 else f"({self.offset:g} + g) "
        return f"y = {gain}{above} / {divisor}{'' if self.bias is None else ' + b'}"

    def notes(self) -> list[str]:
        """The properties that the equation does not show. Where nothing is said of them, gain and
        bias stand along the last axis, or along the one that the statistics are taken over."""
        lines = [f"statistics over {self._named(self.axes)}"]
        for axes in dict.fromkeys((self.gain_axes, self.bias_axes)):
            if axes and not (len(axes) == 1 and axes in (self.axes, (self.rank - 1,))):
                both = (("gain", self.gain_axes), ("bias", self.bias_axes))
                roles = " and ".join(role for role, its_axes in both if its_axes == axes)
                lines.append(f"{roles} along {self._named(axes)}")
        if self.correction:
            lines.append("v' is the unbiased variance, which divides by n - 1")
        if self.shared:
            lines.append(f"one {' and one '.join(self.shared)} for all units")
        if self.training:
            lines.append("in training; in evaluation it has other statistics")
        return lines

    def _named(self, axes: tuple[int, ...]) -> str:
        names = {0: "the cases", self.rank - 1: "the last axis"}
        return " and ".join(names.get(axis, f"axis {axis}") for axis in axes)


def moments(x: Tensor, axes: tuple[int, ...], centered: bool, correction: int):
    """x, less its mean if it is to be centered, and the mean of the square of that."""
    if centered:
        x = x - x.mean(axes, keepdim=True)
    n = math.prod(x.shape[axis] for axis in axes)
    return x, x.square().sum(axes, keepdim=True) / max(n - correction, 1)


def output(module: nn.Module, x: Tensor) -> Tensor:
    """Return the module's output for x.

    Raises:
        ValueError: it is no tensor of that shape.
    """
    with torch.no_grad():
        y = module(x)
    if not isinstance(y, Tensor) or y.shape != x.shape:
        got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(f"expected an output of the input's shape {tuple(x.shape)}, got {got}")
    return y


def draw(shape: tuple[int, ...], spread: float = 1.0, mean: float = 0.0, seed: int = 0) -> Tensor:
    """Normal numbers in float64, other ones for another seed; cases and positions differ in mean
    and spread, so that no two sets of axes have the same statistics."""
    random = torch.Generator().manual_seed(seed)
    z = torch.randn(shape, generator=random, dtype=torch.float64)
    for axis in range(len(shape)):
        size = [n if i == axis else 1 for i, n in enumerate(shape)]
        z = z * (0.5 + torch.rand(size, generator=random, dtype=torch.float64))
        z = z + 0.3 * torch.randn(size, generator=random, dtype=torch.float64)
    return mean + spread * z


def identify(module: nn.Module, shape: tuple[int, ...] = (4, 5, 8)) -> Form:
    """The formula of a normalization, which is left in float64 and in the mode of the formula.

    Raises:
        Unknown: no formula of the family fits.
        ValueError: the shape is too small, or the output has another one.
    """
    if len(shape) < 2 or min(shape) < 1 or min(shape[0], shape[-1]) < 2:
        raise ValueError(
            "shape needs two cases and two units at least, and one of everything between, "
            f"got {shape}"
        )
    module.double()
    try:
        return _identified(module.eval(), shape)
    except Unknown as unknown:
        try:
            return replace(_identified(module.train(), shape), training=True)
        except Unknown:
            raise unknown from None


def _identified(module: nn.Module, shape: tuple[int, ...]) -> Form:
    x = draw(shape, LARGE)
    gain, bias, offset = _parameters(module, x)
    hat = _hat(module, gain, bias, offset)
    power = _power(hat, x)
    axes, centered, correction = _statistics(hat, x, power)
    place, eps = ("none", 0.0)
    if power == 0.5:
        place, eps = _epsilon(hat, shape, axes, centered, correction)
    along = {
        role: axes_of(module.get_parameter(name), x)
        for role, name in (("gain", gain), ("bias", bias))
        if name
    }
    form = Form(
        axes, len(shape), centered, correction, power, place, eps, gain, bias,
        along.get("gain", ()), along.get("bias", ()), offset,
        shared=tuple(role for role, its_axes in along.items() if not its_axes),
    )  # fmt: skip
    for spread in (1e-3, 1.0, 1e3):
        x = draw(shape, spread, seed=1)
        if not _close(hat(x), form.normalized(x), 1e-4):
            raise Unknown(f"{form.equation()} does not hold at a spread of {spread:g}")
    return form


def _parameters(module: nn.Module, x: Tensor) -> tuple[str | None, str | None, float]:
    """The names of gain and bias, and what is added to the gain."""
    roles: dict[str, tuple[str, Tensor]] = {}
    with torch.no_grad():
        before = output(module, x)
        for name, parameter in module.named_parameters():
            parameter += 1
            change = output(module, x) - before
            parameter -= 1
            if not change.any():
                raise Unknown(f"{name} does nothing")
            constant = _close(change, torch.ones_like(change), AGREES)
            role = "bias" if constant else "gain"
            if role in roles:
                raise Unknown(f"{roles[role][0]} and {name} both act as a {role}")
            roles[role] = name, change
        name, _ = roles.get("bias", (None, None))
        if "gain" not in roles:
            return None, name, 0.0
        gain, hat = roles["gain"]
        bias = dict(module.named_parameters())[name] if name else 0.0
        values = dict(module.named_parameters())[gain]
        ratio = (before - spread_out(bias, x)) / hat - spread_out(values, x)
        offset = ratio.median()
        if not _close(ratio, torch.full_like(ratio, float(offset)), 1e-4):
            raise Unknown(f"the output is not linear in {gain}")
    return gain, name, round(float(offset), 6) + 0.0


def axes_of(values: Tensor, x: Tensor) -> tuple[int, ...]:
    """The axes of x that a parameter's numbers stand along: the last one, axis 1, or all but the
    cases; none where it is one number.

    Raises:
        Unknown: its shape does not fit, or fits two axes.
    """
    if values.numel() == 1:
        return ()
    if x.dim() > 2 and values.numel() == x.shape[1] == x.shape[-1]:
        raise Unknown(
            f"{values.numel()} numbers may stand along axis 1 or the last one, which have that "
            "size both; give a shape of different sizes"
        )
    if values.numel() == x.shape[-1]:
        return (x.dim() - 1,)
    if values.shape == x.shape[1:]:
        return tuple(range(1, x.dim()))
    if values.numel() == x.shape[1]:
        return (1,)
    raise Unknown(f"a parameter of shape {tuple(values.shape)} beside inputs {tuple(x.shape)}")


def spread_out(values: Tensor | float, x: Tensor) -> Tensor:
    """Parameters in the shape in which they meet x."""
    if not isinstance(values, Tensor):
        return torch.full_like(x, values)
    axes = axes_of(values, x)
    shape = [size if axis in axes else 1 for axis, size in enumerate(x.shape)]
    return values.reshape(shape).expand_as(x)


def _hat(module: nn.Module, gain: str | None, bias: str | None, offset: float):
    """The module without its gain and bias: the answer to a gain that grows by 1."""
    parameters = dict(module.named_parameters())

    def hat(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = output(module, x)
            if gain is None:
                return y - spread_out(parameters[bias], x) if bias else y
            parameters[gain] += 1
            more = output(module, x)
            parameters[gain] -= 1
            return more - y

    return hat


def _power(hat, x: Tensor) -> float:
    """p, from how the output grows with the input."""
    before, after = hat(x), hat(16 * x)
    if not (before.isfinite().all() and after.isfinite().all()) or not after.abs().max():
        raise Unknown("the output is not finite, or zero, on ordinary inputs")
    ratio = after / before
    p = (1 - math.log(abs(float(ratio.median())), 16)) / 2
    if not _close(ratio, torch.full_like(ratio, float(ratio.median())), 1e-4):
        raise Unknown("the output does not grow with a power of the input")
    return round(p, 3) + 0.0


def _statistics(hat, x: Tensor, power: float) -> tuple[tuple[int, ...], bool, int]:
    """The axes, whether the mean is subtracted, and n less what the sum is divided by."""
    if power == 0:
        raise Unknown("it divides by nothing that grows with the input")
    y = hat(x)
    for axes in _subsets(x.dim()):
        for centered, correction in ((True, 0), (True, 1), (False, 0), (False, 1)):
            above, v = moments(x, axes, centered, correction)
            if _close(y, above / v**power, AGREES):
                return axes, centered, correction
    unlike = [axis for axis in range(1, x.dim()) if not _permutes(hat, x, axis)]
    raise Unknown(
        "no axes, mean and variance of the family give these outputs"
        + f"; inputs permuted along axis {' or '.join(map(str, unlike))} do not give permuted "
        "outputs, so units are not treated alike" * bool(unlike)
    )


def _permutes(hat, x: Tensor, axis: int) -> bool:
    """Tell whether the outputs of inputs in another order along an axis are those in this order."""
    order = torch.arange(x.shape[axis]).roll(1)
    return _close(hat(x.index_select(axis, order)), hat(x).index_select(axis, order), AGREES)


def _subsets(rank: int) -> Iterator[tuple[int, ...]]:
    """The sets of axes, the last one alone first, those with the cases last."""
    every = chain.from_iterable(combinations(range(rank), n) for n in range(1, rank + 1))
    return iter(sorted(every, key=lambda axes: (0 in axes, len(axes), [-axis for axis in axes])))


def _epsilon(hat, shape, axes, centered, correction) -> tuple[str, float]:
    """Where epsilon stands, and its value."""

    def divisor(spread: float) -> float:
        """D where the root of v is `spread`."""
        x = draw(shape, seed=2)
        above, v = moments(x, axes, centered, correction)
        x = above / v.sqrt() * spread
        ratio = (x / hat(x)).abs()
        return float(ratio[ratio.isfinite()].median()) if ratio.isfinite().any() else math.nan

    tiny = 1e-12
    at_zero = divisor(tiny)
    if not math.isfinite(at_zero) or at_zero < 2 * tiny:
        return "none", 0.0
    ratio = divisor(at_zero) / at_zero
    for place, expected in (("inside", math.sqrt(2)), ("outside", 2.0), ("floor", 1.0)):
        if abs(ratio - expected) < 0.02:
            return place, at_zero**2 if place == "inside" else at_zero
    raise Unknown(f"at a spread of {at_zero:.3g} the divisor is {ratio:.3g} times the one of zero")


def _close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    return bool(((a - b).abs() <= tolerance * (1 + b.abs())).all())
