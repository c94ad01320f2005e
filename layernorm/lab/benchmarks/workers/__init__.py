"""`layernorm bench workers`: updates that processes share, and runs that a sweep hands to them.

One network::

    rows = measure(workers.UpdatesCase("digits", (128, 64, 1000, 1000, 10)))
    workers.tables(rows)
"""

from layernorm.lab.benchmarks.workers.plan import plan, recorded, tables
from layernorm.lab.benchmarks.workers.runs import RunsCase
from layernorm.lab.benchmarks.workers.updates import UpdatesCase

__all__ = ["RunsCase", "UpdatesCase", "plan", "recorded", "tables"]
