"""The figure in which the reader moves the summed inputs: which normalization does not care?

One layer, small enough to draw: 5 cases x of 4 input features, 6 units with weights w. Eight
sliders change one case, one unit, the data, or all weights, and nothing else:

    x'[n] = s_n (s x[n] + c),   w'[i] = s_i (t w[i] + e),   a'[n, i] = w'[i] . x'[n] + c_n + c_i

Here s and c are the sliders of the data, t and e those of all weights, s_n and c_n those of the one
case (1 and 0 for the others), s_i and c_i those of the one unit. Each method then gives
(a' - mu) / sigma (paper eq. 5) with gain 1, bias 0 and, as in the paper, no eps; mu and sigma are
those of its symbolic form (`layernorm.methods.FORMS`).

A figure has some of the sliders, `SUMMED` or `TABLE_1`; the others rest. `figure()` is a picture
everywhere; the built book shows the sliders (`book/_static/invariance.js`).
"""

from __future__ import annotations

import functools
import html
import io
import json
import math
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from layernorm.lab import book_renderer
from layernorm.methods import FORMS, METHODS, normalizations

LIMIT = 3.2  # outputs beyond it are drawn at the edge, as triangles
MIME = "application/vnd.layernorm.invariance+json"
# With 6 units group normalization has one group, and is layer normalization.
NAMES = tuple(m.name for m in normalizations() if m.name != "group")
CASE, UNIT = 1, 2
X = [
    [0.0, 0.2, -0.9, 0.6],
    [-0.8, 0.8, 0.5, -1.7],
    [-1.0, 2.1, -0.7, -0.6],
    [-0.8, -0.3, 0.8, -0.9],
    [2.1, 0.7, -0.7, 0.2],
]
W = [
    [-0.3, 0.2, 0.3, -0.7],
    [0.8, 0.8, -0.8, 0.0],
    [0.7, 0.1, 0.1, -1.2],
    [-0.7, -0.7, 0.9, -1.5],
    [0.7, -0.5, -0.3, -0.1],
    [-1.1, 0.3, 0.6, -0.6],
]
SCALES = [step / 4 for step in range(-8, 17) if step != 0]
SHIFTS = [step / 4 for step in range(-12, 13)]


@dataclass(frozen=True)
class Sliders:
    """Positions of the eight sliders: in the figure one of `SCALES` or `SHIFTS`, at rest 1 and 0.

    Raises ValueError for a scale of 0, which would leave nothing but 0/0, and for values that are
    not finite.
    """

    case_scale: float = 1.0
    case_shift: float = 0.0
    unit_scale: float = 1.0
    unit_shift: float = 0.0
    data_scale: float = 1.0
    data_shift: float = 0.0
    weights_scale: float = 1.0
    weights_shift: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not math.isfinite(value) or (name.endswith("scale") and value == 0):
                allowed = "finite and not 0" if name.endswith("scale") else "finite"
                raise ValueError(f"{name} must be {allowed}, got {value!r}")


# The thing that each slider moves, and its effect in symbols; the figure shows both.
MEANING = {
    "case_scale": ("one case", f"x′ = s·x for case {CASE + 1}"),
    "case_shift": ("one case", f"a′ = a + c for all units of case {CASE + 1}"),
    "unit_scale": ("one unit", f"w′ = s·w for unit {UNIT + 1}"),
    "unit_shift": ("one unit", f"a′ = a + c for all cases of unit {UNIT + 1}"),
    "data_scale": ("the data", "x′ = s·x for all cases"),
    "data_shift": ("the data", "x′ = x + c in all features"),
    "weights_scale": ("all weights", "w′ = s·w for all units"),
    "weights_shift": ("all weights", "w′ = w + c for all units and features"),
}
# The sliders of one figure: what happens to summed inputs, and the columns of the paper's Table 1.
SUMMED = ("case_scale", "case_shift", "unit_scale", "unit_shift", "data_scale", "data_shift")
TABLE_1 = ("weights_scale", "weights_shift", "unit_scale", "data_scale", "data_shift", "case_scale")


NOTE = (
    f"Here x is one case of {len(X[0])} input features, w the weights of one unit and a = w·x "
    "a summed input; the outputs are (a′ − μ)/σ with gain 1, bias 0 and no ε."
)


def _title(slider: str) -> str:
    return f"{slider.split('_')[1]} of {MEANING[slider][0]}"


def summed_inputs(
    sliders: Sliders,
) -> tuple[Float64[Tensor, "cases units"], Float64[Tensor, "units features"]]:
    """The summed inputs a′ and the weights w′ with the sliders where `sliders` says."""
    x, w = (torch.tensor(rows, dtype=torch.float64) for rows in (X, W))
    x = sliders.data_scale * x + sliders.data_shift
    x[CASE] *= sliders.case_scale
    w = sliders.weights_scale * w + sliders.weights_shift
    w[UNIT] *= sliders.unit_scale
    a = x @ w.T
    a[CASE] += sliders.case_shift
    a[:, UNIT] += sliders.unit_shift
    return a, w


def outputs(sliders: Sliders) -> dict[str, Float64[Tensor, "cases units"]]:
    """The outputs of each method: (cases, units) each, with ε = 0."""
    a, w = summed_inputs(sliders)
    shared = {"cases": _Along(a, 0), "units": _Along(a, 1), "weights": _Along(w.T, 0)}
    found = dict.fromkeys(NAMES, a)
    for name in FORMS.keys() & found:
        mu, variance = FORMS[name].statistics(shared[FORMS[name].over])
        found[name] = (a - mu) / variance.sqrt()
    return found


@dataclass(frozen=True)
class _Along:
    """The numbers along one dimension, as `methods.Form` asks for them."""

    values: Tensor
    dim: int

    def total(self, f: Callable[[Tensor], Tensor] = lambda a: a) -> Tensor:
        return f(self.values).sum(self.dim, keepdim=True)

    def mean(self, f: Callable[[Tensor], Tensor] = lambda a: a) -> Tensor:
        return f(self.values).mean(self.dim, keepdim=True)


def verdict(before: Float64[Tensor, "cases units"], after: Float64[Tensor, "cases units"]) -> str:
    """Either "unchanged" (to 1e-9, far above float64's rounding) or "changed by up to 1.23"."""
    change = (after - before).abs().max().item()
    return "unchanged" if change < 1e-9 else f"changed by up to {change:.2f}"


def verdicts(sliders: Sliders) -> dict[str, str]:
    """The verdict on each method with the sliders where `sliders` says, against all at rest.

    >>> verdicts(Sliders(case_scale=2.0))["layer"]
    'unchanged'
    >>> verdicts(Sliders(case_scale=2.0))["batch"]
    'changed by up to 0.56'
    """
    before, after = outputs(Sliders()), outputs(sliders)
    return {name: verdict(before[name], after[name]) for name in NAMES}


# The settings of the static picture, one row each.
EXAMPLES = {name: 2.0 if name.endswith("scale") else 1.0 for name in MEANING}


@functools.cache
def _png(sliders: tuple[str, ...]) -> bytes:
    """A row for each slider, moved, a column for each method: outputs before and after."""
    from matplotlib import style
    from matplotlib.figure import Figure

    before = outputs(Sliders())
    buffer = io.BytesIO()
    with style.context("default"):
        picture = Figure(figsize=(10, 9.5), dpi=100, layout="constrained")
        axes = picture.subplots(len(sliders), len(NAMES), sharex=True, sharey=True, squeeze=False)
        for row, slider in zip(axes, sliders, strict=True):
            value = EXAMPLES[slider]
            after = outputs(replace(Sliders(), **{slider: value}))
            sign = "×" if slider.endswith("scale") else "+"
            row[0].set_ylabel(f"{_title(slider)}\n{sign} {value:g}", fontsize=9)
            for axis, name in zip(row, NAMES, strict=True):
                _panel(axis, before[name], after[name], METHODS[name].color)
        for axis, name in zip(axes[0], NAMES, strict=True):
            axis.set_title(METHODS[name].title, fontsize=9)
        for axis in axes[-1]:
            axis.set_xlabel("unit", fontsize=9)
        picture.legend(
            handles=[axes[0, 0].lines[k] for k in (0, 1, 4 * CASE + 1)],
            labels=["before", "after", f"after, case {CASE + 1}"],
            loc="outside lower center", ncols=3, fontsize=9, frameon=False,
        )  # fmt: skip
        picture.savefig(buffer, format="png")
    return buffer.getvalue()


def _panel(axis: Any, before: Tensor, after: Tensor, color: str) -> None:
    units = torch.arange(1, before.shape[1] + 1)
    axis.axvspan(UNIT + 0.6, UNIT + 1.4, color="0.93", lw=0)
    for case, (ring, dot) in enumerate(zip(before, after, strict=True)):
        style = {"marker": "D", "color": color, "ms": 4} if case == CASE else {
            "marker": "o", "color": "0.3", "ms": 2.5}  # fmt: skip
        axis.plot(units, ring, "o", mfc="none", mec="0.55", ms=7, mew=0.8)
        above, below = dot > LIMIT, dot < -LIMIT
        inside = ~(above | below)
        axis.plot(units[inside], dot[inside], ls="", **style)
        axis.plot(units[above], above[above] * LIMIT, ls="", **style | {"marker": "^"})
        axis.plot(units[below], below[below] * -LIMIT, ls="", **style | {"marker": "v"})
    axis.set(ylim=(-LIMIT - 0.4, LIMIT + 1.7), xlim=(0.4, 6.6), xticks=units, yticks=[-2, 0, 2])
    axis.tick_params(labelsize=7)
    text = verdict(before, after)
    unchanged = text == "unchanged"
    axis.text(
        0.5, 0.97, text, transform=axis.transAxes, ha="center", va="top", fontsize=8,
        weight="bold" if unchanged else "normal",
        bbox={"boxstyle": "round,pad=0.25", "fc": "#d6ebff" if unchanged else "none", "lw": 0},
    )  # fmt: skip


def description(sliders: tuple[str, ...] = SUMMED) -> str:
    """The picture in words: for each slider, which methods do not care. Computed, like the rest."""
    sentences = []
    for slider in sliders:
        found = verdicts(replace(Sliders(), **{slider: EXAMPLES[slider]}))
        same = [METHODS[name].title for name in NAMES if found[name] == "unchanged"]
        sentences.append(f"{_title(slider)}: {' and '.join(same) or 'none'}")
    return (
        "Outputs of each method before (rings) and after (dots) one change. "
        f"Unchanged under {'; '.join(sentences)}. All other outputs change."
    )


class InvarianceFigure:
    """The result of `figure()`: a picture where only pictures are shown, sliders in the book.

    Raises ValueError for a name that is no slider.
    """

    def __init__(self, sliders: tuple[str, ...] = SUMMED):
        if unknown := [name for name in sliders if name not in MEANING]:
            raise ValueError(f"sliders must be some of {list(MEANING)}, got {unknown}")
        self.sliders = tuple(sliders)

    def __repr__(self) -> str:
        return "<figure: which normalization does not care?>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict, dict]:
        data = {
            "text/plain": repr(self),
            "image/png": b64encode(_png(self.sliders)).decode(),
            MIME: self.specification(),
        }
        return data, {"image/png": {"alt": description(self.sliders)}}

    def specification(self) -> dict[str, Any]:
        """All that the sliders' script needs: no result, only the layer and the words."""
        at_rest = Sliders()
        return {
            "x": X,
            "w": W,
            "case": CASE,
            "unit": UNIT,
            "note": NOTE,
            "rest": asdict(at_rest),
            "methods": [
                {"name": name, "title": METHODS[name].title, "color": METHODS[name].color}
                for name in NAMES
            ],
            "sliders": [
                {
                    "name": name,
                    "thing": MEANING[name][0],
                    "kind": name.split("_")[1],
                    "meaning": MEANING[name][1],
                    "rest": getattr(at_rest, name),
                    "values": SCALES if name.endswith("scale") else SHIFTS,
                }
                for name in self.sliders
            ],
        }


def figure(sliders: tuple[str, ...] = SUMMED) -> InvarianceFigure:
    """The figure: as a cell's last line it shows itself, in the way the place can show it."""
    return InvarianceFigure(sliders)


class BookRenderer(book_renderer.BookRenderer):
    """The page carries the picture; the script replaces it where scripts run."""

    mime = MIME

    @staticmethod
    def page(specification: dict[str, Any]) -> str:
        sliders = tuple(slider["name"] for slider in specification["sliders"])
        told, alt = html.escape(json.dumps(specification)), html.escape(description(sliders))
        picture = b64encode(_png(sliders)).decode()
        return (
            f'<div class="invariance" data-specification="{told}">'
            f'<img src="data:image/png;base64,{picture}" alt="{alt}"></div>'
        )
