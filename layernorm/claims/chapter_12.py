"""Claims about what normalization costs, which the benchmarks of chapter 12 will decide."""

from layernorm.claims import declare

declare(
    id="slower-per-update/gpu",
    statement="On a GPU, layer normalization slows down each update, because moments are computed "
    "much more slowly than matrix products.",
    said_by="summary B",
    kind="experiment",
    chapter="12",
)
declare(
    id="no-significant-cost-per-step/recurrent_gpu",
    statement="On a GPU, layer normalization adds no significant cost to an update of a recurrent "
    "network.",
    said_by=("paper section 6.3", "summary E"),
    kind="experiment",
    chapter="12",
)
declare(
    id="faster-in-seconds/digits",
    statement="Although each update takes longer, layer normalization usually shortens training, "
    "counted in seconds.",
    said_by="summary B",
    kind="experiment",
    chapter="12",
)
