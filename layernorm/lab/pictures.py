"""The picture on the first page of chapter 1: a row normalized, and where a reader has met it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from layernorm import functional as F
from layernorm.methods import METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAYER, BATCH = METHODS["layer"].color, METHODS["batch"].color
BLOCKS = ("layer norm", "attention", "+", "layer norm", "MLP", "+")  # from bottom to top
EDGE = {"boxstyle": "round,pad=0.35", "linewidth": 1.2}


def row_and_block(a: Float[Tensor, "examples units"], row: int, column: int) -> None:
    """Draw summed inputs with one row normalized, and a transformer layer with its two norms.

    Args:
        a: the summed inputs, a row an example and a column a unit; a table of at most 6 by 6 is
            readable.
        row: the example whose numbers layer normalization averages, from 0.
        column: the unit whose numbers batch normalization averages, from 0.

    Raises:
        ValueError: there is no such row or column.
    """
    import matplotlib.pyplot as plt

    for name, index, size in (("row", row, a.shape[0]), ("column", column, a.shape[1])):
        if not 0 <= index < size:
            raise ValueError(f"{name} must be from 0 to {size - 1}, as a has {size}; got {index}")
    _, (left, right) = plt.subplots(1, 2, figsize=(7.4, 2.8), width_ratios=(2.3, 1))
    _table(left, a, row, column)
    _block(right)
    for ax in (left, right):
        ax.set_axis_off()


def _table(ax: Axes, a: Tensor, row: int, column: int) -> None:
    rows, units = a.shape
    for i in range(units):
        ax.text(i, -0.85, f"unit {i + 1}", ha="center", va="center", color="#5a6270")
        for n in range(rows):
            ax.text(i, n, f"{a[n, i]:.0f}", ha="center", va="center")
    for n in range(rows):
        ax.text(-0.75, n, f"example {n + 1}", ha="right", va="center", color="#5a6270")
    _frame(ax, column, 0, 1, rows, BATCH)
    _frame(ax, 0, row, units, 1, LAYER)
    said = f"mean {a[row].mean():.0f}, standard\ndeviation {a[row].std(correction=0):.2f}"
    ax.text(units - 0.3, row, said, color=LAYER, va="center")
    ax.text(column, rows - 0.1, "batch normalization", color=BATCH, ha="center", va="center")
    below = rows + 0.9
    for i, value in enumerate(F.layer_norm(a[row], (units,), eps=0.0)):
        ax.text(i, below, f"{value:.2f}", ha="center", va="center")
    _frame(ax, 0, below, units, 1, LAYER)
    ax.text(-0.75, below, f"example {row + 1}", ha="right", va="center", color="#5a6270")
    ax.text(units - 0.3, below, "layer-normalized:\nmean 0, variance 1", color=LAYER, va="center")
    ax.set(xlim=(-1.9, units + 1.6), ylim=(below + 0.7, -1.2))


def _frame(ax: Axes, left: float, top: float, width: float, height: float, color: str) -> None:
    from matplotlib.patches import Rectangle

    corner = left - 0.5, top - 0.5
    for fill, opacity in ((True, 0.13), (False, 1.0)):
        look = {"facecolor": color, "edgecolor": color, "linewidth": 2, "fill": fill}
        ax.add_patch(Rectangle(corner, width, height, alpha=opacity, **look))


def _block(ax: Axes) -> None:
    """One transformer layer (Pre-LN), from the input at the bottom to the output at the top."""
    top = len(BLOCKS)
    ax.annotate("", (0, top - 0.2), (0, -1), arrowprops={"arrowstyle": "->", "color": "#1f2430"})
    for height, name in enumerate(BLOCKS):
        normed = name == "layer norm"
        look = {"facecolor": LAYER if normed else "white", "edgecolor": LAYER if normed else "gray"}
        style = {"color": "white" if normed else "#1f2430", "weight": "bold" if normed else None}
        box = {**EDGE, **look} | ({"boxstyle": "circle,pad=0.15"} if name == "+" else {})
        ax.text(0, height, name, ha="center", va="center", bbox=box, **style)
        if name == "+":  # the residual path around the two blocks below
            start, end = height - 2.65, height
            ax.plot([0, 1.5, 1.5], [start, start, end], color="#1f2430", lw=1)
            arrow = {"arrowstyle": "->", "color": "#1f2430"}
            ax.annotate("", (0.25, end), (1.5, end), arrowprops=arrow)
    ax.text(0.2, -1.25, "a transformer layer", ha="center", va="top")
    ax.set(xlim=(-1.6, 2.0), ylim=(-1.7, top))
