"""The recurrent nets over whole sequences: a loop over the steps of `layernorm.functional`.

One layer and one direction. Everything faster is checked against these functions.

Sequences are stored as `torch.nn.utils.rnn.PackedSequence` stores them: x holds the rows of the
first step, then those of the second, and so on; `batch_sizes[t]` rows belong to step t, those of
the sequences that are that long, the longest sequences first. Padding does not exist here, so none
can enter a statistic or a gradient. `batch_sizes=None` means that all sequences are equally long:
a tensor of shape (T, B, I) reshaped to (T B, I).

`reverse=True` reads each sequence from its own last row to its first; outputs stay in x's order.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layernorm import functional
from layernorm._validation import checked
from layernorm.recurrent import checks
from layernorm.recurrent.variants import LSTMWeights, Pair, named_variant

__all__ = ["GRUWeights", "LSTMWeights", "RNNWeights", "gru", "lstm", "rnn"]


class GRUWeights(NamedTuple):
    """The parameters of one layer and direction; a pair is (gain, bias) of the norms.

        w_ih (3H, I), w_hh (3H, H), b (3H,) or None
        ln_ih, ln_hh    pairs of (3H,): 2H for the gates' norm, then H for the candidate's

    I are the inputs, H the units.
    """

    w_ih: Tensor
    w_hh: Tensor
    b: Tensor | None
    ln_ih: Pair
    ln_hh: Pair


class RNNWeights(NamedTuple):
    """The parameters of one layer and direction.

        w_ih (H, I), w_hh (H, H)
        ln      (gain, bias) of (H,) each; the bias is b of eq. (4), None means 0

    I are the inputs, H the units.
    """

    w_ih: Tensor
    w_hh: Tensor
    ln: tuple[Tensor, Tensor | None]


@checked(checks.lstm)
def lstm(
    x: Float[Tensor, "n i"],
    batch_sizes: Int[Tensor, " t"] | None,
    h0: Float[Tensor, "batch p"],
    c0: Float[Tensor, "batch h"],
    weights: LSTMWeights,
    eps: float = 1e-5,
    variant: str = "paper",
    reverse: bool = False,
) -> tuple[Float[Tensor, "n p"], Float[Tensor, "batch p"], Float[Tensor, "batch h"]]:
    """The layer-normalized LSTM: `functional.ln_lstm_step`, or another variant's step, over time.

    Args:
        x: the sequences' rows, (N, I), in the order of the module's first lines.
        batch_sizes: (T,), int64, not increasing, with sum N; None: N = T B.
        h0, c0: the initial state and cell, (B, P) and (B, H); P = H without a projection.
        weights: `LSTMWeights`; fields that a variant does not have are None.
        eps: added to the variances, >= 0.
        variant: a name of `layernorm.recurrent.variants`.
        reverse: read every sequence backwards.

    Returns: y (N, P), the states in x's order; the last state (B, P) and cell (B, H) of each
    sequence.

    Raises: ValueError where shapes, batch sizes or the variant do not fit, TypeError where kinds or
    number types do not.

    Source: eqs. (20) to (22) of the paper; the variants' sources stand with them.

    >>> four, two = (torch.ones(8), torch.zeros(8)), (torch.ones(2), torch.zeros(2))
    >>> w = LSTMWeights(torch.ones(8, 1), torch.eye(2).repeat(4, 1), None, four, four, two)
    >>> y, h, c = lstm(torch.ones(3, 1), None, torch.zeros(1, 2), torch.tensor([[1.0, 3.0]]), w)
    >>> y.shape, torch.equal(y[-1:], h)
    (torch.Size([3, 2]), True)
    """
    step = named_variant(variant).step
    weights = weights._replace(b=_or_zeros(weights.b, weights.w_ih))
    return _over_time(
        lambda x, h, c: step(x, h, c, weights, eps), x, batch_sizes, (h0, c0), reverse
    )


@checked(checks.gru)
def gru(
    x: Float[Tensor, "n i"],
    batch_sizes: Int[Tensor, " t"] | None,
    h0: Float[Tensor, "batch h"],
    weights: GRUWeights,
    eps: float = 1e-5,
    reverse: bool = False,
) -> tuple[Float[Tensor, "n h"], Float[Tensor, "batch h"]]:
    """The layer-normalized GRU: `functional.ln_gru_step` over time.

    Args: as `lstm`, with `GRUWeights`.

    Returns: y (N, H), the states in x's order; the last state (B, H) of each sequence.

    Raises: as `lstm`.

    Source: eqs. (26) to (28) of the paper.

    >>> six = torch.ones(6), torch.zeros(6)
    >>> w = GRUWeights(torch.ones(6, 1), torch.eye(2).repeat(3, 1), None, six, six)
    >>> y, h = gru(torch.ones(3, 1), torch.tensor([2, 1]), torch.zeros(2, 2), w)
    >>> torch.equal(y[1:], h.flip(0))  # the second sequence ends at the first step
    True
    """
    b = _or_zeros(weights.b, weights.w_ih)
    step, w = functional.ln_gru_step.__wrapped__, weights
    return _over_time(
        lambda x, h: (step(x, h, w.w_ih, w.w_hh, b, w.ln_ih, w.ln_hh, eps),),
        x, batch_sizes, (h0,), reverse,
    )  # fmt: skip


@checked(checks.rnn)
def rnn(
    x: Float[Tensor, "n i"],
    batch_sizes: Int[Tensor, " t"] | None,
    h0: Float[Tensor, "batch h"],
    weights: RNNWeights,
    eps: float = 1e-5,
    reverse: bool = False,
    nonlinearity: str = "tanh",
) -> tuple[Float[Tensor, "n h"], Float[Tensor, "batch h"]]:
    """The layer-normalized RNN: `functional.ln_rnn_step` over time.

    Args: as `lstm`, with `RNNWeights`; nonlinearity: "tanh" or "relu".

    Returns: as `gru`.

    Raises: as `lstm`.

    Source: eq. (4) of the paper.

    >>> w = RNNWeights(torch.ones(2, 1), torch.eye(2), (torch.ones(2), None))
    >>> rnn(torch.ones(1, 1), None, torch.tensor([[0.0, 1.0]]), w, eps=0.0)[0]
    tensor([[-0.7616,  0.7616]])
    """
    gain, b = weights.ln
    ln = gain, _or_zeros(b, weights.w_ih)
    step, w = functional.ln_rnn_step.__wrapped__, weights
    return _over_time(
        lambda x, h: (step(x, h, w.w_ih, w.w_hh, ln, eps, nonlinearity),),
        x, batch_sizes, (h0,), reverse,
    )  # fmt: skip


def _or_zeros(b: Tensor | None, w: Tensor) -> Tensor:
    return w.new_zeros(w.shape[0]) if b is None else b


def _over_time(step, x: Tensor, batch_sizes: Tensor | None, states, reverse: bool):
    """Step t changes the states of its own rows, the first batch_sizes[t]; the others keep theirs:
    the last one (they have ended) or, in reverse, the initial one (they have not begun)."""
    batch = states[0].shape[0]
    # One step of no rows where there are no sequences: the result depends on the parameters.
    uniform = [batch] * (x.shape[0] // batch if batch else 1)
    sizes = uniform if batch_sizes is None else batch_sizes.tolist()
    parts = list(zip(x.split(sizes), sizes, strict=True))
    outputs = []
    for rows, n in reversed(parts) if reverse else parts:
        new = step(rows, *(s[:n] for s in states))
        # Under autocast, too, a state keeps its type.
        new = [a.to(s.dtype) for a, s in zip(new, states, strict=True)]
        outputs.append(new[0])
        states = [
            a if n == batch else torch.cat([a, s[n:]]) for a, s in zip(new, states, strict=True)
        ]
    if reverse:
        outputs.reverse()
    return torch.cat(outputs) if outputs else states[0][:0], *states
