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

__version__: str


def __getattr__(name: str) -> str:
    """Look up `__version__`, the installed distribution's, when it is asked for."""
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version(__name__)
        except PackageNotFoundError as error:
            raise AttributeError(f"{error}: only an installed package has a version") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
