"""What the experiment engine costs: an update of its trainer against a loop written by hand.

The MNIST network of the paper, 784-1000-1000-10, on random data:

    from layernorm.lab.benchmarks import engine
    engine.measure(128)                            # rows, for one batch size

Both loops have the same start, batches, and Adam; their losses must be the same bits. The loop
with Adam as torch has it by default tells what the engine's choice, the fused one, gains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layernorm.lab import records
from layernorm.lab.analysis import networks
from layernorm.lab.benchmarks.harness import times
from layernorm.lab.benchmarks.report import MEASURED, Row, to_records
from layernorm.lab.benchmarks.timing import CpuTimer, Timer, interleaved
from layernorm.lab.experiments.batches import Shuffled, generator
from layernorm.lab.experiments.experiment import Config, Experiment
from layernorm.lab.experiments.options import Options
from layernorm.lab.experiments.trainer import CHECK_EVERY, Trainer

SIZES = (784, 1000, 1000, 10)
CASES = 10_000
BATCHES = (128, 4)
UPDATES = 20  # whose losses the gate compares
BASELINE, OURS, DEFAULT = "bare loop", "engine", "bare loop, default Adam"
DEFAULT_ERROR = 1e-5  # of the losses with the default Adam, whose roundings are others


def data(cases: int = CASES) -> tuple[Tensor, Tensor]:
    """Pixels and classes by chance, shaped like MNIST."""
    draw = generator(0)
    return torch.rand(cases, SIZES[0], generator=draw), torch.randint(10, (cases,), generator=draw)


def network(seed: int) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return networks.mlp(SIZES, "none", "relu")


class Bare:
    """The loop as one writes it: a permutation an epoch, a slice of it a batch."""

    def __init__(self, batch: int, seed: int, fused: bool | None) -> None:
        self.x, self.y = data()
        self.model = network(seed)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=fused)
        self.batch, self.seed, self.step = batch, seed, 0

    def update(self) -> Tensor:
        epoch, i = divmod(self.step, CASES // self.batch)
        if i == 0:
            self.order = torch.randperm(CASES, generator=generator(self.seed, epoch))
        self.step += 1
        index = self.order[i * self.batch : (i + 1) * self.batch]
        loss = cross_entropy(self.model(self.x[index]), self.y[index])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def losses(self, updates: int) -> list[float]:
        return [self.update().item() for _ in range(updates)]


class _Task:
    """What the engine trains."""

    def __init__(self, options: Options, seed: int, device: torch.device) -> None:
        self.x, self.y = data()
        self.model = network(seed)
        self.batches = Shuffled(CASES, options.batch_size, seed)

    def loss(self, step: int) -> Tensor:
        index = self.batches(step)
        return cross_entropy(self.model(self.x[index]), self.y[index])

    def evaluate(self) -> dict[str, float]:
        return {}

    def final(self) -> dict[str, float]:
        return {}


EXPERIMENT = Experiment(
    name="bench_engine",
    question="What does the engine cost?",
    options=Options,
    arms={"none": {}},
    profiles={},
    task=_Task,
    data=lambda options: None,
    primary="mean_validation_nll",
    margin=0.01,
    select="validation_nll",
    averaged=("validation_nll",),
)


class Engine:
    """The engine's trainer, looked at as often as its loop does."""

    def __init__(self, batch: int, seed: int) -> None:
        config = Config("bench_engine", "cpu", "none", seed, Options(batch_size=batch))
        self.trainer = Trainer(EXPERIMENT, config, torch.device("cpu"))
        self.step = 0

    def update(self) -> None:
        self.step += 1
        self.trainer.update(self.step)
        if self.trainer.kept == CHECK_EVERY:
            self.trainer.look()

    def losses(self, updates: int) -> list[float]:
        self.trainer.look()
        for _ in range(updates):
            self.update()
        return self.trainer.look()


@dataclass(frozen=True)
class Subject:
    """One loop, made from batch size and seed, and the relative error its losses may have."""

    make: Callable[[int, int], Bare | Engine]
    allowed: float = 0.0


SUBJECTS = {
    BASELINE: Subject(lambda batch, seed: Bare(batch, seed, fused=True)),
    OURS: Subject(Engine),
    DEFAULT: Subject(lambda batch, seed: Bare(batch, seed, fused=None), DEFAULT_ERROR),
}


def measure(
    batch: int,
    *,
    rounds: int = 7,
    copies: int = 8,
    sample_seconds: float = 0.02,
    seed: int = 0,
    timer: Timer | None = None,
) -> list[Row]:
    """One row for each loop; those whose losses are right are timed in turns.

    Where 1.8 million weights come to lie in memory changes an update of a small batch by several
    percent, and two copies of one loop differ by as much. So every loop is made anew `copies`
    times, and timed for `rounds` rounds each time.

    The gate: the losses of the first 20 updates are those of the bare loop, bit for bit (with the
    default Adam to a relative 1e-5). `Row.error` is 0, or the part of that which is used up.

    Raises:
        ValueError: batch or rounds are out of range.
    """
    if not 1 <= batch <= CASES:
        raise ValueError(f"batch: expected 1 to {CASES}, got {batch}")
    if rounds < 6:
        raise ValueError(f"rounds: expected at least 6, for a 95% interval; got {rounds}")
    if copies < 1:
        raise ValueError(f"copies: expected at least 1, got {copies}")
    rows, loops = {}, {}
    expected = SUBJECTS[BASELINE].make(batch, seed).losses(UPDATES)
    for name, subject in SUBJECTS.items():
        rows[name] = Row(
            "engine", "none", name, BASELINE, "training", (batch, *SIZES), "float32", "cpu", seed,
            MEASURED,
            options={"rounds": rounds, "copies": copies, "threads": torch.get_num_threads()},
        )  # fmt: skip
        try:
            loop = subject.make(batch, seed)
            error = _error(loop.losses(UPDATES), expected)
        except Exception as failure:  # of any kind: another version of torch may lack something
            rows[name] = replace(rows[name], status=f"failed: {type(failure).__name__}: {failure}")
            continue
        wrong = f"wrong: losses are off by {error:.2g} of their size, allowed {subject.allowed:g}"
        rows[name] = replace(
            rows[name],
            status=wrong if error > subject.allowed else MEASURED,
            error=error / subject.allowed if subject.allowed else error,
        )
        if error <= subject.allowed:
            loops[name] = loop
    samples: dict[str, list[float]] = {name: [] for name in loops}
    for copy in range(copies):
        if copy:
            loops = {name: SUBJECTS[name].make(batch, seed) for name in loops}
        calls = {name: loop.update for name, loop in loops.items()}
        for name, taken in interleaved(timer or CpuTimer(), calls, rounds, sample_seconds).items():
            samples[name] += taken
    for name, taken in samples.items():
        rows[name] = replace(rows[name], **times(taken, samples.get(BASELINE)))
    return list(rows.values())


def _error(losses: Sequence[float], expected: Sequence[float]) -> float:
    """The largest relative difference; infinite if one is not a number."""
    worst = max(abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True))
    return worst if worst < float("inf") else float("inf")


def table(rows: Sequence[Row]) -> list[list[str]]:
    """Loops down, head first: milliseconds of an update, ratio to the bare loop."""
    lines = [["batch", "loop", "ms/update", "ratio [95% interval]"]]
    for row in rows:
        times = ["", row.status]
        if row.seconds is not None:
            ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
            if row.ratio is not None and row.implementation != BASELINE:
                ratio += f" [{row.ratio_low:.3f}, {row.ratio_high:.3f}]"
            times = [f"{1e3 * row.seconds:.3f}", ratio]
        lines.append([str(row.shape[0]), row.implementation, *times])
    return lines


def save(rows: Sequence[Row], profile: str) -> Path:
    """Records of what was measured, without single samples, in the folder of own runs; returns the
    folder that `layernorm records add` publishes.

    Raises:
        ValueError: something was not measured: then nothing is recorded.
    """
    if wrong := [f"{row.implementation}: {row.status}" for row in rows if row.status != MEASURED]:
        raise ValueError(f"not all was measured, so nothing is recorded: {'; '.join(wrong)}")
    made = to_records([replace(row, samples=()) for row in rows], profile, [measure])
    paths = [records.save(record) for record in made]
    return paths[0].parent
