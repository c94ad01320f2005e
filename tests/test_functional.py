"""The definitions pass the checks by which tests/test_mutants.py catches wrong variants."""

import pytest
from checks import CHECKS

from layernorm import functional

ALL = [(operation, name) for operation, checks in CHECKS.items() for name in checks]


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_definition_passes(operation, name):
    CHECKS[operation][name](getattr(functional, operation), operation)
