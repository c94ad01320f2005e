"""Checks that a definition must pass, used on the real ones and to catch wrong variants.

A check takes the function under test, so that tests/library/test_functional.py runs all of them on
`layernorm.functional` and tests/library/test_mutants.py on every mutant.
"""

from checks import dynamic, norms, padding, running, steps, weights  # noqa: F401  (they list their checks)
from checks.registry import CHECKS

__all__ = ["CHECKS"]
