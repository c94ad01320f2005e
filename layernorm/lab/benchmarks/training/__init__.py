"""`layernorm bench training`: whole updates of networks with each normalization.

One network::

    case = training.TrainingCase("mlp", (128, 784, 1000, 1000, 10))    # batch and layer sizes
    training.table(measure(case))
"""

from layernorm.lab.benchmarks.training.case import TrainingCase, plan, recorded, table
from layernorm.lab.benchmarks.training.subjects import SUBJECTS, make_update

__all__ = ["SUBJECTS", "TrainingCase", "make_update", "plan", "recorded", "table"]
