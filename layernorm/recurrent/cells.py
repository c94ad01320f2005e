"""One step at a time, for models that feed their output back: `torch.nn.LSTMCell`, `GRUCell` and
`RNNCell` with layer normalization.

A cell stepped over time gives the numbers of the layer of one layer. It has no fast path: the
definition computes it. Its parameters are the layer's without _l0, so
`{name + "_l0": p for name, p in cell.state_dict().items()}` loads into the layer.
"""

import torch
from torch import Tensor

from layernorm.recurrent import checks
from layernorm.recurrent.definition import gru, lstm, rnn
from layernorm.recurrent.parameters import GRUParameters, LSTMParameters, RNNParameters


class _Cell:
    """A sequence of one step."""

    def _step(self, input: Tensor, hx) -> tuple[Tensor, ...]:
        weight, n = self.weight_ih, self.input_size
        checks.rows("input", input, n, weight, (1, 2), f"(B, {n}) or ({n},)")
        batch = input.shape[:-1]
        sizes = self._state_sizes()
        if hx is None:
            like = {"dtype": weight.dtype, "device": weight.device}
            hx = [torch.zeros(*batch, size, **like) for size in sizes]
        else:
            hx = checks.initial_states(hx, [(*batch, size) for size in sizes], weight)
        rows = (t if batch else t.unsqueeze(0) for t in (input, *hx))
        states = self._sequence(*rows)
        return states if batch else tuple(s.squeeze(0) for s in states)

    def extra_repr(self) -> str:
        """As torch prints its cells: what differs from the defaults."""
        return self._printed(
            proj_size=0, bias=True, nonlinearity="tanh", eps=1e-5, variant="paper", forget_bias=0
        )


class LayerNormLSTMCell(_Cell, LSTMParameters):
    """One step of `LayerNormLSTM`, called as `torch.nn.LSTMCell`.

        (i, f, g, o) = LN(W_h h) + LN(W_x x) + b
        c' = sigmoid(f) c + sigmoid(i) tanh(g),   h' = sigmoid(o) tanh(LN(c'))

    All of `torch.nn.LSTMCell`'s arguments, in its order, and eps, variant, forget_bias and
    proj_size of `LayerNormLSTM`.

    Call with input (B, I) or (I,) and optionally the pair (h, c), (B, P) and (B, H) or without B;
    returns the new pair.

    Raises: as `LayerNormLSTM`.

    Source: eqs. (20) to (22) of the paper.

    >>> cell = LayerNormLSTMCell(3, 3)
    >>> h, c = cell(torch.ones(2, 3))
    >>> h, c = cell(h, (h, c))  # the output fed back
    >>> h.shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device=None,
        dtype=None,
        *,
        eps: float = 1e-5,
        variant: str = "paper",
        forget_bias: float = 0.0,
        proj_size: int = 0,
    ) -> None:
        LSTMParameters.__init__(
            self, input_size, hidden_size, bias, eps, proj_size, variant, forget_bias
        )
        self._create(input_size, "", device=device, dtype=dtype)
        self.reset_parameters()

    def forward(self, input: Tensor, hx=None) -> tuple[Tensor, Tensor]:
        return self._step(input, hx)

    def _sequence(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        return lstm(x, None, h, c, self._weights(""), self.eps, self.variant)[1:]


class LayerNormGRUCell(_Cell, GRUParameters):
    """One step of `LayerNormGRU`, called as `torch.nn.GRUCell`.

        (r, z) = LN(W_h h) + LN(W_x x) + b_rz
        n = tanh(LN(W x) + b_n + sigmoid(r) LN(U h)),   h' = (1 - sigmoid(z)) n + sigmoid(z) h

    All of `torch.nn.GRUCell`'s arguments, in its order, and eps, added to the variances.

    Call with input (B, I) or (I,) and optionally h, (B, H) or (H,); returns the new h.

    Raises: as `LayerNormLSTM`.

    Source: eqs. (26) to (28) of the paper.

    >>> cell = LayerNormGRUCell(3, 3)
    >>> cell(cell(torch.ones(3))).shape
    torch.Size([3])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device=None,
        dtype=None,
        *,
        eps: float = 1e-5,
    ) -> None:
        GRUParameters.__init__(self, input_size, hidden_size, bias, eps)
        self._create(input_size, "", device=device, dtype=dtype)
        self.reset_parameters()

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(input, hx)[0]

    def _sequence(self, x: Tensor, h: Tensor) -> tuple[Tensor]:
        return gru(x, None, h, self._weights(""), self.eps)[1:]


class LayerNormRNNCell(_Cell, RNNParameters):
    """One step of `LayerNormRNN`, called as `torch.nn.RNNCell`.

        h' = f(LN(W_hh h + W_xh x; g, b))

    All of `torch.nn.RNNCell`'s arguments, in its order, and eps, added to the variance.

    Call with input (B, I) or (I,) and optionally h, (B, H) or (H,); returns the new h.

    Raises: as `LayerNormLSTM`.

    Source: eq. (4) of the paper.

    >>> LayerNormRNNCell(3, 5, nonlinearity="relu")
    LayerNormRNNCell(3, 5, nonlinearity=relu)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device=None,
        dtype=None,
        *,
        eps: float = 1e-5,
    ) -> None:
        RNNParameters.__init__(self, input_size, hidden_size, bias, eps, nonlinearity)
        self._create(input_size, "", device=device, dtype=dtype)
        self.reset_parameters()

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(input, hx)[0]

    def _sequence(self, x: Tensor, h: Tensor) -> tuple[Tensor]:
        weights = self._weights("")
        return rnn(x, None, h, weights, self.eps, nonlinearity=self.nonlinearity)[1:]
