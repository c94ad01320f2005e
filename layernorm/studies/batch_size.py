"""How small may the batch be? The paper's section 6.6 on the digits (chapter 03)."""

from layernorm.studies.planning import Plan

UPDATES = 500

_METHODS = {
    "none": {"method": "none"},
    "rescaled": {"method": "none", "rescaled": True},
    "batch": {"method": "batch"},
    "weight": {"method": "weight"},
    "layer": {"method": "layer"},
}

PLAN = Plan(
    name="batch_size",
    question="How fast does each method learn the digits at batch 128, 4 and 1?",
    arms={
        f"{arm}-{size}": {**options, "batch_size": size, "updates": UPDATES}
        for size in (128, 4, 1)
        for arm, options in _METHODS.items()
        if not (arm == "batch" and size == 1)
    },
    primary="mean_train_nll",
    margin=0.02,
    learning_rates=(1e-3, 3e-3, 1e-2, 3e-2),
)
