"""Layer-normalized recurrent nets: the definition over sequences, cells, layers like torch's."""

from layernorm.recurrent.cells import LayerNormGRUCell, LayerNormLSTMCell, LayerNormRNNCell
from layernorm.recurrent.layers import LayerNormGRU, LayerNormLSTM, LayerNormRNN

__all__ = [
    "LayerNormGRU",
    "LayerNormGRUCell",
    "LayerNormLSTM",
    "LayerNormLSTMCell",
    "LayerNormRNN",
    "LayerNormRNNCell",
]
