"""A claim about where a transformer normalizes, which chapter 21 will decide."""

from layernorm.lab.claims import declare

declare(
    id="normalizing-first-needs-no-warm-up/transformer",
    statement="A transformer that normalizes before each block has moderate gradients at the start "
    "and needs no warm-up; one that normalizes after each block does.",
    kind="experiment",
    chapter="21",
)
