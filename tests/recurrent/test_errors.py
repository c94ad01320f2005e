# ruff: noqa: E501  (a table, one line per case)
"""Bad input to the recurrent definitions, layers and cells: the argument, what was expected, what
came and what to do."""

import pytest
import torch
from torch import nn, zeros
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from layernorm import (
    BatchNormLSTM,
    LayerNormGRU,
    LayerNormGRUCell,
    LayerNormLSTM,
    LayerNormLSTMCell,
    LayerNormRNN,
    LayerNormRNNCell,
)
from layernorm.recurrent.definition import GRUWeights, LSTMWeights, RNNWeights, gru, lstm, rnn

CONSTRUCTED = [
    (LayerNormLSTM, (0, 5), {}, ValueError, "input_size must be positive, got 0"),
    (LayerNormGRU, (3, -1), {}, ValueError, "hidden_size must be positive, got -1"),
    (LayerNormLSTM, (3, 5), {"num_layers": 0}, ValueError, "num_layers must be positive, got 0"),
    (LayerNormLSTM, (3, 5), {"proj_size": 5}, ValueError, r"proj_size must be 0 \(no projection\) or smaller than hidden_size=5, got 5"),
    (LayerNormLSTMCell, (3, 5), {"proj_size": -1}, ValueError, "proj_size must be 0"),
    (LayerNormGRU, (3, 5), {"dropout": 1.5}, ValueError, r"dropout must be a probability, in \[0, 1\], got 1\.5"),
    (LayerNormRNN, (3, 5), {"nonlinearity": "elu"}, ValueError, 'nonlinearity must be "tanh" or "relu", got \'elu\''),
    (LayerNormRNNCell, (3, 5), {"nonlinearity": "elu"}, ValueError, 'nonlinearity must be "tanh" or "relu"'),
    (LayerNormLSTM, (3, 5), {"variant": "layer"}, ValueError, "variant must be one of paper, joint, per_gate, cell_only, carried, got 'layer'"),
    (LayerNormLSTMCell, (3, 5), {"variant": "layer"}, ValueError, "variant must be one of paper"),
    (LayerNormLSTM, (3, 5), {"backend": "cuda"}, ValueError, "backend must be one of auto, reference, fused, got 'cuda'"),
    (LayerNormLSTM, (3, 5), {"bias": False, "forget_bias": 1.0}, ValueError, r"forget_bias=1\.0 needs bias=True"),
    (BatchNormLSTM, (3, 5), {"bias": False, "forget_bias": 1.0}, ValueError, r"forget_bias=1\.0 needs bias=True"),
    (LayerNormLSTM, (3, 5), {"forget_bias": float("nan")}, ValueError, "forget_bias must be finite, got nan"),
    (LayerNormGRUCell, (3, 5), {"eps": -1.0}, ValueError, "eps must be non-negative"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "sizes", "options", "error", "message"), CONSTRUCTED)
def test_settings(kind, sizes, options, error, message):
    with pytest.raises(error, match=message):
        kind(*sizes, **options)


@pytest.mark.parametrize("name", ["bias", "batch_first", "bidirectional", "learn_initial_state"])
def test_numbers_in_the_place_of_flags(name):
    """An argument that has slipped by one place: the annotations' check of the test run says so
    where it comes first."""
    with pytest.raises(TypeError, match=f"{name}.*(must be True or False, got 1|bool)"):
        LayerNormLSTM(3, 5, **{name: 1})


LSTM, GRU = LayerNormLSTM(3, 5, 2), LayerNormGRU(3, 5, batch_first=True)
CELL, GRU_CELL = LayerNormLSTMCell(3, 5), LayerNormGRUCell(3, 5)
X, H = zeros(4, 2, 3), zeros(2, 2, 5)
CALLED = [
    (LSTM, ([1.0],), TypeError, r"input must be a torch\.Tensor, got list"),
    (LSTM, (X.long(),), TypeError, "input must be float16, bfloat16, float32 or float64, got torch.int64"),
    (LSTM, (X.double(),), TypeError, r"input must have the weights' type torch\.float32, got torch\.float64; convert it with input\.to\(torch\.float32\) or the module"),
    (LSTM, (zeros(4, 2, 4),), ValueError, r"input must have shape \(T, B, 3\), or \(T, 3\) for one sequence, got \(4, 2, 4\)"),
    (GRU, (zeros(4, 2, 4),), ValueError, r"input must have shape \(B, T, 3\)"),
    (LSTM, (zeros(3),), ValueError, r"input must have shape .* got \(3,\)"),
    (LSTM, (zeros(1, 4, 2, 3),), ValueError, r"got \(1, 4, 2, 3\)"),
    (GRU, (zeros(4, 0, 3),), ValueError, r"at least one time step, got shape \(4, 0, 3\)"),
    (LSTM, (pack_sequence([zeros(4, 2)]),), ValueError, r"input\.data must have shape \(N, 3\), got \(4, 2\)"),
    (LSTM, (X, H), TypeError, r"hx must be a pair \(h_0, c_0\) of tensors, got Tensor"),
    (LSTM, (X, (H,)), TypeError, r"hx must be a pair \(h_0, c_0\) of tensors, got 1 values"),
    (LSTM, (X, (H[:1], H)), ValueError, r"h_0 must have shape \(2, 2, 5\) for this input, got \(1, 2, 5\); it stays"),
    (LSTM, (X, (H, zeros(2, 2, 4))), ValueError, r"c_0 must have shape \(2, 2, 5\) for this input, got \(2, 2, 4\)"),
    (LSTM, (X[:, 0], (H, H)), ValueError, r"h_0 must have shape \(2, 5\) for this input"),
    (LSTM, (X, (H, H.double())), TypeError, r"c_0 must have the weights' type torch\.float32, got torch\.float64"),
    (GRU, (X, (H, H)), TypeError, r"hx must be one tensor, h_0, got 2 values; only an LSTM has"),
    (GRU, (X, [H]), TypeError, "hx must be one tensor, h_0, got 1 values"),
    (CELL, (X[0], (zeros(3, 5), zeros(2, 5))), ValueError, r"h_0 must have shape \(2, 5\) for this input, got \(3, 5\)$"),
    (LSTM, (X.to_sparse(),), ValueError, r"input must be a dense tensor, got a torch\.sparse_coo one; use input\.to_dense\(\)"),
    (GRU_CELL, (torch.nested.nested_tensor([X[0], X[0]], layout=torch.jagged),), ValueError, r"input must be a dense tensor, got a nested one; use input\.to_padded_tensor"),
    (GRU, (X.to("meta"),), ValueError, r"input must be on the weights' device cpu, got meta; move one"),
    (LSTM, (X, (H, H.to("meta"))), ValueError, "c_0 must be on the weights' device cpu, got meta"),
    (CELL, (zeros(4),), ValueError, r"input must have shape \(B, 3\) or \(3,\), got \(4,\)"),
    (CELL, (X,), ValueError, r"input must have shape \(B, 3\) or \(3,\), got \(4, 2, 3\)"),
    (CELL, (X[0], (zeros(2, 5), zeros(5))), ValueError, r"c_0 must have shape \(2, 5\) for this input, got \(5,\)"),
    (CELL, (X[0], zeros(2, 5)), TypeError, "hx must be a pair"),
    (GRU_CELL, (X[0], zeros(3, 5)), ValueError, r"h_0 must have shape \(2, 5\)"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "arguments", "error", "message"), CALLED)
def test_calls(module, arguments, error, message):
    with pytest.raises(error, match=message):
        module(*arguments)


@pytest.mark.parametrize(("plain", "kind"), [(nn.LSTM, LayerNormLSTM), (nn.RNN, LayerNormRNN)])
@pytest.mark.parametrize("strict", [True, False])
def test_the_state_dict_of_torchs_layer_points_to_the_conversion(plain, kind, strict):
    """Without strict, too: b_hh would be lost silently."""
    state = nn.Sequential(plain(3, 5)).state_dict()
    with pytest.raises(RuntimeError, match=r"convert\.from_torch\(module\)"):
        nn.Sequential(kind(3, 5)).load_state_dict(state, strict=strict)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("module", [LSTM, GRU_CELL, nn.Sequential(LayerNormRNN(3, 5))], ids=str)
def test_scripts_are_refused(module):
    with pytest.raises(TypeError, match=r"script cannot compile LayerNorm(LSTM|GRUCell|RNN); use"):
        torch.jit.script(module)


FOUR, FIFTEEN, FIVE = (zeros(20),) * 2, (zeros(15),) * 2, (zeros(5),) * 2
LW = LSTMWeights(zeros(20, 3), zeros(20, 5), zeros(20), FOUR, FOUR, FIVE)
GW = GRUWeights(zeros(15, 3), zeros(15, 5), None, FIFTEEN, FIFTEEN)
ROWS, STATE = zeros(6, 3), zeros(2, 5)
SIZES = torch.tensor([2, 2, 1, 1])
DEFINED = [
    (lstm, (X, None, STATE, STATE, LW), ValueError, r"x must have two dimensions, \(rows, features\), got \(4, 2, 3\)"),
    (lstm, (zeros(5, 3), None, STATE, STATE, LW), ValueError, r"x must have T \* 2 rows, T steps of h0's 2 sequences, got 5"),
    (lstm, (ROWS, None, STATE, zeros(3, 5), LW), ValueError, r"c0 must have h0's 2 rows, got \(3, 5\)"),
    (lstm, (ROWS, SIZES.int(), STATE, STATE, LW), TypeError, "batch_sizes must be a vector of int64, as in a PackedSequence, got torch.int32"),
    (lstm, (ROWS, [2, 2, 1, 1], STATE, STATE, LW), TypeError, r"batch_sizes must be a torch\.Tensor, got list"),
    *((lstm, (ROWS, torch.tensor(bad), STATE, STATE, LW), ValueError, r"batch_sizes must not increase.*got \[") for bad in ([1, 2, 2, 1], [2, 2], [3, 3], [2, 2, 2, 0])),
    (lstm, (ROWS, SIZES, STATE, STATE, LW._replace(w_hh=zeros(20, 4))), ValueError, r"w_hh must have shape \(20, 5\)"),
    (lstm, (ROWS, SIZES, STATE, STATE, LW._replace(ln_ih=None)), TypeError, "ln_ih must be a pair"),
    (lstm, (ROWS, SIZES, STATE, STATE, LW, 1e-5, "joint"), ValueError, 'weights.ln_ih must be None: variant "joint" has no such norm'),
    (lstm, (ROWS, SIZES, STATE, STATE, LW, 1e-5, "sum"), ValueError, "variant must be one of"),
    (lstm, (ROWS, SIZES, STATE, STATE, LW, -1.0), ValueError, "eps must be non-negative"),
    (gru, (ROWS, SIZES, STATE, GW._replace(ln_hh=FIVE)), ValueError, r"ln_hh's gain must have shape \(15,\)"),
    (gru, (ROWS, SIZES, STATE.double(), GW), TypeError, "h must have the input's type"),
    (rnn, (ROWS, SIZES, STATE, RNNWeights(zeros(5, 3), zeros(5, 5), (zeros(4), None))), ValueError, r"ln's gain must have shape \(5,\)"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "arguments", "error", "message"), DEFINED)
def test_definitions(function, arguments, error, message):
    with pytest.raises(error, match=message):
        function(*arguments)


def test_the_fused_backend_says_why_it_cannot():
    with pytest.raises(
        ValueError, match=r'backend "fused" cannot compute this: it has no projections.*use "auto"'
    ):
        LayerNormLSTM(3, 5, proj_size=2, backend="fused")(X)
    with pytest.raises(ValueError, match="there is no fused rnn"):
        LayerNormRNN(3, 5, backend="fused")(PackedSequence(zeros(3, 3), torch.tensor([2, 1])))
