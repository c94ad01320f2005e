"""Curves in a norm's place: layer normalization along one unit, tanh and erf."""

import math

import pytest
import sympy
import torch

from layernorm import functional as F
from layernorm.symbolic import TRANSFORMATIONS, elementwise


def row(units=6, seed=0):
    return torch.randn(units, generator=torch.Generator().manual_seed(seed)).double()


def at(expression, a):
    """Its value for the first unit of a row."""
    others = a[1:]
    values = {"H": len(a), "s": others.std(correction=0).item(), "m": others.mean().item()}
    symbols = {symbol: values[symbol.name] for symbol in (elementwise.H, elementwise.S)}
    symbols |= {elementwise.M: values["m"], elementwise.U: (a[0] - others.mean()).item()}
    return float(expression.subs(symbols))


@pytest.mark.parametrize("units", [2, 3, 6])
@pytest.mark.parametrize("moved", [-7.0, 0.3, 40.0])
def test_a_norm_along_one_unit_is_that_of_the_row(units, moved):
    a = row(units)
    a[0] += moved
    y, sigma = elementwise.along_one_unit("layer")
    assert at(y, a) == pytest.approx(F.layer_norm(a, (units,), eps=0.0)[0].item(), rel=1e-9)
    assert at(sigma, a) == pytest.approx(a.std(correction=0).item(), rel=1e-9)
    y, sigma = elementwise.along_one_unit("rms")
    assert at(y, a) == pytest.approx(F.rms_norm(a, (units,), eps=0.0)[0].item(), rel=1e-9)
    assert at(sigma, a) == pytest.approx(a.square().mean().sqrt().item(), rel=1e-9)


def test_tanh_has_the_bound_and_at_the_mean_the_slope_of_layer_normalization():
    y, sigma = elementwise.along_one_unit("layer")
    for name in elementwise.CURVES:
        curve = elementwise.frozen(name).subs(elementwise.SIGMA, sigma.subs(elementwise.U, 0))
        numbers = {elementwise.H: 10, elementwise.S: 2}
        for value, wanted in (
            (curve.subs(numbers).subs(elementwise.U, 500), 3.0),
            (curve.diff(elementwise.U).subs(elementwise.U, 0).subs(numbers), None),
        ):
            slope = y.diff(elementwise.U).subs(elementwise.U, 0).subs(numbers)
            assert float(value) == pytest.approx(float(wanted or slope), rel=1e-9)


def test_only_tanh_at_a_constant_sigma_has_the_slope():
    y, sigma = elementwise.along_one_unit("layer")
    tanh = elementwise.frozen()
    assert elementwise.defect(y, sigma) == 0
    assert elementwise.defect(tanh, elementwise.SIGMA) == 0
    assert elementwise.defect(tanh.subs(elementwise.SIGMA, sigma), sigma) != 0
    assert elementwise.defect(elementwise.frozen("derf"), elementwise.SIGMA) != 0


@pytest.mark.parametrize("name", list(elementwise.CURVES))
def test_where_a_curve_is_flat(name):
    for share in (0.5, 0.1, 0.01):
        z = elementwise.flat_beyond(name, sympy.Rational(str(share)))
        slope = elementwise.relative_slope(name).subs(elementwise.Z, z)
        assert float(slope) == pytest.approx(share, rel=1e-12)


@pytest.mark.parametrize("name", list(TRANSFORMATIONS))
def test_every_transformation_moves_a_summed_input(name):
    before, after = elementwise.moved_input(name)
    assert before != after
    assert math.tanh(0.5 * before) != math.tanh(0.5 * after)


def test_a_transformation_that_moves_nothing_has_no_example(monkeypatch):
    still = type(TRANSFORMATIONS["dataset_rescaling"])("nothing", "X′ = X")
    monkeypatch.setitem(elementwise.TRANSFORMATIONS, "still", still)
    assert elementwise.moved_input("still") is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: elementwise.along_one_unit("batch"), "method"),
        (lambda: elementwise.curve("layer", elementwise.Z), "method"),
        (lambda: elementwise.flat_beyond("dty", sympy.Rational(1, 10)), "did you mean 'dyt'"),
        (lambda: elementwise.moved_input("dataset_scaling"), "did you mean 'dataset_rescaling'"),
    ],
)
def test_unknown_names_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
