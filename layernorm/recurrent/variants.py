"""One step of the layer-normalized LSTM in the forms that are in use.

All share the end of the step, where the input, forget and output gates i, f, o and the candidate g
come from the gates' summed inputs:

    c' = sigmoid(f) c + sigmoid(i) tanh(g),   h' = sigmoid(o) tanh(LN(c'))

They differ in what is normalized before, and in the cell that the next step sees:

    variant     summed inputs of the gates, 4H         norms of the gates   next cell
    paper       LN(W_h h) + LN(W_x x) + b              two, over 4H         c'
    joint       LN(W_h h + W_x x) + b                  one, over 4H         c'
    per_gate    LN(W_h h + W_x x) + b, gate by gate    four, over H         LN(c')
    cell_only   W_h h + W_x x + b                      none                 c'
    carried     LN(W_h h) + LN(W_x x) + b              two, over 4H         LN(c')

Who uses which: `paper`: eqs. (20) to (22), the paper's question answering and handwriting, and
haste's LayerNormLSTM. `joint`: the plain RNN's eq. (4) carried over to the LSTM. `per_gate`:
TensorFlow's LayerNormBasicLSTMCell (tensorflow/contrib/rnn), with b only as its constant forget
bias of 1. `cell_only`: eqs. (29) to (31), the paper's DRAW. `carried`: LayerNormLSTMCell of
PyTorch's TorchScript example (benchmarks/fastrnns/custom_lstms.py), without b, and NeMo's copy.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from layernorm import functional
from layernorm.functional import layer_norm

Pair = tuple[Tensor, Tensor]


class LSTMWeights(NamedTuple):
    """The parameters of one layer and direction; a pair is (gain, bias) of a norm.

        w_ih (4H, I), w_hh (4H, P), b (4H,) or None
        ln_ih   pair of (4H,): the input term's norm (paper, carried), else None
        ln_hh   pair of (4H,): the recurrent term's, or the sum's (joint, per_gate), else None
        ln_c    pair of (H,): the cell's
        w_hr    (P, H): the projection; None: P = H

    I are the inputs, H the units, P the state's size.
    """

    w_ih: Tensor
    w_hh: Tensor
    b: Tensor | None
    ln_ih: Pair | None
    ln_hh: Pair | None
    ln_c: Pair
    w_hr: Tensor | None = None


def paper(x: Tensor, h: Tensor, c: Tensor, w: LSTMWeights, eps: float) -> tuple[Tensor, Tensor]:
    """`functional.ln_lstm_step`, whose arguments the caller has checked."""
    norms = w.ln_ih, w.ln_hh, w.ln_c
    step = functional.ln_lstm_step.__wrapped__
    return step(x, h, c, w.w_ih, w.w_hh, w.b, *norms, eps, w.w_hr)


def carried(x: Tensor, h: Tensor, c: Tensor, w: LSTMWeights, eps: float) -> tuple[Tensor, Tensor]:
    """The paper's step, but the normalized cell is the next state."""
    h, c = paper(x, h, c, w, eps)
    return h, layer_norm(c, c.shape[-1:], *w.ln_c, eps)


def joint(x: Tensor, h: Tensor, c: Tensor, w: LSTMWeights, eps: float) -> tuple[Tensor, Tensor]:
    """One norm on the sum of both terms."""
    gates = layer_norm(h @ w.w_hh.T + x @ w.w_ih.T, w.w_hh.shape[:1], *w.ln_hh, eps) + w.b
    return functional._lstm_update(gates, c, w.ln_c, eps, w.w_hr)


def per_gate(x: Tensor, h: Tensor, c: Tensor, w: LSTMWeights, eps: float) -> tuple[Tensor, Tensor]:
    """Each gate normalized separately; the normalized cell is the next state."""
    split = [t.chunk(4, dim=-1) for t in (h @ w.w_hh.T + x @ w.w_ih.T, *w.ln_hh)]
    norms = [layer_norm(a, c.shape[-1:], gain, b, eps) for a, gain, b in zip(*split, strict=True)]
    h, c = functional._lstm_update(torch.cat(norms, -1) + w.b, c, w.ln_c, eps, w.w_hr)
    return h, layer_norm(c, c.shape[-1:], *w.ln_c, eps)


def cell_only(x: Tensor, h: Tensor, c: Tensor, w: LSTMWeights, eps: float) -> tuple[Tensor, Tensor]:
    """The gates are those of the plain LSTM; the cell is normalized for the output only."""
    gates = h @ w.w_hh.T + x @ w.w_ih.T + w.b
    return functional._lstm_update(gates, c, w.ln_c, eps, w.w_hr)


class Form(NamedTuple):
    """The norms of a step, and the state that the next step receives."""

    gates: int  # blocks of H among the summed inputs
    norms: tuple[int, ...]  # over how many of these blocks each norm of a term goes
    terms: int  # how many terms have norms of their own; 1: their sum has; 0: nothing has
    carry: bool = False  # the normalized cell is the next state
    cell: bool = True

    @property
    def named(self) -> tuple[str, ...]:
        """The names of the norms of the summed inputs, as in `LSTMWeights`."""
        return ((), ("ln_hh",), ("ln_ih", "ln_hh"))[self.terms]


class Variant(NamedTuple):
    """A step of the LSTM, and its form."""

    step: Callable[[Tensor, Tensor, Tensor, LSTMWeights, float], tuple[Tensor, Tensor]]
    form: Form


VARIANTS = {
    "paper": Variant(paper, Form(4, (4,), terms=2)),
    "joint": Variant(joint, Form(4, (4,), terms=1)),
    "per_gate": Variant(per_gate, Form(4, (1, 1, 1, 1), terms=1, carry=True)),
    "cell_only": Variant(cell_only, Form(4, (), terms=0)),
    "carried": Variant(carried, Form(4, (4,), terms=2, carry=True)),
}
GRU = Form(3, (2, 1), terms=2, cell=False)
FORMS = {name: variant.form for name, variant in VARIANTS.items()} | {"gru": GRU}


def named_variant(name: str) -> Variant:
    """The LSTM's variant of that name. Raises ValueError for another name."""
    if name not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, got {name!r}")
    return VARIANTS[name]
