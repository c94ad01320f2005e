"""Claims of chapter 09 that its two studies decide, `adding` and `copy_memory`."""

from __future__ import annotations

from collections.abc import Callable

from layernorm.lab import records
from layernorm.lab.analysis.statistics import Comparison, compare, interval
from layernorm.lab.claims import Finding, declare
from layernorm.lab.claims.judging import final
from layernorm.lab.data.lags import TASKS
from layernorm.lab.experiments.experiment import Experiment
from layernorm.lab.experiments.studies import adding, copy_memory

PLANS = {study.EXPERIMENT.name: study.EXPERIMENT for study in (adding, copy_memory)}
NAMES = {"adding": "the adding problem", "copy_memory": "the copy task"}
FITS = 0.1  # of the loss of guessing, on 32 sequences
GENERALIZES, FAILS = 0.1, 0.5  # of the loss of guessing, on sequences of twice the length


def task(plan: Experiment):
    return TASKS[plan.arms["paper"]["task"]]


def not_learning(plan: Experiment, arms) -> str | None:
    """Why arms cannot be compared, as a sentence, or None: one guesses, or one does not fit."""
    guess = task(plan).guess
    runs, few = records.load(plan.name, "book"), records.load(plan.name, "book_overfit")
    for arm in arms:
        losses = final(runs, arm, "test_loss").tolist()
        if max(losses) == float("inf") or interval(losses).high >= guess:
            return f"No better than guessing with every seed: {arm}."
        if final(few, arm, "train_loss").max() > FITS * guess:
            return f"Does not fit 32 training sequences: {arm}."
    return None


def family(plan: Experiment) -> dict[str, Comparison]:
    """The study's comparisons, paper − each other arm."""
    frame = records.load(plan.name, "book")
    values = {arm: final(frame, arm, plan.primary) for arm in plan.arms}
    paper = values.pop("paper")
    pairs = {
        f"paper - {arm}": (paper.tolist(), other[paper.index].tolist())
        for arm, other in values.items()
    }
    return compare(pairs, plan.margin)


def against(plan: Experiment, other: str) -> Callable[[], Finding]:
    """The check that compares the variant `paper` with another arm."""

    def check() -> Finding:
        if not records.runs(plan.name, "book"):
            return Finding("not yet tested")
        if reason := not_learning(plan, ("paper", other)):
            return Finding("inconclusive", reason=reason)
        found = family(plan)[f"paper - {other}"]
        evidence = (
            f"Mean difference of the mean test loss, {task(plan).unit} [95% interval]: "
            f"paper - {other} {found.difference:.3f}."
        )
        reason = f"Holm's p is {found.p:.2f}, and the interval reaches beyond the margin."
        inconclusive = found.verdict == "inconclusive"
        numbers = {f"paper - {other}": found.difference.mean}
        return Finding(found.verdict, evidence, None, reason if inconclusive else None, numbers)

    return check


def longer(plan: Experiment) -> Callable[[], Finding]:
    """The check of sequences of twice the length."""

    def check() -> Finding:
        if not records.runs(plan.name, "book"):
            return Finding("not yet tested")
        if reason := not_learning(plan, ("paper",)):
            return Finding("inconclusive", reason=reason)
        losses = final(records.load(plan.name, "book"), "paper", "longer_loss")
        share = interval((losses / task(plan).guess).tolist())
        evidence = (
            f"At twice the length the loss is {share:.3f} of that of guessing [95% interval]."
        )
        if share.high < GENERALIZES:
            return Finding("supported here", evidence)
        if share.low > FAILS:
            return Finding("opposite here", evidence)
        return Finding("inconclusive", evidence, reason="Neither bound of the rule is met.")

    return check


RULE = (
    "study {name}: the mean of the test loss over the curve, each arm at its tuned rate, paired by "
    "seed, Holm over the study's six comparisons at 5%, margin {margin}; the verdict on paper - "
    "{other}; inconclusive if an arm does not beat guessing or does not fit 32 sequences"
)
CONTROL = "rescaled, since what a well-scaled start explains is not credited to normalization"
FASTER = ("paper abstract", "paper section 7", "summary A", "summary C", "summary E")
COMPARISONS = {
    "faster-than-plain": (
        "none",
        "An LSTM with layer normalization, eqs. (20) to (22), learns {task} in fewer updates than "
        "torch's LSTM.",
        FASTER,
    ),
    "faster-per-update": (
        "rescaled",
        "It is normalization that makes an LSTM learn {task} in fewer updates: it learns faster "
        "than one without normalization whose weights start at a good scale, too.",
        FASTER,
    ),
    "separate-norms-are-better-than-joint": (
        "joint",
        "Normalizing the input term and the recurrent term by themselves, as in eq. (20), makes an "
        "LSTM learn {task} in fewer updates than normalizing their sum once, as in eq. (4).",
        ("this book",),
    ),
    "better-than-a-norm-per-gate": (
        "per_gate",
        "An LSTM with eqs. (20) to (22) learns {task} in fewer updates than TensorFlow's form, a "
        "norm for each gate and a normalized cell that is carried.",
        ("this book",),
    ),
    "better-than-the-cell-alone": (
        "cell_only",
        "Normalizing gates and cell, eqs. (20) to (22), makes an LSTM learn {task} in fewer "
        "updates than normalizing the cell alone, eqs. (29) to (31).",
        ("this book",),
    ),
    "better-than-a-carried-cell": (
        "carried",
        "An LSTM that carries the cell as it is, eqs. (20) to (22), learns {task} in fewer updates "
        "than one that carries the normalized cell.",
        ("this book",),
    ),
}

for plan in PLANS.values():
    for id, (other, statement, said_by) in COMPARISONS.items():
        arm = CONTROL if other == "rescaled" else other
        declare(
            id=f"{id}/{plan.name}",
            statement=statement.format(task=NAMES[plan.name]),
            said_by=said_by,
            kind="experiment",
            chapter="09",
            rule=RULE.format(name=plan.name, margin=plan.margin, other=arm),
            check=against(plan, other),
        )
    declare(
        id=f"longer-sequences-are-no-problem/{plan.name}",
        statement=f"Test sequences of {NAMES[plan.name]} that are twice as long as all training "
        "sequences are no problem for an LSTM with layer normalization.",
        said_by=("paper section 3", "summary C"),
        kind="experiment",
        chapter="09",
        rule=f"study {plan.name}, variant paper, the final loss on sequences of twice the length, "
        "as a share of that of guessing: supported if its 95% interval lies below "
        f"{GENERALIZES:.0%}, opposite if above {FAILS:.0%}, else inconclusive; so too if the arm "
        "does not learn",
        check=longer(plan),
    )
