"""Recurrent nets with normalization inside: definitions over sequences, cells, and layers."""

from layernorm.recurrent.batch_norm import BatchNormLSTM
from layernorm.recurrent.cells import LayerNormGRUCell, LayerNormLSTMCell, LayerNormRNNCell
from layernorm.recurrent.gru_variants import LayerNormGRUVariant, LayerNormGRUVariantCell
from layernorm.recurrent.layers import LayerNormGRU, LayerNormLSTM, LayerNormRNN
from layernorm.recurrent.resets import with_resets
from layernorm.recurrent.zoneout import ZoneoutGRU, ZoneoutGRUVariant, ZoneoutLSTM

__all__ = [
    "BatchNormLSTM",
    "LayerNormGRU",
    "LayerNormGRUCell",
    "LayerNormGRUVariant",
    "LayerNormGRUVariantCell",
    "LayerNormLSTM",
    "LayerNormLSTMCell",
    "LayerNormRNN",
    "LayerNormRNNCell",
    "ZoneoutGRU",
    "ZoneoutGRUVariant",
    "ZoneoutLSTM",
    "with_resets",
]
