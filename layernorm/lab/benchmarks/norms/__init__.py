"""Benchmark of normalizations: definitions, torch's own, its compiler, our kernels, and peers.

Two uses::

    norms.quick()                                                 # rows, in a few seconds
    norms.table(norms.rows(["layer", "rms"], (8, 256, 64)))       # a table, for a chapter
"""

from layernorm.lab.benchmarks.norms.plan import BENCHMARKED as OPERATIONS
from layernorm.lab.benchmarks.norms.plan import quick, rows
from layernorm.lab.benchmarks.norms.tables import table

__all__ = ["OPERATIONS", "quick", "rows", "table"]
