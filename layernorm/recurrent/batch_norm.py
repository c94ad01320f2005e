"""The batch-normalized LSTM of Cooijmans et al. (2017), with statistics for each time step."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from layernorm._validation import checked
from layernorm.recurrent import checks
from layernorm.recurrent.layers import Layer
from layernorm.recurrent.parameters import Parameters
from layernorm.recurrent.step_norm import StepNorm, reversal, valid_rows

TERMS = ("ih", "hh", "c")  # what is normalized: input term, recurrent term, cell output


class BatchNormLSTM(Layer, Parameters):
    r"""LSTM whose input term, recurrent term and cell output are batch-normalized at each step.

        (i, f, g, o) = BN_t(W_h h; g_h) + BN_t(W_x x; g_x) + b     gates in torch's order
        c' = sigmoid(f) c + sigmoid(i) tanh(g)                     the cell is carried un-normalized
        h' = sigmoid(o) tanh(BN_t(c'; g_c, b_c))

    BN_t takes mean and variance over the cases at step t, so each step has statistics of its own;
    gains and biases are shared by all steps. The two terms of the gates have no bias of their own,
    since b follows. Constructor and call are those of `torch.nn.LSTM` (without projections).

    **Lengths.** Give sequences of different lengths as a `PackedSequence`, or padded with
    `lengths`. Padding then enters no statistic, no output and no gradient; the padded outputs are
    0. The reverse direction reads each sequence from its own end: step 0 is its last element.

    **Training.** A step with fewer than `min_samples` cases (late steps, where only the longest
    sequences go on) has no statistics of its own: it is normalized by those of the last step of
    this batch that had enough, and gradients pass through them. Too few at the first step is an
    error. A single case would have variance 0 and give the bias alone; two give gain times ±1.

    **Evaluation** uses running statistics, one pair for each step of the longest training sequence.
    They move by the larger of `momentum` and 1/k at the k-th batch that reaches a step, so that a
    step seldom reached is not held back by the initial 0 and 1. `momentum=None` is the plain
    average. Beyond the longest training sequence `beyond` decides: "last" uses the last step that
    has statistics, "error" refuses.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as in
            `torch.nn.LSTM`, and so are device and dtype; bias is b.
        max_length: T_max, for how many steps statistics are kept; longer sequences are refused in
            training.
        gain: initial value of all gains; 0.1 as in the source.
        eps: added to the variance, > 0, because the first recurrent term has none: W_h 0 = 0.
        momentum: share of the new value in the running statistics, in (0, 1], or None.
        statistics: "per_step", or "sequence": one mean and variance of the input term over all
            valid steps and cases. The recurrent term and the cell keep statistics for each step:
            what later steps hold is not known when a step is computed. In training "sequence" lets
            an output depend on later inputs, through these statistics.
        beyond: "last" or "error".
        min_samples: at least 2.
        forget_bias: initial value of b at the forget gate; the rest of b starts at 0.

    State-dict keys, for layer k (with `_reverse` for the second direction): weight_ih_l{k},
    weight_hh_l{k}, bias_ih_l{k} (b), bn_ih_weight_l{k}, bn_hh_weight_l{k}, bn_c_weight_l{k},
    bn_c_bias_l{k}; running_mean_ih_l{k}, running_var_ih_l{k} and so on for hh and c, a row for each
    step; num_batches_tracked and num_samples_tracked, (max_length,): how many batches reached a
    step with enough cases, and with how many cases in all.

    Raises: ValueError for settings out of range.

    Source: Cooijmans, Ballas, Laurent, Gulcehre and Courville 2017, arXiv:1603.09025, section 3.
    The initial state is zero unless given.

    >>> layer = BatchNormLSTM(3, 4, max_length=10)
    >>> y, (h, c) = layer(torch.randn(7, 5, 3))
    >>> y.shape, h.shape
    (torch.Size([7, 5, 4]), torch.Size([1, 5, 4]))
    """

    gates, states = 4, 2

    @checked(checks.batch_norm_settings)
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
        max_length: int = 100,
        gain: float = 0.1,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        statistics: str = "per_step",
        beyond: str = "last",
        min_samples: int = 2,
        forget_bias: float = 0.0,
    ) -> None:
        Parameters.__init__(self, input_size, hidden_size, bias, eps)
        self.max_length, self.gain, self.momentum = max_length, gain, momentum
        self.statistics, self.beyond = statistics, beyond
        self.min_samples, self.forget_bias = min_samples, forget_bias
        layers = num_layers, batch_first, dropout, bidirectional
        self._build(*layers, device, dtype, "reference", False)
        for name in ("num_batches_tracked", "num_samples_tracked"):
            self.register_buffer(name, torch.zeros(max_length, dtype=torch.int64, device=device))

    def _state_sizes(self) -> tuple[int, ...]:
        return self.hidden_size, self.hidden_size

    def _norms(self) -> dict[str, int]:
        return {}

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        gains = {f"bn_{term}_weight": (self._size(term),) for term in TERMS}
        return super()._shapes(inputs) | gains | {"bn_c_bias": (self.hidden_size,)}

    def _create(self, inputs: int, suffix: str, **options) -> None:
        super()._create(inputs, suffix, **options)
        for term in TERMS:
            rows = 1 if self.statistics == "sequence" and term == "ih" else self.max_length
            for moment in ("mean", "var"):
                buffer = torch.empty(rows, self._size(term), **options)
                self.register_buffer(f"running_{moment}_{term}{suffix}", buffer)

    def _size(self, term: str) -> int:
        return self.hidden_size if term == "c" else 4 * self.hidden_size

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Weights uniform in ±1/√hidden_size, gains `gain`, biases 0 except b's forget gate."""
        super().reset_parameters()
        for name, parameter in self._named():
            if name.startswith("bn") and "weight" in name:
                parameter.fill_(self.gain)
            if name.startswith("bias"):
                parameter.chunk(4)[1].fill_(self.forget_bias)
        self.reset_running_stats()

    @torch.no_grad()
    def reset_running_stats(self) -> None:
        """Forget all statistics: means 0, variances 1, no step tracked."""
        for name, buffer in self.named_buffers():
            buffer.fill_(1 if "running_var" in name else 0)

    @property
    def samples_per_batch(self) -> Float[Tensor, " steps"]:
        """The mean number of examples behind each step's statistics; 0 where there are none."""
        return self.num_samples_tracked / self.num_batches_tracked.clamp(min=1)

    @checked(checks.lengths)
    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: tuple[Tensor, Tensor] | None = None,
        lengths: Tensor | list[int] | None = None,
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        """As `torch.nn.LSTM`'s; `lengths`, (batch,), gives the ends of padded sequences.

        Raises: ValueError for shapes that do not fit, lengths out of range, sequences longer than
        max_length in training (or, with beyond="error", than those of the training), and in
        training too few cases at the first step; TypeError for another type of number.
        """
        if lengths is None or not len(lengths):
            return super().forward(input, hx)
        x = input.transpose(0, 1) if self.batch_first else input
        form = steps, batch = x.shape[:2]
        index, sizes, order = valid_rows(torch.as_tensor(lengths, device="cpu"), steps)
        index, order = index.to(x.device), order.to(x.device)
        rows = x.flatten(0, 1)[index]
        packed = PackedSequence(rows, torch.tensor(sizes, device="cpu"), order, order.argsort())
        y, states = super().forward(packed, hx)
        y = y.data.new_zeros(steps * batch, y.data.shape[1]).index_copy(0, index, y.data)
        y = y.unflatten(0, form)
        return y.transpose(0, 1) if self.batch_first else y, states

    def _stack(self, x: Tensor, batch_sizes, initial: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        sizes = checks.step_sizes(batch_sizes, x.shape[0], initial[0].shape[1])
        self._check_steps(sizes)
        outcome = super()._stack(x, sizes, initial)
        if self.training:
            counts = self._enough(sizes)
            self.num_batches_tracked[: len(counts)] += 1
            self.num_samples_tracked[: len(counts)] += counts.to(self.num_samples_tracked)
        return outcome

    def _weights(self, suffix: str) -> str:
        """The name of a layer and direction, by which `_sequence` finds all that it needs."""
        return suffix

    def _sequence(self, x, sizes: list[int], states, suffix: str, reverse: bool):
        if not sizes:
            return x.new_empty(0, self.hidden_size), *states
        norms = self._step_norms(suffix, len(sizes))
        back = reversal(sizes).to(x.device) if reverse else None
        output, *last = self._run(x if back is None else x[back], sizes, *states, suffix, norms)
        if self.training:
            self._track(sizes, suffix, norms)
        return output if back is None else output[back], *last

    def _run(
        self,
        x: Float[Tensor, "rows inputs"],
        sizes: list[int],
        h: Float[Tensor, "batch hidden"],
        c: Float[Tensor, "batch hidden"],
        suffix: str,
        norms: dict[str, StepNorm],
    ) -> tuple[
        Float[Tensor, "rows hidden"], Float[Tensor, "batch hidden"], Float[Tensor, "batch hidden"]
    ]:
        """One layer, one direction: x holds the cases of step 0, then those of step 1, and so on.

        Cases are sorted by length, so those that have ended are the last rows of the states.
        """
        w_ih, w_hh = (getattr(self, f"weight_{term}{suffix}") for term in ("ih", "hh"))
        b = getattr(self, f"bias_ih{suffix}") if self.bias else 0
        input_term = x @ w_ih.T
        whole = self.statistics == "sequence"
        if whole:
            input_term = norms["ih"](input_term, 0)
        outputs, ended = [], []
        for t, (n, rows) in enumerate(zip(sizes, input_term.split(sizes), strict=True)):
            ended.append((h[n:], c[n:]))
            h, c = h[:n], c[:n]
            gates = norms["hh"](h @ w_hh.T, t) + (rows if whole else norms["ih"](rows, t)) + b
            i, f, g, o = gates.chunk(4, -1)
            c = (torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)).to(c.dtype)
            h = (torch.sigmoid(o) * torch.tanh(norms["c"](c, t))).to(h.dtype)
            outputs.append(h)
        h, c = (torch.cat(part) for part in zip((h, c), *reversed(ended), strict=True))
        return torch.cat(outputs), h, c

    def _step_norms(self, suffix: str, steps: int) -> dict[str, StepNorm]:
        """The three norms of a layer, with a row of running statistics for each step if needed."""
        norms = {}
        last = (self.num_batches_tracked > 0).sum().clamp(min=1) - 1  # that has statistics
        rows = torch.minimum(torch.arange(steps, device=last.device), last)
        for term in TERMS:
            gain = getattr(self, f"bn_{term}_weight{suffix}")
            bias = getattr(self, f"bn_c_bias{suffix}") if term == "c" else None
            running = None
            if not self.training:
                running = self._running(term, suffix)
                if not (term == "ih" and self.statistics == "sequence"):
                    running = tuple(moment[rows] for moment in running)
            norms[term] = StepNorm(gain, bias, self.eps, self.min_samples, running)
        return norms

    def _running(self, term: str, suffix: str) -> tuple[Tensor, Tensor]:
        return tuple(getattr(self, f"running_{m}_{term}{suffix}") for m in ("mean", "var"))

    @torch.no_grad()
    def _track(self, sizes: list[int], suffix: str, norms: dict[str, StepNorm]) -> None:
        """Move the running statistics of the steps that had enough cases."""
        steps = len(self._enough(sizes))
        share = 1 / (self.num_batches_tracked[:steps, None] + 1).double()
        share = share.clamp(min=self.momentum or 0.0)
        for term, norm in norms.items():
            for running, new in zip(self._running(term, suffix), norm.seen(), strict=True):
                part = running[: len(new)]
                part += share[: len(new)].to(part.dtype) * (new.to(part.dtype) - part)

    def _enough(self, sizes: list[int]) -> Int[Tensor, " steps"]:
        """The numbers of cases at the steps that have statistics of their own."""
        return torch.tensor([n for n in sizes if n >= self.min_samples])

    def _check_steps(self, sizes: list[int]) -> None:
        cases = sizes[0] if sizes else 0
        if self.training and cases < self.min_samples:
            raise ValueError(
                f"batch normalization in training needs at least {self.min_samples} sequences in "
                f"a batch (min_samples), got {cases}: statistics over the cases do not exist; "
                "use a larger batch, evaluation mode or LayerNormLSTM"
            )
        if self.training and len(sizes) > self.max_length:
            raise ValueError(
                f"training sequences must have at most max_length={self.max_length} steps, got "
                f"{len(sizes)}; construct the layer with a larger max_length"
            )
        if not self.training and self.beyond == "error":
            tracked = int((self.num_batches_tracked > 0).sum())
            if len(sizes) > tracked:
                raise ValueError(
                    f"there are statistics for {tracked} steps, got sequences of {len(sizes)}; "
                    'train on longer ones, or use beyond="last" to reuse the last statistics'
                )

    def extra_repr(self) -> str:
        shown = ("num_layers", "bidirectional", "max_length", "statistics", "beyond", "min_samples")
        return f"{self.input_size}, {self.hidden_size}, " + ", ".join(
            f"{name}={getattr(self, name)!r}" for name in shown
        )
