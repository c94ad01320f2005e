"""torch.compile (one graph, forward and backward) and torch.export of what the kernels compute."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import pytest
import torch
from apart import outcomes, report
from kernels.kernel_cases import DEVICE, ON_GPU

import layernorm
import layernorm.onnx as layernorm_onnx
from layernorm.kernels.layer_norm import add_layer_norm
from layernorm.kernels.rms_norm import add_rms_norm

pytestmark = ON_GPU


class Block(torch.nn.Module):
    """Norms as they stand in a network: by modules, and fused with a residual."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        norm = {"layer_norm": layernorm.LayerNorm, "rms_norm": layernorm.RMSNorm}[kind]
        self.first, self.second = norm(5, backend="triton"), norm(5, backend="triton")
        self.fused = {"layer_norm": add_layer_norm, "rms_norm": add_rms_norm}[kind]
        with torch.no_grad():
            for i, p in enumerate(self.parameters()):
                p.copy_(torch.linspace(0.5, 1 + i, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.first(x))
        y, total = self.fused(y, x, (5,), self.second.weight, eps=1e-5)
        return y * total


def results(f, block: Block, batch: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(batch)
    x = torch.randn(batch, 4, 5, generator=generator).to(DEVICE).requires_grad_()
    y = f(x)
    wanted = [p for n, p in block.named_parameters() if n != "second.bias"]
    return [y, *torch.autograd.grad(y.float().square().sum(), [x, *wanted])]


def compiled(kind: str, autocast: bool) -> None:
    torch._dynamo.reset()
    block = Block(kind).to(DEVICE)
    captured = torch.compile(block, fullgraph=True, backend="aot_eager")
    with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=autocast):
        for batch in (3, 7, 2):  # the second size makes the batch dimension symbolic
            torch.testing.assert_close(
                results(captured, block, batch), results(block, block, batch)
            )


def exported(kind: str) -> None:
    block = Block(kind).to(DEVICE).eval()
    shapes = ({0: torch.export.Dim("batch", min=2)},)
    x = torch.randn(3, 4, 5, device=DEVICE)
    program = torch.export.export(block, (x,), dynamic_shapes=shapes)
    targets = {str(node.target) for node in program.graph.nodes}
    assert f"layernorm.{kind}.default" in targets, targets
    for batch in (3, 7):
        x = torch.randn(batch, 4, 5, device=DEVICE)
        torch.testing.assert_close(program.module()(x), block(x))


def exported_without_gradients(kind: str) -> None:
    """Nothing was kept for the gradient that is asked for later."""
    block = Block(kind).to(DEVICE).eval()
    with torch.no_grad():
        graph = torch.export.export(block, (torch.randn(3, 4, 5, device=DEVICE),)).module()
    x, found = torch.randn(3, 4, 5, device=DEVICE), []
    for f in (graph, block):
        z = x.clone().requires_grad_()
        found.append(torch.autograd.grad(f(z).square().sum(), z)[0])
    torch.testing.assert_close(*found)


def traced(kind: str) -> None:
    """By the definition: sizes are tensors while torch.jit.trace looks."""
    block, x = Block(kind).to(DEVICE).eval(), torch.randn(3, 4, 5, device=DEVICE)
    graph = torch.jit.trace(block, x)
    other = torch.randn(3, 4, 5, device=DEVICE)
    torch.testing.assert_close(graph(other), block(other))


def in_onnx(kind: str) -> None:
    """The file has no operator of the package: the definition stands for the kernel."""
    import onnx

    norm = {"layer_norm": layernorm.LayerNorm, "rms_norm": layernorm.RMSNorm}[kind]
    net = norm(5, backend="triton").to(DEVICE).eval()
    given = (torch.randn(3, 5, device=DEVICE),)
    program = layernorm_onnx.export(net, given, verbose=False)  # it would print
    domains = {node.domain for node in program.model_proto.graph.node}
    assert domains <= {""}, domains
    onnx.checker.check_model(program.model_proto)


def auto() -> None:
    """Capturing a graph leaves "auto" with PyTorch's own, which the compiler can fuse."""
    module = layernorm.LayerNorm(5).to(DEVICE)
    x = torch.randn(3, 5, device=DEVICE)
    captured = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(captured(x), module(x))


def second_derivative() -> None:
    module = layernorm.LayerNorm(5, backend="triton").to(DEVICE)
    x = torch.randn(3, 5, device=DEVICE, requires_grad=True)
    y = torch.ops.layernorm.layer_norm(
        x, None, module.weight, module.bias, 1, 1e-5, torch.float32, True
    )[0]
    (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match='backend="reference"'):
        dx.sum().backward()


def jobs() -> dict[str, Callable[[], None]]:
    listed: dict[str, Callable[[], None]] = {"auto": auto, "second derivative": second_derivative}
    for kind in ("layer_norm", "rms_norm"):
        listed[f"compile {kind}"] = partial(compiled, kind, False)
        listed[f"compile {kind} under autocast"] = partial(compiled, kind, True)
        listed[f"export {kind}"] = partial(exported, kind)
        listed[f"export {kind} without gradients"] = partial(exported_without_gradients, kind)
        listed[f"trace {kind}"] = partial(traced, kind)
        if find_spec("onnxscript"):
            listed[f"onnx {kind}"] = partial(in_onnx, kind)
    return listed


@pytest.mark.parametrize("case", jobs())
def test_captured_kernels_are_the_kernels(case):
    assert outcomes(__file__)[case] == "ok"


if __name__ == "__main__":
    report(jobs())
