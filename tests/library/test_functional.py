"""The definitions pass the checks by which tests/library/test_mutants.py catches wrong variants,
and agree with torch for shapes nobody chose."""

import pytest
import torch
import torch.nn.functional as F
from checks import CHECKS
from hypothesis import given, settings
from hypothesis import strategies as st
from library.oracle import assert_close, condition, draw
from torch._subclasses import FakeTensorMode

from layernorm import functional

ALL = [(operation, name) for operation, checks in CHECKS.items() for name in checks]


@pytest.mark.parametrize(("operation", "name"), ALL)
def test_definition_passes(operation, name):
    CHECKS[operation][name](getattr(functional, operation), operation)


@st.composite
def inputs(draw_from, least):
    """An array (N, C, *spatial) of awkward sizes, and a mean from 0 to 1e4."""
    sizes = st.sampled_from([1, 2, 3, 5, 7, 13])
    shape = draw_from(st.lists(sizes, min_size=least, max_size=4))
    mean = draw_from(st.sampled_from([0.0, 1.0, 1e4]))
    return draw(*shape, seed=draw_from(st.integers(0, 99)), mean=mean)


few = settings(max_examples=40, deadline=None, derandomize=True, database=None)


@few
@given(x=inputs(least=1), data=st.data())
def test_layer_and_rms_norm_of_any_shape(x, data):
    normalized = x.shape[-data.draw(st.integers(1, x.dim())) :]
    w, b = draw(*normalized, seed=1), draw(*normalized, seed=2)
    limit = 1e-12 * condition(x.reshape(-1, normalized.numel()))
    got = functional.layer_norm(x, normalized, w, b)
    assert_close(got, F.layer_norm(x, normalized, w, b), limit)
    assert_close(functional.rms_norm(x, normalized, w), F.rms_norm(x, normalized, w), 1e-12)


@few
@given(x=inputs(least=2), data=st.data())
def test_group_norm_of_any_shape(x, data):
    divisors = [g for g in range(1, x.shape[1] + 1) if x.shape[1] % g == 0]
    groups = data.draw(st.sampled_from(divisors))
    w, b = draw(x.shape[1], seed=1), draw(x.shape[1], seed=2)
    limit = 1e-12 * condition(x.reshape(x.shape[0] * groups, -1))
    got = functional.group_norm(x, groups, w, b)
    assert_close(got, torch.group_norm(x, groups, w, b), limit)


def test_a_mask_whose_values_cannot_be_read_yet():
    """Under a transform, and of fake tensors: the mask is not counted, and the numbers are those
    of each case by itself."""

    def norm(x, mask):
        return functional.batch_norm(x, None, None, training=True, mask=mask)

    x, mask = draw(3, 4, 5, seed=1), torch.tensor([[1, 1, 0, 1], [1, 0, 1, 0], [1, 1, 1, 1]]).bool()
    expected = torch.stack([norm(*case) for case in zip(x, mask, strict=True)])
    assert_close(torch.vmap(norm)(x, mask), expected, 1e-12)
    with FakeTensorMode():
        assert norm(torch.empty(4, 5), torch.empty(4, dtype=torch.bool)).shape == (4, 5)


@few
@given(x=inputs(least=2), data=st.data())
def test_batch_norm_of_any_shape_and_mask(x, data):
    places = (x.shape[0], *x.shape[2:])
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    mask = torch.rand(places, generator=generator) < data.draw(st.sampled_from([0.3, 0.8, 1.0]))
    if mask.sum() < 2:
        return
    w, b = draw(x.shape[1], seed=1), draw(x.shape[1], seed=2)
    packed = x.movedim(1, -1)[mask]
    limit = 1e-12 * condition(packed.T)
    got = functional.batch_norm(x, None, None, w, b, training=True, mask=mask)
    expected = F.batch_norm(packed, None, None, w, b, training=True)
    assert_close(got.movedim(1, -1)[mask], expected, limit)
    assert not got.movedim(1, -1)[~mask].any()
