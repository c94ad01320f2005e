"""The comparisons of permutation-invariant MNIST: margins and claims; the arms are `plan`'s."""

from __future__ import annotations

from dataclasses import replace

from layernorm.lab.analysis.curves import logarithm, over_seconds
from layernorm.lab.experiments.contrasts import (
    GATES,
    Comparison,
    Comparisons,
    Margin,
    Said,
    families,
    less,
    minus,
)

SIZES = (128, 4, 1)


def named(arm: str, size: int) -> str:
    """The arm's name at a batch size: `layer`, `layer-4`, `layer-1`."""
    return arm if size == 128 else f"{arm}-{size}"


SPEED, ERROR = "mean_test_nll", "best_test_error"
NATS = Margin(
    *(0.01, "nats", "the mean of the test cross-entropy over the curve"),
    "a fifteenth of what a tuned network has on average over its curve at batch 128",
)
POINTS = Margin(
    *(0.2, "points", "the test error where the validation cross-entropy is lowest"),
    "twenty of the 10,000 test images",
    resolution=0.01,
)
TENTH = Margin(
    *(0.1, "(logarithm)", "the logarithm of the mean of the training cross-entropy over the curve"),
    "a tenth of the cross-entropy; figure 6 spans seven powers of ten",
)
IMAGES = replace(POINTS, size=0.1, why="ten of the 10,000 test images")
PER_SECOND = replace(NATS, of="the mean of the test cross-entropy over the quicker arm's seconds")
GAP = replace(NATS, of="test less training cross-entropy at the end")
DRIFTED = Margin(
    *(0.1, "starting standard deviations", "the drift of summed inputs"),
    "a tenth of how much a unit's summed inputs vary at the start",
    null="both networks before training, between which there is no difference",
)


_OF = {  # the end of a comparison's name: metric, margin
    "": (SPEED, NATS),
    "training": (logarithm("mean_train_nll"), TENTH),
    "late error": (ERROR, IMAGES),
    "error": (ERROR, POINTS),
    "seconds": (over_seconds("test_nll"), PER_SECOND),
    "drift": ("drift", DRIFTED),
    "drift from below": ("drift_below", replace(DRIFTED, of="the drift that layers below cause")),
}


def _pairs(
    claim: Said | None, favored: str, other: str, *sizes: int, of: str = "", family: str = "primary"
):
    """Two arms at these batch sizes, each a condition of the claim."""
    metric, margin = _OF[of]
    for n in sizes:
        name = f"{favored} - {other}, batch {n}{of and ', '}{of.removeprefix('late ')}"
        contrast = less(named(favored, n), named(other, n), metric)
        yield Comparison(name, contrast, margin, claim, family=family)


def _starts():
    """The cost to `layer` of hidden weights of another scale, and that cost less the one to `none`,
    at the rate tuned for the usual start."""
    for start in ("small", "large"):
        layer, none = (less(f"{method}/{start}", method, SPEED) for method in ("layer", "none"))
        yield Comparison(f"{start} start, layer - none", minus(layer, none), NATS, _ROBUST)
        yield Comparison(f"{start} start, layer", layer, NATS, _IGNORES, says="same")


_WHERE = {128: "mnist", 4: "mnist_batch_4", 1: "mnist_batch_1"}
_HOW = {128: "In batches of 128", 4: "In batches of 4", 1: "Learning case by case"}
_ROBUST = Said(
    "robust-to-initial-scale/mnist",
    "On MNIST, layer normalization makes learning robust to the scale of the initial weights.",
)
_IGNORES = Said(
    "learning-ignores-initial-scale/mnist",
    "At one learning rate, a layer-normalized network learns MNIST equally well from weights ten "
    "times smaller and ten times larger than the usual ones.",
)
_DRIFT_CAUSES = Said(
    "less-drift-causes-the-gain/mnist",
    "Layer normalization speeds up learning because it reduces covariate shift.",
    given=("layer - none, batch 128", "layer - layer/noise, batch 128, drift"),
)
_AT_A_SIZE = (  # for each batch size a claim; the arm that `layer` is compared with
    (
        "faster-than-plain",
        "a network with layer normalization learns MNIST in fewer updates than one without "
        "normalization that starts as PyTorch starts it.",
        {128: "none", 4: "none", 1: "none"},
    ),
    (
        "faster-per-update",
        "a network with layer normalization learns MNIST in fewer updates than one without "
        "normalization whose weights start at a good scale.",
        {128: "rescaled", 4: "rescaled", 1: "rescaled"},
    ),
    (
        "faster-than-batch",
        "layer normalization makes the network learn MNIST in fewer updates than batch "
        "normalization of the same layers.",
        {128: "batch", 4: "batch"},
    ),
    (
        "faster-than-batch-with-logits",
        "layer normalization of the hidden layers makes the network learn MNIST in fewer updates "
        "than batch normalization of all layers, the logits among them.",
        {128: "batch/logits", 4: "batch/logits/unbiased"},
    ),
)
_AT_ALL_SIZES = (  # one claim, its batch sizes are conditions
    (
        "better-result-than-plain/mnist",
        "Layer normalization gives a lower test error on MNIST than no normalization.",
        *("none", (128, 4), "error"),
    ),
    (
        "better-result-than-batch/mnist",
        "In batches of 128, layer normalization gives a lower test error on MNIST than batch "
        "normalization of the same layers.",
        *("batch", (128, 4), "error"),
    ),
    (
        "normalized-logits-harm/mnist",
        "The last, softmax layer of a classifier should not be layer-normalized.",
        *("layer/logits", SIZES, ""),
    ),
    (
        "gain-and-bias-help/mnist",
        "The learned gain and bias of layer normalization improve what is learned.",
        *("layer/plain", (128,), ""),
    ),
    (
        "centering-matters/mnist",
        "Subtracting the mean matters: layer normalization learns better than RMS normalization.",
        *("rms", SIZES, ""),
    ),
    (
        "faster-in-seconds/mnist",
        "Although each update takes longer, layer normalization shortens training on MNIST, "
        "counted in seconds.",
        *("none", SIZES, "seconds"),
    ),
)


def _stated():
    for id, statement, others in _AT_A_SIZE:
        for n, other in others.items():
            claim = Said(f"{id}/{_WHERE[n]}", f"{_HOW[n]}, {statement}")
            yield from _pairs(claim, "layer", other, n)
    for id, statement, other, sizes, of in _AT_ALL_SIZES:
        yield from _pairs(Said(id, statement), "layer", other, *sizes, of=of)


PRIMARY = (
    # section 6.6: faster than batch normalization of all layers, at both sizes of figure 6; robust
    *("layer - batch/logits, batch 128", "layer - batch/logits/unbiased, batch 4"),
    "cost of batch 4, layer - batch",
    # summaries A to C: faster than none; they name no batch size, so at the usual one; its control
    *("layer - none, batch 128", "layer - rescaled, batch 128"),
    "layer - batch, batch 128, error",  # summaries A and C: better in results, too, than batch
)
COMPARISONS = Comparisons(
    chapter="19",
    gates=tuple(replace(gate, exempt=("*/small", "*/large")) for gate in GATES),
    rows=families(
        (
            *_stated(),
            Comparison(
                "cost of batch 4, layer - batch",
                minus(less("layer-4", "layer", ERROR), less("batch-4", "batch", ERROR)),
                POINTS,
                Said(
                    "robust-to-small-batches/mnist",
                    f"Going from {480 * 128:,} examples in batches of 128 to {1800 * 4:,} in "
                    "batches of 4 costs layer normalization less test error on MNIST than it costs "
                    "batch normalization.",
                ),
            ),
            Comparison(
                "gap, batch/few - layer/few",
                minus(
                    less("batch/few", "layer/few", "test_nll"),
                    less("batch/few", "layer/few", "train_nll"),
                ),
                GAP,
                Said(
                    "batch-noise-regularizes/mnist",
                    "The noise of batch statistics regularizes: the gap between training and "
                    "test is smaller under batch than under layer normalization.",
                ),
            ),
            *_starts(),
            *_pairs(None, "layer", "layer/noise", 128, of="drift"),
            *_pairs(_DRIFT_CAUSES, "layer", "rescaled", 128, of="drift from below"),
            *_pairs(_DRIFT_CAUSES, "layer", "layer/noise", 128),
        ),
        *PRIMARY,
    ),
)


def figure_6(profile: str, n: int, all_layers: str, epochs: int) -> Comparisons:
    """Section 6.6's statements about figure 6 at one batch size, and their control."""
    where = f"mnist_batch_{n}_{epochs}_epochs"
    how = f"In {epochs} epochs of batches of {n}, at rates tuned on fewer"
    said = (
        (
            *(all_layers, "training", "trains-faster-than-batch-with-logits"),
            "layer normalization of the hidden layers brings the training cross-entropy on MNIST "
            "down faster than batch normalization of all layers.",
        ),
        (
            *(all_layers, "late error", "better-result-than-batch-with-logits"),
            "layer normalization of the hidden layers gives a lower test error on MNIST than batch "
            "normalization of all layers.",
        ),
        (
            *("none", "training", "trains-faster-than-plain"),
            "layer normalization brings the training cross-entropy on MNIST down faster than no "
            "normalization.",
        ),
        (
            *("rescaled", "training", "trains-faster-than-rescaled"),
            "layer normalization brings the training cross-entropy on MNIST down faster than a "
            "good scale of the first weights does without normalization.",
        ),
    )
    primary = (
        row
        for other, of, id, statement in said
        for row in _pairs(Said(f"{id}/{where}", f"{how}, {statement}"), "layer", other, n, of=of)
    )
    explored = (
        row
        for other in ("none", "rescaled")
        for row in _pairs(None, "layer", other, n, of="late error", family="exploratory")
    )
    return Comparisons((*primary, *explored), "19", profile=profile)
