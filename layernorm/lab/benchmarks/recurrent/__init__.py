"""`layernorm bench recurrent`: our recurrent layers, torch's, and the loops that people write."""

from layernorm.lab.benchmarks.recurrent.case import GpuCase, RecurrentCase, memory_of
from layernorm.lab.benchmarks.recurrent.subjects import BASELINE, KINDS, OURS, SUBJECTS, fill

__all__ = ["BASELINE", "KINDS", "OURS", "SUBJECTS", "GpuCase", "RecurrentCase", "fill", "memory_of"]
