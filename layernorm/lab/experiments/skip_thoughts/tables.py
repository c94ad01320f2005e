"""The paper's Figure 3 and Table 3 in their own form, made from the published runs.

While there are none, the figure's panels and the table's lower half say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from layernorm.lab import plotting, records
from layernorm.lab.analysis.curves import final
from layernorm.lab.analysis.statistics import interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

PROFILE, NOT_YET = "standard", "not measured yet"
PANELS = {
    "test_sick_r": "SICK r",
    "test_sick_mse": "SICK MSE",
    "test_mr": "MR (%)",
    "test_cr": "CR (%)",
    "test_subj": "SUBJ (%)",
    "test_nll": "a word of a neighbor (nats)",
}
ERRORS = ("mr", "cr", "subj")  # of which the paper shows what is right
ARMS = ("none", "rescaled", "layer")


def recorded() -> DataFrame | None:
    """The published runs as one table, with accuracies for errors; None where there are none."""
    if not records.runs("skip_thoughts", PROFILE):
        return None
    frame = records.load("skip_thoughts", profile=PROFILE)
    wrong = [*(f"{n}_{t}" for n in ("test", "words") for t in ERRORS)]
    wrong += [f"{task}_error" for task in ERRORS]
    turned = frame.metric.isin(wrong)
    return frame.assign(value=frame.value.where(~turned, 100 - frame.value))


def figure_3(frame: DataFrame | None) -> Figure:
    """Tasks against updates: mean and 95% interval; dotted, the bag of words."""
    import matplotlib.pyplot as plt

    size = (7.4, 4.6 if frame is not None else 1.8)
    figure, axes = plt.subplots(2, 3, figsize=size, layout="constrained", sharex=True)
    for ax, (metric, name) in zip(axes.flat, PANELS.items(), strict=True):
        ax.set_title(name, fontsize=10)
        if frame is None:
            ax.text(0.5, 0.5, NOT_YET, ha="center", va="center", transform=ax.transAxes)
            ax.set_axis_off()
            continue
        plotting.curves(ax, frame, metric, ARMS)
        bag = final(frame, ARMS[0], metric.replace("test_", "words_"))
        if not bag.empty:
            ax.axhline(bag.mean(), color="#6b6b6b", linestyle=":", lw=1.2)
    if frame is not None:
        for ax in axes[1]:
            ax.set_xlabel("updates")
        axes[0, 0].legend(fontsize=8)
    return figure


def table_3(
    frame: DataFrame | None, printed: Mapping[str, Sequence[float]], columns: Sequence[str]
) -> DataFrame:
    """The paper's rows, `printed`, then ours, with mean and 95% interval over seeds.

    Trained arms are judged as in the original; rows that say "fixed penalty", as the curves are.
    """
    import pandas

    rows = {f"paper: {name}": list(map(str, row)) for name, row in printed.items()}
    if frame is None:
        rows["here"] = [NOT_YET] * len(columns)
        return pandas.DataFrame.from_dict(rows, orient="index", columns=list(columns))
    tasks = ("sick_r", "sick_rho", "sick_mse", *ERRORS)
    start = frame[frame.step == 0].assign(step=float("nan"))
    bags = [_shown(frame, "none", f"words_{task}") for task in tasks]
    rows["here: bag of words (fixed penalty)"] = bags
    for arm in ARMS:
        name = f"here: {arm}, untrained (fixed penalty)"
        rows[name] = [_shown(start, arm, f"test_{task}") for task in tasks]
    for arm in ARMS:
        ends = (f"{task}_error" if task in ERRORS else task for task in tasks)
        rows[f"here: {arm}"] = [_shown(frame, arm, metric) for metric in ends]
    for name in rows:
        rows[name] += [""] * (len(columns) - len(rows[name]))  # MPQA is not among our files
    return pandas.DataFrame.from_dict(rows, orient="index", columns=list(columns))


def _shown(frame: DataFrame, arm: str, metric: str) -> str:
    values = final(frame, arm, metric)
    if len(values) < 2 or values.nunique() == 1:
        return f"{values.mean():.3g}" if len(values) else ""
    return f"{interval(values):.3g}"
