"""The paper's figure 1 and table 2 from runs of ours, and scenes as pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from layernorm.lab import plotting
from layernorm.lab.analysis.curves import final
from layernorm.lab.analysis.statistics import interval
from layernorm.lab.data import DATASETS
from layernorm.lab.data.scenes import EMPTY, Scenes
from layernorm.lab.experiments.order_embeddings.ranking import KS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame, Series

COLUMNS = {
    f"{what} {name}": f"best_test_{what}_{metric}"
    for what in ("caption", "image")
    for name, metric in (("R@1", "r1"), ("R@5", "r5"), ("R@10", "r10"), ("mean r", "rank"))
}


def figure_1(frame: DataFrame, arms: Sequence[str]) -> Figure:
    """R@1, R@5 and R@10 of image retrieval on the validation fold against updates, mean and 95%
    interval; without runs the empty axes say so."""
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 3, figsize=(7.4, 2.9), layout="constrained")
    for ax, k in zip(axes, KS, strict=True):
        ax.set(title=f"R@{k}", xlabel="updates")
        if frame.empty:
            ax.text(0.5, 0.5, "not measured yet", ha="center", transform=ax.transAxes)
            ax.set(xticks=[], yticks=[])
            continue
        plotting.curves(ax, frame, f"validation_image_r{k}", arms)
        ax.set(xlim=(0, None), ylim=(0, None))
    axes[0].set_ylabel("image retrieval (%)")
    if not frame.empty:
        axes[0].legend(fontsize=8)
    return fig


def table_2(frame: DataFrame, arms: Sequence[str]) -> DataFrame:
    """Table 2 in the paper's form, arms as columns: the test fold where validation is best, mean
    and 95% interval; without runs every number is "not measured yet"."""
    import pandas

    found = {}
    for arm in arms:
        values = {name: final(frame, arm, metric) for name, metric in COLUMNS.items()}
        found[arm] = {
            name: _shown(of_arm, 100.0 if "R@" in name else math.inf)
            if len(of_arm) > 1
            else "not measured yet"
            for name, of_arm in values.items()
        }
    return pandas.DataFrame(found)


def _shown(values: Series, most: float) -> str:
    """Mean and interval, as far as it lies in the possible range."""
    bar = interval(values)
    return f"{replace(bar, low=max(bar.low, 0.0), high=min(bar.high, most)):.1f}"


def picture(ax: Axes, dataset: str, part: str, told: Scenes, scene: int, title: str = "") -> None:
    """One scene, its four places with what stands there."""
    pixels = getattr(DATASETS[dataset].load(), part).x
    size = pixels.shape[-1]
    shown = np.zeros((2 * size + 1, 2 * size + 1))
    for place, image in enumerate(told.images[scene].tolist()):
        if image != EMPTY:
            top, left = (place // 2) * (size + 1), (place % 2) * (size + 1)
            shown[top : top + size, left : left + size] = pixels[image]
    ax.imshow(shown, cmap="Greys", vmin=0, vmax=1)
    for line in (ax.axhline, ax.axvline):
        line(size, color="#8a8a8a", lw=0.6)
    ax.set(xticks=[], yticks=[])
    ax.grid(False)
    ax.set_title(title, fontsize=8)
