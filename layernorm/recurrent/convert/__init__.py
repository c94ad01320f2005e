"""Weights from elsewhere: PyTorch, haste, TensorFlow Addons, DreamerV3, pydreamer, and the code of
the paper's authors. (Flax publishes no normalized recurrent cell.)

Each function builds the layer with the source's sizes, type of numbers and device, and copies.
"""

from layernorm.recurrent.convert.dreamer import from_dreamer, from_pydreamer
from layernorm.recurrent.convert.haste import from_haste
from layernorm.recurrent.convert.keras import from_keras
from layernorm.recurrent.convert.theano import from_theano
from layernorm.recurrent.convert.torch_layers import from_torch, from_torchscript

__all__ = [
    "from_dreamer",
    "from_haste",
    "from_keras",
    "from_pydreamer",
    "from_theano",
    "from_torch",
    "from_torchscript",
]
