"""Claims about permutation-invariant MNIST (section 6.6) that no comparison of arms decides."""

from layernorm.lab import records
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.checks import shared
from layernorm.lab.experiments.judged import of_ratio

SLOWER = 1.05  # as in chapter 12


@claim(
    id="slower-per-update/mnist",
    statement="An update of the MNIST network takes longer with layer normalization.",
    kind="experiment",
    rule="experiment mnist, profile standard, seconds of an update of none over those of layer, "
    "timed alone on a CPU, one thread; an interval from the least to the greatest ratio at batch "
    f"size 128, 4 and 1; better by more than the margin, {SLOWER:.2f}, in logarithms",
)
def slower_per_update() -> Finding:
    runs = records.runs("mnist", "standard")
    if not runs:
        return Finding("not yet tested")
    sizes = {"": 128, "-4": 4, "-1": 1}
    seconds = {run.config["arm"]: run.timing["seconds_per_update"] for run in runs}
    ratios = [seconds[f"layer{n}"] / seconds[f"none{n}"] for n in sizes]
    said = ", ".join(f"{r:.2f} (batch {n})" for n, r in zip(sizes.values(), ratios, strict=True))
    evidence = f"An update takes {said} times as long as without normalization."
    found = of_ratio(min(ratios), max(ratios), SLOWER, "better", inverse=True)
    return shared([found], evidence, "The batch sizes disagree.")
