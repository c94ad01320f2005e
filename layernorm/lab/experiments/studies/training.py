"""One run of a Part I study: a configuration in, a record out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layernorm import functional
from layernorm.lab import data, records
from layernorm.lab.analysis import networks
from layernorm.lab.analysis.activations import Watch
from layernorm.methods import method


@dataclass(frozen=True)
class Config:
    """Everything that decides the outcome of a run.

    `order`: `shuffled` draws each batch at random; `sorted` takes runs of examples sorted by
    class. `rescaled`: the control, weights scaled to unit-variance summed inputs at the start,
    after everything else. `initial_scale`, `initial_spread`, `initial_shift`, `initial_gains`: the
    hidden weights at the start (`networks.redraw_`). `input_scales`: factors on the columns of the
    input, repeated cyclically (features of different units). `input_shift`: a constant added to
    the whole data set. `centered`: after both, each feature's mean over the training set is
    subtracted. `input_norm`: what is done to the input last: `none`, `standardized` (each feature
    by its mean and standard deviation over the training set) or `layer` (each case by its mean and
    standard deviation over its features). `examples`: train on that many first examples only, None
    for all. `watch`: also record what happens to the summed inputs of the second hidden layer
    (`activations.Watch`, on the validation examples). `evaluations`: how many times the curves are
    read, evenly over the updates, besides the start.
    """

    study: str
    arm: str
    method: str = "none"
    seed: int = 0
    learning_rate: float = 1e-3
    batch_size: int = 128
    updates: int = 300
    hidden: tuple[int, ...] = (128, 128)
    activation: str = "tanh"
    rescaled: bool = False
    initial_scale: float = 1.0
    initial_spread: float = 0.0
    initial_shift: float = 0.0
    initial_gains: bool = True
    order: str = "shuffled"
    input_scales: tuple[float, ...] = (1.0,)
    input_shift: float = 0.0
    centered: bool = False
    input_norm: str = "none"
    examples: int | None = None
    watch: bool = False
    evaluations: int = 15

    def __post_init__(self) -> None:
        method(self.method)
        if not math.isfinite(self.input_shift):
            raise ValueError(f"input_shift must be finite, got {self.input_shift}")
        for name in ("learning_rate", "initial_scale", "batch_size", "updates", "evaluations"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be positive and finite, got {value}")
        if self.order not in ("shuffled", "sorted"):
            raise ValueError(f"order must be 'shuffled' or 'sorted', got {self.order!r}")
        if self.input_norm not in ("none", "standardized", "layer"):
            raise ValueError(
                f"input_norm must be 'none', 'standardized' or 'layer', got {self.input_norm!r}"
            )
        if self.rescaled and self.method != "none":
            raise ValueError("rescaled is the control for method 'none' only")
        if self.evaluations > self.updates:
            raise ValueError(f"evaluations must be at most updates ({self.updates})")


def _batches(y: Tensor, config: Config, generator: torch.Generator) -> Iterator[Tensor]:
    """Indices of one batch after another, without end; a trailing partial batch is left out."""
    n, size = len(y), config.batch_size
    if size > n:
        raise ValueError(f"batch_size {size} exceeds the {n} training examples; use at most {n}")
    by_class = torch.argsort(y, stable=True)
    while True:
        order = torch.randperm(n, generator=generator)
        if config.order == "sorted":
            start = int(torch.randint(n, (), generator=generator))
            chunks = by_class.roll(-start)[: n // size * size].view(-1, size)
            yield from chunks[torch.randperm(len(chunks), generator=generator)]
        else:
            yield from order[: n // size * size].view(-1, size)


def _tensors(config: Config) -> dict[str, tuple[Tensor, Tensor]]:
    splits = data.digits()
    out = {}
    for part in ("train", "validation", "test"):
        examples = getattr(splits, part)
        x = examples.x.flatten(1)
        scales = torch.tensor(config.input_scales)
        x = x * scales.repeat(x.shape[1] // len(scales) + 1)[: x.shape[1]] + config.input_shift
        out[part] = (x, examples.y)
    if config.centered:
        mean = out["train"][0].mean(0)
        out = {part: (x - mean, y) for part, (x, y) in out.items()}
    if config.input_norm == "layer":
        out = {part: (functional.layer_norm(x, x.shape[1:]), y) for part, (x, y) in out.items()}
    if config.input_norm == "standardized":
        mean, std = out["train"][0].mean(0), out["train"][0].std(0)
        std[std == 0] = 1  # a feature that never varies stays 0
        out = {part: ((x - mean) / std, y) for part, (x, y) in out.items()}
    if config.examples is not None:
        x, y = out["train"]
        out["train"] = (x[: config.examples], y[: config.examples])
    return out


def build(config: Config, x: Tensor) -> nn.Sequential:
    """The network at its start; `x` are the training inputs (the control reads their scale)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        net = networks.mlp([x.shape[1], *config.hidden, 10], config.method, config.activation)
    start = (config.initial_scale, config.initial_spread, config.initial_shift)
    if start != (1, 0, 0):
        networks.redraw_(net, *start, config.initial_gains, config.seed)
    if config.rescaled:
        networks.rescale_(net, x)
    return net


@torch.no_grad()
def _evaluate(net: nn.Module, tensors: dict[str, tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Cross-entropy in nats and error in percent, in evaluation mode, on every part."""
    net.eval()
    out = {}
    for part, (x, y) in tensors.items():
        logits = net(x)
        out[f"{part}_nll"] = float(cross_entropy(logits.double(), y))
        out[f"{part}_error"] = float((logits.argmax(1) != y).double().mean() * 100)
    net.train()
    return out


def train(config: Config, profile: str = "book") -> records.Record:
    """Train one network with Adam and record its curves.

    The record's `result` holds curves of cross-entropy (nats) and error (percent) on training,
    validation and test examples, their final values, and besides

    - `mean_train_nll`, `mean_validation_nll`, `mean_test_nll`: the means of these curves after the
      start: low if the arm learns fast;
    - `best_test_error`: the test error where the validation cross-entropy was lowest.

    A loss that is not finite stops the run, which is a result too (`diverged_at`, the update; final
    values are then infinite).
    """
    tensors = _tensors(config)
    x, y = tensors["train"]
    net = build(config, x)
    watch = Watch(net, tensors["validation"][0], config.activation) if config.watch else None

    def read() -> dict[str, float]:
        return _evaluate(net, tensors) | (watch.curve(net) if watch else {})

    batches = _batches(y, config, torch.Generator().manual_seed(config.seed))
    optimizer = torch.optim.Adam(net.parameters(), lr=config.learning_rate)
    at = {round(i * config.updates / config.evaluations) for i in range(config.evaluations + 1)}
    steps, rows, diverged_at = [0], [read()], None
    seconds = 0.0
    for step in range(1, config.updates + 1):
        start = time.perf_counter()
        index = next(batches)
        loss = cross_entropy(net(x[index]), y[index])
        if not torch.isfinite(loss):
            diverged_at = step
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds += time.perf_counter() - start
        if step in at:
            steps.append(step)
            rows.append(read())
    result = _result(steps, rows, diverged_at)
    if watch and diverged_at is None:
        result["final"] |= watch.final(net)
    timing = {"seconds_per_update": seconds / max(1, (diverged_at or config.updates + 1) - 1)}
    return records.new(_record_config(config, profile), result, timing, [train])


def _result(steps: list[int], rows: list[dict], diverged_at: int | None) -> dict:
    curves = {name: {"step": steps, "value": [r[name] for r in rows]} for name in rows[0]}
    final = dict(rows[-1]) if diverged_at is None else dict.fromkeys(rows[-1], math.inf)
    later = rows[1:] if diverged_at is None else [dict.fromkeys(rows[0], math.inf)]
    for part in ("train", "validation", "test"):
        final[f"mean_{part}_nll"] = sum(r[f"{part}_nll"] for r in later) / len(later)
    final["best_test_error"] = min(later, key=lambda r: r["validation_nll"])["test_error"]
    return {"curves": curves, "final": final, "diverged_at": diverged_at}


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
