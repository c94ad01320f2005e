"""torch.compile (one graph, forward and backward), torch.export and torch.fx of the modules."""

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from apart import outcomes, report

import layernorm
from layernorm import functional

MODULES = {
    "LayerNorm": lambda b: layernorm.LayerNorm(5, backend=b),
    "RMSNorm": lambda b: layernorm.RMSNorm(5, backend=b),
    "GroupNorm": lambda b: layernorm.GroupNorm(2, 4, backend=b),
    "InstanceNorm": lambda b: layernorm.InstanceNorm(4, 1e-5, 0.1, True, True, backend=b),
    "BatchNorm": lambda b: layernorm.BatchNorm(4, backend=b),
    "BatchNorm with a mask": lambda b: layernorm.BatchNorm(4, backend=b),
    "WeightNormLinear": lambda b: layernorm.WeightNormLinear(5, 3),
}
CASES = [(n, b) for n in MODULES for b in ("auto", "reference") if n != "WeightNormLinear"]
CASES += [("WeightNormLinear", "auto")]
TWO_MODES = ("InstanceNorm", "BatchNorm", "BatchNorm with a mask")


def inputs(name: str, batch: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(batch)
    x = torch.randn(batch, 4, 5, generator=generator)
    return (x, torch.rand(batch, 5, generator=generator) < 0.7) if "mask" in name else (x,)


def same(captured, module, name: str, batch: int) -> None:
    """Outputs, gradients of input and parameters, and the state afterwards."""
    results = []
    for m in (captured, module):
        m.zero_grad()
        x, *mask = inputs(name, batch)
        y = m(x.requires_grad_(), *mask)
        (y * torch.linspace(-1, 2, y.numel()).view_as(y)).sum().backward()
        results.append([y, x.grad, *(p.grad for p in m.parameters()), *m.buffers()])
    torch.testing.assert_close(*results)


def compiled(name: str, backend: str, training: bool) -> None:
    torch._dynamo.reset()
    module = MODULES[name](backend).train(training)
    twin = copy.deepcopy(module)
    # aot_eager captures forward and backward as a whole; generating C++ from it would test torch
    captured = torch.compile(module, fullgraph=True, backend="aot_eager")
    for batch in (3, 7, 2):  # the second size makes the batch dimension symbolic
        same(captured, twin, name, batch)


def exported(name: str, backend: str) -> None:
    module = MODULES[name](backend)
    batch = torch.export.Dim("batch", min=2)
    shapes = tuple({0: batch} for _ in inputs(name, 3))
    module.eval()
    captured = torch.export.export(module, inputs(name, 3), dynamic_shapes=shapes).module()
    for size in (3, 7):
        torch.testing.assert_close(captured(*inputs(name, size)), module(*inputs(name, size)))


def compiled_step() -> None:
    """The LSTM's step compiles to one graph as well."""
    g = torch.Generator().manual_seed(0)
    shapes = [(2, 3), (2, 5), (2, 5), (20, 3), (20, 5), (20,)]
    arguments = [torch.randn(*s, generator=g) for s in shapes]
    arguments += [tuple(torch.randn(n, generator=g) for _ in "gb") for n in (20, 20, 5)]
    step = torch.compile(functional.ln_lstm_step, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(step(*arguments), functional.ln_lstm_step(*arguments))


class Tracer(torch.fx.Tracer):
    def is_leaf_module(self, m: torch.nn.Module, name: str) -> bool:
        return m.__module__.startswith("layernorm")


def traced(module: torch.nn.Module) -> None:
    """torch.fx's own tracer looks into all but torch.nn; a recurrent layer says what to do."""
    model, x = torch.nn.Sequential(module), torch.randn(4, 3)
    recurrent = isinstance(module, layernorm.LayerNormGRU)
    with pytest.raises(TypeError, match="Proxy.* is_leaf_module" if recurrent else "got Proxy"):
        torch.fx.symbolic_trace(model)
    got = torch.fx.GraphModule(model, Tracer().trace(model))(x)
    torch.testing.assert_close(got, module(x), rtol=0, atol=0)


def jobs() -> dict[str, Callable[[], None]]:
    listed = {"compile ln_lstm_step": compiled_step}
    for name, backend in CASES:
        listed[f"compile {name} {backend}"] = partial(compiled, name, backend, True)
        if name in TWO_MODES:
            listed[f"compile {name} {backend} evaluation"] = partial(compiled, name, backend, False)
        listed[f"export {name} {backend}"] = partial(exported, name, backend)
    for module in (layernorm.GroupNorm(1, 3), layernorm.LayerNorm(3), layernorm.LayerNormGRU(3, 5)):
        listed[f"fx {type(module).__name__}"] = partial(traced, module)
    return listed


@pytest.mark.parametrize("case", jobs())
def test_captured_module_is_the_module(case):
    assert outcomes(__file__)[case] == "ok"


if __name__ == "__main__":
    report(jobs())
