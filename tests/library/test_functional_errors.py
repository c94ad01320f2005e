# ruff: noqa: E501  (a table, one line per case)
"""Bad input meets a message that names the argument, what was expected, what came, what to do."""

import pytest
import torch

from layernorm import functional as fn


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype)


X = zeros(2, 4, 3)
LSTM = {"x": zeros(2, 3), "h": zeros(2, 5), "c": zeros(2, 5), "w_ih": zeros(20, 3)}
LSTM |= {"w_hh": zeros(20, 5), "b": zeros(20), "ln_ih": (zeros(20), zeros(20))}
LSTM |= {"ln_hh": (zeros(20), zeros(20)), "ln_c": (zeros(5), zeros(5))}
GRU = {"x": zeros(2, 3), "h": zeros(2, 5), "w_ih": zeros(15, 3), "w_hh": zeros(15, 5)}
GRU |= {"b": zeros(15), "ln_ih": (zeros(15), zeros(15)), "ln_hh": (zeros(15), zeros(15))}
RNN = {"x": zeros(2, 3), "h": zeros(2, 5), "w_ih": zeros(5, 3), "w_hh": zeros(5, 5)}
RNN |= {"ln": (zeros(5), zeros(5))}
GOOD = {
    fn.layer_norm: {"x": X, "normalized_shape": (4, 3)},
    fn.rms_norm: {"x": X, "normalized_shape": (3,)},
    fn.group_norm: {"x": X, "num_groups": 2},
    fn.instance_norm: {"x": X},
    fn.batch_norm: {"x": X, "running_mean": None, "running_var": None, "training": True},
    fn.weight_norm: {"v": zeros(4, 3), "g": zeros(4, 1)},
    fn.ln_rnn_step: RNN,
    fn.ln_lstm_step: LSTM,
    fn.ln_gru_step: GRU,
}
NAN, INF = float("nan"), float("inf")
FUNCTIONS = [f for f in GOOD if f is not fn.weight_norm]
FIRST = [(f, "v" if f is fn.weight_norm else "x") for f in GOOD]
AFFINE = [fn.layer_norm, fn.group_norm, fn.instance_norm, fn.batch_norm]

WRONG = [
    # kinds and types of numbers
    *((f, {x: [1.0]}, TypeError, rf"{x} must be a torch\.Tensor, got list") for f, x in FIRST),
    *(
        (f, {x: GOOD[f][x].int()}, TypeError, rf"{x} must be float16.*got torch\.int32; convert")
        for f, x in FIRST
    ),
    *(
        (f, {x: GOOD[f][x].cfloat()}, TypeError, rf"{x} must be float16.*got torch\.complex64")
        for f, x in FIRST
    ),
    *((f, {x: GOOD[f][x].to_sparse()}, ValueError, rf"{x} must be a dense tensor, got a torch\.sparse_coo one; use {x}\.to_dense\(\)") for f, x in FIRST),
    *((f, {x: torch.nested.nested_tensor([GOOD[f][x]], layout=torch.jagged)}, ValueError, rf"{x} must be a dense tensor, got a nested one") for f, x in FIRST),
    *((f, {"weight": zeros(*shape).to("meta")}, ValueError, "weight must be on the input's device cpu, got meta") for f, shape in ((fn.layer_norm, (4, 3)), (fn.group_norm, (4,)))),
    (fn.ln_gru_step, {"h": zeros(2, 5).to("meta")}, ValueError, "h must be on the input's device cpu, got meta"),
    *((f, {"weight": zeros(9)}, ValueError, r"weight must have shape .*, got \(9,\)") for f in AFFINE),
    *((f, {"bias": zeros(9)}, ValueError, r"bias must have shape .*, got \(9,\)") for f in AFFINE),
    (fn.layer_norm, {"weight": zeros(4, 3).double()}, TypeError, "weight must have.*float32, got torch.float64"),
    (fn.layer_norm, {"x": X.half(), "weight": zeros(4, 3).bfloat16()}, TypeError, "or float32, got torch.bfloat16"),
    (fn.batch_norm, {"bias": zeros(4).int()}, TypeError, "bias must be float16"),
    # eps and momentum
    *((f, {"eps": -1e-5}, ValueError, "eps must be non-negative.*got -1e-05") for f in FUNCTIONS),
    *((f, {"eps": e}, ValueError, f"eps must be finite, got {e}") for f in FUNCTIONS for e in (NAN, INF)),
    *((f, {"eps": "small"}, TypeError, "eps must be a number, got 'small'") for f in FUNCTIONS),
    *((f, {"momentum": NAN}, ValueError, "momentum must be finite") for f in AFFINE[2:]),
    *((f, {"momentum": None}, TypeError, "momentum must be a number, got None") for f in AFFINE[2:]),
    # what is averaged over
    (fn.layer_norm, {"normalized_shape": (4,)}, ValueError, r"last dimension.*got \(4,\) for x of shape \(2, 4, 3\)"),
    (fn.layer_norm, {"normalized_shape": ()}, ValueError, "last dimension"),
    (fn.layer_norm, {"normalized_shape": (1, 2, 4, 3)}, ValueError, "last dimension"),
    (fn.layer_norm, {"normalized_shape": 3}, TypeError, r"sequence of ints such as \(5,\), got 3"),
    (fn.layer_norm, {"normalized_shape": (3.0,)}, TypeError, "sequence of ints"),
    (fn.rms_norm, {"normalized_shape": (7,)}, ValueError, "last dimension"),
    (fn.group_norm, {"x": zeros(4)}, ValueError, r"x must have shape \(N, C, \*spatial\), got \(4,\)"),
    (fn.group_norm, {"num_groups": 3}, ValueError, "num_groups must be positive and divide.*4; got 3"),
    (fn.group_norm, {"num_groups": 0}, ValueError, "num_groups must be positive.*got 0"),
    (fn.group_norm, {"num_groups": 2.0}, TypeError, "num_groups must be an int, got 2.0"),
    (fn.instance_norm, {"x": zeros(2, 4)}, ValueError, "with a spatial dimension, got"),
    (fn.instance_norm, {"x": zeros(2, 4, 1)}, ValueError, r"more than one position.*\(2, 4, 1\).*layer_norm"),
    (fn.batch_norm, {"x": zeros(4)}, ValueError, "x must have shape"),
    (fn.batch_norm, {"x": zeros(1, 4)}, ValueError, r"more than one value per channel.*\(1, 4\).*larger batch"),
    (fn.batch_norm, {"x": zeros(1, 4, 1)}, ValueError, "more than one value per channel"),
    # running statistics
    (fn.batch_norm, {"training": False}, ValueError, "must be tensors when training=False, got None"),
    (fn.instance_norm, {"use_input_stats": False}, ValueError, "when use_input_stats=False, got None"),
    *((f, {"running_mean": zeros(4)}, ValueError, "both be None, got a tensor and None") for f in AFFINE[2:]),
    *(
        (f, {"running_mean": zeros(4), "running_var": zeros(3)}, ValueError, r"running_var must have shape \(4,\)")
        for f in AFFINE[2:]
    ),
    # masks
    (fn.batch_norm, {"mask": torch.zeros(2, 3, dtype=torch.bool)}, ValueError, "valid positions.*got none"),
    (fn.batch_norm, {"mask": torch.eye(2, 3, dtype=torch.bool) & torch.tensor([True, False, False])}, ValueError, "one valid position in the mask"),
    (fn.batch_norm, {"mask": torch.ones(2, 4, dtype=torch.bool)}, ValueError, r"mask must have shape \(2, 3\).*got \(2, 4\)"),
    (fn.batch_norm, {"mask": zeros(2, 3)}, TypeError, r"mask must be torch\.bool.*float32.*\.bool\(\)"),
    (fn.batch_norm, {"mask": [True]}, TypeError, r"mask must be a torch\.Tensor"),
    # weight normalization
    (fn.weight_norm, {"g": zeros(4)}, ValueError, r"g must have shape \(4, 1\).*got \(4,\)"),
    (fn.weight_norm, {"g": None}, TypeError, r"g must be a torch\.Tensor"),
    (fn.weight_norm, {"dim": None}, ValueError, r"g must have shape \(\).*whole of v"),
    (fn.weight_norm, {"dim": 2}, ValueError, r"dim must be a dimension of v.*dim=2.*\(4, 3\)"),
    (fn.weight_norm, {"dim": "0"}, TypeError, "dim must be an int or None"),
    (fn.weight_norm, {"v": zeros(4)}, ValueError, "at least two"),
    # recurrent steps
    *((f, {"h": zeros(2, 6)}, ValueError, r"w_ih must have shape \(\d+, 3\)") for f in FUNCTIONS[-3:]),
    *((f, {"h": zeros(3, 5)}, ValueError, r"agree in the batch, got \(2, 3\) and \(3, 5\)") for f in FUNCTIONS[-3:]),
    *((f, {"x": zeros(2, 4)}, ValueError, r"w_ih must have shape \(\d+, 4\)") for f in FUNCTIONS[-3:]),
    *((f, {"w_hh": zeros(5, 20)}, ValueError, r"w_hh must have shape \(\d+, 5\)") for f in FUNCTIONS[-3:]),
    *((f, {"w_ih": None}, TypeError, r"w_ih must be a torch\.Tensor") for f in FUNCTIONS[-3:]),
    *((f, {"h": zeros(2, 5).double()}, TypeError, "h must have the input's type") for f in FUNCTIONS[-3:]),
    (fn.ln_lstm_step, {"c": zeros(2, 6)}, ValueError, r"c must have shape \(2, 5\) \(the shape of h\), got \(2, 6\)"),
    (fn.ln_lstm_step, {"c": zeros(2, 5).double()}, TypeError, "c must have the input's type"),
    (fn.ln_lstm_step, {"b": zeros(5)}, ValueError, r"b must have shape \(20,\) \(4 \* hidden size\)"),
    (fn.ln_lstm_step, {"b": None}, TypeError, r"b must be a torch\.Tensor"),
    (fn.ln_lstm_step, {"ln_c": (zeros(5), zeros(20))}, ValueError, r"ln_c's bias must have shape \(5,\)"),
    (fn.ln_gru_step, {"ln_hh": (zeros(10), zeros(15))}, ValueError, r"ln_hh's gain must have shape \(15,\)"),
    (fn.ln_rnn_step, {"ln": zeros(5)}, TypeError, r"ln must be a pair \(gain, bias\) of tensors, got Tensor"),
    (fn.ln_rnn_step, {"ln": (zeros(5),)}, TypeError, "ln must be a pair"),
    (fn.ln_rnn_step, {"nonlinearity": "elu"}, ValueError, 'nonlinearity must be "tanh" or "relu", got \'elu\''),
    (fn.ln_lstm_step, {"w_hr": zeros(4, 5)}, ValueError, r"w_hr must have shape \(5, 5\) \(projected, hidden\), got \(4, 5\)"),
    (fn.ln_lstm_step, {"w_hr": zeros(5, 6), "c": zeros(2, 6)}, ValueError, r"w_ih must have shape \(24, 3\)"),
    (fn.ln_lstm_step, {"w_hr": zeros(5, 5), "c": zeros(())}, ValueError, r"c must have shape \(\*batch, hidden\), got \(\)"),
]  # fmt: skip


@pytest.mark.parametrize("function", GOOD, ids=lambda f: f.__name__)
def test_what_the_cases_start_from_is_accepted(function):
    function(**GOOD[function])


@pytest.mark.parametrize(
    ("function", "changed", "error", "message"),
    WRONG,
    ids=[f"{f.__name__}-{'-'.join(changed)}-{n}" for n, (f, changed, *_) in enumerate(WRONG)],
)
def test_bad_input(function, changed, error, message):
    with pytest.raises(error, match=message):
        function(**(GOOD[function] | changed))


def test_an_evaluated_batch_may_be_all_padding():
    mask = torch.zeros(2, 3, dtype=torch.bool)
    y = fn.batch_norm(X + 1, zeros(4), zeros(4) + 1, training=False, mask=mask)
    assert not y.any()
    assert y.shape == X.shape


def test_missing_and_unknown_arguments_are_named():
    with pytest.raises(TypeError, match="normalized_shape"):
        fn.layer_norm(X)
    with pytest.raises(TypeError, match="epsilon"):
        fn.layer_norm(X, (3,), epsilon=1e-5)


def test_annotated_shapes_are_checked_in_the_test_run():
    """The import hook is at work beneath our own checks: a wrong result would be noticed."""
    inner = fn.layer_norm.__wrapped__
    with pytest.raises(Exception, match="Type-check error"):
        inner("not a tensor", (3,))
