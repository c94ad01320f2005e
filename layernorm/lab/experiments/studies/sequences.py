"""One run of a study of recurrent layers: a configuration in, a record out.

As `training` does for the digits. The tasks are those of `layernorm.lab.data.lags`; every update
sees fresh sequences, so a training loss is a test loss and nothing can be learned by heart.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from layernorm.lab import records
from layernorm.lab.data.lags import TASKS, Task
from layernorm.recurrent.layers import LayerNormLSTM
from layernorm.recurrent.variants import VARIANTS

VALIDATION_SEED, TEST_SEED, LONGER_SEED = 10**6, 10**6 + 1, 10**6 + 2
HELD_OUT = 500  # sequences for validation, as many for the test
FORGET_BIAS = 1.0
CLIP = 1.0  # norm of the gradient


@dataclass(frozen=True)
class Config:
    """Everything that decides the outcome of a run.

    `method`: `none` is `torch.nn.LSTM`, `layer` is `LayerNormLSTM` in a `variant`. `task`, `steps`:
    see `layernorm.lab.data.lags`. `rescaled`: the control, `nn.LSTM` with the weights scaled at the
    start so that both terms of its summed inputs have unit variance, as both norms give them.
    `examples`: train on that many fixed sequences, None for fresh ones. `evaluations`: how many
    times the curves are read, evenly over the updates, besides the start.
    """

    study: str
    arm: str
    method: str = "none"
    seed: int = 0
    learning_rate: float = 1e-3
    task: str = "adding"
    steps: int = 100
    variant: str = "paper"
    rescaled: bool = False
    hidden: int = 48
    batch_size: int = 50
    updates: int = 800
    examples: int | None = None
    evaluations: int = 16

    def __post_init__(self) -> None:
        for name, known in (("method", ("none", "layer")), ("variant", VARIANTS), ("task", TASKS)):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
        for name in ("learning_rate", "steps", "hidden", "batch_size", "updates", "evaluations"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be positive and finite, got {value}")
        if self.rescaled and self.method != "none":
            raise ValueError("rescaled is the control for method 'none' only")
        if self.evaluations > self.updates:
            raise ValueError(f"evaluations must be at most updates ({self.updates})")
        if self.examples is not None and self.batch_size > self.examples:
            raise ValueError(
                f"batch_size {self.batch_size} exceeds the {self.examples} training examples"
            )


class Reader(nn.Module):
    """A recurrent layer, and a linear one that reads its outputs at the last steps."""

    def __init__(self, recurrent: nn.Module, hidden: int, outputs: int) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor, reads: int) -> Tensor:
        return self.head(self.recurrent(x)[0][-reads:])


def build(config: Config) -> Reader:
    """The network at its start.

    All arms of a seed start from the same weights, those of torch's LSTM, with biases 0 and the
    forget gate's `FORGET_BIAS`.
    """
    task = TASKS[config.task]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        lstm = nn.LSTM(task.inputs, config.hidden)
        net = Reader(lstm, config.hidden, task.outputs)
        forget = slice(config.hidden, 2 * config.hidden)
        with torch.no_grad():
            lstm.bias_hh_l0.zero_()
            lstm.bias_ih_l0.zero_()[forget] = FORGET_BIAS
        if config.method == "layer":
            layer = LayerNormLSTM(task.inputs, config.hidden, variant=config.variant)
            with torch.no_grad():
                for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"):
                    getattr(layer, name).copy_(getattr(lstm, name))
            net.recurrent = layer
    if config.rescaled:
        rescale_(lstm, task.draw(HELD_OUT, config.steps, _generator(VALIDATION_SEED))[0])
    return net


@torch.no_grad()
def rescale_(lstm: nn.LSTM, x: Tensor, rounds: int = 20) -> None:
    """Scales both weight matrices so that W_x x and W_h h have unit variance on x, over all units,
    steps and cases.

    The state depends on its own weights, so its matrix is scaled again and again; what is left
    after the rounds is checked. Raises `RuntimeError` where that does not settle within 1 %.
    """
    lstm.weight_ih_l0 /= (x @ lstm.weight_ih_l0.T).std()
    for _ in range(rounds):
        lstm.weight_hh_l0 /= _recurrent_spread(lstm, x)
    if abs(spread := _recurrent_spread(lstm, x).item() - 1) > 0.01:
        raise RuntimeError(
            f"the recurrent summed inputs' standard deviation is {1 + spread:.3f} after {rounds} "
            "rounds of scaling, not 1; use more rounds"
        )


def _recurrent_spread(lstm: nn.LSTM, x: Tensor) -> Tensor:
    return (lstm(x)[0][:-1] @ lstm.weight_hh_l0.T).std()


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _batches(config: Config, task: Task) -> Iterator[tuple[Tensor, Tensor]]:
    """One batch after another: fresh sequences, or again and again those of `examples`."""
    generator = _generator(config.seed)
    if config.examples is None:
        while True:
            yield task.draw(config.batch_size, config.steps, generator)
    x, y = task.draw(config.examples, config.steps, generator)
    while True:
        for index in torch.randperm(config.examples, generator=generator).split(config.batch_size):
            yield x[:, index], y[:, index]


def _held_out(config: Config, task: Task) -> dict[str, tuple[Tensor, Tensor]]:
    parts = {
        "validation": task.draw(HELD_OUT, config.steps, _generator(VALIDATION_SEED)),
        "test": task.draw(HELD_OUT, config.steps, _generator(TEST_SEED)),
    }
    if config.examples is not None:
        parts["train"] = task.draw(config.examples, config.steps, _generator(config.seed))
    return parts


@torch.no_grad()
def _loss(net: Reader, task: Task, x: Tensor, y: Tensor) -> float:
    return float(task.loss(net(x, len(y)), y))


def train(config: Config, profile: str = "book") -> records.Record:
    """Train one network with Adam and record its curves.

    The record's `result` holds curves of the task's loss on validation and test sequences (and on
    the training sequences where `examples` fixes them), their final values, and besides

    - `mean_validation_loss`, `mean_test_loss`: the means of these curves after the start: low if
      the arm learns fast;
    - `longer_loss`: the final loss on test sequences of twice the `steps`.

    A loss that is not finite stops the run, which is a result too (`diverged_at`, the update; final
    values are then infinite).
    """
    task = TASKS[config.task]
    net, parts = build(config), _held_out(config, task)

    def read() -> dict[str, float]:
        return {f"{part}_loss": _loss(net, task, *drawn) for part, drawn in parts.items()}

    optimizer = torch.optim.Adam(net.parameters(), lr=config.learning_rate)
    at = {round(i * config.updates / config.evaluations) for i in range(config.evaluations + 1)}
    steps, rows, diverged_at, seconds = [0], [read()], None, 0.0
    for step, (x, y) in enumerate(_batches(config, task), start=1):
        start = time.perf_counter()
        loss = task.loss(net(x, len(y)), y)
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
            rows.append(read())
        if step == config.updates:
            break
    result = _result(steps, rows, diverged_at)
    longer = task.draw(HELD_OUT, 2 * config.steps, _generator(LONGER_SEED))
    result["final"]["longer_loss"] = _loss(net, task, *longer) if diverged_at is None else math.inf
    timing = {"seconds_per_update": seconds / max(1, (diverged_at or config.updates + 1) - 1)}
    return records.new(_record_config(config, profile), result, timing, [train])


def _result(steps: list[int], rows: list[dict], diverged_at: int | None) -> dict:
    curves = {name: {"step": steps, "value": [r[name] for r in rows]} for name in rows[0]}
    final = dict(rows[-1]) if diverged_at is None else dict.fromkeys(rows[-1], math.inf)
    later = rows[1:] if diverged_at is None else [dict.fromkeys(rows[0], math.inf)]
    for part in ("validation", "test"):
        final[f"mean_{part}_loss"] = sum(r[f"{part}_loss"] for r in later) / len(later)
    return {"curves": curves, "final": final, "diverged_at": diverged_at}


def _record_config(config: Config, profile: str) -> dict:
    options = asdict(config)
    named = {key: options.pop(key) for key in ("arm", "method", "seed")}
    return {"experiment": options.pop("study"), "profile": profile, **named, "options": options}
