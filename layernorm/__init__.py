"""Layer normalization (Ba, Kiros, Hinton 2016): definitions, modules, experiments, benchmarks."""

from layernorm import functional
from layernorm.modules import (
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    RMSNorm,
    WeightNormLinear,
)

__all__ = [
    "BatchNorm",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "RMSNorm",
    "WeightNormLinear",
    "functional",
]
