"""Claims about handwriting (section 6.5), which chapter 18 will decide."""

from layernorm.lab.claims import declare

declare(
    id="faster-per-update/handwriting",
    statement="Layer normalization makes a network that writes by hand learn in fewer updates.",
    kind="experiment",
    chapter="18",
)
declare(
    id="better-result/handwriting",
    statement="A network that writes by hand ends with a better likelihood if it is "
    "layer-normalized.",
    kind="experiment",
    chapter="18",
)
declare(
    id="long-sequences-and-small-batches-benefit-most/handwriting",
    statement="Long sequences and small batches benefit the most from layer normalization.",
    kind="experiment",
    chapter="18",
)
