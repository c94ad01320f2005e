"""Claims about skip-thoughts (section 6.3): what the paper's own Table 3 decides, and what chapter
16 will."""

from layernorm.lab.claims import Finding, claim, declare
from layernorm.lab.claims.checks import held
from layernorm.lab.claims.sources import reported

EQUAL = dict.fromkeys(reported.TABLE_3, (1.0,) * 7)


@claim(
    id="better-in-every-column-of-table-3",
    statement="In the paper's Table 3 skip-thoughts with layer normalization do better in every "
    "task than those without, after as many updates.",
    rule="proved if all seven printed numbers are better (one run each)",
    sabotage=("layernorm.lab.claims.sources.reported.TABLE_3", EQUAL),
)
def better_in_table_3() -> Finding:
    columns = reported.TABLE_3_COLUMNS
    bad = reported.worse(reported.TABLE_3["none"], reported.TABLE_3["layer"], columns)
    return held(
        not (bad),
        f"{len(columns) - len(bad)} of {len(columns)} printed numbers are better.",
        better=len(columns) - len(bad),
    )


@claim(
    id="month-helps-all-but-one-task",
    statement="After a month of training, skip-thoughts with layer normalization do still better "
    "in all tasks but one.",
    rule="proved if exactly one printed number of Table 3 is not better after the month",
    sabotage=("layernorm.lab.claims.sources.reported.TABLE_3", EQUAL),
)
def month_helps() -> Finding:
    columns = reported.TABLE_3_COLUMNS
    before, after = reported.TABLE_3["layer"], reported.TABLE_3["layer, one month"]
    bad = reported.worse(before, after, columns)
    changes = ", ".join(
        f"{name} {before[columns.index(name)]} → {after[columns.index(name)]}" for name in bad
    )
    return held(
        len(bad) == 1,
        f"{len(bad)} of {len(columns)} printed numbers are not better: {changes}.",
        not_better=len(bad),
    )


declare(
    id="faster-per-update/skip_thoughts",
    statement="Layer normalization makes skip-thoughts learn in fewer updates, judged by the "
    "tasks that use its vectors.",
    kind="experiment",
    chapter="16",
)
declare(
    id="better-result/skip_thoughts",
    statement="Skip-thoughts with layer normalization end with better results in the tasks that "
    "use its vectors.",
    kind="experiment",
    chapter="16",
)
