"""torch.compile (one graph, forward and backward), torch.export and torch.jit.trace of the
recurrent layers; autocast."""

import copy
import re
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from apart import outcomes, report
from library.oracle import assert_rounded, draw
from recurrent.recurrent_reference import LAYERS, NETS, backends, shaken, usable
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence

import layernorm
from layernorm.recurrent import ZoneoutLSTM, gpu, layers

CELLS = {
    "lstm": layernorm.LayerNormLSTMCell,
    "gru": layernorm.LayerNormGRUCell,
    "rnn": layernorm.LayerNormRNNCell,
}
BACKENDS = ("auto", "reference")
GPU = "cuda" if torch.cuda.is_available() else "cpu"


def flat(result) -> list[torch.Tensor]:
    return [t for r in result for t in (r if isinstance(r, tuple) else (r,))]


def results(module, weights, leaves) -> list[torch.Tensor]:
    """Outputs, last states, and the gradients of inputs and weights."""
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    outputs = flat(module(*leaves))
    slopes = (torch.linspace(-1, 2, o.numel()).to(o).view_as(o) for o in outputs)
    total = sum((o * slope).sum() for o, slope in zip(outputs, slopes, strict=True))
    return [*outputs, *torch.autograd.grad(total, [*leaves, *weights])]


def same(captured, module, *leaves: torch.Tensor, backward: bool = True, run=None) -> None:
    """Captured or not, it gives the definition's numbers in float64, but for rounding; `run` calls
    a module with the leaves."""
    exact = copy.deepcopy(module).double().cpu()
    exact.backend = "reference"

    def of(call, twin, leaves) -> list[torch.Tensor]:
        called = partial(run, call) if run else call
        return (
            results(called, list(twin.parameters()), leaves) if backward else flat(called(*leaves))
        )

    got = [t for call in (captured, module) for t in of(call, module, leaves)]
    high = [leaf.double().cpu() for leaf in leaves]
    assert_rounded(got, lambda: of(exact, exact, high) * 2)


def compiled(kind: str, backend: str, device: str = "cpu", units: int = 5) -> None:
    torch._dynamo.reset()
    module = shaken(LAYERS[kind](3, units, backend=backend)).to(device)
    captured = torch.compile(module, fullgraph=True, backend="aot_eager")
    for batch in (2, 4):  # the second size makes the batch dimension symbolic
        same(captured, module, torch.randn(2, batch, 3, device=device))


def packed(module, *sequences: torch.Tensor, states: tuple | None = None):
    y, last = module(pack_sequence(sequences, enforce_sorted=False), states)
    return y.data, last


def compiled_packed(kind: str) -> None:
    """One graph of the fused path for sequences of different lengths, in any order and number."""
    torch._dynamo.reset()
    module = shaken(LAYERS[kind](3, 5, bidirectional=True, backend="fused"))
    captured = torch.compile(module, fullgraph=True, backend="aot_eager")
    for lengths in ((3, 1, 2), (2, 4, 1, 4, 3), (1, 1)):
        same(captured, module, *(torch.randn(n, 3) for n in lengths), run=packed)


def packed_from(module, *tensors: torch.Tensor):
    """As `packed`, the last tensors being the initial states."""
    sequences, states = tensors[: -module.states], tensors[-module.states :]
    return packed(module, *sequences, states=states if module.states == 2 else states[0])


def compiled_packed_states(kind: str, learned: bool) -> None:
    """The same, from initial states that are given, or learned."""
    torch._dynamo.reset()
    module = shaken(LAYERS[kind](3, 5, backend="fused", learn_initial_state=learned))
    captured = torch.compile(module, fullgraph=True, backend="aot_eager")
    captured.states = module.states
    for lengths in ((3, 1, 2), (2, 4, 1, 4, 3)):
        sequences = [torch.randn(n, 3) for n in lengths]
        states = [torch.randn(1, len(lengths), 5) for _ in range(module.states)]
        if learned:
            same(captured, module, *sequences, run=packed)
        else:
            same(captured, module, *sequences, *states, run=packed_from)


def without_fast_path() -> list[torch.nn.Module]:
    """One layer of each kind that the API page lists as such, but for `BatchNormLSTM`."""
    return [
        layernorm.LayerNormRNN(3, 5),
        layernorm.LayerNormGRUVariant(3, 5),
        ZoneoutLSTM(3, 5, zoneout=0.25),
        layernorm.LayerNormLSTM(3, 5, proj_size=2),
        layernorm.LayerNormGRU(3, 5, backend="reference"),
    ]


def compiled_padded(number: int) -> None:
    """The API page's function for layers without a fast path: one graph of the padded batch, with
    the packed outputs and last ones; a packed batch needs fullgraph=False."""
    page = (Path(__file__).parents[2] / "book" / "api.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n((?:(?!```).)*def padded.*?)^```", page, re.M | re.S)
    names: dict = {}
    exec(code, names)
    module = shaken(without_fast_path()[number]).eval()
    packed = pack_sequence([torch.randn(n, 3) for n in (3, 1, 2)], enforce_sorted=False)
    y, lengths = pad_packed_sequence(module(packed)[0])
    torch._dynamo.reset()
    captured = torch.compile(module, fullgraph=True, backend="eager")
    got, last = names["padded"](captured, packed, 4)
    assert len(got) == 4
    own = torch.arange(3)[:, None] < lengths
    torch.testing.assert_close(got[:3][own], y[own])
    torch.testing.assert_close(last, y[lengths - 1, torch.arange(3)])
    if number == 0:
        torch._dynamo.reset()
        captured = torch.compile(module, backend="eager")
        torch.testing.assert_close(captured(packed)[0].data, module(packed)[0].data)


def transformed(kind: str) -> None:
    """A compiled derivative of any kind is the definition's."""
    x, tangent = draw(3, 2, 3, seed=1), draw(3, 2, 3, seed=2)
    made = [shaken(LAYERS[kind](3, 4, dtype=torch.float64, backend=b)) for b in BACKENDS]
    made[1].load_state_dict(made[0].state_dict())

    def derivatives(module):
        def loss(x):
            return module(x)[0].square().sum()

        yield lambda x: torch.func.jvp(loss, (x,), (tangent,))[1]
        yield lambda x: torch.func.grad(loss)(x)
        yield lambda x: torch.func.vjp(loss, x)[1](x.new_tensor(2.0))[0]

    for fast, definition in zip(*map(derivatives, made), strict=True):
        torch._dynamo.reset()
        expected = definition(x)
        assert expected.any()
        torch.testing.assert_close(torch.compile(fast, backend="eager")(x), expected)


def exported_derivative(kind: str) -> None:
    """Of an operator that is fixed in a graph there is no forward derivative: never zeros."""
    module, x = shaken(LAYERS[kind](3, 5, backend="fused")), torch.randn(4, 2, 3)
    captured = torch.export.export(module, (x,)).module()
    with pytest.raises(NotImplementedError, match=r'forward.*backend="reference"'):
        torch.func.jvp(lambda x: captured(x)[0], (x,), (x,))


def compiled_cell(kind: str) -> None:
    torch._dynamo.reset()
    cell = shaken(CELLS[kind](3, 5))
    captured = torch.compile(cell, fullgraph=True, backend="aot_eager")
    same(captured, cell, torch.ones(2, 3), backward=False)


def exported(kind: str, backend: str) -> None:
    module = shaken(LAYERS[kind](3, 5, bidirectional=True, backend=backend)).eval()
    shapes = ({1: torch.export.Dim("batch", min=2)},)
    captured = torch.export.export(module, (torch.randn(2, 2, 3),), dynamic_shapes=shapes).module()
    for batch in (2, 4):
        same(captured, module, torch.randn(2, batch, 3), backward=False)


def traced(kind: str, frozen: bool) -> None:
    """As layers are made by default. A trace that kept addresses would read memory that is gone."""
    module = shaken(LAYERS[kind](3, 5, bidirectional=True)).requires_grad_(not frozen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch.jit is old, and a trace holds for one shape
        captured = torch.jit.trace(module, torch.randn(2, 2, 3))
        if kind != "rnn":
            refused = LAYERS[kind](3, 5, backend="fused")
            with pytest.raises(ValueError, match=r'torch\.jit\.trace .*; use "auto"'):
                torch.jit.trace(refused, torch.randn(2, 2, 3))
    _used_again = [torch.randn(n) for n in range(1, 200)]
    same(captured, module, torch.randn(2, 2, 3), backward=not frozen)


def compiled_on_gpu(kind: str) -> None:
    """The layer on Triton's kernels, interpreted where there is no GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if GPU == "cpu":
            patch.setattr(layers, "cpu", gpu)  # which the layers ask on a GPU
        compiled(kind, "fused", GPU, units=3)


def asked_for_speeds() -> None:
    """Whether the kernels are faster is asked within a graph, which it does not break."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU without records")

        def asked(x: torch.Tensor) -> torch.Tensor:
            return x + gpu._faster("gru", "cuda:0", x.dtype, torch.is_grad_enabled(), None, 3)

        x = torch.ones(2)
        assert torch.equal(torch.compile(asked, fullgraph=True, backend="aot_eager")(x), x)


def compiled_batch_norm(training: bool, lengths: list[int] | None) -> None:
    """A batch without lengths as one graph; with lengths, which are data and break it, as several.
    Running statistics are those of the layer that is not captured."""
    torch._dynamo.reset()
    layer = layernorm.BatchNormLSTM(3, 4, bidirectional=True, max_length=2)
    x = torch.randn(2, 4, 3)
    layer(x)
    twin = copy.deepcopy(layer.train(training))
    exact = copy.deepcopy(twin).double()
    captured = torch.compile(layer, backend="aot_eager", fullgraph=lengths is None)

    def of(call, module, x: torch.Tensor) -> list[torch.Tensor]:
        y, (_, c) = call(x, lengths=lengths)
        grads = torch.autograd.grad(y.sum() + c.sum(), list(module.parameters()))
        return [y, *grads, *(b for b in module.buffers() if b.is_floating_point())]

    def compute() -> list[torch.Tensor]:
        module = copy.deepcopy(exact)
        return of(module, module, x.double()) * 2

    assert_rounded([*of(captured, layer, x), *of(twin, twin, x)], compute)
    counts = [
        {k: b for k, b in m.named_buffers() if not b.is_floating_point()} for m in (layer, twin)
    ]
    assert all(torch.equal(counts[1][name], count) for name, count in counts[0].items())


def exported_batch_norm() -> None:
    layer, x = layernorm.BatchNormLSTM(3, 4, 2, bidirectional=True), torch.randn(2, 4, 3)
    layer(x)
    exported = torch.export.export(layer.eval(), (x,)).module()
    exact = copy.deepcopy(layer).double()
    assert_rounded([exported(x)[0], layer(x)[0]], lambda: [exact(x.double())[0]] * 2)


def jobs() -> dict[str, Callable[[], None]]:
    listed: dict[str, Callable[[], None]] = {}
    for kind in LAYERS:
        for backend in backends(kind):
            listed[f"compile {kind} {backend}"] = partial(compiled, kind, backend)
            listed[f"export {kind} {backend}"] = partial(exported, kind, backend)
        if "fused" in backends(kind):
            listed[f"packed {kind} fused"] = partial(compiled_packed, kind)
            listed[f"states {kind} fused"] = partial(compiled_packed_states, kind, False)
            listed[f"learned {kind} fused"] = partial(compiled_packed_states, kind, True)
            listed[f"jvp {kind} fused"] = partial(exported_derivative, kind)
        listed[f"transform {kind} auto"] = partial(transformed, kind)
        listed[f"compile {kind} cell"] = partial(compiled_cell, kind)
        for frozen in (False, True):
            listed[f"trace {kind} auto frozen={frozen}"] = partial(traced, kind, frozen)
    for training in (True, False):
        for lengths in (None, [2, 1, 2, 1]):
            name = f"compile batch norm training={training} lengths={lengths is not None}"
            listed[name] = partial(compiled_batch_norm, training, lengths)
    listed["export batch norm"] = exported_batch_norm
    for number, layer in enumerate(without_fast_path()):
        listed[f"compile padded {type(layer).__name__}"] = partial(compiled_padded, number)
    listed["compile the speeds"] = asked_for_speeds
    if find_spec("triton"):
        for kind in ("lstm", "gru"):
            listed[f"compile {kind} triton"] = partial(compiled_on_gpu, kind)
    return listed


@pytest.mark.parametrize("case", jobs())
def test_captured_module_is_the_module(case):
    usable(case.split()[2])  # the word that says the backend, where there is one
    assert outcomes(__file__)[case] == "ok"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("kind", "backend"), NETS)
def test_autocast(kind, dtype, backend):
    """States and outputs stay in float32 and close to it, whatever the input's type; gradients
    arrive in the parameters' type. Packed sequences with rows that end early as well."""
    usable(backend)
    module = shaken(LAYERS[kind](3, 16, 2, bidirectional=True, backend=backend))
    x = draw(9, 3).float()
    sizes = torch.tensor([3, 3, 2, 1])
    exact = copy.deepcopy(module).double()
    exact.backend = "reference"
    outputs = []
    for given in (x, x.to(dtype)):
        module.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            y, last = module(PackedSequence(given, sizes))
        tensors = [y.data, *(last if isinstance(last, tuple) else (last,))]
        assert all(t.dtype == torch.float32 for t in tensors)
        outputs.append(y.data)
        y.data.square().sum().backward()
        assert all(p.grad.dtype == torch.float32 and p.grad.any() for p in module.parameters())
    assert_rounded(outputs, lambda: [exact(PackedSequence(x.double(), sizes))[0].data] * 2, dtype)


@pytest.mark.parametrize(("kind", "backend"), NETS)
def test_results_have_the_weights_type_under_autocast(kind, backend):
    """An input may have another one: that of the layer before."""
    usable(backend)
    module = LAYERS[kind](3, 4, backend=backend, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, last = module(torch.ones(5, 2, 3))
    tensors = [y, *(last if isinstance(last, tuple) else (last,))]
    assert [t.dtype for t in tensors] == [torch.bfloat16] * len(tensors)


if __name__ == "__main__":
    report(jobs())
