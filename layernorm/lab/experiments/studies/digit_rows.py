"""One run of a study of batch statistics in recurrent nets: a configuration in, a record out.

A sequence is one to three digits, each read row by row, eight pixels a step; the question is which
digit came last. Most sequences are short, so late steps rest on few cases.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from layernorm.lab import data, records
from layernorm.lab.data.splits import Examples
from layernorm.lab.experiments.studies.sequences import rescale_
from layernorm.recurrent.batch_norm import TERMS, BatchNormLSTM
from layernorm.recurrent.layers import LayerNormLSTM

ROWS = 8  # steps of one digit
CHANCES = (0.6, 0.3, 0.1)  # of one, two and three digits in training
LONGER = 6  # digits in the longer test sequences
FORGET_BIAS = 1.0
CLIP = 1.0  # norm of the gradient


@dataclass(frozen=True)
class Config:
    """Everything that decides the outcome of a run.

    `method`: `none` is `torch.nn.LSTM`, `layer` is `LayerNormLSTM`, `batch` is `BatchNormLSTM`.
    `gain`: where all gains start. `padded`: with `batch`, short sequences are filled up with blank
    rows that count in the statistics. `rescaled`: the control, `nn.LSTM` whose summed inputs start
    with unit variance. `examples`: train on that many fixed sequences, None for fresh ones.
    `evaluations`: how many times the curves are read, evenly over the updates, besides the start.
    """

    study: str
    arm: str
    method: str = "none"
    seed: int = 0
    learning_rate: float = 1e-3
    gain: float = 1.0
    padded: bool = False
    rescaled: bool = False
    hidden: int = 32
    batch_size: int = 32
    updates: int = 300
    examples: int | None = None
    evaluations: int = 10

    def __post_init__(self) -> None:
        if self.method not in ("none", "batch", "layer"):
            raise ValueError(f"method must be none, batch or layer, got {self.method!r}")
        for name in ("learning_rate", "gain", "hidden", "batch_size", "updates", "evaluations"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be positive and finite, got {value}")
        for name, method in (("padded", "batch"), ("rescaled", "none")):
            if getattr(self, name) and self.method != method:
                raise ValueError(f"{name} is for method {method!r} only, got {self.method!r}")
        if self.evaluations > self.updates:
            raise ValueError(f"evaluations must be at most updates ({self.updates})")
        if self.examples is not None and self.batch_size > self.examples:
            raise ValueError(
                f"batch_size {self.batch_size} exceeds the {self.examples} training examples"
            )


@dataclass(frozen=True)
class Batch:
    """Sequences (steps, cases, 8), filled up with blank rows; their lengths in steps; the labels of
    their last digits."""

    x: Tensor
    lengths: Tensor
    y: Tensor

    def packed(self) -> PackedSequence:
        return pack_padded_sequence(self.x, self.lengths, enforce_sorted=False)


def sequences(
    examples: Examples, last: Tensor, digits: Tensor, generator: torch.Generator
) -> Batch:
    """Sequences that end with the digits `last`, after `digits - 1` others drawn at random."""
    most = int(digits.max())
    chosen = torch.randint(len(examples.y), (len(last), most), generator=generator)
    chosen[torch.arange(len(last)), digits - 1] = last
    x = examples.x[chosen].flatten(1, 2)  # (cases, most * 8, 8)
    lengths = ROWS * digits
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


def build(config: Config) -> Classifier:
    """The network at its start: weights and biases of torch's LSTM, the same for all arms of a
    seed, with biases 0 and the forget gate's `FORGET_BIAS`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        lstm = nn.LSTM(ROWS, config.hidden)
        net = Classifier(lstm, config.hidden, config.padded)
        if config.method == "layer":
            net.recurrent = LayerNormLSTM(ROWS, config.hidden, backend="reference")
        if config.method == "batch":
            steps = ROWS * len(CHANCES)
            net.recurrent = BatchNormLSTM(ROWS, config.hidden, max_length=steps)
    with torch.no_grad():
        lstm.bias_hh_l0.zero_()
        lstm.bias_ih_l0.zero_().chunk(4)[1].fill_(FORGET_BIAS)
        for name, parameter in net.recurrent.named_parameters():
            if name in dict(lstm.named_parameters()):
                parameter.copy_(getattr(lstm, name))
            elif not name.endswith("bias_l0"):
                parameter.fill_(config.gain)
    if config.rescaled:
        generator = torch.Generator().manual_seed(config.seed)
        train = data.digits().train
        three = torch.full((300,), len(CHANCES))
        rescale_(lstm, sequences(train, torch.arange(300), three, generator).x)
    return net


def _batches(config: Config) -> Iterator[Batch]:
    """One batch after another: fresh sequences, or again and again those of `examples`."""
    generator = torch.Generator().manual_seed(config.seed)
    train = data.digits().train
    if config.examples is not None:
        lengths = drawn_lengths(config.examples, generator)
        fixed = sequences(train, torch.arange(config.examples), lengths, generator)
    while True:
        order = torch.randperm(config.examples or len(train.y), generator=generator)
        for last in order.split(config.batch_size):
            if len(last) < config.batch_size:
                continue
            if config.examples is None:
                yield sequences(train, last, drawn_lengths(len(last), generator), generator)
            else:
                yield Batch(fixed.x[:, last], fixed.lengths[last], fixed.y[last])


def held_out(part: str, digits: int | None = None) -> Batch:
    """The 300 validation or test sequences, the same for every run; lengths as in training, or all
    of this many digits."""
    examples = getattr(data.digits(), part)
    generator = torch.Generator().manual_seed({"validation": 1, "test": 2}[part])
    n = len(examples.y)
    count = drawn_lengths(n, generator) if digits is None else torch.full((n,), digits)
    return sequences(examples, torch.arange(n), count, generator)


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
def with_repeated_statistics(net: Classifier, digits: int) -> Classifier:
    """A copy whose statistics beyond the longest training sequence are those of its last digit,
    row for row, again and again."""
    longer, old = _for_longer(net, ROWS * digits), net.recurrent
    steps = torch.arange(ROWS * digits)
    last = old.max_length - ROWS
    rows = torch.where(steps < old.max_length, steps, last + steps % ROWS)
    for name, buffer in longer.recurrent.named_buffers():
        buffer.copy_(getattr(old, name)[rows])
    return longer


@torch.no_grad()
def with_own_statistics(net: Classifier, digits: int, seed: int) -> Classifier:
    """A copy that has statistics for each step of sequences of so many digits: averages over the
    training digits, in batches of 200."""
    longer = _for_longer(net, ROWS * digits).train()
    generator = torch.Generator().manual_seed(seed)
    train = data.digits().train
    for last in torch.randperm(len(train.y), generator=generator).split(200):
        if len(last) > 1:
            count = torch.full((len(last),), digits)
            longer(sequences(train, last, count, generator))
    return longer


def _final(net: Classifier, config: Config) -> dict[str, float]:
    """Test sequences of a given number of digits, under several statistics where there are any."""
    by_length = {f"test_{n}": held_out("test", n) for n in (*range(1, len(CHANCES) + 1), LONGER)}
    out = scores(net, by_length)
    if config.method == "batch" and not config.padded:
        shared = copy.deepcopy(net)
        share_statistics_(shared.recurrent)
        out |= scores(shared, {"shared": held_out("test"), "shared_1": by_length["test_1"]})
        for n in (len(CHANCES), LONGER):
            own = with_own_statistics(net, n, config.seed)
            out |= scores(own, {f"own_{n}": by_length[f"test_{n}"]})
        repeated = with_repeated_statistics(net, LONGER)
        out |= scores(repeated, {f"repeated_{LONGER}": by_length[f"test_{LONGER}"]})
    return out


def train(config: Config, profile: str = "book") -> records.Record:
    """Train one network with Adam and record its curves.

    The record's `result` holds curves of cross-entropy (nats) and error (percent) on validation
    and test sequences (and on the training sequences where `examples` fixes them), their final
    values, and besides

    - `mean_validation_nll`, `mean_test_nll`: the means of these curves after the start: low if the
      arm learns fast;
    - `test_1_nll` to `test_3_nll`, `test_6_nll` and the errors: test sequences of 1, 2, 3 and 6
      digits, six being longer than any in training;
    - with `batch`: `shared_nll`, the test sequences under statistics shared by all steps, and
      `shared_1_nll`, those of one digit so; `own_3_nll` and `own_6_nll`, three and six digits under
      statistics that 200 cases give each of their steps; `repeated_6_nll`, six digits under those
      of the third digit for the three that follow.

    A loss that is not finite stops the run, which is a result too (`diverged_at`, the update; final
    values are then infinite).
    """
    net = build(config)
    parts = {part: held_out(part) for part in ("validation", "test")}
    if config.examples is not None:
        fixed = next(_batches(Config(**asdict(config) | {"batch_size": config.examples})))
        parts["train"] = fixed
    optimizer = torch.optim.Adam(net.parameters(), lr=config.learning_rate)
    at = {round(i * config.updates / config.evaluations) for i in range(config.evaluations + 1)}
    steps, rows, diverged_at, seconds = [0], [scores(net, parts)], None, 0.0
    for step, batch in enumerate(_batches(config), start=1):
        start = time.perf_counter()
        loss = cross_entropy(net(batch), batch.y)
        if not torch.isfinite(loss):
            diverged_at = step
            break
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        seconds += time.perf_counter() - start
        if step in at:
            steps.append(step)
            rows.append(scores(net, parts))
        if step == config.updates:
            break
    curves = {name: {"step": steps, "value": [r[name] for r in rows]} for name in rows[0]}
    final = rows[-1] | _final(net, config)
    for part in ("validation", "test"):
        final[f"mean_{part}_nll"] = sum(r[f"{part}_nll"] for r in rows[1:]) / max(1, len(rows) - 1)
    if diverged_at is not None:
        final = dict.fromkeys(final, math.inf)
    result = {"curves": curves, "final": final, "diverged_at": diverged_at}
    timing = {"seconds_per_update": seconds / max(1, (diverged_at or config.updates + 1) - 1)}
    return records.new(_record_config(config, profile), result, timing, [train])


def _record_config(config: Config, profile: str) -> dict:
    options = asdict(config)
    named = {key: options.pop(key) for key in ("arm", "method", "seed")}
    return {
        "experiment": options.pop("study"),
        "profile": profile,
        **named,
        "options": options,
        "data": data.digits().sha256,
    }
