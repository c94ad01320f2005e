"""Claims about permutation-invariant MNIST (section 6.6) that no comparison of arms decides."""

from layernorm.lab import records
from layernorm.lab.claims import Finding, claim


@claim(
    id="slower-per-update/mnist",
    statement="An update of the MNIST network takes longer with layer normalization.",
    kind="experiment",
    rule="experiment mnist, profile standard, seconds of an update of layer over those of none, "
    "timed alone on a CPU, one thread, at batch size 128, 4 and 1: supported if every ratio is "
    "above 1.05, opposite if every one is below 0.95, no difference if every one is between, else "
    "inconclusive",
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
    if min(ratios) > 1.05:
        return Finding("supported here", evidence)
    if max(ratios) < 0.95:
        return Finding("opposite here", evidence)
    if all(0.95 <= ratio <= 1.05 for ratio in ratios):
        return Finding("no difference here", evidence)
    return Finding("inconclusive", evidence, reason="The batch sizes disagree.")
