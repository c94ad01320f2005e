"""The names of the experiments, apart from them: a command's help needs nothing else."""

STUDIES = (
    "adding",
    "angles",
    "batch_order",
    "batch_size",
    "changes",
    "copy_memory",
    "data_shift",
    "drift",
    "hidden_rates",
    "initialization",
    "initialization_deep",
    "mixed_units",
    "step_statistics",
)
NAMES = (
    *("mnist", "convnet", "order_embeddings", "attentive_reader", "skip_thoughts", "draw"),
    *("handwriting", "transformer", *STUDIES),
)
