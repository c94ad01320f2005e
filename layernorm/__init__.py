"""Layer normalization (Ba, Kiros, Hinton 2016): definitions, modules, experiments, benchmarks."""

from layernorm import functional
from layernorm.modules import (
    BatchNorm,
    DynamicErf,
    DynamicTanh,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    RMSNorm,
    WeightNormLinear,
)
from layernorm.recurrent import (
    BatchNormLSTM,
    LayerNormGRU,
    LayerNormGRUCell,
    LayerNormGRUVariant,
    LayerNormGRUVariantCell,
    LayerNormLSTM,
    LayerNormLSTMCell,
    LayerNormRNN,
    LayerNormRNNCell,
)

__all__ = [
    "BatchNorm",
    "BatchNormLSTM",
    "DynamicErf",
    "DynamicTanh",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "LayerNormGRU",
    "LayerNormGRUCell",
    "LayerNormGRUVariant",
    "LayerNormGRUVariantCell",
    "LayerNormLSTM",
    "LayerNormLSTMCell",
    "LayerNormRNN",
    "LayerNormRNNCell",
    "RMSNorm",
    "WeightNormLinear",
    "functional",
]
