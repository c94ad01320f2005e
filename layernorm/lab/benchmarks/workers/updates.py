"""An update of the experiments' engine by one process and by several, each with its part of the
batch, as torchrun's runs make it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn

from layernorm.lab.analysis import parallel
from layernorm.lab.analysis.parallel import Crew, Group
from layernorm.lab.benchmarks.measure.case import Case, Row, Shape, Trial
from layernorm.lab.benchmarks.measure.gate import Verdict, relative_distance
from layernorm.lab.benchmarks.measure.process import measure_apart
from layernorm.lab.benchmarks.measure.words import one_of
from layernorm.lab.experiments import checkpoint, run
from layernorm.lab.experiments.data_parallel import Workers
from layernorm.lab.experiments.studies.batch_size import EXPERIMENT

CPU = torch.device("cpu")
KINDS = {"none": "none", "layer": "layer", "batch": "batch", "synchronized": "batch"}  # methods
SIZES = (1, 2, 4)
NAMES = tuple(f"{kind}/{n}" for kind in KINDS for n in SIZES if (kind, n) != ("synchronized", 1))
SHAPES = tuple((batch, 64, 1000, 1000, 10) for batch in (128, 1024))  # of small and large shards
INPUTS, CLASSES, TRAINING = 64, 10, 1197  # of the digits
EXACT = 1e-11  # of a gradient's length in float64: sums of a thousand terms, three layers
SEED = 0

_kept: dict[tuple, list] = {}  # in a worker: the trainers and how many updates they have made


def parts_of(name: str) -> tuple[str, int]:
    """The kind and the number of workers in an implementation's name."""
    kind, _, size = name.partition("/")
    return kind, int(size)


def trainer_of(group: Group, name: str, shape: Shape, dtype: torch.dtype) -> Any:
    """A worker's trainer: the engine's own, on the task of the study `batch_size`."""
    kind, _ = parts_of(name)
    sizes = {"batch_size": shape[0], "hidden": shape[2:-1]}
    config = EXPERIMENT.config("book", f"{KINDS[kind]}-128", SEED, **sizes)
    with checkpoint.seeded(SEED, CPU):
        task = EXPERIMENT.task(config.options, SEED, CPU)
    task.model.to(dtype)
    task.parts = {part: (x.to(dtype), y) for part, (x, y) in task.parts.items()}
    if kind == "synchronized":
        task.model = parallel.synchronized(task.model, group)
    trainer = run.Trainer(replace(EXPERIMENT, task=lambda *_: task), config, CPU)
    return Workers(group.rank, group.size).share(trainer, SEED)


def make_update(group: Group, name: str, shape: Shape) -> None:
    """One more update of this worker's trainer, in float32; losses are looked at as in a run."""
    made = _kept.setdefault((name, shape), [None, 0])
    if made[0] is None:
        made[0] = trainer_of(group, name, shape, torch.float32)
    made[1] += 1
    made[0].update(made[1])
    if made[0].kept == run.CHECK_EVERY:
        made[0].look()


@dataclass(frozen=True)
class Told:
    """A worker's mean gradient and weights after the first update in float64, and the bytes that
    it handed to each collective operation in float32."""

    gradient: Tensor
    weights: Tensor
    sent: tuple[int, ...]


def first_update(group: Group, name: str, shape: Shape) -> Told:
    """The first update of a trainer made anew."""
    sent = bytes_sent(trainer_of(group, name, shape, torch.float32).update)
    trainer = trainer_of(group, name, shape, torch.float64)
    trainer.update(1)
    gradient = torch.cat([p.grad.flatten() for p in trainer.parameters])
    return Told(gradient, nn.utils.parameters_to_vector(trainer.parameters).detach(), sent)


def bytes_sent(update: Callable[[int], None]) -> tuple[int, ...]:
    """The bytes of each collective operation of an update, counted where torch is called."""
    sent: list[int] = []

    def counting(function: Callable, place: int) -> Callable:
        def call(*args: Any, **kwargs: Any) -> Any:
            sent.append(args[place].numel() * args[place].element_size())
            return function(*args, **kwargs)

        return call

    reduce, gather = counting(dist.all_reduce, 0), counting(dist.all_gather, 1)
    with mock.patch.multiple(dist, all_reduce=reduce, all_gather=gather):
        update(1)
    return tuple(sent)


def expected(name: str, shape: Shape, alone: bool = False) -> Tensor:
    """The gradient in float64, by one process: of the whole batch; for batch normalization by each
    worker's own statistics the mean of those of the parts, but with `alone`."""
    kind, size = parts_of(name)
    trainer = trainer_of(Group(), f"{KINDS[kind]}/1", shape, torch.float64)
    x, y = trainer.task.parts["train"]
    chosen = trainer.task.batches(1)
    pieces = chosen.chunk(size if kind == "batch" and not alone else 1)
    found = [parallel.update(Group(), trainer.model, x[i], y[i]).gradient for i in pieces]
    return torch.stack(found).mean(0)


def judge(told: list[Told], name: str, shape: Shape) -> Verdict:
    """Compare the gradient with that of one process, and the workers with each other."""
    if any(not torch.equal(told[0].weights, each.weights) for each in told):
        return Verdict(float("inf"), "the workers' weights differ after an update")
    error = relative_distance(told[0].gradient, expected(name, shape)) / EXACT
    wrong = f"the gradient is off by {error:.2g} times what is allowed"
    return Verdict(error, "" if error <= 1 else wrong)


@dataclass(frozen=True)
class UpdatesCase(Case):
    """An update of a network of shape (batch, 64, hidden units..., 10) on the digits by so many
    processes of one thread each, which speak by gloo.

    Implementations are kinds with numbers of workers: `none`, `layer`, `batch` (each worker's own
    statistics), `synchronized` (batch normalization by all workers'). The gradient must agree with
    that of one process in float64. Records also tell the collective operations of an update, their
    bytes, and how far its gradient is `apart` from one worker's, as a share of that. Each of the
    measuring processes has workers of its own.
    """

    mode: str = "training"
    rounds: int = 3
    sample_seconds: float = 0.1
    processes: int = 10
    crews: dict[int, Crew] = field(default_factory=dict, compare=False, repr=False)

    MODES: ClassVar[tuple[str, ...]] = ("training",)
    counts_peak: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "implementations", self.implementations or NAMES)

    @property
    def benchmark(self) -> str:
        return "workers"

    @property
    def baselines(self) -> tuple[str, ...]:
        return ("layer/1",)

    @property
    def threads(self) -> int:
        return 1

    def measured(self) -> list[Row]:
        return super().measured() if self.processes == 1 else measure_apart(self, {})

    def method(self, name: str) -> str:
        return KINDS[parts_of(name)[0]]

    def check(self) -> None:
        one_of("operation", self.operation, ["digits"])
        batch, inputs, *hidden, classes = (*self.shape, 0, 0)[: max(4, len(self.shape))]
        right = (inputs, classes) == (INPUTS, CLASSES) and hidden and min(hidden) > 0
        if not right or not 0 < batch <= TRAINING or batch % max(SIZES):
            raise ValueError(
                f"shape: expected a batch of at most {TRAINING} that {max(SIZES)} divides, "
                f"{INPUTS}, hidden units..., {CLASSES}; got {self.shape}"
            )
        for name in self.implementations:
            one_of("implementations", name, NAMES)
        super().check()

    @contextlib.contextmanager
    def setting(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for size in sorted({parts_of(name)[1] for name in self.implementations}):
                self.crews[size] = stack.enter_context(parallel.crew(size))
            yield
        self.crews.clear()

    def prepare(self) -> Callable[[str], Trial]:
        def trial(name: str) -> Trial:
            size = parts_of(name)[1]
            crew, asked = self.crews[size], (name, self.shape)
            first = crew.ask(size, first_update, *asked)
            alone = expected(*asked, alone=True)
            apart = relative_distance(first[0].gradient, alone)
            sent = first[0].sent
            told = {"workers": size, "operations": len(sent), "bytes": sum(sent)}
            return Trial(
                lambda: crew.ask(size, make_update, *asked),
                lambda _: judge(crew.ask(size, first_update, *asked), *asked),
                told={**told, "apart": float(f"{apart:.2g}")},
            )

        return trial
