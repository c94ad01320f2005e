"""Claims about permutation-invariant MNIST (section 6.6): what the paper's own text decides, and
what the recorded runs do, by the rules of `chapter_19_mnist`."""

from dataclasses import replace

from layernorm.lab import records
from layernorm.lab.analysis.statistics import interval
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.chapter_19_mnist import (
    BELOW,
    COMMON,
    COST_OF_4,
    DRIFT,
    ERROR,
    GAP,
    SECONDS,
    SIZES,
    SPEED,
    decided_by,
    named,
    pair,
    results,
    rule,
    shared,
    shared_unless_costly,
)
from layernorm.lab.claims.judging import GUESSING, final
from layernorm.lab.claims.sources import reported

TO_WEIGHT_NORM = {
    name: replace(e, compared=(*e.compared, "weight")) for name, e in reported.EXPERIMENTS.items()
}


@claim(
    id="paper-compares-with-weight-normalization",
    statement="The paper's experiments compare layer normalization with weight normalization, too.",
    kind="property",
    chapter="19",
    rule="proved if at least one of the paper's experiments has an arm with weight normalization, "
    "else refuted",
    sabotage=("layernorm.lab.claims.sources.reported.EXPERIMENTS", TO_WEIGHT_NORM),
)
def compares_with_weight_normalization() -> Finding:
    experiments = reported.EXPERIMENTS.values()
    count = sum("weight" in e.compared for e in experiments)
    return Finding(
        "proved" if count else "refuted",
        f"{count} of {len(experiments)} experiments have such an arm; the paper compares the two "
        "in its theory alone.",
        numbers={"experiments": count},
    )


@claim(
    id="learns-online/mnist",
    statement="A network with layer normalization learns MNIST online, one case an update.",
    rule="experiment mnist, profile standard, arm layer-1: supported if its test error where the "
    "validation cross-entropy is lowest is below 20% with every seed, opposite if it is that of "
    "guessing, 90%, with every seed, else inconclusive",
    **COMMON,
)
def learns_online() -> Finding:
    if not records.runs("mnist", "standard"):
        return Finding("not yet tested")
    error = final(records.load("mnist", "standard"), "layer-1", ERROR)
    evidence = (
        f"After the updates on single cases the test error is {interval(error.tolist()):.1f}% "
        f"[95% interval], at worst {error.max():.1f}%."
    )
    if error.max() < 20:
        return Finding("supported here", evidence)
    if error.min() >= GUESSING:
        return Finding("opposite here", evidence)
    return Finding("inconclusive", evidence, reason="Some seeds learn and others do not.")


_FASTER = ("paper section 6.6", "summary A", "summary B", "summary C")
_WHERE = {128: "mnist", 4: "mnist_batch_4", 1: "mnist_batch_1"}
_SIZE = {128: "In batches of 128", 4: "In batches of 4", 1: "Learning case by case"}

for n in SIZES:
    decided_by(
        f"faster-than-plain/{_WHERE[n]}",
        f"{_SIZE[n]}, a network with layer normalization learns MNIST in fewer updates than one "
        "without normalization that starts as PyTorch starts it.",
        _FASTER,
        *(SPEED, "layer", "none", n),
    )
    decided_by(
        f"faster-per-update/{_WHERE[n]}",
        f"{_SIZE[n]}, it is normalization that makes the network learn MNIST in fewer updates: it "
        "learns faster than one without normalization whose weights start at a good scale, too.",
        _FASTER,
        *(SPEED, "layer", "rescaled", n),
    )
for n, setup in ((128, "batch/logits"), (4, "batch/logits/unbiased")):
    decided_by(
        f"faster-than-batch/{_WHERE[n]}",
        f"{_SIZE[n]}, layer normalization makes the network learn MNIST in fewer updates than "
        "batch normalization of the same layers.",
        ("paper section 6.6", "summary A", "summary C"),
        *(SPEED, "layer", "batch", n),
    )
    decided_by(
        f"faster-than-batch-with-logits/{_WHERE[n]}",
        f"{_SIZE[n]}, layer normalization of the hidden layers makes the network learn MNIST in "
        "fewer updates than batch normalization of all layers, the logits among them.",
        ("paper section 6.6",),
        *(SPEED, "layer", setup, n),
    )
decided_by(
    "better-result-than-plain/mnist",
    "Layer normalization gives a lower test error on MNIST than none.",
    ("summary A", "summary C"),
    *(ERROR, "layer", "none", 128, 4),
)
decided_by(
    "better-result-than-batch/mnist",
    "Layer normalization gives a lower test error on MNIST than batch normalization.",
    ("summary A", "summary C"),
    *(ERROR, "layer", "batch", 128, 4),
)
decided_by(
    "normalized-logits-harm/mnist",
    "The last, softmax layer of a classifier should not be layer-normalized.",
    ("paper section 6.6",),
    *(SPEED, "layer", "layer/logits", *SIZES),
)
decided_by(
    "gain-and-bias-help/mnist",
    "The learned gain and bias of layer normalization improve what is learned.",
    ("this book",),
    *(SPEED, "layer", "layer/plain", 128),
)
decided_by(
    "centering-matters/mnist",
    "Subtracting the mean matters: layer normalization learns better than RMS normalization.",
    ("this book",),
    *(SPEED, "layer", "rms", *SIZES),
)
decided_by(
    "faster-in-seconds/mnist",
    "Although each update takes longer, layer normalization shortens training on MNIST, counted "
    "in seconds.",
    ("summary B",),
    *(SECONDS, "layer", "none", *SIZES),
)


@claim(
    id="robust-to-small-batches/mnist",
    statement="On MNIST, layer normalization is robust to small batches, 4 against 128 cases, "
    "where batch normalization is not.",
    rule=rule(ERROR, "what batches of 4 cost layer (layer-4 less layer) less what they cost batch"),
    **COMMON,
)
def robust_to_small_batches() -> Finding:
    return shared(COST_OF_4)


@claim(
    id="batch-noise-regularizes/mnist",
    statement="The noise of batch statistics regularizes: the gap between training and test is "
    "smaller under batch than under layer normalization.",
    rule=rule(GAP, "batch/few less layer/few, both on 5000 training examples"),
    **COMMON,
)
def batch_noise_regularizes() -> Finding:
    return shared(*pair(GAP, "batch/few", "layer/few", 128))


@claim(
    id="robust-to-initial-scale/mnist",
    statement="On MNIST, layer normalization makes learning robust to the scale of the initial "
    "weights.",
    rule=rule(
        SPEED,
        "what hidden weights ten times smaller and larger cost layer, at the rate tuned for the "
        "usual start, less what they cost none",
    ),
    **COMMON,
)
def robust_to_initial_scale() -> Finding:
    return shared("small start, layer - none", "large start, layer - none")


@claim(
    id="learning-ignores-initial-scale/mnist",
    statement="At one learning rate, a layer-normalized network learns MNIST equally well from "
    "weights of any initial scale.",
    rule=rule(
        SPEED,
        "layer from hidden weights ten times smaller and larger less layer from the usual start",
        "supported if neither differs, opposite if one costs, else inconclusive",
    ),
    **COMMON,
)
def learning_ignores_initial_scale() -> Finding:
    return shared_unless_costly("small start, layer", "large start, layer")


@claim(
    id="less-drift-causes-the-gain/mnist",
    statement="Layer normalization speeds up learning because it reduces covariate shift.",
    rule=rule(
        SPEED,
        "there must be a gain, layer less none supported (else inconclusive). The claim then needs "
        "two things: the layers below shift summed inputs less under layer than under rescaled "
        "(margin 0.1 starting standard deviations), and noise after normalization that makes "
        "summed inputs drift more makes learning slower",
        "supported if both hold; opposite if either comparison comes out as no difference or the "
        "other way, the noise counting only if it raises the drift; else inconclusive",
    ),
    **COMMON,
)
def less_drift_causes_the_gain() -> Finding:
    (gain,) = pair(SPEED, "layer", "none", 128)
    (below,) = pair(BELOW, "layer", "rescaled", 128)
    (drifts,) = pair(DRIFT, "layer", "layer/noise", 128)
    (slower,) = pair(SPEED, "layer", "layer/noise", 128)
    result = results(gain, below, drifts, slower)
    if result is None:
        return Finding("not yet tested")
    if result.problem:
        return result.finding("inconclusive", result.problem)
    verdict = {name: comparison.verdict for name, comparison in result.found.items()}
    if verdict[gain] != "supported here":
        return result.finding("inconclusive", "There is no sure gain over none to explain.")
    against = ("opposite here", "no difference here")
    noisy = verdict[drifts] == "supported here"
    if verdict[below] in against or (noisy and verdict[slower] in against):
        return result.finding("opposite here")
    if noisy and verdict[below] == verdict[slower] == "supported here":
        return result.finding("supported here")
    return result.finding("inconclusive", "One of the comparisons has no verdict.")


@claim(
    id="slower-per-update/mnist",
    statement="An update of the MNIST network takes longer with layer normalization.",
    rule="experiment mnist, profile standard, seconds of an update of layer over those of none, "
    "timed alone on a CPU, one thread, at batch size 128, 4 and 1: supported if every ratio is "
    "above 1.05, opposite if every one is below 0.95, no difference if every one is between, else "
    "inconclusive",
    **COMMON,
)
def slower_per_update() -> Finding:
    runs = records.runs("mnist", "standard")
    if not runs:
        return Finding("not yet tested")
    seconds = {run.config["arm"]: run.timing["seconds_per_update"] for run in runs}
    ratios = [seconds[named("layer", n)] / seconds[named("none", n)] for n in SIZES]
    said = ", ".join(f"{r:.2f} (batch {n})" for n, r in zip(SIZES, ratios, strict=True))
    evidence = f"An update takes {said} times as long as without normalization."
    if min(ratios) > 1.05:
        return Finding("supported here", evidence)
    if max(ratios) < 0.95:
        return Finding("opposite here", evidence)
    if all(0.95 <= ratio <= 1.05 for ratio in ratios):
        return Finding("no difference here", evidence)
    return Finding("inconclusive", evidence, reason="The batch sizes disagree.")
