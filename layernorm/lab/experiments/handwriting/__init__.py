"""Handwriting (chapter 18): `write("any text", bias=1.0, seed=0)` writes it."""

from layernorm.lab.experiments.handwriting.writing import Written, write

__all__ = ["Written", "write"]
