"""Where the recurrent layers differ from torch's: the list of the API page, item by item."""

import pytest
import torch
from torch import nn

import layernorm
from layernorm import LayerNormGRU, LayerNormLSTM, LayerNormRNN
from layernorm.recurrent import cpu

PAIRS = [(nn.LSTM, LayerNormLSTM), (nn.GRU, LayerNormGRU), (nn.RNN, LayerNormRNN)]
BOTH = pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda kind: kind.__name__)


def test_the_usual_loop_for_the_forget_gate_adds_up():
    lstm = LayerNormLSTM(3, 4)
    named = [p for name, p in lstm.named_parameters() if "bias" in name]
    assert len(named) == 4
    with torch.no_grad():
        for p in named:
            p[p.numel() // 4 : p.numel() // 2] = 1
    total = lstm.bias_ih_l0 + lstm.ln_ih_bias_l0 + lstm.ln_hh_bias_l0
    assert total.tolist() == [0] * 4 + [3] * 4 + [0] * 8
    assert lstm.ln_c_bias_l0.tolist() == [0, 1, 0, 0]
    assert LayerNormLSTM(3, 4, forget_bias=1.0).bias_ih_l0[4:8].tolist() == [1] * 4


@BOTH
def test_classes_and_attributes(theirs, ours):
    layer = ours(3, 4)
    assert not isinstance(layer, nn.RNNBase)
    absent = ["bias_hh_l0", "mode", "_flat_weights", "_all_weights", "check_forward_args"]
    absent += ["get_expected_hidden_size", "permute_hidden"]
    absent += ["proj_size"] if ours is not LayerNormLSTM else []
    for name in absent:
        assert hasattr(theirs(3, 4), name)
        assert not hasattr(layer, name)
    assert any(layer.all_weights[0][-1] is p for n, p in layer.named_parameters() if "ln_" in n)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    layer.flatten_parameters()
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


@BOTH
def test_bidirectional_is_a_bool(theirs, ours):
    theirs(3, 4, bidirectional=1)
    with pytest.raises(TypeError, match="bidirectional"):
        ours(3, 4, bidirectional=1)


def test_cells_are_of_another_class():
    for cell in (layernorm.LayerNormLSTMCell, layernorm.LayerNormGRUCell):
        assert not isinstance(cell(3, 4), nn.RNNCellBase)


def test_without_b_the_norms_keep_their_biases():
    names = LayerNormLSTM(3, 4, bias=False).state_dict()
    assert "bias_ih_l0" not in names
    assert {"ln_ih_bias_l0", "ln_hh_bias_l0", "ln_c_bias_l0"} <= set(names)


@BOTH
def test_torchs_state_dict(theirs, ours):
    layer = ours(3, 4)
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=r"recurrent\.convert\.from_torch"):
            layer.load_state_dict(theirs(3, 4).state_dict(), strict=strict)
    plain = theirs(3, 4, bias=False)
    with pytest.raises(RuntimeError, match="Missing key"):
        layer.load_state_dict(plain.state_dict())
    layer.load_state_dict(plain.state_dict(), strict=False)
    assert torch.equal(layer.weight_hh_l0, plain.weight_hh_l0)
    assert all((p == 1).all() for name, p in layer.named_parameters() if "ln_" in name and
               "_weight" in name)  # fmt: skip


@BOTH
def test_kinds_of_errors(theirs, ours):
    """A wrong shape and a wrong type raise other errors than torch's."""
    shape, kind = torch.ones(2, 5, 4), torch.ones(2, 5, 3, dtype=torch.float64)
    for made, given, error in (
        (theirs, shape, RuntimeError),
        (ours, shape, ValueError),
        (theirs, kind, ValueError),
        (ours, kind, TypeError),
    ):
        with pytest.raises(error) as raised:
            made(3, 4)(given)
        assert raised.type is error


@pytest.mark.parametrize("ours", [LayerNormLSTM, LayerNormGRU])
def test_types_under_autocast(ours):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, states = ours(3, 4)(torch.ones(2, 5, 3))
    for tensor in (y, *states):
        assert tensor.dtype == torch.float32


def test_types_of_torch_under_autocast():
    """oneDNN has no LSTM in bfloat16 for a processor without that type, and torch 2.13.0 asks for
    it all the same. A later torch may give the output that it gives elsewhere."""
    x = torch.ones(2, 5, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert nn.GRU(3, 4)(x)[0].dtype == torch.float32
        try:
            found = nn.LSTM(3, 4)(x)[0].dtype
        except RuntimeError as error:
            found = str(error)
    refused = "could not create a primitive descriptor for the LSTM"
    assert found == torch.bfloat16 or refused in found


@pytest.mark.skipif(cpu.missing() is not None, reason=str(cpu.missing()))
@pytest.mark.parametrize("ours", [LayerNormLSTM, LayerNormGRU])
@pytest.mark.parametrize("layers", [1, 2])
def test_outputs_changed_in_place(ours, layers):
    """On the fast path with one direction; torch's LSTM may refuse it, its GRU does not."""
    x, computed = torch.ones(5, 2, 4), {}
    made = {
        "torch": nn.GRU(4, 4, layers),
        "definition": ours(4, 4, layers, backend="reference"),
        "both directions": ours(4, 2, layers, bidirectional=True),
    }
    for name, layer in made.items():
        y, _ = layer(x)
        y += x
        y.sum().backward()
        computed[name] = layer.weight_hh_l0.grad
    assert all(gradient.any() for gradient in computed.values())
    layer = ours(4, 4, layers, backend="fused")
    y, _ = layer(x)
    y += x
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    y, _ = layer(x)
    y = y + x
    y.sum().backward()
    assert layer.weight_hh_l0.grad.any()


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_quantize_dynamic_leaves_the_layer_as_it_is():
    model = nn.ModuleList([LayerNormLSTM(3, 4), nn.LSTM(3, 4), nn.Linear(4, 2)])
    ours, theirs, linear = torch.ao.quantization.quantize_dynamic(model)
    assert type(theirs).__name__ == "LSTM"
    assert not isinstance(theirs, nn.LSTM)
    assert not isinstance(linear, nn.Linear)
    assert type(ours) is LayerNormLSTM
    for name, value in ours.state_dict().items():
        assert torch.equal(value, model[0].state_dict()[name])
