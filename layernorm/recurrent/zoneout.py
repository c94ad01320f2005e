"""Zoneout: recurrent layers in which units keep their old state at random.

With s' the new state of `LayerNormLSTM`, `LayerNormGRU` or `LayerNormGRUVariant` and z a
probability, the state after step t is, unit by unit,

    training      s_t = k s_{t-1} + (1 - k) s'_t,   k ~ Bernoulli(z)
    evaluation    s_t = z s_{t-1} + (1 - z) s'_t

with another draw of k at each step and for each sequence. `zoneout` is z of h, whose values after
this are the outputs. `zoneout_cell` is z of the LSTM's cell, which acts after the new h was
computed from the new cell. haste's layers have the first one alone.

The definition computes it, in training and in evaluation: no fused path exists, so a layer takes as
long as one with backend="reference" (column `definition` of `layernorm bench recurrent`), and the
masks take as much memory as the states of all steps. With probability 0 it is the layer without
zoneout, on its own path. Parameters have the same names, so a state dict loads into either.

Source: Krueger et al. 2016, arXiv:1606.01305; github.com/lmnt-com/haste.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from layernorm import _validation, functional
from layernorm.recurrent import definition, layers
from layernorm.recurrent.definition import GRUWeights, LSTMWeights
from layernorm.recurrent.gru_variants import VARIANTS, LayerNormGRUVariant
from layernorm.recurrent.layers import LayerNormGRU, LayerNormLSTM
from layernorm.recurrent.variants import named_variant

Step = Callable[..., tuple[Tensor, ...]]  # (x, *states) -> the new states


def zoned(step: Step, kept: Sequence[float | Tensor], inputs: int) -> Step:
    """Return a step whose new states are k old + (1 - k) new.

    Args:
        step: (x, *states) -> the new states.
        kept: k of each state: a number, or a tensor (N, size) with a row for each of x's.
        inputs: columns of x. Behind these, x's rows have the tensors' rows, in their order.
    """
    sizes = [inputs, *(k.shape[1] for k in kept if isinstance(k, Tensor))]

    def after(rows: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        x, *masks = rows.split(sizes, -1)
        found = iter(masks)
        shares = [
            next(found).to(s.dtype) if isinstance(k, Tensor) else k
            for s, k in zip(states, kept, strict=True)
        ]
        new = step(x, *states)
        return tuple(
            torch.lerp(n.to(s.dtype), s, k) for n, s, k in zip(new, states, shares, strict=True)
        )

    return after


class _Zoneout:
    """The part that the layers share; it stands before the layer among their bases."""

    def _set(self, **probabilities) -> None:
        for name, z in probabilities.items():
            _validation._finite(name, z)
            if not 0 <= z <= 1:
                raise ValueError(f"{name} must be a probability, in [0, 1], got {z}")
            setattr(self, name, z)
        self._zones = tuple(probabilities)

    def _kept(self, rows: int, states: Sequence[Tensor]) -> list[float | Tensor]:
        """The share that each state keeps: masks of 0 and 1 in training, else the probabilities."""
        shares = [getattr(self, name) for name in self._zones]
        if not self.training:
            return shares
        return [
            torch.bernoulli(s.new_full((rows, s.shape[1]), z)) if z else z
            for s, z in zip(states, shares, strict=True)
        ]

    def _sequence(self, x, batch_sizes, states, weights, reverse: bool):
        if not any(getattr(self, name) for name in self._zones):
            return super()._sequence(x, batch_sizes, states, weights, reverse)
        layers._computer(self, "layer with zoneout", x)  # which refuses backend "fused"
        kept = self._kept(x.shape[0], states)
        step = zoned(self._one(weights), kept, x.shape[1])
        rows = torch.cat([x, *(k for k in kept if isinstance(k, Tensor))], -1)
        return definition._over_time(step, rows, batch_sizes, states, reverse)

    def _printed(self, **defaults) -> str:
        return super()._printed(**defaults, **dict.fromkeys(self._zones, 0))


class ZoneoutLSTM(_Zoneout, LayerNormLSTM):
    """`LayerNormLSTM` with zoneout.

        training: h_t = k h_{t-1} + (1 - k) h'_t,   k ~ Bernoulli(zoneout);   evaluation: its mean

    All of `LayerNormLSTM`'s arguments, its state dict and its call. Several times slower than that
    layer, since the definition computes it; see `layernorm.recurrent.zoneout`.

    Args:
        zoneout: the probability with which a unit of h keeps its old value, in [0, 1].
        zoneout_cell: of c, likewise.

    Raises: as `LayerNormLSTM`; ValueError for probabilities outside [0, 1] and, when called, for
    backend="fused".

    Source: `layernorm.recurrent.zoneout`.

    >>> lstm = ZoneoutLSTM(3, 5, zoneout=1.0)
    >>> output, (h_n, c_n) = lstm(torch.ones(7, 4, 3))
    >>> h_n.any().item(), c_n.any().item()  # all of h is kept from the start, nothing of c
    (False, True)
    """

    def __init__(self, *args, zoneout: float, zoneout_cell: float = 0.0, **options) -> None:
        super().__init__(*args, **options)
        self._set(zoneout=zoneout, zoneout_cell=zoneout_cell)

    def _one(self, weights: LSTMWeights) -> Step:
        step = named_variant(self.variant).step
        weights = weights._replace(b=definition._or_zeros(weights.b, weights.w_ih))
        return lambda x, h, c: step(x, h, c, weights, self.eps)


class ZoneoutGRU(_Zoneout, LayerNormGRU):
    """`LayerNormGRU` with zoneout.

        training: h_t = k h_{t-1} + (1 - k) h'_t,   k ~ Bernoulli(zoneout);   evaluation: its mean

    All of `LayerNormGRU`'s arguments, its state dict and its call. Several times slower than that
    layer, since the definition computes it; see `layernorm.recurrent.zoneout`.

    Args:
        zoneout: the probability with which a unit of h keeps its old value, in [0, 1].

    Raises: as `ZoneoutLSTM`.

    Source: `layernorm.recurrent.zoneout`.

    >>> ZoneoutGRU(3, 5, num_layers=2, zoneout=0.1)
    ZoneoutGRU(3, 5, num_layers=2, zoneout=0.1)
    """

    def __init__(self, *args, zoneout: float, **options) -> None:
        super().__init__(*args, **options)
        self._set(zoneout=zoneout)

    def _one(self, weights: GRUWeights) -> Step:
        w, step = weights, functional.ln_gru_step.__wrapped__
        b = definition._or_zeros(w.b, w.w_ih)
        return lambda x, h: (step(x, h, w.w_ih, w.w_hh, b, w.ln_ih, w.ln_hh, self.eps),)


class ZoneoutGRUVariant(_Zoneout, LayerNormGRUVariant):
    """`LayerNormGRUVariant` with zoneout; haste's LayerNormGRU with it is variant="stacked".

        training: h_t = k h_{t-1} + (1 - k) h'_t,   k ~ Bernoulli(zoneout);   evaluation: its mean

    All of `LayerNormGRUVariant`'s arguments, its state dict and its call.

    Args:
        zoneout: the probability with which a unit of h keeps its old value, in [0, 1].

    Raises: as `ZoneoutLSTM`.

    Source: `layernorm.recurrent.zoneout`.

    >>> ZoneoutGRUVariant(3, 5, variant="stacked", zoneout=0.1)
    ZoneoutGRUVariant(3, 5, variant=stacked, zoneout=0.1)
    """

    def __init__(self, *args, zoneout: float, **options) -> None:
        super().__init__(*args, **options)
        self._set(zoneout=zoneout)

    def _one(self, weights: GRUWeights) -> Step:
        step = VARIANTS[self.variant]
        weights = weights._replace(b=definition._or_zeros(weights.b, weights.w_ih))
        return lambda x, h: (step(x, h, weights, self.eps),)
