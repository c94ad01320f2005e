"""torch.compile (one graph, forward and backward), torch.export and torch.jit.trace of the
recurrent layers; autocast."""

import copy
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import pytest
import torch
from apart import outcomes, report
from library.oracle import assert_rounded, draw
from recurrent.recurrent_reference import LAYERS, NETS, backends, shaken, usable
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import layernorm
from layernorm.recurrent import gpu, layers

CELLS = {
    "lstm": layernorm.LayerNormLSTMCell,
    "gru": layernorm.LayerNormGRUCell,
    "rnn": layernorm.LayerNormRNNCell,
}
GPU = "cuda" if torch.cuda.is_available() else "cpu"


def flat(result) -> list[torch.Tensor]:
    return [t for r in result for t in (r if isinstance(r, tuple) else (r,))]


def same(captured, module, x: torch.Tensor) -> None:
    """Outputs, last states, and the gradients of input and parameters."""
    results = []
    for m in (captured, module):
        module.zero_grad()
        leaf = x.clone().requires_grad_()
        outputs = flat(m(leaf))
        sum((o * torch.linspace(-1, 2, o.numel()).view_as(o)).sum() for o in outputs).backward()
        results.append([*outputs, leaf.grad, *(p.grad.clone() for p in module.parameters())])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def compiled(kind: str, backend: str, device: str = "cpu", units: int = 5) -> None:
    torch._dynamo.reset()
    module = shaken(LAYERS[kind](3, units, backend=backend)).to(device)
    captured = torch.compile(module, fullgraph=True, backend="aot_eager")
    for batch in (2, 4):  # the second size makes the batch dimension symbolic
        same(captured, module, torch.randn(2, batch, 3, device=device))


def compiled_packed(kind: str) -> None:
    """One graph of the fused path for sequences of different lengths, in any order and number."""
    torch._dynamo.reset()
    module = shaken(LAYERS[kind](3, 5, bidirectional=True, backend="fused"))
    captured = torch.compile(module, fullgraph=True, backend="aot_eager")
    for lengths in ((3, 1, 2), (2, 4, 1, 4, 3), (1, 1)):
        leaves, found = [torch.randn(n, 3).requires_grad_() for n in lengths], []
        for call in (captured, module):
            y, last = call(pack_sequence(leaves, enforce_sorted=False))
            values = [y.data, *flat([last])]
            total = sum((v * torch.linspace(-1, 2, v.numel()).view_as(v)).sum() for v in values)
            found.append([*values, *torch.autograd.grad(total, [*leaves, *module.parameters()])])
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def compiled_cell(kind: str) -> None:
    torch._dynamo.reset()
    cell = shaken(CELLS[kind](3, 5))
    captured = torch.compile(cell, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(captured(torch.ones(2, 3)), cell(torch.ones(2, 3)))


def exported(kind: str, backend: str) -> None:
    module = shaken(LAYERS[kind](3, 5, bidirectional=True, backend=backend)).eval()
    shapes = ({1: torch.export.Dim("batch", min=2)},)
    captured = torch.export.export(module, (torch.randn(2, 2, 3),), dynamic_shapes=shapes).module()
    for batch in (2, 4):
        x = torch.randn(2, batch, 3)
        torch.testing.assert_close(flat(captured(x)), flat(module(x)))


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
    x = torch.randn(2, 2, 3)
    torch.testing.assert_close(flat(captured(x)), flat(module(x)))
    if not frozen:
        same(captured, module, x)


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
    captured, found = torch.compile(layer, backend="aot_eager", fullgraph=lengths is None), []
    for call, module in ((captured, layer), (twin, twin)):
        y, (_, c) = call(x, lengths=lengths)
        found.append([y, *torch.autograd.grad(y.sum() + c.sum(), list(module.parameters()))])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(list(layer.buffers()), list(twin.buffers()))


def exported_batch_norm() -> None:
    layer, x = layernorm.BatchNormLSTM(3, 4, 2, bidirectional=True), torch.randn(2, 4, 3)
    layer(x)
    exported = torch.export.export(layer.eval(), (x,)).module()
    torch.testing.assert_close(exported(x)[0], layer(x)[0])


def jobs() -> dict[str, Callable[[], None]]:
    listed: dict[str, Callable[[], None]] = {}
    for kind in LAYERS:
        for backend in backends(kind):
            listed[f"compile {kind} {backend}"] = partial(compiled, kind, backend)
            listed[f"export {kind} {backend}"] = partial(exported, kind, backend)
        if "fused" in backends(kind):
            listed[f"packed {kind} fused"] = partial(compiled_packed, kind)
        listed[f"compile {kind} cell"] = partial(compiled_cell, kind)
        for frozen in (False, True):
            listed[f"trace {kind} auto frozen={frozen}"] = partial(traced, kind, frozen)
    for training in (True, False):
        for lengths in (None, [2, 1, 2, 1]):
            name = f"compile batch norm training={training} lengths={lengths is not None}"
            listed[name] = partial(compiled_batch_norm, training, lengths)
    listed["export batch norm"] = exported_batch_norm
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


if __name__ == "__main__":
    report(jobs())
