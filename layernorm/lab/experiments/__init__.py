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

from layernorm.lab.experiment_names import NAMES, STUDIES
from layernorm.lab.experiments.experiment import Config, Experiment, Profile, known

__all__ = ["NAMES", "STUDIES", "Config", "Experiment", "Profile", "get"]


def get(name: str) -> Experiment:
    """The experiment of that name; `ValueError` with the nearest one for a misspelling."""
    known("experiment", name, dict.fromkeys(NAMES))
    place = f"studies.{name}" if name in STUDIES else f"{name}.plan"
    return import_module(f"layernorm.lab.experiments.{place}").EXPERIMENT
