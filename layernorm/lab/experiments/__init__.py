"""The paper's experiments as programs: one file each, and the one training loop they share. ::

    layernorm run mnist --profile book --arm layer --seed 0
    layernorm sweep mnist --profile standard

An experiment's file holds what is its own: arms, model, loss, metrics, data, profiles, and the plan
that is fixed before its recorded runs. `loop.train` makes one run of it, a configuration in, a
record out; `sweep` tunes the arms and runs them over the seeds.
"""

from __future__ import annotations

from importlib import import_module

from layernorm.lab.experiments.experiment import Config, Experiment, Profile, known

NAMES = ("mnist", "convnet", "attentive_reader")

__all__ = ["NAMES", "Config", "Experiment", "Profile", "get"]


def get(name: str) -> Experiment:
    """The experiment of that name; `ValueError` with the nearest one for a misspelling."""
    known("experiment", name, dict.fromkeys(NAMES))
    return import_module(f"layernorm.lab.experiments.{name}").EXPERIMENT
