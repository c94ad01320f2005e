"""The parts that benchmarks share: gate, clock, roof, records that a killed call leaves, tables.

A `Case` says what is measured; `measure` gives its rows, `run` goes through a plan of cases.
"""

from layernorm.lab.benchmarks.measure.case import MEASURED, NO_DEVICE, Case, Row, Trial, measure
from layernorm.lab.benchmarks.measure.resume import Plan, recorded, run
from layernorm.lab.benchmarks.measure.table import Table

__all__ = [
    "MEASURED",
    "NO_DEVICE",
    "Case",
    "Plan",
    "Row",
    "Table",
    "Trial",
    "measure",
    "recorded",
    "run",
]
