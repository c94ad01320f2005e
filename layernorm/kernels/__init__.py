"""The one place that chooses who computes a normalization.

Backends: "reference" is the definition in `layernorm.functional`, "torch" PyTorch's own kernel,
"auto" PyTorch's own wherever it has the operation (it has no masked batch normalization).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from layernorm import _validation, functional

BACKENDS = ("auto", "reference", "torch")

_TORCH = {
    "layer_norm": F.layer_norm,
    "rms_norm": F.rms_norm,
    "group_norm": torch.group_norm,  # F.group_norm refuses one value per group, but only at N = 1
    "instance_norm": F.instance_norm,
    "batch_norm": F.batch_norm,
}


def check_backend(backend: str) -> None:
    """Raise ValueError unless `backend` is one that can be chosen."""
    if backend == "triton":
        raise ValueError(
            'backend "triton" does not exist yet: this version has no Triton kernels; use "auto"'
        )
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")


def run(operation: str, backend: str, x: Tensor, *args, mask: Tensor | None = None) -> Tensor:
    """Apply an operation of `layernorm.functional`, all its arguments given in their order."""
    masked = {} if mask is None else {"mask": mask}
    if backend == "reference" or (masked and backend == "auto"):
        return getattr(functional, operation)(x, *args, **masked)
    if masked:
        raise ValueError(
            'backend "torch" has no masked batch normalization; use "auto" or "reference", '
            "or pass no mask"
        )
    getattr(_validation, operation)(x, *args)
    return _TORCH[operation](x, *args)
