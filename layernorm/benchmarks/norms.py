"""What each normalization costs: the definitions against torch's own.

from layernorm.benchmarks import norms
norms.quick()                                                 # a table, in a few seconds
norms.rows(["layer", "rms"], (8, 256, 64), modes=["forward"])  # the same as data
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from layernorm import functional
from layernorm.benchmarks.harness import Benchmark, Function, Shape, measure
from layernorm.benchmarks.report import Row, table

if TYPE_CHECKING:
    import pandas


def _per_unit(shape: Shape) -> Shape:
    return shape[1:2]


def _per_summed_input(shape: Shape) -> Shape:
    return shape[1:]


def _terms(shape: Shape) -> int:
    """The longest sum: a mean over units, or a gain's gradient over cases, with the positions."""
    return max(shape[0], shape[1]) * shape[2]


def _norm(
    method: str,
    definition: Function,
    torchs_own: Function,
    gain: Callable[[Shape], Shape] = _per_unit,
    parameters: tuple[str, ...] = ("weight", "bias"),
) -> Benchmark:
    """A normalization of summed inputs x of shape (cases, units, positions)."""

    def make_inputs(shape: Shape, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
        def draw(*size: int) -> Tensor:
            return torch.randn(size, dtype=dtype, device=device)

        given = {"weight": 1 + 0.1 * draw(*gain(shape)), "bias": 0.1 * draw(*gain(shape))}
        return {"x": 0.5 + 2 * draw(*shape)} | {name: given[name] for name in parameters}

    return Benchmark(
        name=method,
        method=method,
        make_inputs=make_inputs,
        implementations={"definition": definition, "torch": torchs_own},
        oracle=definition,
        length=_terms,
        gradients=("x", *parameters),
        saved=("x", "weight"),
    )


def _weight_inputs(shape: Shape, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    """As many weights as the others have summed inputs, and one length per unit."""
    cases, units, positions = shape
    v = torch.randn(units, cases * positions, dtype=dtype, device=device)
    return {"v": v, "g": 1 + torch.rand(units, 1, dtype=dtype, device=device)}


def _groups(x: Tensor) -> int:
    return math.gcd(4, x.shape[1])


_NORMS = [
    _norm(  # gain and bias alone: what the others take more is what normalization takes
        "none",
        lambda x, weight, bias: x * weight[:, None] + bias[:, None],
        lambda x, weight, bias: torch.addcmul(bias[:, None], x, weight[:, None]),
    ),
    _norm(
        "batch",
        lambda x, weight, bias: functional.batch_norm(x, None, None, weight, bias, training=True),
        lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, training=True),
    ),
    Benchmark(
        name="weight",
        method="weight",
        make_inputs=_weight_inputs,
        implementations={"definition": functional.weight_norm, "torch": torch._weight_norm},
        oracle=functional.weight_norm,
        length=_terms,
        gradients=("v", "g"),
    ),
    _norm(
        "layer",
        lambda x, weight, bias: functional.layer_norm(x, x.shape[1:], weight, bias),
        lambda x, weight, bias: F.layer_norm(x, x.shape[1:], weight, bias),
        _per_summed_input,
    ),
    _norm(
        "rms",
        lambda x, weight: functional.rms_norm(x, x.shape[1:], weight),
        lambda x, weight: F.rms_norm(x, x.shape[1:], weight),
        _per_summed_input,
        ("weight",),
    ),
    _norm(
        "group",
        lambda x, weight, bias: functional.group_norm(x, _groups(x), weight, bias),
        lambda x, weight, bias: F.group_norm(x, _groups(x), weight, bias),
    ),
    _norm(
        "instance",
        lambda x, weight, bias: functional.instance_norm(x, weight=weight, bias=bias),
        lambda x, weight, bias: F.instance_norm(x, weight=weight, bias=bias),
    ),
]
BENCHMARKS: dict[str, Benchmark] = {benchmark.name: benchmark for benchmark in _NORMS}


def rows(
    methods: Iterable[str] = tuple(BENCHMARKS),
    shape: Shape = (32, 32, 256),
    *,
    modes: Iterable[str] = ("forward", "forward+backward"),
    baseline: str = "torch",
    **options: Any,
) -> list[Row]:
    """Measure methods on summed inputs of shape (cases, units, positions).

    Batch normalization averages over cases and positions, layer and RMS normalization over units
    and positions, group normalization over four groups of units and the positions, instance
    normalization over positions. Weight normalization acts on as many weights instead. None is
    gain and bias alone. Times are given relative to torch's own (`ratio`).

    Args:
        methods: names in the table of methods.
        options: further arguments of `layernorm.benchmarks.harness.measure`.

    Raises:
        ValueError: an unknown method, or as `measure` does.
    """
    methods = list(methods)
    for name in methods:
        if name not in BENCHMARKS:
            raise ValueError(f"methods: expected some of {', '.join(BENCHMARKS)}, got {name!r}")
    return [
        row
        for name in methods
        for mode in modes
        for row in measure(BENCHMARKS[name], shape, mode=mode, baseline=baseline, **options)
    ]


def quick(**arguments: Any) -> pandas.DataFrame:
    """The table of `rows`, with few and short samples unless told otherwise: some seconds."""
    return table(rows(**{"rounds": 11, "sample_seconds": 5e-4} | arguments))
