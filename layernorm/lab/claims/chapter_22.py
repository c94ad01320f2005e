"""A claim about what came after the paper, which chapter 22 will decide."""

from layernorm.lab.claims import declare

declare(
    id="normalizing-first-needs-no-warm-up/transformer",
    statement="A transformer that normalizes before each block has moderate gradients at the start "
    "and needs no warm-up; one that normalizes after each block does.",
    said_by="this book",
    kind="experiment",
    chapter="22",
)
