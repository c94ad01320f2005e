"""Episodes within sequences: against a loop that sets the state back step by step."""

import pytest
import torch
from library.oracle import draw
from recurrent.recurrent_reference import LAYERS, shaken, usable
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import layernorm
from layernorm.recurrent import with_resets

T, B, UNITS = 6, 3, 4
KINDS = LAYERS | {"gru_variant": layernorm.LayerNormGRUVariant}
FLAGS = torch.tensor(
    [  # at the first step, at the last, twice in a row, nowhere
        [True, False, False, False, False, True],
        [False, False, True, True, False, False],
        [False, False, False, False, False, False],
    ]
).T


def beginning(layer) -> list[torch.Tensor]:
    """The states of an episode's start, (L D, B, ...)."""
    rows = layer.num_layers * len(layer._directions)
    if layer.learn_initial_state:
        learned = [p for name, p in layer.named_parameters() if name in ("h_0", "c_0")]
        return [s[:, None].expand(-1, B, -1) for s in learned]
    return [torch.zeros(rows, B, n).double() for n in layer._state_sizes()]


def loop(layer, x, resets, hx):
    """Layer by layer and direction by direction, x (T, B, I): step by step, with the state set back
    before each step where an episode begins. Read backwards it begins where the next one does."""
    last, parameters = [], dict(layer.named_parameters())
    count = layer.states
    after = torch.cat([resets[1:], resets[:1] & False])
    names = [f"_l{k}{d}" for k in range(layer.num_layers) for d in layer._directions]
    for n, name in enumerate(names):
        back = name.endswith("reverse")
        if n % len(layer._directions) == 0:
            below, outputs = x, []
        # The layer of this one direction, as a function of the parameters, which get gradients.
        options = {k: getattr(layer, k) for k in ("variant", "nonlinearity", "proj_size")
                   if hasattr(layer, k)}  # fmt: skip
        single = type(layer)(
            below.shape[-1], UNITS, bias=layer.bias, eps=layer.eps, backend="reference",
            dtype=x.dtype, **options,
        )  # fmt: skip
        own = {k.removesuffix(name) + "_l0": p for k, p in parameters.items() if k.endswith(name)}
        own = {k: p for k, p in own.items() if k in single.state_dict()}
        starts, states, seen = [s[n] for s in beginning(layer)], [s[n] for s in hx], []
        for t in reversed(range(T)) if back else range(T):
            flags = (after if back else resets)[t][:, None]
            states = [torch.where(flags, a, s) for a, s in zip(starts, states, strict=True)]
            given = tuple(s[None] for s in states)
            y, ends = torch.func.functional_call(
                single, own, (below[t : t + 1], given if count == 2 else given[0])
            )
            states = [s[0] for s in (ends if count == 2 else (ends,))]
            seen.append(y[0])
        outputs.append(torch.stack(seen[::-1] if back else seen))
        last.append(states)
        x = torch.cat(outputs, -1)
    return x, [torch.stack(s) for s in zip(*last, strict=True)]


def made(kind: str, **options):
    module = shaken(KINDS[kind](3, UNITS, dtype=torch.float64, eps=0.1, **options))
    if module.learn_initial_state:  # not the zeros of the others
        assert module.h_0.detach().abs().min() > 0
    return module


CASES = [
    ("lstm", {}),
    ("lstm", {"variant": "carried", "proj_size": 2, "num_layers": 2}),
    ("lstm", {"bidirectional": True, "num_layers": 2}),
    ("lstm", {"learn_initial_state": True, "bidirectional": True}),
    ("gru", {"num_layers": 2, "bias": False}),
    ("gru", {"bidirectional": True}),
    ("rnn", {"bidirectional": True, "nonlinearity": "relu"}),
    ("gru_variant", {"variant": "joint", "bidirectional": True}),
    ("gru_variant", {"variant": "stacked", "learn_initial_state": True}),
]


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(("kind", "options"), CASES, ids=str)
def test_values_and_gradients_are_the_loops(kind, options, given, backend):
    module = made(kind, backend=backend, **options)
    rows, found = module.num_layers * len(module._directions), []
    for compute in (with_resets, loop):
        x = draw(T, B, 3).requires_grad_()
        hx = [draw(rows, B, n, seed=5 + k) for k, n in enumerate(module._state_sizes())]
        hx = [s.requires_grad_() for s in hx]
        start = hx if given else beginning(module)
        if compute is loop:
            y, last = loop(module, x, FLAGS, start)
        else:
            call = (tuple(hx) if module.states == 2 else hx[0]) if given else None
            y, last = with_resets(module, x, FLAGS, call)
            last = last if module.states == 2 else (last,)
        values = [y, *last]
        loss = sum((draw(*v.shape, seed=70 + k) * v).sum() for k, v in enumerate(values))
        wanted = [x, *module.parameters(), *(hx if given else ())]
        found.append([*values, *torch.autograd.grad(loss, wanted)])
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_the_fused_path_computes_it(kind):
    usable("fused")
    x, found = draw(T, B, 3), []
    for backend in ("fused", "reference"):
        found.append(with_resets(made(kind, backend=backend), x, FLAGS)[0])
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)


def test_forms():
    """Batch first, and one sequence by itself."""
    module, x = made("lstm", bidirectional=True), draw(T, B, 3)
    y, last = with_resets(module, x, FLAGS)
    module.batch_first = True
    turned, same_last = with_resets(module, x.transpose(0, 1), FLAGS.T)
    torch.testing.assert_close(turned.transpose(0, 1), y, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(same_last, last, rtol=1e-12, atol=1e-12)
    hx = tuple(torch.zeros(2, UNITS).double() for _ in range(2))
    for given in (None, hx):
        single, ends = with_resets(module, x[:, 1], FLAGS[:, 1], given)
        torch.testing.assert_close(single, y[:, 1], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(ends, tuple(s[:, 1] for s in last), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_without_resets_it_is_the_layer_and_with_one_everywhere_the_step(kind):
    module, x = made(kind, bidirectional=True), draw(T, B, 3)
    y, last = with_resets(module, x, FLAGS & False)
    expected = module(x)
    torch.testing.assert_close((y, last), expected, rtol=1e-12, atol=1e-12)
    y, _ = with_resets(module, x, FLAGS | True)
    torch.testing.assert_close(
        y.flatten(0, 1), module(x.view(1, T * B, 3))[0][0], rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("bidirectional", [False, True])
def test_nothing_crosses_a_reset(bidirectional):
    module, x = made("lstm", num_layers=2, bidirectional=bidirectional), draw(T, 1, 3)
    flags = torch.arange(T)[:, None] == 3
    other = torch.cat([x[:3] + 1, x[3:]])
    assert torch.equal(
        with_resets(module, x, flags)[0][3:], with_resets(module, other, flags)[0][3:]
    )
    x.requires_grad_()
    [gradient] = torch.autograd.grad(with_resets(module, x, flags)[0][:3].sum(), x)
    assert gradient[:3].abs().min() > 0
    assert not gradient[3:].any()


def test_no_sequences():
    y, h = with_resets(made("gru"), draw(T, 0, 3), torch.zeros(T, 0, dtype=torch.bool))
    assert (y.shape, h.shape) == ((T, 0, UNITS), (1, 0, UNITS))


X = draw(T, B, 3)
PACKED = pack_sequence(list(X.unbind(1)))


@pytest.mark.parametrize(
    ("layer", "x", "flags", "error", "message"),
    [
        (nn.LSTM(3, 4).double(), X, FLAGS, TypeError, "layer must be a LayerNormLSTM.*got LSTM"),
        (layernorm.BatchNormLSTM(3, 4), X, FLAGS, TypeError, "layer must .*got BatchNormLSTM"),
        (made("gru"), PACKED, FLAGS, TypeError, "input must be a tensor, got a PackedSequence"),
        (made("gru"), X[..., :2], FLAGS, ValueError, "input must have shape"),
        (made("gru"), X, FLAGS.T, ValueError, r"resets must .*features, \(6, 3\), got \(3, 6\)"),
        (made("gru"), X, FLAGS.float(), TypeError, r"of type bool, got torch.float32;.*bool\(\)"),
        (made("gru"), X, FLAGS.tolist(), TypeError, r"resets must be a torch\.Tensor, got list"),
        (made("gru"), X, FLAGS.to("meta"), ValueError, "resets must be on input's device cpu"),
    ],
)
def test_what_is_refused(layer, x, flags, error, message):
    with pytest.raises(error, match=message):
        with_resets(layer, x, flags)


def test_resets_that_vmap_maps_over_are_refused():
    """Those of one batch are not: its inputs may be mapped over."""
    layer, xs = made("gru"), torch.stack([X, X + 1])

    def outputs(x, resets):
        return with_resets(layer, x, resets)[0]

    def slopes(x, resets):
        return torch.func.grad(lambda *arguments: outputs(*arguments).sum())(x, resets)

    for function in (outputs, slopes):
        expected = torch.stack([function(x, FLAGS) for x in xs])
        found = torch.vmap(function, (0, None))(xs, FLAGS)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        with pytest.raises(ValueError, match=r"same for all that torch\.vmap maps over.*without"):
            torch.vmap(function)(xs, torch.stack([FLAGS, ~FLAGS]))


def test_states_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"h_0 must have shape \(1, 3, 4\)"):
        with_resets(made("gru"), X, FLAGS, draw(1, 2, 4))
