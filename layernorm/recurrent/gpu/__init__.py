"""The layer-normalized LSTM and GRU over whole sequences, fast on GPUs.

The same functions and questions as in `layernorm.recurrent.cpu`, which is the path for CPUs. One
matrix product takes the inputs of all steps; then each step is a product with the state and one
Triton kernel, which does the norms, the gates, the cell and its norm on chip. The backward pass
likewise; the gradients of weights, gains and biases are sums over all steps at once, in an order
that does not change. Calls that come again are replayed from a CUDA graph (`graphs`).

Products are taken in the inputs' type (under autocast in its type), statistics, gates, the cell and
the GRU's state in float32, float64 for float64.

This file imports without Triton; the kernels are imported at first use.
"""

import os
from importlib.util import find_spec

import torch
from torch import Tensor

from layernorm.kernels import speeds
from layernorm.recurrent import fused
from layernorm.recurrent.fused import constant_in_graphs
from layernorm.recurrent.variants import named_variant


@constant_in_graphs
def unsupported(
    kind: str, device_type: str, dtype: torch.dtype, projection: bool = False
) -> str | None:
    """Return why the fused path computes this on no machine, or None if there is no such reason."""
    if device_type != "cuda" and not (device_type == "cpu" and _interpreted()):
        return f"its Triton kernels run on CUDA devices, and the tensors are on {device_type}"
    return fused.unsupported(kind, dtype, projection)


@constant_in_graphs
def missing() -> str | None:
    """Return why the kernels are missing, or None if they are there."""
    if find_spec("triton") is None:
        return (
            "the package triton is not installed; install it with pip install 'layernorm[gpu]' "
            "(Linux only)"
        )
    from layernorm.recurrent.gpu import operators  # noqa: F401  before any capture

    return None


def faster(kind: str, x: Tensor, units: int) -> bool:
    """Tell whether it is known to be as fast as the definition for rows x, on this GPU.

    A graph that is captured may meet any number of rows: there all that were measured must be.
    """
    rows = None if torch.compiler.is_compiling() else x.shape[0]
    return x.is_cuda and _faster(kind, str(x.device), x.dtype, torch.is_grad_enabled(), rows, units)


@constant_in_graphs
def _faster(kind: str, device: str, *case) -> bool:
    return speeds.faster(kind, torch.device(device), *case)


def _interpreted() -> bool:
    """Tell whether Triton runs in its interpreter, which takes tensors on a CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def lstm(
    x: Tensor,
    batch_sizes: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    weights,
    eps: float = 1e-5,
    variant: str = "paper",
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """`layernorm.recurrent.definition.lstm` without projections: same arguments, same results.

    Raises: ValueError where shapes, devices or batch sizes do not fit, for more units than one
    program holds, and for an unknown variant.
    """
    named_variant(variant)
    return _computed(x, h0, c0, weights, weights.ln_c, batch_sizes, eps, variant, reverse)


def gru(
    x: Tensor,
    batch_sizes: Tensor | None,
    h0: Tensor,
    weights,
    eps: float = 1e-5,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """`layernorm.recurrent.definition.gru`: same arguments, same results.

    Raises: as `lstm`.
    """
    nothing = (None, None)
    return _computed(x, h0, None, weights, nothing, batch_sizes, eps, "gru", reverse)[:2]


def _computed(x, h0, c0, weights, ln_c, batch_sizes, eps, form: str, reverse: bool):
    """Products in x's type, or in autocast's; the results are in the states', as in
    `layernorm.recurrent.cpu`."""
    from layernorm.recurrent.gpu import operators
    from layernorm.recurrent.gpu.compute import Inputs

    product = kind = h0.dtype
    if kind != torch.float64 and torch.is_autocast_enabled(x.device.type):
        product = torch.get_autocast_dtype(x.device.type)
    nothing = (None, None)
    x, h0, c0 = (t if t is None else t.resolve_neg() for t in (x, h0, c0))
    inputs = Inputs(
        x.to(product), h0, c0, weights.w_ih, weights.w_hh, weights.b,
        *(weights.ln_ih or nothing), *(weights.ln_hh or nothing), *ln_c,
    )  # fmt: skip
    fused.one_type(kind, inputs[1:])
    inputs = inputs._replace(w_ih=inputs.w_ih.to(product), w_hh=inputs.w_hh.to(product))
    y, h_n, c_n = operators.apply(inputs, batch_sizes, eps, form, reverse, kind)
    return y, h_n.to(kind), c_n.to(kind)
