"""The figures that chapters share: one style, curves with bands, points with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from layernorm.lab.analysis.curves import by_seed
from layernorm.lab.analysis.statistics import Interval, interval
from layernorm.methods import FORMS, METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

CONTROL = "#000000"
STYLE = {
    "figure.figsize": (7.0, 3.4),
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "savefig.bbox": "tight",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "image.cmap": "cividis",
    "svg.hashsalt": "layernorm",
}


def use_style() -> None:
    """The book's matplotlib style from here on; a chapter's second cell calls it."""
    import matplotlib.pyplot as plt

    plt.rcParams.update(STYLE)


def look(arm: str) -> dict[str, str]:
    """Color and marker of an arm, from its method: `layer-4` looks like `layer`.

    The control `rescaled` is black and dashed. An arm that starts with no method's name is drawn
    in black.
    """
    name = arm.split("-")[0].split("/")[0]
    if name in METHODS:
        return {"color": METHODS[name].color, "marker": METHODS[name].marker}
    return {"color": CONTROL, "marker": "*", "linestyle": "--"}


def curves(
    ax: Axes,
    frame: DataFrame,
    metric: str,
    arms: Sequence[str],
    labels: Mapping[str, str] | None = None,
    log: bool = False,
) -> None:
    """Mean curves of the arms over their seeds, with the t interval of the mean as a band; `log` as
    in `band`.

    `frame` is what `layernorm.lab.records.load` returns. Raises `ValueError` if an arm has no curve
    of that metric.
    """
    for arm in arms:
        label = (labels or {}).get(arm, arm)
        curve(ax, frame, arm, metric, label=label, log=log)


def curve(
    ax: Axes, frame: DataFrame, arm: str, metric: str, unit: float = 1.0, **style: object
) -> None:
    """The curve of one arm, drawn as `curves` draws it, over `unit` times the updates: with the
    seconds of an update, over seconds. `style` takes the place of the arm's look and label."""
    table = by_seed(frame, arm, metric)
    x = unit * table.columns.to_numpy(dtype=float)
    band(ax, x, table.to_numpy(), **{"label": arm, **look(arm), **style})


def levels(axes: Iterable[Axes], *values: float) -> None:
    """A dotted gray line at each value that curves are held against, in every panel."""
    for ax in axes:
        for value in values:
            ax.axhline(value, color="#6b6b6b", linestyle=":", lw=1.2)


def band(
    ax: Axes,
    x: np.ndarray | Sequence[float],
    runs: np.ndarray | Sequence[Sequence[float]],
    confidence: float = 0.95,
    log: bool = False,
    **style,
) -> None:
    """The mean of `runs` (one row a seed) over `x`, with the t interval of the mean as a band.

    With `log` on a logarithmic axis, mean and interval of the logarithms: the geometric mean, and a
    band that stays above 0. `style` goes to matplotlib's `plot`. Raises `ValueError` as
    `statistics.interval` does, with `log` for a value of 0 or less, too.
    """
    values = np.asarray(runs, dtype=float)
    if log:
        if (values <= 0).any():
            raise ValueError(f"runs must be positive on a logarithmic axis, got {values.min()}")
        values = np.log(values)
        plain_log(ax)
    bars = [interval(column, confidence) for column in values.T]
    mean, low, high = np.array([(bar.mean, bar.low, bar.high) for bar in bars]).T
    if log:
        mean, low, high = np.exp((mean, low, high))
    style = {"markevery": max(1, len(bars) // 6), "markersize": 5, **style}
    (line,) = ax.plot(x, mean, **style)
    ax.fill_between(x, low, high, color=line.get_color(), alpha=0.18, linewidth=0)


def plain_log(ax: Axes) -> None:
    """A logarithmic y axis whose ticks are plain numbers: 0.1, 0.2, 0.5, 1."""
    from matplotlib.ticker import LogLocator

    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("")


def points(ax: Axes, values: Mapping[str, Interval], labels: Mapping[str, str] | None = None):
    """One row an arm: its mean as a marker, its interval as a bar, the first arm on top."""
    for row, (arm, bar) in enumerate(values.items()):
        drawn = look(arm) | {"linestyle": "none"}
        error = np.array([[bar.mean - bar.low], [bar.high - bar.mean]])
        ax.errorbar(bar.mean, row, xerr=error, capsize=3, markersize=7, **drawn)
    ax.set_yticks(range(len(values)), [(labels or {}).get(arm, arm) for arm in values])
    ax.set_ylim(len(values) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)


def axes_picture(methods: Sequence[str] = ("batch", "layer", "group", "instance")):
    """The numbers that share one mean and variance: cases × units × positions, a panel a method.

    The RMS variant averages over the same numbers as layer normalization, without the mean. Raises
    `ValueError` for a method that averages over no activations (none, weight).
    """
    import matplotlib.pyplot as plt

    cases, units, positions = 3, 6, 4
    shared = {
        "cases": lambda n, c, p: c == 0,
        "units": lambda n, c, p: n == 0,
        "group": lambda n, c, p: (n == 0) & (c < units // 2),
        "positions": lambda n, c, p: (n == 0) & (c == 0),
    }
    drawn = {name: shared[form.over] for name, form in FORMS.items() if form.over in shared}
    unknown = [m for m in methods if m not in drawn]
    if unknown:
        raise ValueError(f"{unknown} average over no activations; choose from {list(drawn)}")
    grid = np.indices((cases, units, positions))
    fig = plt.figure(figsize=(2.6 * len(methods), 2.9))
    for k, name in enumerate(methods):
        ax = fig.add_subplot(1, len(methods), k + 1, projection="3d")
        colors = np.where(drawn[name](*grid), METHODS[name].color, "#f2f2f2")
        ax.voxels(np.ones(grid.shape[1:], bool), facecolors=colors, edgecolor="#8a8a8a", lw=0.4)
        ax.set(title=METHODS[name].title, xlabel="cases", ylabel="units", zlabel="positions")
        ax.set(xticks=[], yticks=[], zticks=[])
        ax.xaxis.labelpad = ax.yaxis.labelpad = ax.zaxis.labelpad = -12
        ax.set_box_aspect((cases, units, positions), zoom=1.15)
        ax.view_init(elev=22, azim=-145)
    return fig
