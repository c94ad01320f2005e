"""The layer-normalized LSTM, GRU and RNN, constructed and called as `torch.nn.LSTM`, `GRU`, `RNN`.

Everything those take: several layers, both directions, batch_first, dropout between the layers,
projections (LSTM), one sequence without its batch dimension, `PackedSequence`, optional initial
states. Outputs have torch's shapes. Padding never enters: a `PackedSequence` has none.

Parameters of layer k are called as torch's: weight_ih_l{k}, weight_hh_l{k}, bias_ih_l{k} (the one
b, outside the norms; a bias_hh would say the same twice) and weight_hr_l{k} with a projection. The
norms' gains and biases are ln_ih_weight_l{k}, ln_ih_bias_l{k}, and so for ln_hh and ln_c; the RNN's
are ln_weight_l{k} and ln_bias_l{k}. The second direction's end in _reverse. Weights start uniform
between -1/sqrt(H) and 1/sqrt(H), as torch's; gains at 1, biases at 0. If you start the matrices
anew, take the names that begin with weight_: those of the norms' gains have "weight" in them, too.
For a forget gate that starts open give `forget_bias`: code that sets the second quarter of every
parameter with "bias" in its name adds up three times here, in b and in both norms of the gates, and
changes ln_c_bias, which has no such quarter.

A term that is normalized by itself loses its scale: from an input of one feature nothing but its
sign arrives, and a layer of one unit gives 0. With few features take a variant that normalizes the
terms together, "joint" of the LSTM or of `LayerNormGRUVariant`.

`backend` says who computes: "reference" is `layernorm.recurrent.definition`, "fused" the compiled
path for CPUs in `layernorm.recurrent.cpu` or that for GPUs in `layernorm.recurrent.gpu` (an
error where it cannot be used), and "auto" that path where it can be used and is faster, else the
definition, with one warning if all that is missing is the library. torch.func's transforms, forward
derivatives and torch.jit.trace are given the definition by "auto"; second derivatives in a compiled
graph, and forward ones of an exported layer, need "reference". A traced layer is for inputs of the
length and batch that it was traced with; torch.compile takes others, too, and so does torch.export
on the fused path, while the definition is exported for one length. The tracer of torch.fx must be
told to take these layers whole (`is_leaf_module`).

`torch.compile(layer, fullgraph=True)` captures one graph, whatever the batch; of a `PackedSequence`
too where the fused path computes on a CPU, whose one operator takes its lengths as data. The
definition's loop depends on them, so there a packed input needs fullgraph=False. A graph holds this
loop step by step: compiling takes longer the more steps there are, and starts anew for each length.

Under autocast the matrix products may be in half precision; states and outputs keep the weights'
type.
"""

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch.nn.utils.rnn import PackedSequence

from layernorm.recurrent import checks, cpu, definition, fused, gpu
from layernorm.recurrent.parameters import GRUParameters, LSTMParameters, RNNParameters

BACKENDS = ("auto", "reference", "fused")
STACKED = "; it stays (layers * directions, batch, size) with batch_first, too"


class Layer:
    """Base class: one call of `_sequence` for each layer and direction."""

    def _build(
        self, num_layers, batch_first, dropout, bidirectional, device, dtype, backend, learned
    ) -> None:
        self.num_layers = num_layers
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.backend = backend
        self.learn_initial_state = learned
        checks.settings(self)
        if backend not in BACKENDS:
            raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
        if dropout and num_layers == 1:
            warnings.warn(
                f"dropout={dropout} does nothing with num_layers=1: it acts between layers, not "
                "after the last; drop it, or use torch.nn.Dropout on the output",
                stacklevel=3,
            )
        options = {"device": device, "dtype": dtype}
        state = self._state_sizes()[0]
        for layer in range(num_layers):
            inputs = state * len(self._directions) if layer else self.input_size
            for direction in self._directions:
                self._create(inputs, f"_l{layer}{direction}", **options)
        if learned:
            for name, size in zip(("h_0", "c_0"), self._state_sizes(), strict=False):
                rows = num_layers * len(self._directions)
                setattr(self, name, Parameter(torch.empty(rows, size, **options)))
        self.reset_parameters()

    @property
    def _directions(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The parameters of each layer and direction, as `torch.nn.LSTM` has them."""
        return [
            [getattr(self, f"{name}_l{layer}{direction}") for name in self._shapes(self.input_size)]
            for layer in range(self.num_layers)
            for direction in self._directions
        ]

    def forward(self, input, hx=None):
        """Outputs of the last layer for all steps, and the last states of all layers.

        Args:
            input: (T, B, I), with batch_first (B, T, I), one sequence (T, I), or a PackedSequence.
            hx: initial states as torch's, h_0 or for the LSTM (h_0, c_0), of shapes (L D, B, P) and
                (L D, B, H), without B for one sequence; L layers, D directions, P the projected
                size or H. None: zeros, or the learned ones.

        Returns: output and h_n, for the LSTM output and (h_n, c_n), with input's form.

        Raises: ValueError for shapes that do not fit and for no time steps; TypeError for kinds and
        types of numbers that do not.
        """
        checks.layer_input(input, self, self.weight_ih_l0)
        if isinstance(input, PackedSequence):
            rows, batch_sizes, order, back = input
            output, states = self._stack(
                rows, batch_sizes, self._initial(hx, batch_sizes[0], order)
            )
            if back is not None:
                states = [s.index_select(1, back) for s in states]
            output = PackedSequence(output, batch_sizes, order, back)
        else:
            single = input.dim() == 2
            x = (
                input.unsqueeze(1)
                if single
                else input.transpose(0, 1)
                if self.batch_first
                else input
            )
            steps, batch = x.shape[:2]
            initial = self._initial(hx, batch, None, single)
            output, states = self._stack(x.flatten(0, 1), None, initial)
            output = output.unflatten(0, (steps, batch))
            if single:
                output, states = output.squeeze(1), [s.squeeze(1) for s in states]
            elif self.batch_first:
                output = output.transpose(0, 1)
        return output, tuple(states) if self.states == 2 else states[0]

    def _initial(self, hx, batch, order: Tensor | None, single: bool = False) -> list[Tensor]:
        """A state (L D, B, ...) each, in the order in which the rows are stored."""
        weight, count = self.weight_ih_l0, self.num_layers * len(self._directions)
        batch, sizes = int(batch) if isinstance(batch, Tensor) else batch, self._state_sizes()
        if hx is None and self.learn_initial_state:
            learned = (self.h_0, self.c_0) if self.states == 2 else (self.h_0,)
            return [s.unsqueeze(1).expand(-1, batch, -1).contiguous() for s in learned]
        if hx is None:
            return [weight.new_zeros(count, batch, size) for size in sizes]
        expected = [(count, size) if single else (count, batch, size) for size in sizes]
        hx = checks.initial_states(hx, expected, weight, STACKED)
        if single:
            return [s.unsqueeze(1) for s in hx]
        return hx if order is None else [s.index_select(1, order) for s in hx]

    def _stack(self, x: Tensor, batch_sizes, initial: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        last = []
        for layer in range(self.num_layers):
            outputs = []
            for d, direction in enumerate(self._directions):
                states = [s[len(last)] for s in initial]
                suffix = f"_l{layer}{direction}"
                y, *ends = self._sequence(x, batch_sizes, states, self._weights(suffix), d == 1)
                outputs.append(y)
                last.append(ends)
            x = torch.cat(outputs, -1) if self.bidirectional else outputs[0]
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x, [torch.stack(s) for s in zip(*last, strict=True)]

    def extra_repr(self) -> str:
        """As torch prints its layers: what differs from the defaults."""
        return self._printed(
            proj_size=0, num_layers=1, nonlinearity="tanh", bias=True, batch_first=False,
            dropout=0, bidirectional=False, eps=1e-5, variant="paper", forget_bias=0,
            learn_initial_state=False, backend="auto",
        )  # fmt: skip


def _computer(layer: Layer, kind: str, x: Tensor, projection: bool = False):
    """The module whose function computes a layer for x; `BatchNormLSTM` is a `Layer` without."""
    if layer.backend == "reference":
        return definition
    if reason := fused.seen_through():
        if layer.backend == "fused":
            raise ValueError(f'backend "fused" cannot compute this: {reason}; use "auto"')
        return definition
    fast = gpu if x.is_cuda else cpu
    reason = fast.unsupported(kind, x.device.type, x.dtype, projection)
    if layer.backend == "auto" and (reason or not fast.faster(kind, x, layer.hidden_size)):
        return definition
    reason = reason or fast.missing()
    if reason is None:
        return fast
    if layer.backend == "fused":
        raise ValueError(f'backend "fused" cannot compute this: {reason}; use "auto"')
    if not torch.compiler.is_compiling():  # a graph holds no warning
        fused.warn_once(reason)
    return definition


class LayerNormLSTM(Layer, LSTMParameters):
    """The layer-normalized LSTM: `torch.nn.LSTM` with layer normalization inside.

        (i, f, g, o) = LN(W_h h) + LN(W_x x) + b
        c' = sigmoid(f) c + sigmoid(i) tanh(g),   h' = sigmoid(o) tanh(LN(c'))

    All of `torch.nn.LSTM`'s arguments, in its order; bias=False leaves out b, not the norms' own.

    Args:
        eps: added to the variances, >= 0.
        backend: "auto", "reference" or "fused".
        variant: "paper" is what stands above; "joint", "per_gate", "cell_only" and "carried" are
            in `layernorm.recurrent.variants`, with their equations and who uses them.
        forget_bias: where the forget gate's part of b starts.
        learn_initial_state: parameters h_0 and c_0 take the place of the zeros at which sequences
            start; they start at 0. (From h_0 = 0 the first norm passes on gradients up to
            1/sqrt(eps) times larger: clip them, or use an optimizer that scales them, like Adam.)

    Raises: ValueError and TypeError for settings outside these.

    Source: eqs. (20) to (22) of the paper.

    >>> lstm = LayerNormLSTM(3, 5, num_layers=2, bidirectional=True)
    >>> output, (h_n, c_n) = lstm(torch.zeros(7, 4, 3))
    >>> output.shape, h_n.shape, c_n.shape
    (torch.Size([7, 4, 10]), torch.Size([4, 4, 5]), torch.Size([4, 4, 5]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device=None,
        dtype=None,
        *,
        eps: float = 1e-5,
        backend: str = "auto",
        variant: str = "paper",
        forget_bias: float = 0.0,
        learn_initial_state: bool = False,
    ) -> None:
        LSTMParameters.__init__(
            self, input_size, hidden_size, bias, eps, proj_size, variant, forget_bias
        )
        layers = num_layers, batch_first, dropout, bidirectional
        self._build(*layers, device, dtype, backend, learn_initial_state)

    def _sequence(self, x, batch_sizes, states, weights, reverse: bool):
        computer = _computer(self, "lstm", x, self.proj_size > 0)
        return computer.lstm(x, batch_sizes, *states, weights, self.eps, self.variant, reverse)


class LayerNormGRU(Layer, GRUParameters):
    """The layer-normalized GRU: `torch.nn.GRU` with layer normalization inside.

        (r, z) = LN(W_h h) + LN(W_x x) + b_rz
        n = tanh(LN(W x) + b_n + sigmoid(r) LN(U h)),   h' = (1 - sigmoid(z)) n + sigmoid(z) h

    All of `torch.nn.GRU`'s arguments, in its order, and eps, backend and learn_initial_state of
    `LayerNormLSTM`; bias=False leaves out b, not the norms' own.

    Raises: as `LayerNormLSTM`.

    Source: eqs. (26) to (28) of the paper; see `functional.ln_gru_step` on the update gate z.

    >>> gru = LayerNormGRU(3, 5, batch_first=True)
    >>> output, h_n = gru(torch.zeros(4, 7, 3))
    >>> output.shape, torch.equal(output[:, -1], h_n[0])
    (torch.Size([4, 7, 5]), True)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device=None,
        dtype=None,
        *,
        eps: float = 1e-5,
        backend: str = "auto",
        learn_initial_state: bool = False,
    ) -> None:
        GRUParameters.__init__(self, input_size, hidden_size, bias, eps)
        layers = num_layers, batch_first, dropout, bidirectional
        self._build(*layers, device, dtype, backend, learn_initial_state)

    def _sequence(self, x, batch_sizes, states, weights, reverse: bool):
        computer = _computer(self, "gru", x)
        return computer.gru(x, batch_sizes, *states, weights, self.eps, reverse)


class LayerNormRNN(Layer, RNNParameters):
    """The layer-normalized RNN: `torch.nn.RNN` with layer normalization inside.

        h' = f(LN(W_hh h + W_xh x; g, b))

    All of `torch.nn.RNN`'s arguments, in its order (f is its nonlinearity, "tanh" or "relu"), and
    eps, backend and learn_initial_state of `LayerNormLSTM`. b is the norm's own bias; bias=False
    leaves it out.

    Raises: as `LayerNormLSTM`.

    Source: eq. (4) of the paper.

    >>> rnn = LayerNormRNN(3, 5, nonlinearity="relu")
    >>> output, h_n = rnn(torch.ones(7, 4, 3))
    >>> output.shape, bool((output >= 0).all())
    (torch.Size([7, 4, 5]), True)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device=None,
        dtype=None,
        *,
        eps: float = 1e-5,
        backend: str = "auto",
        learn_initial_state: bool = False,
    ) -> None:
        RNNParameters.__init__(self, input_size, hidden_size, bias, eps, nonlinearity)
        layers = num_layers, batch_first, dropout, bidirectional
        self._build(*layers, device, dtype, backend, learn_initial_state)

    def _sequence(self, x, batch_sizes, states, weights, reverse: bool):
        settings = weights, self.eps, reverse, self.nonlinearity
        return _computer(self, "rnn", x).rnn(x, batch_sizes, *states, *settings)
