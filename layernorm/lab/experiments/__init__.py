"""The paper's experiments as programs, and the one engine that runs them. ::

    layernorm run mnist --profile book --arm layer --seed 0
    layernorm sweep mnist --profile standard

An experiment's folder holds what is its own: the plan that is fixed before its recorded runs (arms,
profiles, comparisons), model and data; `studies` has the small ones of Parts I and III. `run.train`
makes one run, a configuration in, a record out; `sweep` tunes the arms and runs them over the
seeds, and `sweep.live` makes some runs of a plan now, for a chapter.
"""

from __future__ import annotations

from importlib import import_module

from layernorm.lab.experiments.experiment import Config, Experiment, Profile, known

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

__all__ = ["NAMES", "Config", "Experiment", "Profile", "get"]


def get(name: str) -> Experiment:
    """The experiment of that name; `ValueError` with the nearest one for a misspelling."""
    known("experiment", name, dict.fromkeys(NAMES))
    place = f"studies.{name}" if name in STUDIES else f"{name}.plan"
    return import_module(f"layernorm.lab.experiments.{place}").EXPERIMENT
