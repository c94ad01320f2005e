"""The tracer that the API page gives: `torch.fx` takes the modules whole."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import layernorm

PAGE = Path(__file__).parents[2] / "book" / "api.md"
MODULES = [
    layernorm.LayerNorm(6),
    layernorm.RMSNorm(6),
    layernorm.GroupNorm(2, 6),
    layernorm.InstanceNorm(6),
    layernorm.BatchNorm(6).eval(),
    layernorm.DynamicTanh(6),
    layernorm.DynamicErf(6),
    layernorm.WeightNormLinear(6, 3),
    layernorm.LayerNormLSTM(6, 3),
    layernorm.LayerNormGRU(6, 3),
    layernorm.LayerNormRNN(6, 3),
    layernorm.LayerNormGRUVariant(6, 3, variant="joint"),
    layernorm.BatchNormLSTM(6, 3).eval(),
]


@pytest.fixture(scope="module")
def symbolic_trace():
    [code] = re.findall(
        r"^```python\n((?:(?!```).)*class Tracer.*?)^```", PAGE.read_text(), re.M | re.S
    )
    names = {}
    exec(code, names)
    return names["symbolic_trace"]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: type(module).__name__)
def test_a_module_is_one_node_of_the_graph(symbolic_trace, module):
    model = nn.Sequential(nn.Linear(6, 6), module)
    traced = symbolic_trace(model)
    nodes = [node.op for node in traced.graph.nodes]
    assert nodes == ["placeholder", "call_module", "call_module", "output"]
    x = torch.randn(6, 6, 6)
    for got, expected in zip(listed(traced(x)), listed(model(x)), strict=True):
        assert torch.equal(got, expected)


def listed(outputs):
    """Tensors one after another."""
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    return [tensor for each in outputs for tensor in listed(each)]
