"""Claims about the attentive reader (section 6.2): what the paper's own text decides, and what
chapter 15 will."""

from layernorm.claims import Finding, claim, declare
from layernorm.claims.sources import reported


@claim(
    id="attentive-reader-is-by-vendrov",
    statement="The attentive reader was introduced by Vendrov and others (2016).",
    said_by="summary C",
    kind="property",
    chapter="15",
    rule="refuted if the paper names others for the model of section 6.2, else proved",
    sabotage=(
        "layernorm.claims.sources.reported.EXPERIMENTS",
        {**reported.EXPERIMENTS, "6.2": reported.EXPERIMENTS["6.1"]},
    ),
)
def attentive_reader_is_by_vendrov() -> Finding:
    by = reported.EXPERIMENTS["6.2"].model_by
    theirs = [e.title for e in reported.EXPERIMENTS.values() if "Vendrov" in e.model_by]
    return Finding(
        "proved" if "Vendrov" in by else "refuted",
        f"The paper credits {by}; the model of Vendrov and others is that of {theirs[0]}.",
    )


for name, statement, said_by in (
    (
        "faster-than-plain",
        "An attentive reader with layer normalization learns in fewer updates than one without.",
        ("paper section 6.2", "summary A"),
    ),
    (
        "faster-than-batch",
        "An attentive reader with layer normalization learns in fewer updates than one with "
        "recurrent batch normalization.",
        ("paper section 6.2", "summary A", "summary C"),
    ),
    (
        "better-result-than-batch",
        "An attentive reader with layer normalization ends with a lower validation error than "
        "one with recurrent batch normalization, in the LSTM alone or everywhere.",
        ("paper section 6.2", "summary A", "summary C"),
    ),
    (
        "gains-of-one-are-better",
        "An attentive reader with layer normalization learns much better with gains that start "
        "at 1 than with gains that start at 0.1.",
        ("paper section 6.2", "summary E"),
    ),
):
    declare(
        id=f"{name}/attentive_reader",
        statement=statement,
        said_by=said_by,
        kind="experiment",
        chapter="15",
    )
