"""Claims about the paper's experiments as a whole and about order-embeddings (section 6.1): what
the paper's own text decides, and what chapter 14 will."""

from layernorm.lab.claims import Finding, claim, declare
from layernorm.lab.claims.checks import held
from layernorm.lab.claims.sources import reported


@claim(
    id="six-tasks-mostly-recurrent",
    statement="The paper tests layer normalization on six tasks, with a focus on recurrent "
    "networks.",
    rule="proved if, preliminary ones aside, the paper reports six experiments, more than half of "
    "them with recurrent networks",
    sabotage=("layernorm.lab.claims.sources.reported.EXPERIMENTS", {}),
)
def six_tasks() -> Finding:
    full = [e for e in reported.EXPERIMENTS.values() if not e.preliminary]
    recurrent = sum(e.recurrent for e in full)
    return held(
        len(full) == 6 and recurrent > 3,
        f"{len(full)} experiments, {recurrent} of them with recurrent networks; a seventh, on "
        "convolutional networks, is reported without numbers.",
        experiments=len(full),
        recurrent=recurrent,
    )


@claim(
    id="better-in-every-column-of-table-2",
    statement="In the paper's Table 2 order-embeddings with layer normalization have better test "
    "results than those without.",
    rule="proved if all eight printed numbers are better (one run each: what the numbers show "
    "beyond these runs is another claim)",
    sabotage=(
        "layernorm.lab.claims.sources.reported.TABLE_2",
        {"none": (50.0,) * 8, "layer": (9.0,) * 8},
    ),
)
def better_in_table_2() -> Finding:
    columns = reported.TABLE_2_COLUMNS
    bad = reported.worse(reported.TABLE_2["none"], reported.TABLE_2["layer"], columns)
    return held(
        not (bad),
        f"{len(columns) - len(bad)} of {len(columns)} printed numbers are better.",
        better=len(columns) - len(bad),
    )


declare(
    id="faster-per-update/order_embeddings",
    statement="Layer normalization makes order-embeddings learn in fewer updates, by R@1, R@5 and "
    "R@10.",
    kind="experiment",
    chapter="14",
)
declare(
    id="sixty-percent-of-the-time/order_embeddings",
    statement="Order-embeddings with layer normalization reach their best validation model in 60% "
    "of the time of those without.",
    kind="experiment",
    chapter="14",
)
declare(
    id="generalizes-better/order_embeddings",
    statement="Layer normalization improves the generalization of order-embeddings.",
    kind="experiment",
    chapter="14",
)
