"""The parts that benchmarks share. `measure` gives the rows of a `Case`, `run` those of a plan."""

from layernorm.lab.benchmarks.measure.case import (
    MEASURED,
    NO_DEVICE,
    Case,
    Poisoned,
    Row,
    Trial,
    measure,
)
from layernorm.lab.benchmarks.measure.resume import Plan, recorded, run
from layernorm.lab.benchmarks.measure.row import quotient
from layernorm.lab.benchmarks.measure.table import Table

__all__ = [
    "MEASURED",
    "NO_DEVICE",
    "Case",
    "Plan",
    "Poisoned",
    "Row",
    "Table",
    "Trial",
    "measure",
    "quotient",
    "recorded",
    "run",
]
