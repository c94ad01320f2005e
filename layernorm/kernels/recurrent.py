"""The layer-normalized LSTM and GRU over whole sequences, fast on GPUs.

The same functions and questions as in `layernorm.recurrent.fused`, which is the path for CPUs.
"""

import torch
from torch import Tensor


def unsupported(
    kind: str, device_type: str, dtype: torch.dtype, variant: str, projection: bool
) -> str | None:
    """What the fused path does not do anywhere."""
    return f"it runs on CPUs, and the tensors are on {device_type}"


def missing() -> str | None:
    """Why the kernels could not be had; None if they are there."""
    return None


def faster(kind: str, x: Tensor, units: int) -> bool:
    """Whether it is faster than the definition for rows x."""
    return False
