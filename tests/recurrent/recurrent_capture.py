"""Run as a program, without the import hook that no graph capture can see through: compile, export
and trace the recurrent layers and cells, compare with the uncaptured ones, and print {case: "ok" or
what went wrong}."""

import json
import sys
import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
from recurrent.recurrent_reference import LAYERS, backends, shaken

import layernorm

CELLS = {
    "lstm": layernorm.LayerNormLSTMCell,
    "gru": layernorm.LayerNormGRUCell,
    "rnn": layernorm.LayerNormRNNCell,
}


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


def compiled(kind: str, backend: str) -> None:
    torch._dynamo.reset()
    module = shaken(LAYERS[kind](3, 5, backend=backend))
    captured = torch.compile(module, fullgraph=True, backend="aot_eager")
    for batch in (2, 4):  # the second size makes the batch dimension symbolic
        same(captured, module, torch.randn(2, batch, 3))


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


def jobs() -> dict[str, Callable[[], None]]:
    listed: dict[str, Callable[[], None]] = {}
    for kind in LAYERS:
        for backend in backends(kind):
            listed[f"compile {kind} {backend}"] = partial(compiled, kind, backend)
            listed[f"export {kind} {backend}"] = partial(exported, kind, backend)
        listed[f"compile {kind} cell"] = partial(compiled_cell, kind)
        for frozen in (False, True):
            listed[f"trace {kind} auto frozen={frozen}"] = partial(traced, kind, frozen)
    return listed


def main() -> None:
    results = {}
    for case, job in jobs().items():
        try:
            job()
            results[case] = "ok"
        except Exception as error:
            results[case] = f"{type(error).__name__}: {error}"[:1000]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
