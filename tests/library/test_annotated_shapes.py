"""Annotated shapes are checked in the test run: of a test's first calls, those of functions within
others included."""

from importlib.util import find_spec

import pytest
import torch

if not find_spec("beartype"):
    pytest.skip("beartype is not installed: pip install 'layernorm[test]'", allow_module_level=True)

import jaxtyping
import typechecker
from jaxtyping import Float


def decorate(function):
    return jaxtyping.jaxtyped(typechecker=typechecker.check)(function)


def outer(x):
    @decorate
    def first_row(x: Float[torch.Tensor, "n m"]) -> Float[torch.Tensor, " m"]:
        return x[0]

    return first_row(x)


def test_the_package_is_checked():
    from layernorm.functional import layer_norm

    with pytest.raises(jaxtyping.TypeCheckError, match="eps"):
        layer_norm.__wrapped__(torch.ones(2, 3), (3,), eps="small")


@pytest.mark.parametrize("_", range(2))  # the second test starts anew
def test_first_calls_are_checked(_):
    @decorate
    def same(x: Float[torch.Tensor, "n"]) -> Float[torch.Tensor, "n"]:
        return x

    wrong = torch.ones(2, 2)
    for call in (same, outer):
        with pytest.raises(jaxtyping.TypeCheckError):
            call(wrong[None, None])
    for _ in range(typechecker.MOST):
        same(wrong[0])
    for call in (same, outer):
        call(wrong[None, None])
