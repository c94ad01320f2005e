"""`BatchNormLSTM` against a loop over cases, steps and units in NumPy; lengths and padding."""

import copy

import numpy as np
import pytest
import torch
from library.oracle import assert_close, draw
from recurrent.batch_norm_reference import BATCHES, LENGTHS, OPTIONS, draws, make, reference_stack
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence


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


@pytest.mark.parametrize(
    ("mode", "options"),
    [*(("train", o) for o in (*OPTIONS[2:4], {"min_samples": 3})), ("eval", OPTIONS[3])],
    ids=str,
)
def test_derivatives(mode, options):
    """First and second, of inputs, states and every parameter, with lengths and lone late steps."""
    layer = make(2, 2, **{"eps": 0.5} | options)
    layer(draw(8, 5, 2))
    getattr(layer, mode)()
    names = [name for name, _ in layer.named_parameters()]
    rows = layer.num_layers * (2 if layer.bidirectional else 1)

    def call(x, h, c, *parameters):
        now = copy.deepcopy(layer)
        out = torch.func.functional_call(
            now, dict(zip(names, parameters, strict=True)), (x, (h, c)), {"lengths": [2, 1, 3, 2]}
        )
        return out[0], *out[1]

    states = [draw(rows, 4, 2, seed=s) for s in (1, 2)]
    inputs = [draw(3, 4, 2), *states, *(p.detach() for p in layer.parameters())]
    inputs = [t.clone().requires_grad_() for t in inputs]
    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True)
