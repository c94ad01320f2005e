"""The kernels against the definition in float64, in Triton's interpreter or on a GPU."""

import numpy as np
import pytest
import torch
from library.oracle import OVERFLOWING, SCALES, assert_no_zeros, assert_rounded, draw, hard_rows
from torch import Tensor

from layernorm import functional
from layernorm.kernels import launch, layer_norm, rms_norm

DEVICE = "cpu" if launch.INTERPRETED else "cuda"
ON_GPU = [pytest.mark.gpu] if DEVICE == "cuda" else []  # so that -m gpu selects the same tests
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
KERNELS = {
    "layer_norm": (layer_norm.layer_norm, layer_norm.add_layer_norm, functional.layer_norm),
    "rms_norm": (rms_norm.rms_norm, rms_norm.add_rms_norm, functional.rms_norm),
}


def round_like_a_gpu() -> None:
    """The interpreter cuts float32 off to bfloat16; GPUs round to the nearest."""
    from triton.runtime import interpreter

    cut = interpreter._convert_float

    def convert(data, source, target, rounding):
        if (source.name, target.name) != ("fp32", "bf16"):
            return cut(data, source, target, rounding)
        rounded = torch.from_numpy(np.array(data, dtype=np.float32)).bfloat16()
        return rounded.view(torch.int16).numpy().view(np.uint16)

    interpreter._convert_float = convert


def multiply_like_a_gpu() -> None:
    """The interpreter keeps bfloat16 as integers of its bits, and would multiply these."""
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    product = builder.create_dot

    def numbers(factor):
        if factor.dtype.scalar.name != "bf16":
            return factor
        bits = torch.from_numpy(np.array(factor.data).view(np.int16))
        return interpreter.TensorHandle(
            bits.view(torch.bfloat16).float().numpy(), interpreter.tl.float32
        )

    def create_dot(self, a, b, *rest):
        return product(self, numbers(a), numbers(b), *rest)

    builder.create_dot = create_dot


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
    round_like_a_gpu()
    multiply_like_a_gpu()
    interpret_faster()


def short_blocks(patch: pytest.MonkeyPatch) -> None:
    """Rows of more than 16 elements pass in blocks of 32, as those of more than 16384 do."""
    patch.setattr(launch, "TILE", {"forward": 32, "backward": 32})
    patch.setattr(launch, "LONGEST", {"forward": 16, "backward": 16})


def arguments(name: str, shape: tuple, dims: int = 1, **numbers) -> tuple[Tensor, list[Tensor]]:
    """x and the parameters, in float64; never gain 1 or bias 0."""
    parameters = [draw(*shape[-dims:], seed=s) for s in ((1, 2) if name == "layer_norm" else (1,))]
    return draw(*shape, **numbers), parameters


def agrees(
    name: str,
    x: Tensor,
    parameters: list[Tensor | None],
    dtype: torch.dtype,
    *,
    dims: int = 1,
    eps: float = 1e-5,
    residual: Tensor | None = None,
    parameter_dtype: torch.dtype | None = None,
) -> None:
    """Outputs and all gradients agree with the definition's in float64, on the rounded inputs.

    Allowed is the rounding of the result, and what float32 may lose before it.
    """
    kernel, added, definition = KERNELS[name]

    def leaf(t: Tensor | None, kind: torch.dtype) -> Tensor | None:
        return None if t is None else t.to(DEVICE, kind).requires_grad_()

    def restrided(t: Tensor | None) -> Tensor | None:
        """On the device, with the strides that `t` has."""
        if t is None or t.is_contiguous():
            return leaf(t, dtype)
        storage = torch.zeros(
            1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
        )
        view = storage.to(DEVICE, dtype).as_strided(t.shape, t.stride())
        return (
            view.copy_(t).requires_grad_()
            if 0 not in t.stride()
            else leaf(
                t[tuple(slice(0, 1) if s == 0 else slice(None) for s in t.stride())], dtype
            ).expand(t.shape)
        )

    a, b = restrided(x), restrided(residual)
    p = [leaf(t, parameter_dtype or dtype) for t in parameters]
    shape = x.shape[x.dim() - dims :]
    y, total = (kernel(a, shape, *p, eps), a) if b is None else added(a, b, shape, *p, eps)
    assert (y.dtype, y.is_contiguous()) == (dtype, True)
    if b is not None:
        assert torch.equal(total, a + b)
    there = [t for t in (a, b, *p) if t is not None]
    dy, dtotal = (draw(*x.shape, seed=s).to(DEVICE, dtype) for s in (5, 6))
    dtotal = torch.nn.functional.pad(dtotal, (0, 1))[..., :-1]  # with other strides than dy
    outputs, incoming = ([y], [dy]) if b is None else ([y, total], [dy, dtotal])
    got = torch.autograd.grad(outputs, there, incoming)

    s = total.detach().cpu().double().requires_grad_()
    q = [None if t is None else t.detach().cpu().double().requires_grad_() for t in p]
    wanted = [s, *(t for t in q if t is not None)]

    def defined() -> list[Tensor]:
        expected = definition(s, shape, *q, eps)
        gradients = list(torch.autograd.grad(expected, wanted, dy.cpu().double()))
        if b is not None:
            gradients[0] = gradients[0] + dtotal.cpu().double()
            gradients.insert(0, gradients[0])
        return [expected, *gradients]

    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert_rounded([t.cpu() for t in (y, *got)], defined, wide)


def case(name: str, shape: tuple, dtype: torch.dtype, dims: int = 1, mean=0.5, std=2.0, **options):
    """One comparison, with all parameters."""
    x, parameters = arguments(name, shape, dims, mean=mean, std=std)
    agrees(name, x, parameters, dtype, dims=dims, **options)


def hard(name: str) -> None:
    """Rows that vary little beside their mean."""
    agrees(name, hard_rows(71), arguments(name, (4, 71))[1], torch.float32)


def overflow(name: str) -> None:
    kernel, _, definition = KERNELS[name]
    for dtype, scale in SCALES:
        x = (OVERFLOWING.repeat(1, 10) * scale).to(dtype)
        expected = definition(x.double() / scale, (40,), eps=0.0)
        assert_no_zeros(kernel(x.to(DEVICE), (40,)).cpu(), expected)


def with_rows(source: str, folder, name: str = "mutant"):
    """`layernorm.kernels.rows` with another source (Triton reads it from a file)."""
    import importlib.util

    file = folder / f"{name}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
