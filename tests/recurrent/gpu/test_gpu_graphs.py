"""Calls that come again are replayed from a CUDA graph: the same bits, whoever waits for
a gradient.

Without a GPU a stand-in for the capture calls the function again at each replay; everything around
it is the real thing.
"""

import pytest
import torch
from kernels.kernel_cases import DEVICE, ON_GPU
from recurrent.recurrent_fused import F32, Case, converted, leaves, results, run, tensors

from layernorm.kernels import launch
from layernorm.recurrent import gpu
from layernorm.recurrent.gpu import graphs

pytestmark = ON_GPU
KINDS = pytest.mark.parametrize("form", ["paper", "per_gate", "gru"])
BOTH = pytest.mark.parametrize("form", ["joint", "gru"])


@pytest.fixture(autouse=True)
def captures(monkeypatch):
    """The graphs that were captured: 'forward' and 'backward', one after the other."""
    graphs.clear()
    made, really = [], graphs.capture

    def stand_in(function, pool=None):
        buffers = function()

        def replay():
            for to, of in zip(buffers, function(), strict=True):
                to.copy_(of)

        return buffers, replay, "memory"

    def capture(function, pool=None):
        made.append("forward" if pool is None else "backward")
        return (stand_in if launch.INTERPRETED else really)(function, pool)

    monkeypatch.setattr(graphs, "capture", capture)
    if launch.INTERPRETED:
        monkeypatch.setattr(graphs, "_possible", lambda x: graphs.LIMIT > 0)
        monkeypatch.setattr(graphs, "_stream", lambda x: ("cpu", 0))
    yield made
    graphs.clear()


def net(form: str, seed: int = 0):
    """A case and its tensors, of one shape, the sequences and states different for each seed."""
    case = Case("gru" if form == "gru" else "lstm", form, (2, 1), units=3, inputs=2)
    x, states, w = tensors(case, F32, gpu)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for t in (x, *states):
            t.copy_(torch.randn(t.shape, generator=generator))
    return case, x, states, w


def uncaptured(monkeypatch, function, *arguments):
    with monkeypatch.context() as patch:
        patch.setattr(graphs, "LIMIT", 0)
        return function(*arguments)


def same(got, expected) -> None:
    assert len(got) == len(expected)
    assert all(torch.equal(g, e) for g, e in zip(got, expected, strict=True))


def gradients(net, y, retain=False):
    _, x, states, w = net
    wanted = [x, *states, *leaves(w)]
    return torch.autograd.grad(y.square().sum(), wanted, retain_graph=retain)


def test_inference_mode_has_graphs_of_its_own(captures, monkeypatch):
    """Its buffers cannot be filled outside of it."""
    given = net("gru")
    expected = [t.detach() for t in uncaptured(monkeypatch, run, gpu, *given)]
    for mode in (torch.inference_mode, torch.no_grad):
        for _ in range(3):
            with mode():
                same(run(gpu, *given), expected)
    assert captures == ["forward", "forward"]


@KINDS
def test_replays_give_the_same_bits(form, captures, monkeypatch):
    for seed in range(4):
        given = net(form, seed)
        expected = uncaptured(monkeypatch, results, gpu, *given)
        same(results(gpu, *given), expected)
    assert captures == ["forward", "backward"]  # at the second call


@BOTH
def test_results_stay_when_others_are_computed(form, captures, monkeypatch):
    """And a gradient that was not waited for is that of its own forward pass."""
    nets = [net(form, seed) for seed in range(4)]
    outputs = [run(gpu, *given)[0] for given in nets]
    assert captures == ["forward"] * 3  # all wait
    slopes = [gradients(given, y) for given, y in zip(nets, outputs, strict=True)]
    for given, y, slope in zip(nets, outputs, slopes, strict=True):
        right = uncaptured(monkeypatch, run, gpu, *given)[0]
        same([y, *slope], [right, *gradients(given, right)])


@BOTH
def test_memory_is_used_again(form, captures):
    """As soon as a backward pass is over, though its result is kept."""
    kept = []
    for seed in range(3):
        given = net(form, seed)
        y = run(gpu, *given)[0]
        gradients(given, y)
        kept.append(y)
    y = run(gpu, *net(form, 3))[0]
    del y  # never asked for its gradient
    run(gpu, *net(form, 4))
    assert captures == ["forward", "backward"]


def test_a_gradient_asked_for_twice(captures):
    for _ in range(2):
        given = net("paper")
        y = run(gpu, *given)[0]
        first = gradients(given, y, retain=True)
        run(gpu, *net("paper", 1))
        same(gradients(given, y), first)


def test_no_more_than_the_limit(captures, monkeypatch):
    monkeypatch.setattr(graphs, "LIMIT", 1)
    nets = [net("paper", seed) for seed in range(3)]
    outputs = [run(gpu, *given)[0] for given in nets]
    assert captures == ["forward"]
    slopes = [gradients(given, y) for given, y in zip(nets, outputs, strict=True)]
    other = [uncaptured(monkeypatch, run, gpu, *given)[0] for given in nets]
    for given, slope, y in zip(nets, slopes, other, strict=True):
        same(slope, gradients(given, y))
    del outputs
    for _ in range(2):  # another form takes the place of the one that is idle
        run(gpu, *net("gru"))
    assert [c.settings.form for c in graphs._captures.values()] == ["gru"]


def test_without_gradients(captures, monkeypatch):
    for seed in range(3):
        given = net("paper", seed)
        with torch.no_grad():
            expected = uncaptured(monkeypatch, run, gpu, *given)
            same(run(gpu, *given), expected)
    assert captures == ["forward"]


def test_hooks_that_put_other_tensors_in_place(captures, monkeypatch):
    """As those that keep saved tensors elsewhere: the captured buffers are no longer meant."""
    for seed in range(3):
        given = net("paper", seed)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            y = run(gpu, *given)[0]
        run(gpu, *net("paper", 7))  # what was kept is overwritten
        right = uncaptured(monkeypatch, run, gpu, *given)[0]
        same(gradients(given, y), gradients(given, right))
    assert "backward" not in captures


def test_hooks_that_put_some_tensors_elsewhere(captures, monkeypatch):
    """As those that move large ones alone: the others still wait in the capture's memory."""
    moved = set()

    def move(t):
        moved.add(large := t.numel() > 20)
        return t.clone() if large else t

    def hooked(given):
        with torch.autograd.graph.saved_tensors_hooks(move, lambda t: t):
            return run(gpu, *given)[0]

    for seed in range(3):
        hooked(net("gru", seed))
    one, other = net("gru", 3), net("gru", 4)
    y, later = hooked(one), hooked(other)
    assert moved == {True, False}
    for given, got in ((one, y), (other, later)):
        right = uncaptured(monkeypatch, run, gpu, *given)[0]
        same(gradients(given, got), gradients(given, right))
    assert captures == ["forward", "forward"]


def test_grad_mode_within_inference_mode(captures):
    given = net("gru")
    expected = [t.detach() for t in run(gpu, *given)]
    for _ in range(3):
        with torch.inference_mode(), torch.enable_grad():
            same(run(gpu, *given), expected)


def test_a_parameter_changed_before_its_gradient_is_an_error(captures):
    for _ in range(2):
        given = net("paper")
        y = run(gpu, *given)[0]
        with torch.no_grad():
            given[3].w_hh.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients(given, y)


def test_without_memory_for_a_capture(captures, monkeypatch):
    def full(function, pool=None):
        captures.append("tried")
        raise torch.OutOfMemoryError

    monkeypatch.setattr(graphs, "capture", full)
    given = net("paper")
    expected = run(gpu, *given)
    for _ in range(3):
        same(run(gpu, *given), expected)
    assert captures == ["tried"]


def test_without_memory_for_a_capture_of_the_gradient(captures, monkeypatch):
    really = graphs.capture

    def full(function, pool=None):
        if pool is not None:
            captures.append("tried")
            raise torch.OutOfMemoryError
        return really(function, pool)

    monkeypatch.setattr(graphs, "capture", full)
    given = net("gru")
    expected = uncaptured(monkeypatch, results, gpu, *given)
    for _ in range(4):
        same(results(gpu, *given), expected)
    assert captures == ["forward", "tried"]


def test_shapes_that_take_turns_keep_their_captures(captures, monkeypatch):
    """One more than the limit is computed, and captured when it comes more often than another."""
    monkeypatch.setattr(graphs, "LIMIT", 2)
    case, *rest = net("gru")
    in_turns = [case._replace(eps=eps) for eps in (0.1, 0.2, 0.3)]
    with torch.no_grad():
        for each in in_turns * 5:
            run(gpu, each, *rest)
        assert [c.settings.eps for c in graphs._captures.values()] == [0.1, 0.2]
        assert captures == ["forward"] * 2
        for _ in range(5):
            run(gpu, in_turns[2], *rest)
    assert [c.settings.eps for c in graphs._captures.values()] == [0.2, 0.3]


def test_other_shapes_and_settings_are_captured_by_themselves(captures):
    case, x, states, w = net("paper")
    for changed in (case, case._replace(reverse=True), case._replace(eps=0.2)):
        for _ in range(2):
            run(gpu, changed, x, states, w)
    assert len(captures) == 3


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
@pytest.mark.gpu
def test_inside_another_capture(captures):
    given = net("paper")
    run(gpu, *given)
    with torch.no_grad():
        expected = uncaptured(pytest.MonkeyPatch(), run, gpu, *given)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = run(gpu, *given)
    graph.replay()
    same(got, expected)
    assert captures == []


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.gpu
def test_another_gpu_than_the_current(captures):
    case, *here = net("paper")
    expected = run(gpu, case, *here)
    there = converted(tuple(here), F32, "cuda:1")
    for _ in range(3):
        got = run(gpu, case, *there)
        assert got[0].device == torch.device("cuda:1")
        same([g.to("cuda:0") for g in got], expected)
