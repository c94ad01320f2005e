"""`BatchNormLSTM` as a module: checkpoints, start, precision, graphs, and what it refuses."""

import copy
import pickle

import pytest
import torch
from library.oracle import assert_rounded, draw
from recurrent.batch_norm_reference import make
from torch.nn.utils.rnn import pack_sequence

import layernorm


def test_a_checkpoint_restores_everything():
    layer, other = make(bidirectional=True), make(bidirectional=True, seed=9)
    layer(draw(5, 4, 3))
    other.load_state_dict(layer.state_dict())
    x = draw(7, 3, 3, seed=1)
    for twin in (other, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        for now in (layer, twin):
            now.eval()
        assert torch.equal(twin(x)[0], layer(x)[0])
        assert twin.samples_per_batch.tolist() == layer.samples_per_batch.tolist()


def test_keys_shapes_and_start():
    layer = layernorm.BatchNormLSTM(3, 4, 2, bidirectional=True, max_length=6, forget_bias=1.0)
    torchs = dict(torch.nn.LSTM(3, 4, 2, bidirectional=True).state_dict())
    ours = layer.state_dict()
    for name, value in torchs.items():
        if not name.startswith("bias_hh"):  # b stands once
            assert ours.pop(name).shape == value.shape
    assert {name.split("_l")[0] for name in ours} == {
        *("bn_ih_weight", "bn_hh_weight", "bn_c_weight", "bn_c_bias"),
        *(f"running_{m}_{t}" for m in ("mean", "var") for t in ("ih", "hh", "c")),
        *("num_batches_tracked", "num_samples_tracked"),
    }
    assert ours["running_var_ih_l1_reverse"].shape == (6, 16)
    assert ours["bn_hh_weight_l0"].eq(0.1).all()
    assert layer.bias_ih_l1.tolist() == [0.0] * 4 + [1.0] * 4 + [0.0] * 8
    assert 0.3 < layer.weight_hh_l0.abs().max() <= 0.5
    sequence = layernorm.BatchNormLSTM(3, 4, statistics="sequence", gain=1.0)
    assert sequence.running_mean_ih_l0.shape == (1, 16)
    assert sequence.bn_c_weight_l0.eq(1).all()


@pytest.mark.parametrize("statistics", ["per_step", "sequence"])
def test_statistics_that_overflow_give_nan(statistics):
    """Not the zeros, or a bias alone, of a division by infinity: in training, for the few cases
    of late steps, and from running statistics."""
    layer = layernorm.BatchNormLSTM(3, 4, statistics=statistics, max_length=6)
    with torch.no_grad():
        layer.weight_ih_l0.fill_(1e30)
    y, _ = layer(pack_sequence([torch.randn(n, 3) for n in (6, 3, 2, 2)]))
    assert y.data.isnan().all()
    assert layer.eval()(torch.randn(5, 2, 3))[0].isnan().all()


def test_evaluation_changes_nothing_and_reset_forgets():
    layer = make()
    fresh = copy.deepcopy(layer.state_dict())
    layer(draw(5, 4, 3))
    before = copy.deepcopy(layer.state_dict())
    layer.eval()(draw(8, 4, 3))
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name])
    layer.reset_running_stats()
    for name, value in layer.state_dict().items():
        assert torch.equal(value, fresh[name])


def test_dropout_acts_between_layers_in_training_alone():
    layer = make(num_layers=2, dropout=1.0)
    x = draw(5, 4, 3)
    y, _ = layer(x)
    other, _ = layer(2 * x + 1)
    assert torch.equal(y, other)  # the second layer hears nothing
    layer.eval()
    assert not torch.equal(layer(x)[0], layer(2 * x + 1)[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast(dtype):
    layer = make(hidden=33)
    x = draw(6, 7, 3)
    low = copy.deepcopy(layer).to(dtype)
    y, _ = low(x.to(dtype), lengths=[6, 6, 5, 4, 4, 3, 3])
    high = copy.deepcopy(low).double()  # training: running statistics are not read
    rows = x.to(dtype).double()
    assert y.dtype == dtype
    assert_rounded([y], lambda: [high(rows, lengths=[6, 6, 5, 4, 4, 3, 3])[0]])
    with torch.autocast("cpu", dtype=dtype):
        y, _ = layer.float()(x.float())
    assert y.isfinite().all()


BAD = [
    ({"max_length": 0}, ValueError, "max_length must be positive, got 0"),
    ({"hidden_size": 0}, ValueError, "hidden_size must be positive, got 0"),
    ({"num_layers": 1.5}, TypeError, "num_layers must be an int, got 1.5"),
    ({"min_samples": 1}, ValueError, "min_samples must be at least 2, got 1"),
    ({"eps": 0.0}, ValueError, "eps must be positive.*no variance"),
    ({"gain": float("nan")}, ValueError, "gain must be finite"),
    ({"momentum": 0.0}, ValueError, r"momentum must lie in \(0, 1\] or be None, got 0.0"),
    ({"dropout": 2.0}, ValueError, "dropout must be a probability"),
    ({"statistics": "shared"}, ValueError, "statistics must be one of per_step, sequence"),
    ({"beyond": "repeat"}, ValueError, "beyond must be one of last, error, got 'repeat'"),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD, ids=lambda v: str(v)[:20])
def test_bad_settings(options, error, message):
    with pytest.raises(error, match=message):
        layernorm.BatchNormLSTM(**{"input_size": 3, "hidden_size": 4} | options)


X = torch.zeros(5, 4, 3)
STATE = torch.zeros(1, 4, 4)
CALLS = [
    ((X[..., :2],), {}, ValueError, r"input must have shape \(T, B, 3\).*got \(5, 4, 2\)"),
    ((X[0, 0],), {}, ValueError, "input must have shape"),
    ((X[:0],), {}, ValueError, "at least one time step"),
    ((X.double(),), {}, TypeError, "weights' type torch.float32, got torch.float64"),
    (([1, 2],), {}, TypeError, "input must be a torch.Tensor, got list"),
    ((X,), {"lengths": [5, 4, 3, 0]}, ValueError, "lengths must lie in 1 to 5"),
    ((X,), {"lengths": [6, 4, 3, 1]}, ValueError, "lengths must lie in 1 to 5"),
    ((X,), {"lengths": [5, 4]}, ValueError, r"lengths must have shape \(4,\)"),
    ((X,), {"lengths": []}, ValueError, r"lengths must have shape \(4,\)"),
    ((X,), {"lengths": [5.0] * 4}, TypeError, "lengths must be whole numbers"),
    ((pack_sequence([X[:, 0]] * 2),), {"lengths": [5, 5]}, ValueError, "lengths must be None"),
    ((X, STATE), {}, TypeError, "hx must be a pair"),
    ((X, (STATE, STATE[:, :3])), {}, ValueError, r"c_0 must have shape \(1, 4, 4\)"),
]


@pytest.mark.parametrize(("args", "options", "error", "message"), CALLS)
def test_bad_input(args, options, error, message):
    with pytest.raises(error, match=message):
        layernorm.BatchNormLSTM(3, 4)(*args, **options)


def test_lengths_under_another_default_device():
    """Lengths and sizes of batches are the CPU's, as in a PackedSequence."""
    net = layernorm.BatchNormLSTM(3, 4, bidirectional=True)
    x, lengths = torch.randn(5, 2, 3), torch.tensor([5, 3])
    expected = net.eval()(x, lengths=lengths)[0]
    with torch.device("meta"):
        got = net(x, lengths=lengths)[0]
    assert torch.equal(got, expected)
