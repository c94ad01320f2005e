"""The gate: what counts as agreement with the oracle, by hand-worked numbers."""

import math

import pytest
import torch

from layernorm.lab.benchmarks.measure import gate

EPS32 = 2.0**-23
inf, nan = math.inf, math.nan


@pytest.mark.parametrize(
    ("dtype", "length", "expected"),
    [
        (torch.float32, 0, 2 * EPS32),
        (torch.float32, 100, 22 * EPS32),
        (torch.float64, 100, 22 * 2.0**-52),
        (torch.float16, 100, 2 * 2.0**-10 + 20 * EPS32),
        (torch.bfloat16, 100, 2 * 2.0**-7 + 20 * EPS32),
    ],
)
def test_tolerance_scales_with_dtype_and_length(dtype, length, expected):
    assert gate.tolerance(dtype, length) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("got", "expected", "error"),
    [
        ([2.0, 1.0], [2.0, 1.0], 0),
        ([3.0, 4.0], [3.0, 5.0], 1 / 5),
        ([0.1, 5.0], [0.0, 5.0], 0.1 / math.sqrt(12.5)),
        ([0.0, 0.0], [0.0, 0.0], 0),
        ([0.0, 1e-30], [0.0, 0.0], inf),
        ([nan, 1.0], [0.0, 1.0], inf),
        ([0.0, 1.0], [nan, 1.0], inf),
        ([nan, 1.0], [nan, 1.0], 0),
        ([inf, 1.0], [2.0, 1.0], inf),
        ([inf, 1.0], [inf, 1.0], 0),
        ([-inf, 1.0], [inf, 1.0], inf),
        ([inf, 1.5], [inf, 1.0], 0.5),
        ([inf, inf], [inf, inf], 0),
        ([], [], 0),
    ],
)
def test_relative_error(got, expected, error):
    result = gate.relative_error(torch.tensor(got), torch.tensor(expected, dtype=torch.float64))
    assert result == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize(
    ("got", "error"), [(1.0, 0), (3.0, 2 / 5), (nan, inf), (inf, inf), (-1.0, 2 / 5)]
)
def test_a_sum_is_judged_by_its_terms(got, error):
    measure = gate.error_of_sum(torch.tensor([3.0, -2.0]))
    assert measure(torch.tensor(got), torch.tensor(1.0)) == pytest.approx(error)
    assert gate.error_of_sum(torch.zeros(2))(torch.tensor(0.0), torch.tensor(0.0)) == 0


def expect(value, name="output 0", dtype=torch.float32, allowed=1e-3):
    return gate.Expected(name, torch.tensor(value, dtype=torch.float64), dtype, allowed)


def test_agreement_passes_with_the_error_as_a_fraction_of_what_is_allowed():
    verdict = gate.check([torch.tensor([1.0, 1.0005])], [expect([1.0, 1.0])])
    assert verdict.wrong == ""
    assert verdict.error == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("got", "wrong"),
    [
        ([], "0 tensors, the oracle gives 1"),
        ([torch.ones(2), torch.ones(2)], "2 tensors, the oracle gives 1"),
        ([torch.ones(1)], r"shape \(1,\), the oracle's \(2,\)"),
        ([torch.ones(2, 1)], r"shape \(2, 1\), the oracle's \(2,\)"),
        ([torch.ones(2, dtype=torch.float64)], "output 0 is torch.float64, expected torch.float32"),
        ([torch.tensor([1.0, 1.002])], "output 0 is off by 0.002 of its size, allowed 0.001"),
        ([torch.tensor([1.0, nan])], "output 0 is off by inf"),
    ],
)
def test_disagreement_is_named(got, wrong):
    verdict = gate.check(got, [expect([1.0, 1.0])])
    assert verdict.error > 1
    with pytest.raises(ValueError, match=wrong):
        raise ValueError(verdict.wrong)


def test_the_worst_tensor_is_named_whatever_its_place():
    expected = [expect([1.0]), expect([1.0], "gradient of x", allowed=1e-1), expect([1.0], "last")]
    got = [torch.tensor([1.01]), torch.tensor([3.0]), torch.tensor([1.0001])]
    assert gate.check(got, expected).wrong.startswith("gradient of x is off by 2 ")
