"""The small studies: a fully connected net on the digits, each run well under a second (Part I),
and a recurrent layer on tasks with a long lag, a few seconds each (`sequences`).

A study is a plan that is fixed before its runs: arms, update budget, learning rates, seeds,
primary metric, margin. `train` is the unit of work (configuration in, record out), `tune` picks
each arm's learning rate on validation with a seed of its own, `run` repeats the tuned arms over
fresh seeds. `python -m layernorm.lab.experiments.studies NAME` does all three and publishes the
records that claims and chapters read.
"""

from layernorm.lab.experiments.studies.planning import Plan, plan, run, train, tune, tuned
from layernorm.lab.experiments.studies.training import Config

__all__ = ["Config", "Plan", "plan", "run", "train", "tune", "tuned"]
