"""Claims about the paper's experiments, sections 6.1 to 6.7, that its text and tables decide."""

from __future__ import annotations

from dataclasses import replace

from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.checks import printed
from layernorm.lab.claims.sources import reported

REPORTED = "layernorm.lab.claims.sources.reported"
EXPERIMENTS = f"{REPORTED}.EXPERIMENTS"


def altered(**fields) -> dict:
    """Mutant: every experiment of the paper with other fields."""
    return {name: replace(e, **fields) for name, e in reported.EXPERIMENTS.items()}


@claim(
    id="six-tasks-mostly-recurrent",
    statement="The paper tests layer normalization on six tasks, with a focus on recurrent "
    "networks.",
    kind="text",
    chapter="14",
    rule="so printed if, preliminary ones aside, the paper reports six experiments, more than half "
    "of them with recurrent networks",
    sabotage=(EXPERIMENTS, {}),
)
def six_tasks() -> Finding:
    full = [e for e in reported.EXPERIMENTS.values() if not e.preliminary]
    recurrent = sum(e.recurrent for e in full)
    return printed(
        len(full) == 6 and recurrent > 3,
        f"{len(full)} experiments, {recurrent} of them with recurrent networks; a seventh, on "
        "convolutional networks, is reported without numbers.",
        experiments=len(full),
        recurrent=recurrent,
    )


def all_better(table: dict, columns: tuple[str, ...]) -> Finding:
    """Tell whether every printed number with layer normalization is better than without."""
    better = len(columns) - len(reported.worse(table["none"], table["layer"], columns))
    evidence = f"{better} of {len(columns)} printed numbers are better."
    return printed(better == len(columns), evidence, better=better)


@claim(
    id="better-in-every-column-of-table-2",
    statement="In the paper's Table 2 order-embeddings with layer normalization have better test "
    "results than those without.",
    kind="text",
    chapter="14",
    rule="so printed if all eight printed numbers are better (one run each: what the numbers show "
    "beyond these runs is another claim)",
    sabotage=(f"{REPORTED}.TABLE_2", {"none": (50.0,) * 8, "layer": (9.0,) * 8}),
)
def better_in_table_2() -> Finding:
    return all_better(reported.TABLE_2, reported.TABLE_2_COLUMNS)


@claim(
    id="attentive-reader-is-by-vendrov",
    statement="The attentive reader was introduced by Vendrov and others (2016).",
    kind="text",
    chapter="15",
    rule="not so printed if the paper names others for the model of section 6.2, else so printed",
    sabotage=(EXPERIMENTS, reported.EXPERIMENTS | {"6.2": reported.EXPERIMENTS["6.1"]}),
)
def attentive_reader_is_by_vendrov() -> Finding:
    by = reported.EXPERIMENTS["6.2"].model_by
    theirs = [e.title for e in reported.EXPERIMENTS.values() if "Vendrov" in e.model_by]
    return printed(
        "Vendrov" in by,
        f"The paper credits {by}; the model of Vendrov and others is that of {theirs[0]}.",
    )


EQUAL = dict.fromkeys(reported.TABLE_3, (1.0,) * 7)


@claim(
    id="better-in-every-column-of-table-3",
    statement="In the paper's Table 3 skip-thoughts with layer normalization do better in every "
    "task than those without, after as many updates.",
    kind="text",
    chapter="16",
    rule="so printed if all seven printed numbers are better (one run each)",
    sabotage=(f"{REPORTED}.TABLE_3", EQUAL),
)
def better_in_table_3() -> Finding:
    return all_better(reported.TABLE_3, reported.TABLE_3_COLUMNS)


@claim(
    id="month-helps-all-but-one-task",
    statement="After a month of training, skip-thoughts with layer normalization do still better "
    "in all tasks but one.",
    kind="text",
    chapter="16",
    rule="so printed if exactly one printed number of Table 3 is not better after the month",
    sabotage=(f"{REPORTED}.TABLE_3", EQUAL),
)
def month_helps() -> Finding:
    columns = reported.TABLE_3_COLUMNS
    before, after = reported.TABLE_3["layer"], reported.TABLE_3["layer, one month"]
    bad = reported.worse(before, after, columns)
    changes = ", ".join(
        f"{name} {before[columns.index(name)]} → {after[columns.index(name)]}" for name in bad
    )
    return printed(
        len(bad) == 1,
        f"{len(bad)} of {len(columns)} printed numbers are not better: {changes}.",
        not_better=len(bad),
    )


@claim(
    id="paper-compares-with-weight-normalization",
    statement="The paper's experiments compare layer normalization with weight normalization, too.",
    kind="text",
    chapter="19",
    rule="so printed if at least one of the paper's experiments has an arm with weight "
    "normalization, else not so printed",
    sabotage=(EXPERIMENTS, altered(compared=("none", "weight", "layer"))),
)
def compares_with_weight_normalization() -> Finding:
    experiments = reported.EXPERIMENTS.values()
    count = sum("weight" in e.compared for e in experiments)
    return printed(
        count > 0,
        f"{count} of {len(experiments)} experiments have such an arm; the paper compares the two "
        "in its theory alone.",
        experiments=count,
    )


@claim(
    id="paper-beats-batch-normalization-in-all-tests",
    statement="In the paper, layer normalization outperforms batch normalization in all tests.",
    kind="text",
    chapter="20",
    rule="so printed if every experiment of the paper compares the two and layer normalization "
    "wins each, else not so printed",
    sabotage=(EXPERIMENTS, altered(compared=("batch", "layer"), winner="layer")),
)
def beats_batch_normalization_in_all_tests() -> Finding:
    full = [e for e in reported.EXPERIMENTS.values() if not e.preliminary]
    both = [e for e in full if {"batch", "layer"} <= set(e.compared)]
    lost = [e.title for e in reported.EXPERIMENTS.values() if e.winner == "batch"]
    return printed(
        not lost and len(both) == len(full),
        f"Of the {len(full)} tasks with numbers or curves (sections 6.1 to 6.6), {len(both)} have "
        f"an arm with batch normalization; layer normalization is ahead in "
        f"{sum(e.winner == 'layer' for e in both)} of these. In section 6.7, reported in words, "
        f"batch normalization is ahead with {' and '.join(lost) or 'none'}.",
        tasks=len(full),
        compared=len(both),
        lost=len(lost),
    )
