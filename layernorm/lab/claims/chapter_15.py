"""Claims about the attentive reader (section 6.2) that the paper's own text decides."""

from layernorm.lab.claims import Finding, claim
from layernorm.lab.claims.checks import held
from layernorm.lab.claims.sources import reported


@claim(
    id="attentive-reader-is-by-vendrov",
    statement="The attentive reader was introduced by Vendrov and others (2016).",
    rule="refuted if the paper names others for the model of section 6.2, else proved",
    sabotage=(
        "layernorm.lab.claims.sources.reported.EXPERIMENTS",
        {**reported.EXPERIMENTS, "6.2": reported.EXPERIMENTS["6.1"]},
    ),
)
def attentive_reader_is_by_vendrov() -> Finding:
    by = reported.EXPERIMENTS["6.2"].model_by
    theirs = [e.title for e in reported.EXPERIMENTS.values() if "Vendrov" in e.model_by]
    return held(
        "Vendrov" in by,
        f"The paper credits {by}; the model of Vendrov and others is that of {theirs[0]}.",
    )
