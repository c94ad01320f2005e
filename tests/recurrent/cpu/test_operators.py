"""The fused path against the definition: several threads that share the units, tails, memory,
determinism, and what happens where it cannot be used."""

import gc

import pytest
import torch
from apart import python
from recurrent.recurrent_fused import (
    converted,
    distance,
    draw,
    far_from_zero,
    leaves,
    overflow,
    threads,
    weights,
)

import layernorm
from layernorm.recurrent import cpu, definition
from layernorm.recurrent.cpu import binding, build, memory, operators
from layernorm.recurrent.variants import VARIANTS

pytestmark = pytest.mark.skipif(cpu.missing() is not None, reason=str(cpu.missing()))

NETS = [*(("lstm", variant) for variant in VARIANTS), ("gru", "paper")]
FALLING = [5, 5, 4, 2, 2, 1]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize(("kind", "variant"), NETS)
def test_teams_of_threads(kind, variant, count, reverse):
    """101 units make teams of one, two and three, whose shares differ in size."""
    with threads(count):
        assert distance(kind, FALLING, 7, 101, variant, reverse) < 1e-11


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize(("kind", "variant"), NETS)
def test_squads_of_threads(kind, variant, count, reverse):
    """26 sequences are divided among two or three squads; four threads make two squads of two.
    The last squads' sequences end first."""
    with threads(count):
        assert distance(kind, [26, 26, 20, 11, 9, 3], 7, 101, variant, reverse) < 1e-11


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(("kind", "variant"), NETS)
def test_large_means_and_overflow(kind, variant, count):
    with threads(count):
        assert far_from_zero(definition, kind, 101, variant) < 1e-11
        assert far_from_zero(cpu, kind, 101, variant) < 1e-11
        assert overflow(cpu, kind, 101, variant) < 1e-11


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_the_gradient_under_another_number_of_threads(kind):
    """The layout of what is kept depends on the threads of the forward pass."""
    w, x, gradients = weights(kind, 5, 101), draw(9, 5), []
    for forward, backward in ((2, 2), (2, 1), (2, 3), (1, 2)):
        with threads(forward):
            y = run(kind, x, w)[0]
        with threads(backward):
            gradients.append(torch.autograd.grad(y.square().sum(), [x, *leaves(w)]))
    for other in gradients[1:]:
        for a, b in zip(gradients[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("units", [1, 2, 3, 15, 16, 17, 31, 47, 48, 49, 64, 97])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_tails(kind, units):
    """Every number of units, inputs and rows around those of a vector, a panel and a tile."""
    for rows, inputs in ((1, 1), (7, 16), (9, 50)):
        with threads(2):
            assert distance(kind, [rows] * 3, inputs, units) < 1e-11


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_more_rows_than_one_block(kind):
    """Products with x are taken for about 512 rows at a time; blocks meet without a seam."""
    assert distance(kind, [*[60] * 21, 7], 3, 5) < 1e-11


def run(kind, x, w, batch=3):
    states = [torch.zeros(batch, w.w_hh.shape[1], dtype=x.dtype) for _ in range(2)]
    return getattr(cpu, kind)(x, None, *states[: 2 if kind == "lstm" else 1], w)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_bad_value_stays_in_its_own_sequence(kind):
    """NaN and infinity in one row's input leave the other rows' outputs as they were."""
    w, x = weights(kind, 6, 40), draw(4 * 9, 6).detach()
    clean = run(kind, x, w, batch=9)[0].view(4, 9, -1)
    for bad in (float("nan"), float("inf")):
        spoiled = x.clone().view(4, 9, 6)
        spoiled[1, 2, 3] = bad
        y = run(kind, spoiled.view(-1, 6), w, batch=9)[0].view(4, 9, -1)
        others = [r for r in range(9) if r != 2]
        assert torch.equal(y[:, others], clean[:, others])
        assert torch.equal(y[0], clean[0])
        assert y[1:, 2].isnan().all()


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_two_graphs_at_once_do_not_share_memory(kind):
    """Memory that a forward pass keeps is used again only when its graph is gone."""
    w = weights(kind, 4, 20)
    inputs = [draw(9, 4, seed=seed) for seed in (1, 2)]
    alone = [torch.autograd.grad(run(kind, x, w)[0].square().sum(), x)[0] for x in inputs]
    outputs = [run(kind, x, w)[0].square().sum() for x in inputs]
    together = [torch.autograd.grad(y, x)[0] for x, y in zip(inputs, outputs, strict=True)]
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_memory_is_used_again(monkeypatch):
    pool = binding.Pool()
    monkeypatch.setattr(operators, "pool", pool)
    w, x = weights("lstm", 4, 20), draw(9, 4)
    for _ in range(4):
        y = run("lstm", x, w)[0]
        del y
        gc.collect()
    assert len(pool.storages) == 1
    kept = [run("lstm", x, w)[0] for _ in range(3)]
    assert len(pool.storages) == len(kept)


def test_a_search_for_memory_is_short_however_much_is_held(monkeypatch):
    """A graph of many steps, each a call of its own."""
    pool, looks, unused = binding.Pool(), [], binding._unused
    monkeypatch.setattr(binding, "_unused", lambda storage: looks.append(1) or unused(storage))
    x, count = torch.empty(1), 1000
    held = [pool.take(x, 100 + k % 3) for k in range(count)]
    assert len(pool.storages) == len({t.data_ptr() for t in held}) == count
    assert len(looks) <= 3 * binding.LOOKED_AT * count
    del held
    again = [pool.take(x, 100) for _ in range(count)]
    assert len(pool.storages) == len({t.data_ptr() for t in again}) == count


def test_memory_is_given_back(monkeypatch):
    """All of it: what a gradient waits for is its graph's alone then, and its own to the end."""
    pool = binding.Pool()
    for module in (binding, operators):
        monkeypatch.setattr(module, "pool", pool)
    w, x = weights("gru", 4, 20), draw(9, 4)
    y = run("gru", x, w)[0].square().sum()
    [expected] = torch.autograd.grad(y, x, retain_graph=True)
    [storage] = pool.storages.values()
    weak = storage._weak_ref()
    del storage
    memory.clear()
    assert not pool.storages
    assert not torch.UntypedStorage._expired(weak)
    other = run("gru", 2 * x, w)[0]  # would write over what is not in use
    assert torch.equal(torch.autograd.grad(y, x)[0], expected)
    del y, other
    gc.collect()
    assert torch.UntypedStorage._expired(weak)
    torch.UntypedStorage._free_weak_ref(weak)
    assert len(pool.storages) == 1


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_grad_mode_within_inference_mode(kind):
    w, x = weights(kind, 4, 20), draw(9, 4)
    expected = run(kind, x, w)[0].detach()
    with torch.inference_mode(), torch.enable_grad():
        assert torch.equal(run(kind, x, w)[0], expected)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_hook_that_changes_the_type_of_what_is_saved_is_an_error(kind):
    w, x = weights(kind, 4, 20), draw(9, 4)
    smaller = torch.autograd.graph.saved_tensors_hooks(
        lambda t: t.half() if t.dim() == 1 and len(t) > 500 else t, lambda t: t
    )
    with smaller:
        y = run(kind, x, w)[0].sum()
    with pytest.raises(ValueError, match=r"kept must be .* got torch\.float16.* hooks on saved"):
        torch.autograd.grad(y, x)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_no_steps(kind):
    """The last states are the initial ones, and so are their gradients."""
    w, x = weights(kind, 4, 6), draw(0, 4)
    states = [draw(3, 6, seed=k) for k in range(2 if kind == "lstm" else 1)]
    y, *last = getattr(cpu, kind)(x, None, *states, w)
    assert y.shape == (0, 6)
    slopes = [draw(3, 6, seed=10 + k) for k in range(len(states))]
    gradients = torch.autograd.grad(last, [*states, *leaves(w)], slopes)
    for got, expected in zip([*last, *gradients[: len(states)]], [*states, *slopes], strict=True):
        assert torch.equal(got, expected)
    assert all(not g.any() for g in gradients[len(states) :])


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_everything_frozen_but_one(kind):
    """An input, a state or a parameter that alone wants a gradient gets the definition's."""
    w, x = weights(kind, 4, 6), draw(9, 4)
    states = [draw(3, 6, seed=k) for k in range(2 if kind == "lstm" else 1)]
    everything = [x, *states, *leaves(w)]
    for t in everything:
        t.requires_grad_(False)
    for wanted in everything:
        wanted.requires_grad_()
        found = []
        for module in (definition, cpu):
            values = getattr(module, kind)(x, None, *states, w)
            found += torch.autograd.grad(sum(v.square().sum() for v in values), wanted)
        torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)
        wanted.requires_grad_(False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_half_precision_is_computed_in_float32(kind, dtype):
    """The result is the float32 result of the same numbers, rounded once."""
    w, x = converted((weights(kind, 4, 20), draw(9, 4)), dtype)
    wide = run(kind, x.float(), converted(w, torch.float32))
    for low, high in zip(run(kind, x, w), wide, strict=True):
        assert low.dtype == dtype
        assert torch.equal(low, high.to(dtype))


def test_second_derivatives_of_the_registered_operator_are_refused(monkeypatch):
    """A compiled graph holds the operator's gradient, which has none; elsewhere see
    tests/recurrent/test_transforms.py."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    w, x = weights("gru", 3, 4), draw(6, 3)
    (first,) = torch.autograd.grad(run("gru", x, w)[0].square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match='backend="reference"'):
        first.sum().backward()


def wrong(kind: str, **changed):
    """The operator's computation and its arguments, some of them changed; 3 inputs, 3 units."""
    w, x = weights(kind, 3, 3), draw(6, 3)
    names = ["x", "h0", "c0"] if kind == "lstm" else ["x", "h0"]
    given = [x, *(draw(2, 3, seed=k) for k in range(len(names) - 1)), *leaves(w)]
    names += ["w_ih", "w_hh", "bias", "gain_x", "bias_x", "gain_h", "bias_h", "gain_c", "bias_c"]
    given = dict(zip(names, given, strict=False)) | changed
    options = (None, 1e-5, "paper", False, True) if kind == "lstm" else (None, 1e-5, False, True)
    return getattr(operators, f"compute_{kind}")(*given.values(), *options)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_the_library_is_given_nothing_that_does_not_fit(kind):
    """It trusts types and shapes; so many numbers in another order are not enough."""
    per_gate = {"lstm": 12, "gru": 9}[kind]
    wrong(kind)
    for name, value, error, message in (
        ("x", draw(18), ValueError, "two dimensions"),
        ("x", draw(6, 3).bfloat16(), TypeError, f"{kind}_forward computes float32 or float64, got"),
        ("h0", draw(3, 2), ValueError, "[cwx][a-z0_]* must be contiguous"),
        ("w_hh", draw(3, per_gate), ValueError, rf"w_hh must be .* of shape \({per_gate}, 3\)"),
        ("w_ih", draw(per_gate, 3).float(), ValueError, "w_ih must be contiguous torch.float64"),
        ("gain_x", draw(1, per_gate), ValueError, "gain_x must be .* of shape"),
    ):
        with pytest.raises(error, match=message):
            wrong(kind, **{name: value})


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_gradient_is_computed_from_what_its_forward_pass_kept(kind):
    w, x = weights(kind, 3, 3), draw(6, 3)
    y = run(kind, x, w)[0]
    context = y.grad_fn
    while not hasattr(context, "operator"):  # the conversion to the result's type
        context = context.next_functions[0][0]
    saved = list(context.saved_tensors)
    saved[1] = saved[1][:-1]
    gradients = (y, None, None) if kind == "lstm" else (y, None)
    with pytest.raises(ValueError, match=r"kept must be contiguous .* as the"):
        context.operator.compute_backward(*gradients, *saved, *context.rest, True)


def test_a_layer_exported_in_one_type_is_refused_in_another():
    layer = layernorm.LayerNormLSTM(3, 5, backend="fused")
    exported = torch.export.export(layer, (torch.zeros(4, 2, 3),)).module()
    torch.testing.assert_close(exported(torch.ones(4, 2, 3))[0], layer(torch.ones(4, 2, 3))[0])
    with pytest.raises(TypeError, match=r"computes float32 or float64, got torch\.bfloat16"):
        exported.bfloat16()(torch.ones(4, 2, 3, dtype=torch.bfloat16))


def test_an_unknown_variant():
    w, x = weights("lstm", 3, 4), draw(6, 3)
    with pytest.raises(ValueError, match="variant must be one of paper, joint"):
        cpu.lstm(x, None, draw(2, 4), draw(2, 4), w, variant="other")


def test_threads_that_cannot_be_had():
    """Threads of its own, in a process that may have no more memory for their stacks: an error with
    the way out, and the next call computes."""
    program = """
import ctypes, resource, torch, layernorm
from layernorm.recurrent.cpu import binding
layer = layernorm.LayerNormLSTM(8, 1024, backend="fused").requires_grad_(False)
x = torch.zeros(1, 1, 8)
binding.library().use_gomp(ctypes.c_void_p(), ctypes.c_void_p())
torch.set_num_threads(1)
expected = layer(x)[0]
torch.set_num_threads(8)
layer(x)  # memory for their work
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
_, most = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (size, most))
try:
    layer(x)
except RuntimeError as refusal:
    print("set_num_threads" in str(refusal))
torch.set_num_threads(1)
print(torch.equal(layer(x)[0], expected))
"""
    done = python("-c", program)
    assert done.stdout.split() == ["True", "True"], done.stderr


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_operators_keep_torchs_rules(kind):
    """torch.library.opcheck: schema, shapes without data, autograd and graph capture agree."""
    w, x = weights(kind, 3, 4), draw(6, 3)
    states = [draw(2, 4, seed=k) for k in range(2 if kind == "lstm" else 1)]
    norms = [t for part in w[3:] if part is not None for t in part]
    options = (None, 1e-5, "paper", False, True) if kind == "lstm" else (None, 1e-5, False, True)
    arguments = (x, *states, *w[:3], *norms, *options)
    utilities = ("test_schema", "test_autograd_registration", "test_faketensor")
    operator = getattr(operators, kind.upper()).registered
    torch.library.opcheck(operator, arguments, test_utils=utilities)


@pytest.mark.parametrize("instructions", ["AVX2", "baseline"])
def test_other_instruction_sets(instructions, monkeypatch):
    """The library as an older processor builds it, where this one can run it."""
    if instructions == "AVX2" and build.instruction_set() == "baseline":
        pytest.skip("this processor, or ATEN_CPU_CAPABILITY, has no AVX2")
    library = build._open(build.build(instructions))
    monkeypatch.setattr(binding, "library", lambda: library)
    for kind, variant in (("lstm", "paper"), ("lstm", "per_gate"), ("gru", "paper")):
        with threads(2):
            assert distance(kind, FALLING, 7, 101, variant) < 1e-11
            assert distance(kind, [9] * 3, 17, 33, variant) < 1e-11
