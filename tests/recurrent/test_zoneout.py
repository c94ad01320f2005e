"""Zoneout against equations in NumPy: the expectation in evaluation, and in training masks that are
read off the outputs."""

import numpy as np
import pytest
import torch
from apart import outcomes, report
from library.oracle import draw
from recurrent.recurrent_reference import shaken
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from layernorm import LayerNormGRU, LayerNormGRUVariant, LayerNormLSTM
from layernorm.recurrent import (
    ZoneoutGRU,
    ZoneoutGRUVariant,
    ZoneoutLSTM,
    convert,
    with_resets,
    zoneout,
)

EPS, UNITS = 0.1, 4
PLAIN = {
    ZoneoutLSTM: LayerNormLSTM, ZoneoutGRU: LayerNormGRU, ZoneoutGRUVariant: LayerNormGRUVariant,
}  # fmt: skip
KINDS = [
    (ZoneoutLSTM, {"zoneout": 0.2}),
    (ZoneoutLSTM, {"zoneout": 0.2, "zoneout_cell": 0.6}),
    (ZoneoutLSTM, {"zoneout_cell": 0.6, "zoneout": 0.0, "bias": False}),
    (ZoneoutGRU, {"zoneout": 0.3}),
    (ZoneoutGRUVariant, {"zoneout": 0.3, "variant": "stacked"}),
]


def made(kind, **options):
    return shaken(kind(3, UNITS, eps=EPS, dtype=torch.float64, **options))


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def norm(a, w, name):
    """Layer normalization of one vector."""
    deviations = a - a.mean()
    scaled = deviations / np.sqrt((deviations**2).mean() + EPS)
    return w[f"{name}_weight"] * scaled + w[f"{name}_bias"]


def lstm_step(x, w, h, c):
    a = norm(w["weight_hh"] @ h, w, "ln_hh") + norm(w["weight_ih"] @ x, w, "ln_ih")
    i, f, g, o = np.split(a + w.get("bias_ih", 0), 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(norm(c, w, "ln_c")), c


def part(w, rows):
    return {name: value[rows] for name, value in w.items() if name.startswith("ln_")}


def gru_step(x, w, h):
    u, v, cut = w["weight_hh"] @ h, w["weight_ih"] @ x, 2 * len(h)
    gates, rest = part(w, slice(cut)), part(w, slice(cut, None))
    rz = norm(u[:cut], gates, "ln_hh") + norm(v[:cut], gates, "ln_ih") + w["bias_ih"][:cut]
    r, z = np.split(sigmoid(rz), 2)
    n = norm(v[cut:], rest, "ln_ih") + w["bias_ih"][cut:] + r * norm(u[cut:], rest, "ln_hh")
    return ((1 - z) * np.tanh(n) + z * h,)


def stacked_step(x, w, h):
    u_r, u_z, u_n = np.split(norm(w["weight_hh"] @ h, w, "ln_hh"), 3)
    v_r, v_z, v_n = np.split(norm(w["weight_ih"] @ x, w, "ln_ih") + w["bias_ih"], 3)
    z, n = sigmoid(u_z + v_z), np.tanh(v_n + sigmoid(u_r + v_r) * u_n)
    return ((1 - z) * n + z * h,)


STEPS = {ZoneoutLSTM: lstm_step, ZoneoutGRU: gru_step, ZoneoutGRUVariant: stacked_step}


def weights_of(module, suffix: str) -> dict[str, np.ndarray]:
    found = {k: v.detach().numpy() for k, v in module.named_parameters() if k.endswith(suffix)}
    return {k.removesuffix(suffix): v for k, v in found.items()}


def expectation(module, xs, states):
    """Each sequence (T, I) by itself, in evaluation; states (L D, B, H) each."""
    zs = [module.zoneout, getattr(module, "zoneout_cell", 0.0)][: len(states)]
    outputs, last = [], np.stack([s.copy() for s in states])
    for b, x in enumerate(xs):
        for layer in range(module.num_layers):
            sides = []
            for d, end in enumerate(("", "_reverse")[: 1 + module.bidirectional]):
                w, place = weights_of(module, f"_l{layer}{end}"), layer * (1 + module.bidirectional)
                s, seen = last[:, place + d, b], []
                for row in x[::-1] if d else x:
                    new = STEPS[type(module)](row, w, *s)
                    s = [z * old + (1 - z) * n for z, old, n in zip(zs, s, new, strict=True)]
                    seen.append(s[0])
                last[:, place + d, b] = s
                sides.append(np.stack(seen[::-1] if d else seen))
            x = np.concatenate(sides, -1)
        outputs.append(x)
    return outputs, last


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_evaluation_is_the_expectation(kind, options, layers, packed):
    module = made(kind, **options, num_layers=layers, bidirectional=layers == 2).eval()
    xs = [draw(n, 3, seed=n) for n in ((2, 5, 1, 4) if packed else (4, 4))]
    states = [draw(layers**2, len(xs), UNITS, seed=50 + k) for k in range(module.states)]
    given = tuple(states) if module.states == 2 else states[0]
    if packed:
        y, last = module(pack_sequence(xs, enforce_sorted=False), given)
        found = unpack_sequence(y)
    else:
        y, last = module(torch.stack(xs, 1), given)
        found = y.unbind(1)
    expected, ends = expectation(module, [x.numpy() for x in xs], [s.numpy() for s in states])
    ends = ends if module.states == 2 else ends[0]
    last = torch.stack(last) if module.states == 2 else last
    for a, b in zip([*found, last], [*expected, ends], strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-12, atol=1e-12)


def masks(module, x, steps: int):
    """Training step by step, each state by itself: every unit is its old value, to the bit, or the
    new one of the equations. Which of both, (steps, states, B, H)."""
    w = weights_of(module, "_l0")
    states = [draw(x.shape[1], UNITS, seed=60 + k) for k in range(module.states)]
    kept = []
    for row in x[:steps]:
        given = [s[None] for s in states]
        _, last = module(row[None], tuple(given) if module.states == 2 else given[0])
        last = [s[0].detach() for s in (last if module.states == 2 else (last,))]
        sequences = zip(row.numpy(), *(s.numpy() for s in states), strict=True)
        news = [STEPS[type(module)](x_b, w, *s_b) for x_b, *s_b in sequences]
        found = []
        for k, (old, now) in enumerate(zip(states, last, strict=True)):
            new = np.stack([each[k] for each in news])
            is_new = np.isclose(now.numpy(), new, rtol=1e-11, atol=1e-11)
            assert ((now == old).numpy() ^ is_new).all()
            found.append(~is_new)
        kept.append(np.stack(found))
        states = last
    return np.stack(kept)


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_training_keeps_units_at_random(kind, options):
    """As often as it should (within five standard deviations), each state, step, sequence and unit
    by itself."""
    torch.manual_seed(0)
    module = made(kind, **options)
    kept = masks(module, draw(30, 20, 3), 30)
    for name, found in zip(("zoneout", "zoneout_cell"), np.moveaxis(kept, 1, 0), strict=False):
        z = options.get(name, 0.0)
        for axes in ((0, 1, 2), (1, 2), (0, 2), (0, 1)):
            count = np.prod([found.shape[axis] for axis in axes])
            bound = 5 * np.sqrt(z * (1 - z) / count)
            assert (abs(found.mean(axes) - z) <= bound).all(), (name, axes)
        if z:
            flat = found.reshape(len(found), -1).astype(float)
            assert np.ptp(flat, axis=0).all(), "the same units at all steps"
    if min(options.get("zoneout_cell", 0), options["zoneout"]):
        assert (kept[:, 0] != kept[:, 1]).any(), "the same units of h and c"


def test_whole_sequences_in_training_draw_anew_at_every_step():
    """Packed and reversed as well: an output is the state before it, to the bit, or differs."""
    torch.manual_seed(0)
    module = made(ZoneoutGRU, zoneout=0.5, bidirectional=True)
    xs = [draw(n, 3, seed=n) for n in (40, 30, 20)]
    ys, _ = module(pack_sequence(xs))
    for y in unpack_sequence(ys):
        for side in (y[:, :UNITS], y[:, UNITS:].flip(0)):
            kept = side[1:] == side[:-1]
            assert (kept.double().mean(0) - 0.5).abs().max() < 2.5 / len(kept) ** 0.5
            assert kept.any(1).double().mean() > 0.7
            assert not kept.all()


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_gradients_in_training(kind, options):
    """By differences in directions of chance, under the same masks; of parameters, input and
    learned initial states."""
    module = made(kind, **options, learn_initial_state=True)
    names, parameters = zip(*module.named_parameters(), strict=True)

    def function(x, *values):
        torch.manual_seed(3)
        y, last = torch.func.functional_call(module, dict(zip(names, values, strict=True)), (x,))
        return y, *(last if module.states == 2 else (last,))

    x = draw(3, 2, 3).requires_grad_()
    assert torch.autograd.gradcheck(function, (x, *parameters), fast_mode=True)


def test_probabilities_zero_and_one():
    x = draw(5, 2, 3)
    for kind, plain in PLAIN.items():
        module = made(kind, zoneout=0.0)
        twin = shaken(plain(3, UNITS, eps=EPS, dtype=torch.float64))
        for training in (True, False):
            a, b = module.train(training)(x), twin(x)
            torch.testing.assert_close(a, b, rtol=0, atol=0)
        h0 = draw(1, 2, UNITS)
        held = made(kind, zoneout=1.0)
        given = (h0, 0 * h0) if held.states == 2 else h0
        for training in (True, False):
            assert torch.equal(held.train(training)(x, given)[0], h0.expand(5, -1, -1))


def test_zoneout_zero_takes_the_layers_own_path(monkeypatch):
    def refuse(*_):
        raise AssertionError("the definition was asked")

    monkeypatch.setattr(zoneout, "zoned", refuse)
    made(ZoneoutLSTM, zoneout=0.0)(draw(2, 2, 3))
    with pytest.raises(AssertionError, match="was asked"):
        made(ZoneoutLSTM, zoneout=0.1)(draw(2, 2, 3))


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_state_dicts_go_both_ways(kind, options):
    options = options | {"num_layers": 2, "bidirectional": True, "learn_initial_state": True}
    common = {k: v for k, v in options.items() if not k.startswith("zoneout")}
    module = made(kind, **options)
    twin = PLAIN[kind](3, UNITS, eps=EPS, dtype=torch.float64, **common)
    twin.load_state_dict(module.state_dict())
    again = kind(3, UNITS, eps=EPS, dtype=torch.float64, **options)
    again.load_state_dict(twin.state_dict())
    x = draw(3, 2, 3)
    torch.testing.assert_close(again.eval()(x), module.eval()(x), rtol=0, atol=0)
    assert not torch.equal(twin(x)[0], module(x)[0])


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_learned_initial_states_are_kept_too(kind, options):
    module = made(kind, **options, learn_initial_state=True).eval()
    x = draw(3, 2, 3)
    learned = [p.detach()[:, None].expand(-1, 2, -1) for n, p in module.named_parameters()
               if n in ("h_0", "c_0")]  # fmt: skip
    assert len(learned) == module.states
    given = tuple(learned) if module.states == 2 else learned[0]
    torch.testing.assert_close(module(x), module(x, given), rtol=0, atol=0)
    expected = expectation(module, [s.numpy() for s in x.unbind(1)], [s.numpy() for s in learned])
    np.testing.assert_allclose(module(x)[0].detach().numpy(), np.stack(expected[0], 1), atol=1e-12)


def test_resets_in_mid_sequence():
    module, x = made(ZoneoutLSTM, zoneout=0.3, zoneout_cell=0.2).eval(), draw(6, 2, 3)
    flags = torch.zeros(6, 2, dtype=torch.bool)
    flags[2] = flags[5, 0] = True
    y, _ = with_resets(module, x, flags)
    pieces = [module(x[:2])[0], module(x[2:])[0]]
    torch.testing.assert_close(y[:, 1], torch.cat(pieces)[:, 1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(y[5:, 0], module(x[5:])[0][:, 0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kind", "options"), KINDS)
@pytest.mark.parametrize("training", [True, False])
def test_autocast_leaves_states_in_their_type(kind, options, training):
    module = shaken(kind(3, UNITS, eps=EPS, **options)).train(training)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = module(draw(4, 2, 3).bfloat16())
    assert y.dtype == torch.float32
    assert y.isfinite().all()


HASTE = {
    "kernel": draw(3, 16, seed=1), "recurrent_kernel": draw(4, 16, seed=2),
    "bias": draw(16, seed=3), "gamma": draw(2, 16, seed=4, mean=1.0),
    "gamma_h": draw(4, seed=5, mean=1.0), "beta_h": draw(4, seed=6),
}  # fmt: skip
HASTE_GRU = {
    "kernel": draw(3, 12, seed=21), "recurrent_kernel": draw(4, 12, seed=22),
    "bias": draw(12, seed=23), "recurrent_bias": draw(12, seed=24),
    "gamma": draw(2, 12, seed=25, mean=1.0),
}  # fmt: skip


@pytest.mark.parametrize(("source", "kind"), [(HASTE, ZoneoutLSTM), (HASTE_GRU, ZoneoutGRUVariant)])
def test_hastes_layers_with_zoneout(source, kind, monkeypatch):
    """In evaluation: zoneout h_{t-1} + (1 - zoneout) h_t of its equations, eps 1e-5. The equations
    are those of `KINDS`, which its arrays are brought to by the conversion without zoneout."""
    monkeypatch.setitem(globals(), "EPS", 1e-5)
    module = torch.nn.Module()
    for name, value in source.items():
        module.register_parameter(name, torch.nn.Parameter(value))
    module.zoneout = 0.25
    x = draw(5, 2, 3)
    for layer in (convert.from_haste(module), convert.from_haste(source, zoneout=0.25)):
        assert type(layer) is kind
        assert layer.zoneout == 0.25
        zeros = [np.zeros((1, 2, 4))] * layer.states
        expected, _ = expectation(layer, [s.numpy() for s in x.unbind(1)], zeros)
        found = layer.eval()(x)[0].detach().numpy()
        np.testing.assert_allclose(found, np.stack(expected, 1), rtol=1e-11, atol=1e-11)
    plain = convert.from_haste(module, zoneout=0.0)
    assert type(plain) is PLAIN[kind]
    for name, value in plain.state_dict().items():
        assert torch.equal(layer.state_dict()[name], value)


@pytest.mark.parametrize(
    ("kind", "options", "error", "message"),
    [
        (ZoneoutLSTM, {}, TypeError, "zoneout"),
        (ZoneoutLSTM, {"zoneout": 1.5}, ValueError, r"zoneout must be a prob.*\[0, 1\], got 1\.5"),
        (ZoneoutLSTM, {"zoneout": 0, "zoneout_cell": -1}, ValueError, "zoneout_cell must be a"),
        (ZoneoutGRU, {"zoneout": float("nan")}, ValueError, "zoneout must be finite"),
        (ZoneoutGRU, {"zoneout": 0.1, "zoneout_cell": 0.1}, TypeError, "zoneout_cell"),
        (ZoneoutGRUVariant, {"zoneout": 0.1, "variant": "paper"}, ValueError, "is LayerNormGRU"),
    ],
)
def test_settings_that_are_refused(kind, options, error, message):
    with pytest.raises(error, match=message):
        kind(3, 4, **options)


def test_there_is_no_fused_path():
    for kind in PLAIN:
        with pytest.raises(ValueError, match='"fused" cannot compute this: there is no fused lay'):
            kind(3, 4, backend="fused", zoneout=0.1)(torch.zeros(2, 1, 3))


def test_it_prints_its_probabilities():
    printed = repr(ZoneoutLSTM(3, 4, 2, zoneout=0.1, zoneout_cell=0.5, backend="reference"))
    assert printed == (
        "ZoneoutLSTM(3, 4, num_layers=2, backend=reference, zoneout=0.1, zoneout_cell=0.5)"
    )


def compiled(kind, options, training: bool) -> None:
    module = shaken(kind(3, 5, dtype=torch.float64, **options)).train(training)
    captured = torch.compile(module, fullgraph=True, backend="aot_eager")
    for batch in (2, 4):
        x, found = torch.randn(3, batch, 3, dtype=torch.float64), []
        for call in (captured, module):
            torch.manual_seed(1)
            y, _ = call(x)
            found.append([y, *torch.autograd.grad(y.sum(), list(module.parameters()))])
        torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)


def jobs():
    return {
        f"{number} {training}": lambda k=kind, o=options, t=training: compiled(k, o, t)
        for number, (kind, options) in enumerate(KINDS[1::2])
        for training in (True, False)
    }


@pytest.mark.parametrize("case", jobs())
def test_one_compiled_graph(case):
    assert outcomes(__file__)[case] == "ok"


if __name__ == "__main__":
    report(jobs())
