"""Claims of chapter 01 that its three studies decide (`layernorm.lab.experiments.studies`)."""

from __future__ import annotations

from dataclasses import replace

from layernorm.lab import records
from layernorm.lab.analysis.statistics import compare, interval
from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.judging import final, not_learning, one_verdict
from layernorm.lab.experiments.experiment import Experiment
from layernorm.lab.experiments.studies import drift, initialization, initialization_deep

DRIFT_CONFIDENCE = 0.99  # five claims share the study's 5%
START_CONFIDENCE = 0.9875  # four claims share the study's 5%
DEEP_CONFIDENCE = 0.975  # two claims share the study's 5%
UNITS = 128  # of the watched layer


def watched(metric: str, activations, margin: float, unit: str) -> Finding:
    """Layer normalization against the control, each at its own rate, in the watched layer."""
    if not records.runs(drift.EXPERIMENT.name, "book"):
        return Finding("not yet tested")
    arms = [f"{arm}-{activation}" for activation in activations for arm in ("layer", "rescaled")]
    if reason := not_learning(drift.EXPERIMENT.name, arms):
        return Finding("inconclusive", reason=reason)
    frame = records.load(drift.EXPERIMENT.name, "book")
    pairs = {
        f"layer - rescaled, {a}": [final(frame, f"{m}-{a}", metric) for m in ("layer", "rescaled")]
        for a in activations
    }
    return one_verdict(pairs, margin, unit, DRIFT_CONFIDENCE)


RULE = (
    "study drift, at the end of training: layer against the control rescaled, each at its tuned "
    "rate, paired by seed, Holm over the activations at 1% (five claims share the study); the "
    "verdict they share with a margin of {margin}, else inconclusive; so too if an arm only "
    "guesses or does not fit 32 examples"
)


@claim(
    id="drift-reduced/digits",
    statement="Fixing the mean and variance of the summed inputs within each layer reduces how far "
    "they drift because the layers below learn.",
    said_by=("paper section 3", "summary A", "summary D"),
    kind="experiment",
    chapter="01",
    rule=RULE.format(margin="0.1 starting standard deviations"),
)
def drift_reduced() -> Finding:
    return watched("drift_below", drift.ACTIVATIONS, 0.1, "starting standard deviations")


@claim(
    id="inactive-region-avoided/digits",
    statement="Over training, normalization keeps summed inputs out of the inactive region of the "
    "activation function.",
    said_by="summary D",
    kind="experiment",
    chapter="01",
    rule=RULE.format(margin="0.05 in the share of saturated summed inputs, tanh and sigmoid"),
)
def inactive_region_avoided_in_training() -> Finding:
    return watched("saturated", ("tanh", "sigmoid"), 0.05, "the share of saturated summed inputs")


@claim(
    id="removes-correlation/digits",
    statement="In a trained network, layer normalization makes the summed inputs to different "
    "units less correlated.",
    said_by="summary A",
    kind="experiment",
    chapter="01",
    rule=RULE.format(margin="0.02 in the mean squared correlation of two units"),
)
def removes_correlation_in_training() -> Finding:
    return watched("correlation", drift.ACTIVATIONS, 0.02, "mean squared correlation")


@claim(
    id="correlated-changes/digits",
    statement="Changes in the output of one layer cause highly correlated changes in the summed "
    "inputs to the next.",
    said_by=("paper section 3", "summary A"),
    kind="experiment",
    chapter="01",
    rule="study drift, arms none and rescaled, three activations: in how many of the 128 "
    "directions the change lies that the layer below caused in training; supported if every 99% "
    "interval ends below 12.8 (a tenth), opposite if every one begins above 64 (half), else "
    "inconclusive; so too if an arm only guesses or does not fit 32 examples",
)
def correlated_changes() -> Finding:
    if not records.runs(drift.EXPERIMENT.name, "book"):
        return Finding("not yet tested")
    arms = [
        f"{arm}-{activation}" for arm in ("none", "rescaled") for activation in drift.ACTIVATIONS
    ]
    if reason := not_learning(drift.EXPERIMENT.name, arms):
        return Finding("inconclusive", reason=reason)
    frame = records.load(drift.EXPERIMENT.name, "book")
    found = {a: interval(final(frame, a, "change_directions"), DRIFT_CONFIDENCE) for a in arms}
    evidence = f"Of {UNITS} directions the changes lie in effectively " + ", ".join(
        f"{bar.mean:.1f} ({arm})" for arm, bar in found.items()
    )
    numbers = {arm: bar.mean for arm, bar in found.items()}
    if all(bar.high < UNITS / 10 for bar in found.values()):
        return Finding("supported here", f"{evidence}.", numbers=numbers)
    if all(bar.low > UNITS / 2 for bar in found.values()):
        return Finding("opposite here", f"{evidence}.", numbers=numbers)
    reason = f"Not every interval ends below {UNITS / 10}, nor begins above {UNITS / 2:.0f}."
    return Finding("inconclusive", f"{evidence}.", reason=reason, numbers=numbers)


@claim(
    id="relu-changes-more-correlated/digits",
    statement="Changes in summed inputs are correlated especially below ReLU units, whose outputs "
    "can change by a lot.",
    said_by="paper section 3",
    kind="experiment",
    chapter="01",
    rule="study drift: the effective number of directions of the change (see correlated-changes) "
    "with ReLU against tanh and against sigmoid, arm rescaled, paired by seed, Holm over the two "
    "at 1%; the verdict they share with a margin of 1 direction, else inconclusive; so too if an "
    "arm only guesses or does not fit 32 examples",
)
def relu_changes_more_correlated() -> Finding:
    if not records.runs(drift.EXPERIMENT.name, "book"):
        return Finding("not yet tested")
    if reason := not_learning(drift.EXPERIMENT.name, [f"rescaled-{a}" for a in drift.ACTIVATIONS]):
        return Finding("inconclusive", reason=reason)
    frame = records.load(drift.EXPERIMENT.name, "book")
    number = {a: final(frame, f"rescaled-{a}", "change_directions") for a in drift.ACTIVATIONS}
    pairs = {f"relu - {a}": (number["relu"], number[a]) for a in ("tanh", "sigmoid")}
    return one_verdict(pairs, 1.0, "effective directions", DRIFT_CONFIDENCE)


def cost(frame, study: Experiment, method: str, scheme: str, suffix: str = "-tuned"):
    """What another start costs a method in the study's metric, by seed."""
    changed = final(frame, f"{method}-{scheme}{suffix}", study.primary)
    return changed - final(frame, f"{method.split('/')[0]}-default", study.primary)


def robust(study: Experiment, schemes, unit: str, confidence: float) -> Finding:
    """What the schemes cost layer normalization against what they cost no normalization."""
    if not records.runs(study.name, "book"):
        return Finding("not yet tested")
    if reason := not_learning(study.name, ["layer-default", "none-default"]):
        return Finding("inconclusive", reason=reason)
    frame = records.load(study.name, "book")
    pairs = {
        f"{scheme}, layer - none": [cost(frame, study, m, scheme) for m in ("layer", "none")]
        for scheme in schemes
    }
    found = one_verdict(pairs, study.margin, f"what the start costs ({unit})", confidence)
    return replace(found, evidence=f"{found.evidence} {control(frame, study, schemes)}")


def control(frame, study: Experiment, schemes) -> str:
    """What the schemes cost the control, whose rescaling undoes any common factor."""
    if f"rescaled-{schemes[0]}-tuned" not in study.arms:
        return "For the control rescaled all scales are one."
    parts = [f"{cost(frame, study, 'rescaled', s).mean():.2f} ({s})" for s in schemes]
    return f"The control rescaled pays {', '.join(parts)}."


ROBUST_RULE = (
    "study initialization: what {schemes} cost layer in mean training cross-entropy, against what "
    "they cost none, each start at its own tuned rate, paired by seed, Holm over the comparisons "
    "at 1.25% (four claims share the study); the verdict they share with a margin of 0.02 nats, "
    "else inconclusive; so too if layer or none does not learn from the default start (an arm that "
    "does not learn from another start has paid its cost)"
)


@claim(
    id="robust-to-initial-scale/digits",
    statement="Layer normalization makes learning robust to the scale of the initial weights.",
    said_by="summary C",
    kind="experiment",
    chapter="01",
    rule=ROBUST_RULE.format(schemes="weights ten times smaller and larger"),
)
def robust_to_initial_scale() -> Finding:
    return robust(initialization.EXPERIMENT, ("small", "large"), "nats", START_CONFIDENCE)


@claim(
    id="robust-to-shifted-weights/digits",
    statement="Layer normalization makes learning robust to a constant added to all initial "
    "weights.",
    said_by="summary C",
    kind="experiment",
    chapter="01",
    rule=ROBUST_RULE.format(schemes="weights shifted by their root mean square"),
)
def robust_to_shifted_weights() -> Finding:
    return robust(initialization.EXPERIMENT, ("shifted",), "nats", START_CONFIDENCE)


@claim(
    id="robust-to-uneven-weights/digits",
    statement="Layer normalization makes learning robust to initial weight vectors whose scales "
    "differ from unit to unit.",
    said_by="summary C",
    kind="experiment",
    chapter="01",
    rule=ROBUST_RULE.format(schemes="weight vectors scaled by 0.1 to 10, each unit its own"),
)
def robust_to_uneven_weights() -> Finding:
    return robust(initialization.EXPERIMENT, ("uneven",), "nats", START_CONFIDENCE)


@claim(
    id="learning-ignores-initial-scale/digits",
    statement="At one learning rate, a layer-normalized network learns equally well from weights "
    "of any initial scale.",
    said_by="summary C",
    kind="experiment",
    chapter="01",
    rule="study initialization: mean training cross-entropy of layer from weights ten times "
    "smaller and larger against the default, all at the rate tuned for the default, paired by "
    "seed, Holm over the two at 1.25%, margin 0.02 nats; supported if neither differs, opposite if "
    "one does, else inconclusive; so too if the default does not learn",
)
def learning_ignores_initial_scale() -> Finding:
    return same_rate(initialization.EXPERIMENT, "nats", START_CONFIDENCE)


def same_rate(study: Experiment, unit: str, confidence: float) -> Finding:
    """What other scales cost layer normalization at the rate tuned for the default start."""
    if not records.runs(study.name, "book"):
        return Finding("not yet tested")
    if reason := not_learning(study.name, ["layer-default"]):
        return Finding("inconclusive", reason=reason)
    frame = records.load(study.name, "book")
    costs = {scheme: cost(frame, study, "layer", scheme, "") for scheme in ("small", "large")}
    pairs = {scheme: (values, 0 * values) for scheme, values in costs.items()}
    found = compare(pairs, study.margin, confidence)
    verdicts = {c.verdict for c in found.values()}
    parts = [f"{scheme} {c.difference:.2f}" for scheme, c in found.items()]
    evidence = f"What another start costs in {unit} [{confidence * 100:g}% interval]: "
    evidence += f"{'; '.join(parts)}."
    numbers = {scheme: c.difference.mean for scheme, c in found.items()}
    if verdicts == {"no difference here"}:
        return Finding("supported here", evidence, numbers=numbers)
    if verdicts & {"supported here", "opposite here"}:
        return Finding("opposite here", evidence, numbers=numbers)
    return Finding("inconclusive", evidence, reason="An interval is too wide.", numbers=numbers)


DEEP_RULE = (
    "study initialization_deep (eight hidden layers): what weights ten times smaller and larger "
    "cost layer in points of test error{against}, paired by seed, Holm over the two at 2.5% (two "
    "claims share the study), margin 1 point; {verdicts}, else inconclusive; so too if the default "
    "start does not learn (an arm that does not learn from another start has paid its cost)"
)


@claim(
    id="robust-to-initial-scale/deep_digits",
    statement="In a deep network, layer normalization makes learning robust to the scale of the "
    "initial weights.",
    said_by="summary C",
    kind="experiment",
    chapter="01",
    rule=DEEP_RULE.format(
        against=" against what they cost none, each start at its own tuned rate",
        verdicts="the verdict they share",
    ),
)
def robust_to_initial_scale_in_deep_networks() -> Finding:
    return robust(initialization_deep.EXPERIMENT, ("small", "large"), "points", DEEP_CONFIDENCE)


@claim(
    id="learning-ignores-initial-scale/deep_digits",
    statement="At one learning rate, a deep layer-normalized network learns equally well from "
    "weights of any initial scale.",
    said_by="summary C",
    kind="experiment",
    chapter="01",
    rule=DEEP_RULE.format(
        against=", all at the rate tuned for the default",
        verdicts="supported if neither differs, opposite if one does",
    ),
)
def learning_ignores_initial_scale_in_deep_networks() -> Finding:
    return same_rate(initialization_deep.EXPERIMENT, "points", DEEP_CONFIDENCE)
