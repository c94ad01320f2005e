"""The recurrent kernels against the definition, in Triton's interpreter or on a GPU."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from kernels.kernel_cases import DEVICE
from library.oracle import assert_rounded
from recurrent.recurrent_fused import draw, leaves, weights
from torch import Tensor

from layernorm.kernels import launch
from layernorm.recurrent import definition, gpu
from layernorm.recurrent.variants import FORMS

NETS = [(form if form == "gru" else "lstm", form) for form in FORMS]
F64, F32, BF16, F16 = torch.float64, torch.float32, torch.bfloat16, torch.float16


def interpret_faster() -> None:
    """Every call of one kernel function by another puts the interpreter's functions in place of
    Triton's anew, which the launch has done; it takes most of the time."""
    from triton.runtime.interpreter import InterpretedFunction

    slowly = InterpretedFunction.__call__

    def call(self, *args, **kwargs):
        of_launch = "tl" in self.fn.__globals__  # as the kernels call it, not Triton's own library
        return self.rewrite()(*args, **kwargs) if of_launch else slowly(self, *args, **kwargs)

    InterpretedFunction.__call__ = call


if launch.INTERPRETED:
    interpret_faster()


class Case(NamedTuple):
    """A net and sequences: rows of each step, which need not be equal."""

    kind: str
    form: str
    sizes: tuple[int, ...] = (3, 2, 2, 1)
    units: int = 7
    inputs: int = 4
    reverse: bool = False
    bias: bool = True
    eps: float = 1e-5


def converted(value, dtype: torch.dtype, device: str = DEVICE):
    """Tensors, in tuples of all kinds, as leaves on a device."""
    if isinstance(value, Tensor):
        return value.detach().to(device, dtype).requires_grad_()
    if value is None:
        return None
    parts = [converted(part, dtype, device) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


def tensors(case: Case, dtype: torch.dtype = F64) -> tuple[Tensor, list[Tensor], NamedTuple]:
    """x, the initial states, and the weights."""
    w = weights(case.kind, case.inputs, case.units, case.form, case.bias)
    states = [draw(case.sizes[0], case.units, seed=21 + k) for k in range(2)]
    x = draw(sum(case.sizes), case.inputs, seed=20)
    return converted((x, states[: 1 if case.kind == "gru" else 2], w), dtype)


def run(module, case: Case, x: Tensor, states: list[Tensor], w) -> list[Tensor]:
    """Outputs and last states."""
    uniform = len(set(case.sizes)) == 1
    form = () if case.kind == "gru" else (case.form,)
    function = getattr(module, case.kind)
    sizes = None if uniform else torch.tensor(case.sizes)
    return list(function(x, sizes, *states, w, case.eps, *form, case.reverse))


def results(module, case: Case, x: Tensor, states: list[Tensor], w) -> list[Tensor]:
    """Outputs, last states, and the gradients of everything there is."""
    values = run(module, case, x, states, w)
    slopes = [draw(*v.shape, seed=30 + k).detach().to(v) for k, v in enumerate(values)]
    return [
        *(v.detach() for v in values),
        *torch.autograd.grad(values, [x, *states, *leaves(w)], slopes),
    ]


def differences(got: Iterable[Tensor], expected: Iterable[Tensor]) -> list[float]:
    """The largest of each, relative to the size of what it is a difference of."""
    return [
        float((g.double() - e.double()).abs().max() / max(1.0, float(e.double().abs().max())))
        for g, e in zip(got, expected, strict=True)
    ]


def agrees(case: Case, tolerance: float = 1e-11) -> None:
    """In float64."""
    at = tensors(case)
    expected = results(definition, case, *at)
    found = differences(results(gpu, case, *at), expected)
    assert max(found) < tolerance, found  # not true of NaN either
    assert all(e.isfinite().all() for e in expected)


def as_exact(case: Case, dtype: torch.dtype) -> None:
    """As close as rounding allows: products in this type, everything else at least in float32."""
    low = tensors(case, dtype)
    exact = converted(low, F64)  # the very same numbers
    got = results(gpu, case, *low)
    assert [g.dtype for g in got] == [dtype] * len(got)
    assert_rounded(got, lambda: results(definition, case, *exact), F32, dtype)
