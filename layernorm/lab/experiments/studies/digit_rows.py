"""A recurrent layer on rows of digits: what the study of chapter 10 trains.

A sequence is one to three digits, each read row by row, eight pixels a step; the question is which
digit came last. Most sequences are short, so late steps rest on few cases.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from layernorm.lab.analysis.networks import rescale_lstm_
from layernorm.lab.data.digits import SHA256
from layernorm.lab.data.splits import Examples
from layernorm.lab.experiments.batches import InTurn
from layernorm.lab.experiments.options import Count, Positive
from layernorm.lab.experiments.studies import StudyOptions
from layernorm.lab.experiments.studies.digits import digits
from layernorm.recurrent.batch_norm import TERMS, BatchNormLSTM
from layernorm.recurrent.layers import LayerNormLSTM

ROWS = 8  # steps of one digit
CHANCES = (0.6, 0.3, 0.1)  # of one, two and three digits in training
LONGER = 6  # digits in the longer test sequences
FORGET_BIAS = 1.0


class RowOptions(StudyOptions):
    """`method`: `none` is `torch.nn.LSTM`, `layer` is `LayerNormLSTM`, `batch` is `BatchNormLSTM`.
    `gain`: where all gains start. `padded`: with `batch`, short sequences are filled up with blank
    rows that count in the statistics. `examples`: train on that many fixed sequences, None for
    fresh ones."""

    clip: ClassVar[float | None] = 1.0

    method: Literal["none", "batch", "layer"] = "none"
    batch_size: Count = 32
    updates: Count = 300
    evaluations: Count = 10
    gain: Positive = 1.0
    padded: bool = False
    hidden: Count = 32

    def check(self) -> None:
        super().check()
        if self.padded and self.method != "batch":
            raise ValueError(f"padded is for method 'batch' only, got {self.method!r}")


@dataclass(frozen=True)
class Batch:
    """Sequences (steps, cases, 8), filled up with blank rows; their lengths in steps; the labels of
    their last digits."""

    x: Tensor
    lengths: Tensor
    y: Tensor

    def packed(self) -> PackedSequence:
        return pack_padded_sequence(self.x, self.lengths, enforce_sorted=False)


def sequences(examples: Examples, last: Tensor, count: Tensor, generator: torch.Generator) -> Batch:
    """Sequences that end with the digits `last`, after `count - 1` others drawn at random."""
    most = int(count.max())
    chosen = torch.randint(len(examples.y), (len(last), most), generator=generator)
    chosen[torch.arange(len(last)), count - 1] = last
    x = examples.x[chosen].flatten(1, 2)  # (cases, most * 8, 8)
    lengths = ROWS * count
    x = x * (torch.arange(x.shape[1]) < lengths[:, None]).unsqueeze(-1)
    return Batch(x.transpose(0, 1), lengths, examples.y[last])


def drawn_lengths(cases: int, generator: torch.Generator) -> Tensor:
    """Numbers of digits by `CHANCES`; among enough cases each occurs."""
    return 1 + torch.multinomial(torch.tensor(CHANCES), cases, True, generator=generator)


class Classifier(nn.Module):
    """A recurrent layer, and a linear one that reads its state at the end of each sequence."""

    def __init__(self, recurrent: nn.Module, hidden: int, padded: bool) -> None:
        super().__init__()
        self.recurrent, self.padded = recurrent, padded
        self.head = nn.Linear(hidden, 10)

    def forward(self, batch: Batch) -> Tensor:
        if self.padded:
            y, _ = self.recurrent(batch.x)
            return self.head(y[batch.lengths - 1, torch.arange(len(batch.y))])
        return self.head(self.recurrent(batch.packed())[1][0][0])


def build(options: RowOptions, seed: int) -> Classifier:
    """The network at its start: weights and biases of torch's LSTM, the same for all arms of a
    seed, with biases 0 and the forget gate's `FORGET_BIAS`."""
    lstm = nn.LSTM(ROWS, options.hidden)
    net = Classifier(lstm, options.hidden, options.padded)
    if options.method == "layer":
        net.recurrent = LayerNormLSTM(ROWS, options.hidden, backend="reference")
    if options.method == "batch":
        net.recurrent = BatchNormLSTM(ROWS, options.hidden, max_length=ROWS * len(CHANCES))
    with torch.no_grad():
        lstm.bias_hh_l0.zero_()
        lstm.bias_ih_l0.zero_().chunk(4)[1].fill_(FORGET_BIAS)
        for name, parameter in net.recurrent.named_parameters():
            if name in dict(lstm.named_parameters()):
                parameter.copy_(getattr(lstm, name))
            elif not name.endswith("bias_l0"):
                parameter.fill_(options.gain)
    if options.rescaled:
        generator = torch.Generator().manual_seed(seed)
        three = torch.full((300,), len(CHANCES))
        rescale_lstm_(lstm, sequences(digits().train, torch.arange(300), three, generator).x)
    return net


def batches(options: RowOptions, seed: int) -> Iterator[Batch]:
    """One batch after another: fresh sequences, or again and again those of `examples`."""
    generator = torch.Generator().manual_seed(seed)
    train = digits().train
    if options.examples is not None:
        lengths = drawn_lengths(options.examples, generator)
        fixed = sequences(train, torch.arange(options.examples), lengths, generator)
    while True:
        order = torch.randperm(options.examples or len(train.y), generator=generator)
        for last in order.split(options.batch_size):
            if len(last) < options.batch_size:
                continue
            if options.examples is None:
                yield sequences(train, last, drawn_lengths(len(last), generator), generator)
            else:
                yield Batch(fixed.x[:, last], fixed.lengths[last], fixed.y[last])


def held_out(part: str, count: int | None = None) -> Batch:
    """The 300 validation or test sequences, the same for every run; lengths as in training, or all
    of this many digits."""
    examples = getattr(digits(), part)
    generator = torch.Generator().manual_seed({"validation": 1, "test": 2}[part])
    n = len(examples.y)
    counts = drawn_lengths(n, generator) if count is None else torch.full((n,), count)
    return sequences(examples, torch.arange(n), counts, generator)


@torch.no_grad()
def scores(net: Classifier, batches: dict[str, Batch]) -> dict[str, float]:
    """Cross-entropy in nats and error in percent, in evaluation mode."""
    net.eval()
    out = {}
    for name, batch in batches.items():
        logits = net(batch)
        out[f"{name}_nll"] = float(cross_entropy(logits.double(), batch.y))
        out[f"{name}_error"] = float((logits.argmax(1) != batch.y).double().mean() * 100)
    net.train()
    return out


@torch.no_grad()
def share_statistics_(layer: BatchNormLSTM) -> None:
    """One mean and variance for all steps: those of all valid cases and steps together."""
    counted = layer.num_samples_tracked[:, None].double()
    weight = (counted / counted.sum()).to(layer.weight_hh_l0)
    for term in TERMS:
        mean, var = (getattr(layer, f"running_{m}_{term}_l0") for m in ("mean", "var"))
        center = (weight * mean).sum(0)
        var.copy_((weight * (var + (mean - center) ** 2)).sum(0).expand_as(var))
        mean.copy_(center.expand_as(mean))


def _for_longer(net: Classifier, steps: int) -> Classifier:
    """A copy of a batch-normalized network with room for the statistics of so many steps."""
    longer = copy.deepcopy(net)
    size = net.recurrent.hidden_size
    longer.recurrent = BatchNormLSTM(ROWS, size, max_length=steps, momentum=None)
    longer.recurrent.load_state_dict(dict(net.recurrent.named_parameters()), strict=False)
    return longer


@torch.no_grad()
def with_repeated_statistics(net: Classifier, count: int) -> Classifier:
    """A copy whose statistics beyond the longest training sequence are those of its last digit,
    row for row, again and again."""
    longer, old = _for_longer(net, ROWS * count), net.recurrent
    steps = torch.arange(ROWS * count)
    last = old.max_length - ROWS
    rows = torch.where(steps < old.max_length, steps, last + steps % ROWS)
    for name, buffer in longer.recurrent.named_buffers():
        buffer.copy_(getattr(old, name)[rows])
    return longer


@torch.no_grad()
def with_own_statistics(net: Classifier, count: int, seed: int) -> Classifier:
    """A copy that has statistics for each step of sequences of so many digits: averages over the
    training digits, in batches of 200."""
    longer = _for_longer(net, ROWS * count).train()
    generator = torch.Generator().manual_seed(seed)
    train = digits().train
    for last in torch.randperm(len(train.y), generator=generator).split(200):
        if len(last) > 1:
            longer(sequences(train, last, torch.full((len(last),), count), generator))
    return longer


class Rows:
    """The task: which digit came last? It stays on the CPU, whatever the device.

    Besides cross-entropy (nats) and error (percent) on validation and test sequences (and on those
    of training where `examples` fixes them), at the end

    - `test_1_nll` to `test_3_nll`, `test_6_nll` and the errors: test sequences of 1, 2, 3 and 6
      digits, six being longer than any in training;
    - with `batch`: `shared_nll`, the test sequences under statistics shared by all steps, and
      `shared_1_nll`, those of one digit so; `own_3_nll` and `own_6_nll`, three and six digits under
      statistics that 200 cases give each of their steps; `repeated_6_nll`, six digits under those
      of the third digit for the three that follow.
    """

    def __init__(self, options: RowOptions, seed: int, device: torch.device) -> None:
        self.options, self.seed = options, seed
        self.batches = InTurn(lambda: batches(options, seed))
        self.parts = {part: held_out(part) for part in ("validation", "test")}
        if options.examples is not None:
            whole = options.model_copy(update={"batch_size": options.examples})
            self.parts["train"] = next(batches(whole, seed))
        self.model = build(options, seed)

    def loss(self, step: int) -> Tensor:
        batch = self.batches(step)
        return cross_entropy(self.model(batch), batch.y)

    def evaluate(self) -> dict[str, float]:
        return scores(self.model, self.parts)

    def final(self) -> dict[str, float]:
        net, lengths = self.model, (*range(1, len(CHANCES) + 1), LONGER)
        by_length = {f"test_{n}": held_out("test", n) for n in lengths}
        out = scores(net, by_length)
        if self.options.method == "batch" and not self.options.padded:
            shared = copy.deepcopy(net)
            share_statistics_(shared.recurrent)
            out |= scores(shared, {"shared": held_out("test"), "shared_1": by_length["test_1"]})
            for n in (len(CHANCES), LONGER):
                own = with_own_statistics(net, n, self.seed)
                out |= scores(own, {f"own_{n}": by_length[f"test_{n}"]})
            repeated = with_repeated_statistics(net, LONGER)
            out |= scores(repeated, {f"repeated_{LONGER}": by_length[f"test_{LONGER}"]})
        return out


ON_DIGIT_ROWS: dict[str, Any] = {
    "options": RowOptions,
    "task": Rows,
    "data": lambda options: SHA256,
    "select": "validation_nll",
    "averaged": ("validation_nll", "test_nll"),
    "overfit": {"examples": 32, "batch_size": 32},
}
