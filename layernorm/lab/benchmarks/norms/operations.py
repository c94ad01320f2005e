"""The normalizations as operations to measure: inputs, definition, torch's own, byte model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layernorm import functional
from layernorm.lab.benchmarks.measure import byte_model, gate
from layernorm.lab.benchmarks.measure.case import Shape
from layernorm.methods import METHODS, Method

Function = Callable[..., Tensor | tuple[Tensor, ...]]


@dataclass(frozen=True)
class Operation:
    """One thing to measure.

    Args:
        name: lower-case letters, digits and underscores.
        make_inputs: (shape, dtype, device) -> {name: tensor}, drawn from torch's seeded generator.
        implementations: {name: function of these inputs by name, returning a tensor or a tuple}.
        oracle: the definition; it is called with the inputs in float64.
        length: shape -> how many terms the longest sum has, which scales the tolerance.
        gradients: inputs whose gradients are taken and checked in the backward modes.
        saved: inputs that the backward pass must read (byte model); None: all.
        method: name in the table of methods, for records.
        tolerance: (dtype, length) -> relative error that passes the gate.
    """

    name: str
    make_inputs: Callable[[Shape, torch.dtype, torch.device], dict[str, Tensor]]
    implementations: Mapping[str, Function]
    oracle: Function
    length: Callable[[Shape], int]
    gradients: tuple[str, ...] = ()
    saved: tuple[str, ...] | None = None
    method: str = "none"
    tolerance: gate.Tolerance = gate.tolerance


def at(name: str, count: int, width: int) -> Shape:
    """The shape of an operation's input with so many rows of so many elements.

    A row is a case with its units: (count, width). Weight normalization has as many weights,
    those of `width` units. For instance normalization a row is the positions of one unit of a
    case: (cases, units, width), at most 32 units.

    Raises:
        ValueError: batch normalization of one case, which is not defined.
    """
    if name == "batch" and count == 1:
        raise ValueError("batch normalization of a single case is not defined")
    if name == "weight":
        return width, count
    if name == "instance":
        units = math.gcd(count, 32)
        return count // units, units, width
    return count, width


def _per_unit(shape: Shape) -> Shape:
    return shape[1:2]


def _per_summed_input(shape: Shape) -> Shape:
    return shape[1:]


def _terms(shape: Shape) -> int:
    """The longest sum: a mean over units, or a gain's gradient over cases, with the positions."""
    return max(shape[0], shape[1]) * math.prod(shape[2:])


def _beside(x: Tensor, parameter: Tensor) -> Tensor:
    """One value per unit, as it meets x."""
    return parameter.view(-1, *[1] * (x.dim() - 2))


def _norm(
    method: str,
    definition: Function,
    torchs_own: Function,
    gain: Callable[[Shape], Shape] = _per_unit,
    parameters: tuple[str, ...] = ("weight", "bias"),
) -> Operation:
    """A normalization of summed inputs x of shape (cases, units) or (cases, units, positions)."""

    def make_inputs(shape: Shape, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
        def draw(*size: int) -> Tensor:
            return torch.randn(size, dtype=dtype, device=device)

        given = {"weight": 1 + 0.1 * draw(*gain(shape)), "bias": 0.1 * draw(*gain(shape))}
        return {"x": 0.5 + 2 * draw(*shape)} | {name: given[name] for name in parameters}

    return Operation(
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
    cases, units, *positions = shape
    v = torch.randn(units, cases * math.prod(positions), dtype=dtype, device=device)
    return {"v": v, "g": 1 + torch.rand(units, 1, dtype=dtype, device=device)}


def groups(x: Tensor) -> int:
    """The number of groups of neighboring units, for group normalization."""
    return math.gcd(4, x.shape[1])


def _added(norm: Function) -> Function:
    def implementation(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor):
        total = x + residual
        return norm(total, x.shape[1:], weight, bias), total

    return implementation


def _dynamic(method: str, definition: Function, torchs_own: Function, *numbers: str) -> Operation:
    """A curve in a norm's place, whose numbers alpha and shift learn like gain and bias."""
    norm = _norm(method, definition, torchs_own, _per_summed_input)

    def make_inputs(shape: Shape, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
        starts = {"alpha": 0.5, "shift": 0.1}
        given = {n: torch.tensor(starts[n], dtype=dtype, device=device) for n in numbers}
        return norm.make_inputs(shape, dtype, device) | given

    return replace(
        norm,
        make_inputs=make_inputs,
        gradients=("x", *numbers, "weight", "bias"),
        saved=("x", *numbers, "weight"),
    )


def _residual() -> Operation:
    """The norm of x + residual, and that sum, which the next layers add to.

    Byte model: backward reads the sum, its gradient, that of y, and writes one gradient for both
    terms. Counted are the gradients of both and not the sum, which is as many bytes.
    """
    norm = _norm("layer", functional.layer_norm, F.layer_norm, _per_summed_input)

    def make_inputs(shape: Shape, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
        inputs = norm.make_inputs(shape, dtype, device)
        return {"residual": torch.randn(shape, dtype=dtype, device=device), **inputs}

    return replace(
        norm,
        name="residual",
        make_inputs=make_inputs,
        implementations={
            "definition": _added(functional.layer_norm),
            "torch": _added(F.layer_norm),
        },
        oracle=_added(functional.layer_norm),
        gradients=("x", "residual", "weight", "bias"),
        saved=("weight",),
    )


OPERATIONS: dict[str, Operation] = {
    "none": _norm(  # gain and bias alone: what the others take more is what normalization takes
        "none",
        lambda x, weight, bias: x * _beside(x, weight) + _beside(x, bias),
        lambda x, weight, bias: torch.addcmul(_beside(x, bias), x, _beside(x, weight)),
    ),
    "batch": _norm(
        "batch",
        lambda x, weight, bias: functional.batch_norm(x, None, None, weight, bias, training=True),
        lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, training=True),
    ),
    "weight": Operation(
        name="weight",
        method="weight",
        make_inputs=_weight_inputs,
        implementations={"definition": functional.weight_norm, "torch": torch._weight_norm},
        oracle=functional.weight_norm,
        length=_terms,
        gradients=("v", "g"),
    ),
    "layer": _norm(
        "layer",
        lambda x, weight, bias: functional.layer_norm(x, x.shape[1:], weight, bias),
        lambda x, weight, bias: F.layer_norm(x, x.shape[1:], weight, bias),
        _per_summed_input,
    ),
    "rms": _norm(
        "rms",
        lambda x, weight: functional.rms_norm(x, x.shape[1:], weight),
        lambda x, weight: F.rms_norm(x, x.shape[1:], weight),
        _per_summed_input,
        ("weight",),
    ),
    "group": _norm(
        "group",
        lambda x, weight, bias: functional.group_norm(x, groups(x), weight, bias),
        lambda x, weight, bias: F.group_norm(x, groups(x), weight, bias),
    ),
    "instance": _norm(
        "instance",
        lambda x, weight, bias: functional.instance_norm(x, weight=weight, bias=bias),
        lambda x, weight, bias: F.instance_norm(x, weight=weight, bias=bias),
    ),
    "dyt": _dynamic(
        "dyt",
        functional.dynamic_tanh,
        lambda x, alpha, weight, bias: torch.addcmul(bias, torch.tanh(alpha * x), weight),
        "alpha",
    ),
    "derf": _dynamic(
        "derf",
        functional.dynamic_erf,
        lambda x, alpha, shift, weight, bias: torch.addcmul(
            bias, torch.erf(alpha * x + shift), weight
        ),
        *("alpha", "shift"),
    ),
    "residual": _residual(),
}


# The least that a norm's forward pass can do: read as much, and write as much.
COPY = Operation(
    name="copy",
    method="none",
    make_inputs=lambda shape, dtype, device: {"x": torch.randn(shape, dtype=dtype, device=device)},
    implementations={"torch": lambda x: x.clone()},
    oracle=lambda x: x.clone(),
    length=lambda shape: 1,
)


def least_bytes(name: str, shape: Shape, mode: str) -> int:
    """The bytes that an operation in float32 whose output is like x must move at least
    (`byte_model`)."""
    one = OPERATIONS[name]
    inputs = one.make_inputs(shape, torch.float32, torch.device("meta"))
    saved, gradients = ([inputs[key] for key in keys] for keys in (one.saved, one.gradients))
    return byte_model.traffic(mode, inputs.values(), [inputs["x"]], saved, gradients)


def every() -> dict[str, Operation]:
    """The operations of all methods, made of the module where there is none above; and others."""
    made = {m.name: _of_module(m) for m in METHODS.values() if m.norm and m.name not in OPERATIONS}
    return {name: (made | OPERATIONS)[name] for name in (*METHODS, *OPERATIONS)}


def _of_module(method: Method) -> Operation:
    """A method's module on summed inputs of a fully connected layer; positions are units, too."""

    @cache
    def module(units: int, dtype: torch.dtype, device: torch.device) -> nn.Module:
        made = method.norm(units).to(device, dtype)
        made.backend = "reference"
        return made

    def definition(x: Tensor, **parameters: Tensor) -> Tensor:
        flat = x.flatten(1)
        norm = module(flat.shape[1], x.dtype, x.device)
        return torch.func.functional_call(norm, parameters, (flat,)).view_as(x)

    def make_inputs(shape: Shape, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
        start = module(math.prod(shape[1:]), dtype, device).named_parameters()
        drawn = {name: p.detach() + 0.1 * torch.randn_like(p) for name, p in start}
        return {"x": 0.5 + 2 * torch.randn(shape, dtype=dtype, device=device), **drawn}

    return Operation(
        name=method.name,
        method=method.name,
        make_inputs=make_inputs,
        implementations={"definition": definition},
        oracle=definition,
        length=_terms,
        gradients=("x", *(name for name, _ in method.norm(1).named_parameters())),
    )
