"""`layernorm bench compile`: the time that `torch.compile` takes for a recurrent layer. ::

    case = CompileCase("lstm", (50, 32, 128, 128))    # T, B, I, H
    table(case.measured())

Every sample is a process of its own without inductor's cache on disk. Another function is compiled
in it first, which imports the compiler's modules; then the first training step is timed, in which
the layer is captured and compiled, forward and backward. One step's own milliseconds are in it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from layernorm.lab.benchmarks.measure import gate, resume
from layernorm.lab.benchmarks.measure.case import MEASURED, Case, Row, failure, times
from layernorm.lab.benchmarks.measure.process import ask
from layernorm.lab.benchmarks.measure.resume import Plan
from layernorm.lab.benchmarks.measure.table import Table, shape
from layernorm.lab.benchmarks.measure.words import one_of, some_of
from layernorm.lab.benchmarks.recurrent.case import RecurrentCase, Run
from layernorm.lab.benchmarks.recurrent.plan import sizes_of
from layernorm.lab.benchmarks.recurrent.subjects import BASELINE, KINDS, OURS

PACKED, TRACED, DEFINITION = "ours packed", "torch traced", "definition"
# torch.compile leaves torch.nn's recurrent layers out of its graphs ("torch") unless it is told to
# look into them, where a step of time becomes operators of its own ("torch traced").
SUBJECTS = {
    OURS: OURS, PACKED: OURS, DEFINITION: DEFINITION, BASELINE: BASELINE, TRACED: BASELINE,
}  # fmt: skip
SHAPES = ((10, 32, 128, 128),)  # over 50 steps, torch traced takes two minutes


@dataclass(frozen=True)
class CompileCase(Case):
    """`torch.compile` of a layer at shape (T, B, I, H), its first training step.

    The gate: that step's outputs and gradients are the definition's, as in `RecurrentCase`.

    Args:
        operation: "lstm" or "gru".
        threads: of the processes that measure.
    """

    mode: str = "training"
    implementations: tuple[str, ...] = tuple(SUBJECTS)
    rounds: int = 10
    threads: int = 1

    MODES: ClassVar[tuple[str, ...]] = ("training",)
    benchmark: ClassVar[str] = "compile"
    baselines: ClassVar[tuple[str, ...]] = (TRACED,)

    @property
    def options(self) -> dict[str, Any]:
        return {"kind": self.operation, "threads": self.threads}

    def method(self, name: str) -> str:
        return self._uncompiled.method(SUBJECTS[name])

    @property
    def _uncompiled(self) -> RecurrentCase:
        return RecurrentCase(self.operation, self.shape, seed=self.seed, threads=self.threads)

    def check(self) -> None:
        one_of("kind", self.operation, KINDS)
        for name in self.implementations:
            one_of("subjects", name, SUBJECTS)
        self._uncompiled.check()
        super().check()

    def measured(self) -> list[Row]:
        """Samples in turns, each in a new process."""
        self.check()
        samples: dict[str, list[float]] = {name: [] for name in self.implementations}
        rows = {name: self.blank(name) for name in self.implementations}
        for _ in range(self.rounds):
            for name in [n for n, row in rows.items() if row.status == MEASURED]:
                with tempfile.TemporaryDirectory() as cache:
                    settings = {"TORCHINDUCTOR_CACHE_DIR": cache}
                    [found] = ask(self, "compiled", settings, name)
                samples[name].append(found["seconds"])
                error = max(found["error"] or 0.0, rows[name].error or 0.0)
                options = {**rows[name].options, "path": f"graphs: {found['graphs']}"}
                row = replace(rows[name], status=found["status"], error=error, options=options)
                rows[name] = row
        right = {name: taken for name, taken in samples.items() if rows[name].status == MEASURED}
        for name, taken in right.items():
            found = times([taken], [right[TRACED]] if TRACED in right else None)
            rows[name] = replace(rows[name], **found, baseline=TRACED)
        return list(rows.values())

    def compiled(self, name: str) -> Iterator[dict[str, Any]]:
        """Compile in this process: seconds, the number of graphs, a `Row`'s status and error."""
        from torch._dynamo import config
        from torch._dynamo.utils import counters

        _warm_up()
        run = Run(self._uncompiled, SUBJECTS[name])
        expected = run.expected()
        config.allow_rnn = name == TRACED
        module = Packed(run.module, self.shape[1]) if name == PACKED else run.module
        counters.clear()
        run.module = torch.compile(module, fullgraph=name != BASELINE)
        begin = time.perf_counter()
        error = None
        try:
            got = run.call()
        except Exception as reason:  # of any kind: what a compiler raises
            seconds, status = 0.0, failure(reason)
        else:
            seconds, verdict = time.perf_counter() - begin, gate.check(got, expected)
            status, error = f"wrong: {verdict.wrong}" if verdict.wrong else MEASURED, verdict.error
        graphs = counters["stats"]["unique_graphs"]
        yield {"seconds": seconds, "graphs": graphs, "status": status, "error": error}


class Packed(nn.Module):
    """A layer that is given its rows as a `PackedSequence`, of equal lengths."""

    def __init__(self, layer: nn.Module, batch: int) -> None:
        super().__init__()
        self.layer = layer
        self.batch = batch

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        sizes = torch.full(x.shape[:1], self.batch, device="cpu")
        y, _ = self.layer(PackedSequence(x.flatten(0, 1), sizes))
        return y.data.unflatten(0, x.shape[:2]), None


def _warm_up() -> None:
    """Import and try everything that torch.compile needs for the first time."""
    x = torch.ones(3, requires_grad=True)
    torch.compile(lambda t: t.sin().sum())(x).backward()
    torch._dynamo.reset()


def plan(
    kind: str = "both",
    shapes: str | None = None,
    subjects: str | None = None,
    threads: int = 1,
    rounds: int = 10,
    profile: str | None = None,
) -> Plan:
    """The cases that these words describe; None: one shape, all subjects.

    Raises:
        ValueError: naming the option, what was expected and what came.
    """
    one_of("kind", kind, [*KINDS, "both"])
    names = some_of("subjects", subjects, SUBJECTS, SUBJECTS)
    sizes = sizes_of(shapes) or SHAPES
    cases = tuple(
        CompileCase(
            one, size, implementations=names, threads=threads, rounds=rounds, profile=profile
        )
        for one in (KINDS if kind == "both" else (kind,))
        for size in sizes
    )
    for case in cases:
        case.check()
    return cases


def recorded(profile: str = "cpu") -> list[Row]:
    """The rows of the records there are, in the order in which they are measured."""
    names = list(SUBJECTS)
    found = resume.recorded("compile", profile)
    return sorted(found, key=lambda row: (_place(row), names.index(row.implementation)))


def table(rows: Sequence[Row]) -> Table:
    """Layers and shapes down, subjects across: median seconds [20th, 80th percentile]."""
    names = [name for name in SUBJECTS if any(row.implementation == name for row in rows)]
    cells = {(_place(row), row.implementation): _seconds(row) for row in rows}
    lines = [[place, *(cells.get((place, n), "") for n in names)] for place in _places(rows)]
    title = "torch.compile: seconds of the first training step, without cache"
    return Table(["layer T,B,I,H", *names], lines, title)


def _places(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(map(_place, rows)))


def _place(row: Row) -> str:
    return f"{row.options['kind']} {shape(row)}"


def _seconds(row: Row) -> str:
    if row.status != MEASURED:
        return row.status.partition(":")[0]
    return f"{row.seconds:.1f} [{row.p20:.1f}, {row.p80:.1f}] {row.options['path']}"
