"""Weights from a module of another library: its arrays are those of its state dict, and what a
state dict does not hold is read from the module."""

import pytest
import torch
from recurrent.other_libraries import HASTE, HASTE_GRU, X, example_cell, prefixed, pydreamers_cell
from torch import nn

from layernorm.recurrent import convert


def module_of(state, eps: float | None = None, **attributes) -> nn.Module:
    """A module with these arrays; where they are those of a norm, a LayerNorm of this eps."""
    made = nn.Module()
    for name, value in state.items():
        *path, last = name.split(".")
        place = made
        for part in path:
            if not hasattr(place, part):
                is_norm = part.startswith(("ln", "layernorm")) and eps is not None
                place.add_module(
                    part, nn.LayerNorm(len(value), eps=eps) if is_norm else nn.Module()
                )
            place = getattr(place, part)
        setattr(place, last, nn.Parameter(value))
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def frozen(layer) -> set[str]:
    return {name for name, p in layer.named_parameters() if not p.requires_grad}


@pytest.mark.parametrize("state", [HASTE, HASTE_GRU])
@pytest.mark.parametrize("zoneout", [0.0, 0.25])
def test_hastes_settings_mode_and_frozen_weights(state, zoneout):
    module = module_of(state, batch_first=True, zoneout=zoneout).eval()
    for name in ("kernel", "gamma"):
        module.get_parameter(name).requires_grad_(False)
    new = convert.from_haste(module)
    assert (new.batch_first, new.training) == (True, False)
    assert frozen(new) == {"weight_ih_l0", "ln_ih_weight_l0", "ln_hh_weight_l0"}
    expected = convert.from_haste(state, zoneout=zoneout).eval()
    assert (expected.batch_first, frozen(expected)) == (False, set())
    y = new(X.transpose(0, 1))[0]
    assert torch.equal(y.transpose(0, 1), expected(X)[0])
    assert convert.from_haste(module.train()).training
    assert not convert.from_haste(module, batch_first=False).batch_first


NORMS = {True: ["lnorm"], False: ["ln_reset", "ln_update", "ln_newval"]}
STACK = {
    late: prefixed(pydreamers_cell(late, 3, 1), "layers.0.")
    | prefixed(pydreamers_cell(late, 5, 1), "layers.1.")
    for late in NORMS
}


@pytest.mark.parametrize("late", NORMS)
def test_pydreamers_constants_mode_and_frozen_weights(late):
    module = module_of(STACK[late], eps=1e-5).eval()
    for layer in module.layers.children():
        layer.update_bias = 1
    module.layers.get_submodule("1").weight_hh.requires_grad_(False)
    module.get_parameter(f"layers.0.{NORMS[late][0]}.weight").requires_grad_(False)
    for norm in NORMS[late]:
        module.get_parameter(f"layers.0.{norm}.bias").requires_grad_(False)
    new = convert.from_pydreamer(module)
    assert not new.training
    assert frozen(new) == {"weight_hh_l1", "ln_hh_bias_l0"} | (
        {"ln_hh_weight_l0"} if late else set()
    )
    given = {"eps": 1e-5, "update_bias": 1.0}
    expected = convert.from_pydreamer(STACK[late], **given)
    assert expected.training
    assert repr(new) == repr(expected) == repr(convert.from_pydreamer(module, **given))
    assert torch.equal(new(X)[0], expected(X)[0])
    usual = convert.from_pydreamer(STACK[late])
    assert (usual.eps, usual.update_bias) == (1e-3, 1.0 if late else 0.0)
    assert not torch.allclose(usual(X)[0], expected(X)[0])


def test_the_examples_eps_mode_and_frozen_weights():
    state = {f"cell.{name}": value for name, value in example_cell(3, 5, seed=1).items()}
    module = module_of(state, eps=1e-3).eval()
    module.get_parameter("cell.layernorm_c.bias").requires_grad_(False)
    new = convert.from_torchscript(module)
    assert not new.training
    assert frozen(new) == {"ln_c_bias_l0"}
    expected = convert.from_torchscript(state, eps=1e-3)
    assert repr(new) == repr(expected) == repr(convert.from_torchscript(module, eps=1e-3))
    assert torch.equal(new(X)[0], expected(X)[0])
    assert convert.from_torchscript(state).eps == 1e-5
    without = module_of(state)
    assert convert.from_torchscript(without, eps=0).eps == 0


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_module_of_the_example_after_script_says_its_eps():
    norm = torch.jit.script(nn.LayerNorm(5, eps=1e-3))
    module = module_of(example_cell(3, 5, seed=1), eps=1e-3)
    module.layernorm_c = norm
    assert convert.from_torchscript(module).eps == 1e-3


CELL, EXAMPLE = pydreamers_cell(True, 3, 1), example_cell(3, 5, seed=1)
TWO = module_of(EXAMPLE, eps=1e-3)
TWO.layernorm_c.eps = 0.1


@pytest.mark.parametrize(
    ("function", "module", "options", "message"),
    [
        (convert.from_torchscript, module_of(EXAMPLE, eps=1e-3), {"eps": 1e-5},
         r"eps must be one number: source's modules have 0\.001, got 1e-05; give it where"),
        (convert.from_torchscript, module_of(EXAMPLE), {}, "source's modules have none, got None"),
        (convert.from_torchscript, TWO, {}, r"source's modules have 0\.001 and 0\.1, got None"),
        (convert.from_torchscript, TWO, {"eps": 0.1}, r"modules have 0\.001 and 0\.1, got 0\.1"),
        (convert.from_pydreamer, module_of(CELL, eps=1e-5), {"eps": 1e-3},
         r"eps must be one number: source's modules have 1e-05, got 0\.001"),
        (convert.from_pydreamer, module_of(CELL, eps=1e-3, update_bias=0), {"update_bias": -1.0},
         r"update_bias must be one number: source's modules have 0, got -1\.0"),
    ],
)  # fmt: skip
def test_what_contradicts_the_module_is_refused(function, module, options, message):
    with pytest.raises(ValueError, match=message):
        function(module, **options)
