"""Data sets: an embedded default, and real ones that are fetched and checked."""

from layernorm.data.digits import digits
from layernorm.data.splits import Examples, Splits

__all__ = ["Examples", "Splits", "digits"]
