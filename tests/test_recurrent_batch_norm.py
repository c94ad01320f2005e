"""`BatchNormLSTM` against a loop over cases, steps and units in NumPy, and what it promises."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from oracle import assert_close, draw
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

import layernorm
from layernorm.recurrent.step_norm import reversal, valid_rows

LENGTHS = [6, 2, 4, 4, 1]
BATCHES = ([3, 2, 3], [7, 7, 7, 7], LENGTHS)
EPS = 0.01


def make(inputs=3, hidden=4, seed=0, **options) -> layernorm.BatchNormLSTM:
    """A layer in float64 with random gains and biases."""
    options = {"max_length": 8, "eps": EPS, "dtype": torch.float64} | options
    layer = layernorm.BatchNormLSTM(inputs, hidden, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return layer


# An independent reference: one direction of one layer, a list of sequences (steps, inputs)


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def reference(layer, sequences, suffix, h0, c0, statistics):
    """Outputs of each sequence, last states, and the statistics found {term: [(n, mean, var)]}.

    `statistics` is None in training, else {term: [(mean, var) for each step]}.
    """
    p = {name: value.detach().numpy() for name, value in layer.named_parameters()}
    weights = [p[f"weight_{t}{suffix}"] for t in ("ih", "hh")]
    b = p.get(f"bias_ih{suffix}", 0.0)
    gain = {t: p[f"bn_{t}_weight{suffix}"] for t in ("ih", "hh", "c")}
    found = {t: [] for t in gain}

    def normalized(term, a, t, over=None):
        if statistics is not None:
            mean, var = statistics[term][min(t, len(statistics[term]) - 1)]
        else:
            values = a if over is None else over
            if len(values) >= layer.min_samples:
                mean = sum(values) / len(values)
                var = sum((v - mean) ** 2 for v in values) / len(values)
                found[term].append((len(values), mean, var))
            _, mean, var = found[term][-1]
        return [(v - mean) / np.sqrt(var + layer.eps) * gain[term] for v in a]

    h, c = [row.copy() for row in h0], [row.copy() for row in c0]
    outputs = [[] for _ in sequences]
    everything = [weights[0] @ x for s in sequences for x in s]
    for t in range(max(map(len, sequences))):
        going = [k for k, s in enumerate(sequences) if t < len(s)]
        a_x = [weights[0] @ sequences[k][t] for k in going]
        if layer.statistics == "per_step":
            a_x = normalized("ih", a_x, t)
        else:
            if t == 0 and statistics is None:
                normalized("ih", everything, 0)
            mean, var = found["ih"][0][1:] if statistics is None else statistics["ih"][0]
            a_x = [(v - mean) / np.sqrt(var + layer.eps) * gain["ih"] for v in a_x]
        a_h = normalized("hh", [weights[1] @ h[k] for k in going], t)
        gates = [np.split(x + y + b, 4) for x, y in zip(a_x, a_h, strict=True)]
        for k, (i, f, g, _) in zip(going, gates, strict=True):
            c[k] = sigmoid(f) * c[k] + sigmoid(i) * np.tanh(g)
        seen = normalized("c", [c[k] for k in going], t)
        for k, (*_, o), v in zip(going, gates, seen, strict=True):
            h[k] = sigmoid(o) * np.tanh(v + p[f"bn_c_bias{suffix}"])
            outputs[k].append(h[k])
    return [np.stack(o) for o in outputs], np.stack(h), np.stack(c), found


def reference_stack(layer, sequences, h0, c0):
    """All layers and directions of a layer, in its mode."""
    ends = ("", "_reverse") if layer.bidirectional else ("",)
    y, states, found = sequences, [], {}
    for k in range(layer.num_layers):
        sides = []
        for end in ends:
            suffix = f"_l{k}{end}"
            statistics = None
            if not layer.training:
                tracked = max(1, int((layer.num_batches_tracked > 0).sum()))
                statistics = {
                    term: [
                        (m.numpy(), v.numpy())
                        for m, v in zip(
                            getattr(layer, f"running_mean_{term}{suffix}")[:tracked],
                            getattr(layer, f"running_var_{term}{suffix}")[:tracked],
                            strict=True,
                        )
                    ]
                    for term in ("ih", "hh", "c")
                }
            seen = [s[::-1] for s in y] if end else y
            side, h, c, found[suffix] = reference(
                layer, seen, suffix, h0[len(states)], c0[len(states)], statistics
            )
            sides.append([s[::-1] for s in side] if end else side)
            states.append((h, c))
        y = [np.concatenate(both, -1) for both in zip(*sides, strict=True)]
    return y, np.stack([h for h, _ in states]), np.stack([c for _, c in states]), found


def draws(layer, lengths=LENGTHS, seed=1):
    """Sequences, and initial states of every layer and direction."""
    sequences = [draw(n, layer.input_size, seed=seed + k) for k, n in enumerate(lengths)]
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    shape = (rows, len(lengths), layer.hidden_size)
    return sequences, (draw(*shape, seed=50), draw(*shape, seed=51))


OPTIONS = [
    {},
    {"bias": False},
    {"num_layers": 2, "bidirectional": True},
    {"statistics": "sequence"},
    {"statistics": "sequence", "bidirectional": True},
    {"min_samples": 3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("given", [False, True], ids=["zero state", "given state"])
def test_equals_the_loop_in_training_and_evaluation(options, given):
    layer = make(**options)
    for _ in range(2):  # training, then evaluation on longer sequences
        lengths = LENGTHS if layer.training else [3, 11, 5]
        sequences, states = draws(layer, lengths)
        states = states if given else tuple(torch.zeros_like(s) for s in states)
        starts = [s.numpy() for s in states]
        expected = reference_stack(layer, [s.numpy() for s in sequences], *starts)
        packed = pack_sequence(sequences, enforce_sorted=False)
        y, (h, c) = layer(packed, states if given else None)
        padded, _ = torch.nn.utils.rnn.pad_packed_sequence(y)
        for k, n in enumerate(lengths):
            assert_close(padded[:n, k], torch.from_numpy(expected[0][k].copy()), 1e-12)
        assert_close(h, torch.from_numpy(expected[1]), 1e-12)
        assert_close(c, torch.from_numpy(expected[2]), 1e-12)
        layer.eval()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("momentum", [0.3, None])
def test_running_statistics_are_those_of_the_loop(options, momentum):
    """Three batches; late steps are reached by one of them only, and start from its statistics."""
    layer = make(momentum=momentum, **options)
    expected, counted = {}, {}
    for seed, lengths in enumerate(BATCHES):
        sequences, states = draws(layer, lengths, seed=10 * seed)
        zeros = [torch.zeros_like(s).numpy() for s in states]
        found = reference_stack(layer, [s.numpy() for s in sequences], *zeros)[3]
        layer(pack_sequence(sequences, enforce_sorted=False))
        for suffix, terms in found.items():
            for term, steps in terms.items():
                for t, (n, mean, var) in enumerate(steps):
                    key = suffix, term, t
                    counted[key] = counted.get(key, 0) + 1
                    share = 1 / counted[key]
                    share = share if momentum is None else max(momentum, share)
                    new = np.stack([mean, var * n / (n - 1)])
                    old = expected.get(key, 0 * new)
                    expected[key] = old + share * (new - old)
    for (suffix, term, t), (mean, var) in expected.items():
        for moment, value in (("mean", mean), ("var", var)):
            got = getattr(layer, f"running_{moment}_{term}{suffix}")[t]
            assert_close(got, torch.from_numpy(value), 1e-12)
    reached = [sum(sum(n > t for n in b) >= layer.min_samples for b in BATCHES) for t in range(8)]
    assert layer.num_batches_tracked.tolist() == reached


def test_effective_samples_are_counted():
    layer = make()
    for lengths in BATCHES:
        layer(pack_sequence(draws(layer, lengths)[0], enforce_sorted=False))
    cases = [[sum(n > t for n in b) for b in BATCHES] for t in range(8)]
    means = [np.mean([n for n in at if n >= 2]) if max(at) >= 2 else 0 for at in cases]
    assert layer.samples_per_batch.tolist() == pytest.approx(means)


# What stands in the padding, and the forms of input


@pytest.mark.parametrize("statistics", ["per_step", "sequence"])
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_padding_of_any_content_reaches_nothing(statistics, mode, batch_first):
    """Outputs, statistics and gradients are those of the packed sequences, to the last bit."""
    layer = make(num_layers=2, bidirectional=True, statistics=statistics, batch_first=batch_first)
    layer(torch.stack([draw(8, 3, seed=s) for s in range(4)], 0 if batch_first else 1))
    getattr(layer, mode)()
    results = []
    for padding in (0.0, float("nan"), float("inf"), -1e300):
        now = copy.deepcopy(layer)
        x = torch.full((7, 5, 3), padding, dtype=torch.float64)
        for k, s in enumerate(draws(layer)[0]):
            x[: len(s), k] = s
        x = (x.transpose(0, 1) if batch_first else x).requires_grad_()
        y, (h, c) = now(x, lengths=LENGTHS)
        (y.sum() + h.square().sum() + c.sin().sum()).backward()
        valid = torch.arange(7)[:, None] < torch.tensor(LENGTHS)
        valid = valid.T if batch_first else valid
        assert not y[~valid].any()
        assert not x.grad[~valid].any()
        grads = [x.grad, *(p.grad for p in now.parameters())]
        results.append([y, h, c, *grads, *now.buffers()])
    packed = pack_sequence(draws(layer)[0], enforce_sorted=False)
    y, states = copy.deepcopy(layer)(packed)
    padded = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first, total_length=7)[0]
    for got, expected in zip(results[0], (padded, *states), strict=False):
        assert torch.equal(got, expected)
    for result in results[1:]:
        for got, expected in zip(result, results[0], strict=True):
            assert torch.equal(got, expected)


def test_a_sequence_depends_on_no_later_input_but_through_sequence_statistics():
    for statistics, reaches in (("per_step", False), ("sequence", True)):
        layer = make(statistics=statistics)
        x = draw(6, 4, 3).requires_grad_()
        (gradient,) = torch.autograd.grad(layer(x)[0][2].square().sum(), x)
        assert gradient[:3].any()
        assert bool(gradient[3:].any()) == reaches


def test_the_forms_of_input_agree():
    """Batch first, packed in given order, packed sorted, full lengths, unbatched in evaluation."""
    layer = make(bidirectional=True, num_layers=2)
    x = draw(6, 4, 3)
    state = draw(4, 4, 4, seed=1), draw(4, 4, 4, seed=2)
    layer(x)
    layer.eval()
    y, (h, c) = layer(x, state)
    first = copy.deepcopy(layer)
    first.batch_first = True
    for got in (layer(x, state, lengths=[6] * 4), layer(x, state, torch.full((4,), 6))):
        assert_close(got[0], y, 1e-15)
    got = first(x.transpose(0, 1), state)
    assert_close(got[0].transpose(0, 1), y, 1e-15)
    assert_close(got[1][0], h, 1e-15)
    packed = layer(pack_padded_sequence(x, [6] * 4), state)
    assert_close(packed[0].data, y.flatten(0, 1), 1e-15)
    single, (h_1, c_1) = layer(x[:, 2], tuple(s[:, 2] for s in state))
    assert_close(single, y[:, 2], 1e-12)
    assert_close(h_1, h[:, 2], 1e-12)
    assert_close(c_1, c[:, 2], 1e-12)
    strided = layer(x.transpose(0, 2).contiguous().transpose(0, 2), state)
    assert_close(strided[0], y, 1e-15)


def test_without_cases_there_is_nothing_in_evaluation():
    layer = make().eval()
    y, (h, c) = layer(draw(6, 0, 3))
    assert (y.shape, h.shape, c.shape) == ((6, 0, 4), (1, 0, 4), (1, 0, 4))
    assert layer(draw(6, 0, 3), lengths=[])[0].shape == (6, 0, 4)


def test_valid_rows_are_those_of_torchs_packing():
    x = draw(8, 5, 3)
    packed = pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
    index, sizes, order = valid_rows(torch.tensor(LENGTHS), 8)
    assert torch.equal(x.flatten(0, 1)[index], packed.data)
    assert sizes == packed.batch_sizes.tolist()
    assert torch.equal(order, packed.sorted_indices)


def test_reversal_is_its_own_inverse_and_turns_each_sequence():
    sequences = [torch.arange(n) + 10 * k for k, n in enumerate(LENGTHS)]
    packed = pack_sequence(sequences, enforce_sorted=False)
    back = reversal(packed.batch_sizes.tolist())
    turned = pack_sequence([s.flip(0) for s in sequences], enforce_sorted=False)
    assert torch.equal(packed.data[back], turned.data)
    assert torch.equal(back[back], torch.arange(len(back)))


# Steps with few cases, steps beyond


def test_a_step_with_one_case_takes_the_last_statistics_and_learns():
    """It is finite, and neither constant nor without gradient, as its own statistics would be."""
    layer = make()
    x = draw(5, 3, 3).requires_grad_()
    y, _ = layer(x, lengths=[5, 2, 2])
    assert y.isfinite().all()
    (gradient,) = torch.autograd.grad(y[4, 0].sum(), x)
    assert gradient[4, 0].any()
    assert gradient[1, 1].any()  # through the statistics of step 1
    assert layer.num_batches_tracked.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert layer.running_mean_hh_l0[2:].eq(0).all()


@pytest.mark.parametrize("cases", [1, 2])
def test_too_few_cases_at_the_first_step_are_refused_in_training(cases):
    layer = make(min_samples=cases + 1)
    before = copy.deepcopy(layer.state_dict())
    with pytest.raises(ValueError, match=f"at least {cases + 1} sequences.*got {cases}"):
        layer(draw(5, cases, 3))
    if cases == 1:
        with pytest.raises(ValueError, match=r"at least 2 sequences.*got 1"):
            layer(draw(5, 3))
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name])


def test_beyond_the_longest_training_sequence():
    """The last statistics again, or an error; the same as a layer whose later rows repeat them."""
    layer = make()
    layer(draw(4, 6, 3))
    layer.eval()
    repeated = copy.deepcopy(layer)
    repeated.num_batches_tracked.fill_(1)
    for name, buffer in repeated.named_buffers():
        if name.startswith("running"):
            buffer[4:] = buffer[3]
    x = draw(8, 2, 3, seed=1)
    assert_close(layer(x)[0], repeated(x)[0], 1e-15)
    layer.beyond = "error"
    assert layer(x[:4])[0].isfinite().all()
    with pytest.raises(ValueError, match="statistics for 4 steps, got sequences of 8"):
        layer(x)


def test_training_sequences_beyond_max_length_are_refused():
    with pytest.raises(ValueError, match="at most max_length=8 steps, got 9"):
        make()(draw(9, 4, 3))
    assert make(max_length=1).eval()(draw(9, 4, 3))[0].isfinite().all()


# Derivatives


@pytest.mark.parametrize("options", [*OPTIONS[2:4], {"min_samples": 3}], ids=str)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_derivatives(options, mode):
    """First and second, of inputs, states and every parameter, with lengths and lone late steps."""
    layer = make(2, 2, **{"eps": 0.5} | options)
    layer(draw(8, 5, 2))
    getattr(layer, mode)()
    names = [name for name, _ in layer.named_parameters()]
    rows = layer.num_layers * (2 if layer.bidirectional else 1)

    def call(x, h, c, *parameters):
        now = copy.deepcopy(layer)
        out = torch.func.functional_call(
            now, dict(zip(names, parameters, strict=True)), (x, (h, c)), {"lengths": [3, 1, 4, 3]}
        )
        return out[0], *out[1]

    states = [draw(rows, 4, 2, seed=s) for s in (1, 2)]
    inputs = [draw(4, 4, 2), *states, *(p.detach() for p in layer.parameters())]
    inputs = [t.clone().requires_grad_() for t in inputs]
    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True)


# A module like any other


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


CAPTURE = """
import copy, torch, layernorm
torch.manual_seed(0)
x, layer = torch.randn(4, 5, 3), layernorm.BatchNormLSTM(3, 4, 2, bidirectional=True, max_length=4)
for mode in (True, False):
    twin = copy.deepcopy(layer.train(mode))
    for whole, lengths in ((True, None), (False, [4, 1, 3, 3, 2])):
        torch._dynamo.reset()
        captured = torch.compile(layer, backend="aot_eager", fullgraph=whole)
        gradients = []
        for module in (captured, twin):
            y, (h, c) = module(x, lengths=lengths)
            parameters = (layer if module is captured else twin).parameters()
            gradients.append([y, *torch.autograd.grad(y.sum() + c.sum(), list(parameters))])
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(list(layer.buffers()), list(twin.buffers()))
exported = torch.export.export(layer, (x,)).module()
torch.testing.assert_close(exported(x)[0], layer(x)[0])
"""


def test_graph_capture():
    """torch.compile captures a batch without lengths as one graph, with lengths (data, which break
    it) as several; torch.export in evaluation. Apart, without the import hook, which hides code."""
    done = subprocess.run([sys.executable, "-c", CAPTURE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast(dtype):
    layer = make(hidden=33)
    x = draw(6, 7, 3)
    low = copy.deepcopy(layer).to(dtype)
    y, _ = low(x.to(dtype), lengths=[6, 6, 5, 4, 4, 3, 3])
    high = copy.deepcopy(low).double()
    high.reset_running_stats()
    expected, _ = high(x.to(dtype).double(), lengths=[6, 6, 5, 4, 4, 3, 3])
    assert y.dtype == dtype
    assert_close(y, expected, 20 * torch.finfo(dtype).eps)
    with torch.autocast("cpu", dtype=dtype):
        y, _ = layer.float()(x.float())
    assert y.isfinite().all()


def test_more_layers_than_one_learn():
    """A step of gradient descent lowers the loss: every parameter hears of it."""
    layer = layernorm.BatchNormLSTM(3, 8, 2, bidirectional=True, max_length=5)
    x, target = torch.randn(5, 6, 3), torch.randn(5, 6, 16) / 10
    before = (layer(x)[0] - target).square().mean()
    before.backward()
    with torch.no_grad():
        for p in layer.parameters():
            assert p.grad.any()
            p -= 0.1 * p.grad
    assert (layer(x)[0] - target).square().mean() < before


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
