"""Every recurrent layer behaves like torch's: the same tests over torch's and ours."""

import copy
import io
import pickle

import pytest
import torch
from library.oracle import assert_rounded, draw
from recurrent.recurrent_reference import LAYERS, NETS, TORCHS, shaken, usable
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

SUBJECTS = [*((kind, "torch") for kind in TORCHS), *NETS]


def maker(kind: str, who: str):
    """Makes layers of one kind: torch's, or ours with one of its backends; in float64."""

    def make(*arguments, **options):
        options = {"dtype": torch.float64} | options
        if who == "torch":
            return shaken(TORCHS[kind](*arguments, **options))
        usable(who)
        return shaken(LAYERS[kind](*arguments, **options, backend=who))

    return make


@pytest.fixture(params=SUBJECTS, ids=lambda s: "-".join(s))
def layer(request):
    return maker(*request.param)


def tensors(states) -> tuple[torch.Tensor, ...]:
    return states if isinstance(states, tuple) else (states,)


def same(a, b, tolerance=1e-12) -> None:
    for got, expected in zip(tensors(a), tensors(b), strict=True):
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def initial(module, batch: int, seed: int = 9):
    rows = module.num_layers * (2 if module.bidirectional else 1)
    sizes = [getattr(module, "proj_size", 0) or module.hidden_size, module.hidden_size]
    states = tuple(draw(rows, batch, n, seed=seed + k) for k, n in enumerate(sizes))
    return states if "LSTM" in type(module).__name__ else states[0]


def part(states, b: int):
    """The states of one sequence."""
    one = tuple(s[:, b] for s in tensors(states))
    return one if isinstance(states, tuple) else one[0]


@pytest.mark.parametrize("stray", [float("nan"), float("inf"), 1e30])
def test_padding_enters_nothing(layer, stray):
    """Neither values nor any gradient change with what stands in the padding, and its own gradient
    is zero."""
    module = layer(3, 4, 2, bidirectional=True, batch_first=True)
    lengths = torch.tensor([2, 5, 1])
    padding = torch.arange(5) >= lengths[:, None]
    results = []
    for filler in (0.0, stray):
        x = torch.full((3, 5, 3), filler, dtype=torch.float64)
        for b, n in enumerate(lengths.tolist()):
            x[b, :n] = draw(n, 3, seed=b)
        x.requires_grad_()
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, last = module(packed)
        y = pad_packed_sequence(y, batch_first=True)[0]
        (y.square().sum() + sum(s.sum() for s in tensors(last))).backward()
        results.append([y, *tensors(last), x.grad, *(p.grad for p in module.parameters())])
        module.zero_grad()
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)
    assert x.grad[padding].eq(0).all()
    assert x.grad[~padding].ne(0).all()


def test_nan_stays_in_its_own_sequence(layer):
    module = layer(3, 4, 2, bidirectional=True)
    x = draw(5, 4, 3)
    clean, last = module(x)
    x[2, 1] = float("nan")
    y, ends = module(x)
    others = [0, 2, 3]
    assert torch.equal(y[:, others], clean[:, others])
    assert y[:, 1].isnan().any()
    for a, b in zip(tensors(ends), tensors(last), strict=True):
        assert torch.equal(a[:, others], b[:, others])


def test_batch_first_transposes_in_and_out(layer):
    module, twin = layer(3, 4, 2), layer(3, 4, 2, batch_first=True)
    twin.load_state_dict(module.state_dict())
    x, hx = draw(5, 2, 3), initial(module, 2)
    y, last = module(x, hx)
    transposed, ends = twin(x.transpose(0, 1), hx)
    same(transposed.transpose(0, 1), y)
    same(ends, last)


def test_initial_states_default_to_zero(layer):
    module = layer(3, 4, 2, bidirectional=True)
    zeros = initial(module, 2)
    zeros = tuple(0 * s for s in zeros) if isinstance(zeros, tuple) else 0 * zeros
    same(module(draw(5, 2, 3))[0], module(draw(5, 2, 3), zeros)[0])


def test_dropout_acts_between_layers_and_only_in_training(layer):
    dropped, plain = layer(3, 4, 2, dropout=0.5), layer(3, 4, 2)
    x = draw(5, 2, 3)
    assert torch.equal(dropped.eval()(x)[0], plain(x)[0])
    dropped.train()
    torch.manual_seed(0)
    y, last = dropped(x)
    assert not torch.equal(y, plain(x)[0])
    same(tensors(last)[0][0], tensors(plain(x)[1])[0][0])  # the first layer knows nothing of it
    assert (y != 0).all()  # it does not act on the output
    torch.manual_seed(0)
    assert torch.equal(dropped(x)[0], y)


def test_dropout_of_everything_leaves_the_second_layer_without_input(layer):
    module = layer(3, 4, 2, dropout=1.0)
    assert torch.equal(module(draw(5, 2, 3))[0], module(draw(5, 2, 3, seed=3))[0])


def test_dropout_in_one_layer_warns(layer):
    with pytest.warns(UserWarning, match="num_layers"):
        layer(3, 4, dropout=0.5)


@pytest.mark.parametrize("shape", [(4, 0, 3), (4, 0, 3, "batch_first")])
def test_no_sequences(layer, shape):
    first = shape[-1] == "batch_first"
    module = layer(3, 5, 2, bidirectional=True, batch_first=first)
    x = torch.zeros(*((0, 4, 3) if first else (4, 0, 3)), dtype=torch.float64)
    y, last = module(x)
    assert y.shape == ((0, 4, 10) if first else (4, 0, 10))
    assert all(s.shape == (4, 0, 5) for s in tensors(last))
    y.sum().backward()
    assert all(not p.grad.any() for p in module.parameters())


@pytest.mark.parametrize("shape", [(0, 2, 3), (0, 3), (0, 0, 3)])
def test_no_steps_are_refused(layer, shape):
    with pytest.raises((RuntimeError, ValueError), match=r"larger than 0|at least one time step"):
        layer(3, 5)(torch.zeros(shape, dtype=torch.float64))


def test_inputs_in_any_memory_order(layer):
    module = layer(3, 4, bidirectional=True)
    x, hx = draw(5, 2, 3), initial(module, 2)
    y, last = module(x, hx)
    spread = torch.full((10, 4, 6), 7.0, dtype=torch.float64)
    spread[::2, ::2, ::2] = x
    views = [(x.transpose(0, 2).contiguous().transpose(0, 2), hx), (spread[::2, ::2, ::2], hx)]
    strided = [torch.stack([s, s], -1)[..., 1] for s in tensors(hx)]
    views.append((x, tuple(strided) if isinstance(hx, tuple) else strided[0]))
    for view, states in views:
        got, ends = module(view, states)
        same(got, y)
        same(ends, last)
    expanded = draw(5, 1, 3).expand(5, 2, 3)
    same(module(expanded)[0], module(expanded.contiguous())[0])


def test_copies_pickles_and_state_dicts(layer):
    module = layer(3, 4, 2, bidirectional=True)
    x = draw(5, 2, 3)
    expected = module(x)[0]
    saved = io.BytesIO()
    torch.save(module.state_dict(), saved)
    saved.seek(0)
    fresh = layer(3, 4, 2, bidirectional=True)
    with torch.no_grad():
        for p in fresh.parameters():
            p.zero_()
    fresh.load_state_dict(torch.load(saved))
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), fresh):
        assert torch.equal(twin(x)[0], expected)
        with torch.no_grad():
            next(twin.parameters()).add_(1)
        assert torch.equal(module(x)[0], expected)
        assert not torch.equal(twin(x)[0], expected)


def test_frozen_parameters_and_inputs_get_no_gradient(layer):
    module = layer(3, 4)
    module.weight_ih_l0.requires_grad_(False)
    module(draw(5, 2, 3))[0].sum().backward()
    assert module.weight_ih_l0.grad is None
    assert module.weight_hh_l0.grad.any()
    with torch.no_grad():
        assert not module(draw(5, 2, 3))[0].requires_grad


def test_half_precision(layer):
    for dtype in (torch.float16, torch.bfloat16):
        module = layer(3, 16, dtype=dtype)
        x = draw(5, 2, 3).to(dtype)
        y, last = module(x)
        assert y.dtype == dtype
        assert all(s.dtype == dtype for s in tensors(last))
        exact, rows = copy.deepcopy(module).double(), x.double()
        assert_rounded([y], lambda net=exact, rows=rows: [net(rows)[0]])
