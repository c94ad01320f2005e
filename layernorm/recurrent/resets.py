"""Recurrent layers over sequences that hold several episodes, as reinforcement learning does.

Where a new episode begins, the state must forget the one before:

    s_t = step(x_t, s'),   s' = s_0 where resets_t, else s_{t-1}

for the states of all layers. An episode is then a sequence of its own: `with_resets` cuts the
sequences there, gives the pieces to the layer as one `PackedSequence`, by its fast path where it
has one, and puts the outputs back.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from layernorm import _validation
from layernorm._validation import _shape, _tensor, checked
from layernorm.recurrent import checks
from layernorm.recurrent.batch_norm import BatchNormLSTM
from layernorm.recurrent.layers import Layer


def _arguments(layer, input, resets, hx) -> None:
    if not isinstance(layer, Layer) or isinstance(layer, BatchNormLSTM):
        raise TypeError(
            "layer must be a LayerNormLSTM, LayerNormGRU, LayerNormRNN or LayerNormGRUVariant, got "
            f"{type(layer).__name__}"
        )
    if isinstance(input, PackedSequence):
        raise TypeError(
            "input must be a tensor, got a PackedSequence; give padded sequences of one length"
        )
    checks.layer_input(input, layer, layer.weight_ih_l0)
    _tensor("resets", resets)
    if resets.dtype != torch.bool:
        raise TypeError(
            f"resets must be of type bool, got {resets.dtype}; convert it: resets.bool()"
        )
    if resets.shape != input.shape[:-1]:
        raise ValueError(
            f"resets must have input's shape without its features, {_shape(input)[:-1]}, got "
            f"{_shape(resets)}"
        )
    _validation.on_device("resets", resets, input, "input's")
    if not torch.compiler.is_compiling() and _mapped(resets):
        raise ValueError(
            "resets must be the same for all that torch.vmap maps over, since shapes depend on "
            "them; got one for each: call with_resets on the whole batch, (T, B), without vmap"
        )


def _mapped(tensor: Tensor) -> bool:
    """Tell whether `torch.vmap` maps over it."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


@checked(_arguments)
def with_resets(
    layer: Layer,
    input: Float[Tensor, "*form i"],
    resets: Bool[Tensor, "*form"],
    hx: Tensor | tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor | tuple[Tensor, Tensor]]:
    """`layer(input, hx)`, its state set back to the start before every step where `resets` is True.

    The start is zero, or the learned state. No state crosses a reset in the reverse direction
    either, which reads each episode from its own end. Gradients do not cross it, and reach hx only
    from the episode that it starts.

    Args:
        layer: a LayerNormLSTM, LayerNormGRU, LayerNormRNN or LayerNormGRUVariant.
        input: (T, B, I), with the layer's batch_first (B, T, I), or one sequence (T, I).
        resets: (T, B), (B, T) or (T,): True at the first step of an episode. (Flags of its last
            step, often called done, belong one step later.)
        hx: the states before the first step, as the layer's; not used where that step is a reset.

    Returns: as the layer's: the outputs, and the states after the last step (of the reverse
    direction: after the first).

    Raises: TypeError for another layer, a `PackedSequence` and resets that are not bool; ValueError
    for shapes that do not fit, and for resets that `torch.vmap` maps over; and as the layer.

    Source: the agents of reinforcement learning, such as IMPALA's (Espeholt et al. 2018,
    arXiv:1802.01561; its code, experiment.py, sets back the core's state where `done` is True).

    >>> from layernorm import LayerNormGRU
    >>> gru, x = LayerNormGRU(3, 5), torch.randn(4, 1, 3)
    >>> y, h = with_resets(gru, x, torch.tensor([[False], [False], [True], [False]]))
    >>> torch.allclose(y[2:], gru(x[2:])[0])
    True
    """
    single = input.dim() == 2
    rows_first = (input.unsqueeze(0) if single else input) if single or layer.batch_first else None
    x = input.transpose(0, 1) if rows_first is None else rows_first
    batch, steps = x.shape[:2]
    flags = resets.reshape(batch, steps) if rows_first is not None else resets.T
    if not batch:
        return layer(input, hx)
    pieces = _cut(flags)
    states = layer._initial(None, len(pieces.order), None)
    if hx is not None:
        given = layer._initial(hx, batch, None, single)
        states = [_placed(s, g, flags, pieces, layer) for s, g in zip(states, given, strict=True)]
    packed = PackedSequence(
        x.flatten(0, 1).index_select(0, pieces.rows), pieces.sizes, pieces.order, pieces.back
    )
    y, last = layer(packed, tuple(states) if layer.states == 2 else states[0])
    y = y.data.index_select(0, pieces.places).unflatten(0, (batch, steps))
    last = [_final(s, pieces, layer) for s in (last if layer.states == 2 else (last,))]
    if single:
        y, last = y.squeeze(0), [s.squeeze(1) for s in last]
    elif rows_first is None:
        y = y.transpose(0, 1)
    return y, tuple(last) if layer.states == 2 else last[0]


class _Pieces(NamedTuple):
    """The episodes, numbered sequence by sequence; rows are those of (B, T)."""

    rows: Int[Tensor, " n"]  # which row stands at each place of the packed sequence
    places: Int[Tensor, " n"]  # at which place each row stands
    sizes: Int[Tensor, " longest"]  # how many episodes have each step
    order: Int[Tensor, " pieces"]  # from the longest to the shortest
    back: Int[Tensor, " pieces"]  # which in this order each is
    first: Int[Tensor, " batch"]  # each sequence's first episode
    last: Int[Tensor, " batch"]


def _cut(flags: Bool[Tensor, "batch steps"]) -> _Pieces:
    """The places of all rows when each sequence is cut before its flags.

    >>> _cut(torch.tensor([[False, True, False], [False, False, False]])).rows
    tensor([3, 1, 0, 4, 2, 5])
    """
    begins = flags.clone()
    begins[:, 0] = True
    number = begins.flatten().cumsum(0) - 1
    lengths = number.bincount()
    order = lengths.argsort(descending=True, stable=True)
    back = order.argsort()
    row = torch.arange(len(number), device=flags.device)
    step = row - (lengths.cumsum(0) - lengths)[number]
    sizes = step.bincount()
    places = (sizes.cumsum(0) - sizes)[step] + back[number]
    number = number.view_as(flags)
    return _Pieces(places.argsort(), places, sizes.cpu(), order, back, number[:, 0], number[:, -1])


def _placed(states: Tensor, given: Tensor, flags: Tensor, pieces: _Pieces, layer: Layer) -> Tensor:
    """The given states where they start an episode: the first one, read backwards the last."""
    kept = states.index_select(1, pieces.first)
    forward = torch.where(flags[:, :1], kept, given)
    placed = states.index_copy(1, pieces.first, forward)
    if not layer.bidirectional:
        return placed
    return _of_directions(placed, states.index_copy(1, pieces.last, given))


def _final(states: Tensor, pieces: _Pieces, layer: Layer) -> Tensor:
    """The last states of each sequence's last episode; read backwards, of its first one."""
    forward = states.index_select(1, pieces.last)
    if not layer.bidirectional:
        return forward
    return _of_directions(forward, states.index_select(1, pieces.first))


def _of_directions(forward: Tensor, backward: Tensor) -> Tensor:
    """The forward directions' rows of one and the others' rows of the other, (L D, B, H)."""
    return torch.stack([forward[::2], backward[1::2]], 1).flatten(0, 1)
