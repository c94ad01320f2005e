"""`DynamicTanh` and `DynamicErf`: a norm's place, keys, start, refusals."""

import copy
import pickle

import pytest
import torch
from library.oracle import draw
from torch import nn

import layernorm
from layernorm import functional
from layernorm.methods import METHODS, normalizations

BOTH = pytest.mark.parametrize("kind", [layernorm.DynamicTanh, layernorm.DynamicErf])


def moved(module):
    """The module with no parameter where it starts."""
    with torch.no_grad():
        for seed, p in enumerate(module.parameters()):
            p.copy_(0.5 + draw(1, *p.shape, seed=seed)[0].abs())
    return module


def test_the_modules_compute_the_definitions():
    x = draw(3, 4, 5)
    tanh, erf = (moved(kind(5, dtype=torch.float64)) for kind in (
        layernorm.DynamicTanh, layernorm.DynamicErf))  # fmt: skip
    expected = functional.dynamic_tanh(x, tanh.alpha, tanh.weight, tanh.bias)
    assert torch.equal(tanh(x), expected)
    assert torch.equal(
        erf(x), functional.dynamic_erf(x, erf.alpha, erf.shift, erf.weight, erf.bias)
    )
    assert not torch.equal(tanh(x), erf(x))


@BOTH
def test_keys_and_start_are_those_of_the_papers(kind):
    module, erf = kind(3), kind is layernorm.DynamicErf
    expected = {"alpha": 0.5, "weight": 1.0, "bias": 0.0} | ({"shift": 0.0} if erf else {})
    assert {k: v.unique().item() for k, v in module.state_dict().items()} == expected
    moved(module).reset_parameters()
    assert {k: v.unique().item() for k, v in module.state_dict().items()} == expected
    assert module.weight.shape == module.bias.shape == (3,)
    assert module.alpha.shape == ()
    assert [n for n, _ in kind(3, bias=False).named_parameters() if n == "bias"] == []
    assert kind(3, elementwise_affine=False).weight is None
    assert kind([2, 3], alpha=0.8)(torch.ones(4, 2, 3)).shape == (4, 2, 3)
    assert kind(3, alpha=0.8).alpha.item() == pytest.approx(0.8)
    assert "alpha=0.8" in repr(kind(3, alpha=0.8))


@BOTH
def test_it_is_saved_copied_and_moved_like_a_norm(kind):
    ours = moved(kind((4, 5)))
    x = draw(2, 4, 5).float()
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), kind((4, 5))):
        other.load_state_dict(ours.state_dict())
        assert torch.equal(other(x), ours(x))
    assert ours.half()(x.half()).dtype == torch.float16


@BOTH
def test_it_stands_in_a_norms_place_but_follows_the_scale_of_its_input(kind):
    x = draw(7, 5).float()
    norm, ours = nn.LayerNorm(5, eps=0.0), kind(5)
    torch.testing.assert_close(norm(1e-3 * x), norm(x), rtol=1e-3, atol=1e-3)
    slope = 0.5 if kind is layernorm.DynamicTanh else 1 / torch.pi**0.5
    torch.testing.assert_close(ours(1e-3 * x), slope * 1e-3 * x, rtol=1e-4, atol=1e-7)
    assert ours(1e6 * x).abs().max() <= 1


@BOTH
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("5",), TypeError, "normalized_shape must be an int"),
        ((-5,), ValueError, "normalized_shape must not be negative"),
        ((5, float("nan")), ValueError, "alpha must be finite"),
        ((5, "a half"), TypeError, "alpha must be a number"),
    ],
)
def test_bad_arguments_are_refused(kind, arguments, error, message):
    with pytest.raises(error, match=message):
        kind(*arguments)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": [1.0]}, TypeError, r"x must be a torch\.Tensor, got list"),
        ({"x": torch.ones(2, 3).int()}, TypeError, r"x must be float16.*got torch\.int32"),
        ({"alpha": torch.ones(3)}, ValueError, r"alpha must have shape \(\).*one number.*\(3,\)"),
        ({"alpha": float("inf")}, ValueError, "alpha must be finite"),
        ({"weight": torch.ones(4)}, ValueError, r"weight must have shape \(3,\).*got \(4,\)"),
        ({"bias": torch.ones(1, 2, 3)}, ValueError, r"bias must have shape \(2, 3\).*end of x's"),
        ({"weight": 2.0}, TypeError, r"weight must be a torch\.Tensor, got float"),
    ],
)
def test_bad_input_is_refused(change, error, message):
    good = {"x": torch.ones(2, 3), "alpha": 0.5, "weight": torch.ones(3), "bias": torch.ones(3)}
    assert functional.dynamic_tanh(**good).shape == (2, 3)
    for f in (functional.dynamic_tanh, functional.dynamic_erf):
        with pytest.raises(error, match=message):
            f(**good | change)
    with pytest.raises(ValueError, match=r"shift must have shape \(\)"):
        functional.dynamic_erf(**good, shift=torch.zeros(3))


def test_they_are_methods_but_not_normalizations():
    x = torch.randn(6, 4)
    for name, kind in (("dyt", layernorm.DynamicTanh), ("derf", layernorm.DynamicErf)):
        linear, module = METHODS[name].layer(4, 8)
        assert type(module) is kind
        assert linear.bias is None
        assert METHODS[name].layer(4, 8)(x).shape == (6, 8)
        assert METHODS[name] not in normalizations()
    names = {row.name for row in normalizations()}
    assert {"none", "batch", "weight", "layer", "rms", "group"} <= names
