"""The choice of the implementation that computes a normalization.

Backends: "reference" is the definition in `layernorm.functional`, "torch" PyTorch's own kernel,
"triton" this package's on a CUDA device (layer and RMS normalization). "auto" is Triton's where
`speeds.json` says that it is at least as fast as PyTorch's own, otherwise PyTorch's own wherever
it has the operation (it has no masked batch normalization).
"""

import math
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor

from layernorm import _validation, functional
from layernorm.kernels import speeds

BACKENDS = ("auto", "reference", "torch", "triton")

_TORCH = {
    "layer_norm": F.layer_norm,
    "rms_norm": F.rms_norm,
    "group_norm": torch.group_norm,  # F.group_norm refuses one value per group, but only at N = 1
    "instance_norm": F.instance_norm,
    "batch_norm": F.batch_norm,
}
_TRITON = ("layer_norm", "rms_norm")


def check_backend(backend: str) -> None:
    """Raise ValueError unless `backend` is one that can be chosen."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if backend == "triton" and find_spec("triton") is None:
        raise ValueError(
            'backend "triton" needs the package triton, which is not installed; install it with '
            "pip install 'layernorm[gpu]' (Linux only), or use backend=\"auto\""
        )


def run(operation: str, backend: str, x: Tensor, *args, mask: Tensor | None = None) -> Tensor:
    """Apply an operation of `layernorm.functional`, all its arguments given in their order."""
    masked = {} if mask is None else {"mask": mask}
    if backend == "reference" or (masked and backend == "auto"):
        return getattr(functional, operation)(x, *args, **masked)
    if backend == "triton" and operation not in _TRITON:
        raise ValueError(
            f'backend "triton" has no {operation}, only {" and ".join(_TRITON)}; use "auto"'
        )
    if masked:
        raise ValueError(
            'backend "torch" has no masked batch normalization; use "auto" or "reference", '
            "or pass no mask"
        )
    if backend == "triton" or (backend == "auto" and _faster(operation, x, *args)):
        return _kernel(operation)(x, *args)
    getattr(_validation, operation)(x, *args)
    return _TORCH[operation](x, *args)


def _kernel(operation: str):
    """Imported at first use: Triton takes a second, and not every machine has it."""
    if operation == "layer_norm":
        from layernorm.kernels.layer_norm import layer_norm as kernel
    else:
        from layernorm.kernels.rms_norm import rms_norm as kernel
    return kernel


def _faster(operation: str, x: Tensor, normalized_shape, *args) -> bool:
    """Tell whether Triton's is known to be faster; a compiler can fuse PyTorch's own instead."""
    on_gpu = isinstance(x, Tensor) and x.is_cuda
    if operation not in _TRITON or not on_gpu or torch.compiler.is_compiling() or not x.numel():
        return False
    tensors = (x, *(t for t in args if isinstance(t, Tensor)))
    gradient = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    width = math.prod(x.shape[x.dim() - len(normalized_shape) :])
    return speeds.faster(operation, x.device, x.dtype, gradient, x.numel() // width, width)
