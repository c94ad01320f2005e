"""`layernorm bench packed`: a recurrent layer on sequences of unequal lengths. ::

    case = PackedCase("lstm", (100, 32, 128, 128))    # T, B, I, H
    table(case.measured())

The lengths are uniform between T/4 and T. A layer takes them as a `PackedSequence`, which holds
the rows of the sequences alone, or padded with further rows to T steps, whose outputs nobody uses.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from layernorm.lab.benchmarks.measure.case import MEASURED, Row
from layernorm.lab.benchmarks.measure.resume import Plan
from layernorm.lab.benchmarks.measure.table import Table, ratio, shape
from layernorm.lab.benchmarks.measure.words import one_of, some_of
from layernorm.lab.benchmarks.recurrent.case import RecurrentCase, Run
from layernorm.lab.benchmarks.recurrent.plan import sizes_of
from layernorm.lab.benchmarks.recurrent.subjects import BASELINE, KINDS, OURS, SUBJECTS, Subject
from layernorm.lab.benchmarks.recurrent.tables import of_one_machine

PACKED, PADDED = "ours packed", "ours padded"
TORCH_PACKED, TORCH_PADDED = "torch packed", "torch padded"
LAYERS = {PACKED: OURS, PADDED: OURS, TORCH_PACKED: BASELINE, TORCH_PADDED: BASELINE}
SHAPES = (
    (50, 16, 64, 64),
    (100, 16, 64, 64),
    (200, 16, 64, 64),
    (100, 32, 128, 128),
    (200, 32, 128, 128),
    (200, 32, 256, 256),
)
THREADS = (1, 2)


def lengths(steps: int, sequences: int, seed: int = 0) -> Int[Tensor, " b"]:
    """Uniform between a quarter of the steps and all of them, the longest first; one has all."""
    draw = torch.Generator().manual_seed(seed)
    drawn = torch.randint(max(steps // 4, 1), steps + 1, (sequences,), generator=draw)
    drawn[0] = steps
    return drawn.sort(descending=True).values


@dataclass(frozen=True)
class PackedCase(RecurrentCase):
    """A training step at shape (T, B, I, H) on sequences of `lengths`.

    The gate: outputs and gradients of the sequences' own rows are the definition's, as in
    `RecurrentCase`; the padding's outputs have no gradient.
    """

    implementations: tuple[str, ...] = tuple(LAYERS)

    MODES: ClassVar[tuple[str, ...]] = ("training",)
    benchmark: ClassVar[str] = "packed"
    baselines: ClassVar[tuple[str, ...]] = (PACKED,)

    @property
    def options(self) -> dict[str, Any]:
        steps, sequences = self.shape[:2]
        rows = int(lengths(steps, sequences, self.seed).sum()) / (steps * sequences)
        return {"kind": self.operation, "threads": self.threads, "rows": round(rows, 3)}

    def blank(self, name: str, status: str = MEASURED) -> Row:
        """With the layer's name in the table of subjects: what a record depends on."""
        row = super().blank(name, status)
        return replace(row, options={**row.options, "layer": LAYERS[name]})

    def subjects(self) -> tuple[str, ...]:
        return tuple(LAYERS)

    def subject(self, name: str) -> Subject:
        return SUBJECTS[self.operation][LAYERS[name]]

    def run(self, name: str) -> Run:
        return Ragged(self, name)


class Ragged(Run):
    """A run of which the sequences' own rows count."""

    def _to(self, device: torch.device, dtype: torch.dtype) -> None:
        super()._to(device, dtype)
        steps, sequences = self.case.shape[:2]
        own = torch.arange(steps)[:, None] < lengths(steps, sequences, self.case.seed)
        self.own, self.sizes = own, own.sum(1)
        self.grad_y = self.grad_y * own[..., None]
        self.rows = self.x.detach()[own].requires_grad_(), self.grad_y[own]

    @property
    def packed(self) -> bool:
        return self.name in (PACKED, TORCH_PACKED)

    @property
    def owes(self) -> tuple[Any, ...]:
        return *super().owes, self.packed

    @property
    def given(self) -> tuple[Tensor, Tensor]:
        return self.rows if self.packed else super().given

    def forward(self) -> Tensor:
        if not self.packed:
            return super().forward()
        return self.module(PackedSequence(self.rows[0], self.sizes))[0].data

    def _defined(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        y, of_x, *others = super()._defined(dtype)
        return (y[self.own], of_x[self.own], *others) if self.packed else (y, of_x, *others)


def plan(
    kind: str = "both",
    shapes: str | None = None,
    subjects: str | None = None,
    threads: int | None = None,
    rounds: int = 3,
    profile: str | None = None,
    processes: int = 10,
) -> Plan:
    """The cases that these words describe; None: all shapes, all subjects, one and two threads.

    Raises:
        ValueError: naming the option, what was expected and what came.
    """
    one_of("kind", kind, [*KINDS, "both"])
    names = some_of("subjects", subjects, LAYERS, LAYERS)
    most = os.cpu_count() or 1
    if threads is not None and not 1 <= threads <= most:
        raise ValueError(f"threads: expected 1 to {most}, got {threads}")
    sizes = sizes_of(shapes) or SHAPES
    cases = tuple(
        PackedCase(
            one,
            size,
            implementations=names,
            threads=many,
            rounds=rounds,
            processes=processes,
            profile=profile,
        )
        for many in ([n for n in THREADS if n <= most] if threads is None else [threads])
        for one in (KINDS if kind == "both" else (kind,))
        for size in sizes
    )
    for case in cases:
        case.check()
    return cases


def recorded(profile: str = "cpu") -> list[Row]:
    """The rows of the records there are, in the order in which they are measured.

    Raises:
        RecordError: they are of several machines.
    """

    def place(row: Row) -> tuple:
        sizes = SHAPES.index(row.shape) if row.shape in SHAPES else len(SHAPES)
        told = row.options["threads"], KINDS.index(row.options["kind"])
        return *told, sizes, list(LAYERS).index(row.implementation)

    return sorted(of_one_machine("packed", profile, any_threads=True), key=place)


def table(rows: Sequence[Row]) -> Table:
    """Layers, shapes and threads down; ours packed in milliseconds, the others' times over it."""
    names = [name for name in LAYERS if any(row.implementation == name for row in rows)]
    cells = {(_place(row), row.implementation): _told(row) for row in rows}
    lines = [
        [*place, *(cells.get((place, name), "") for name in names)]
        for place in dict.fromkeys(map(_place, rows))
    ]
    title = "Training step: ms of ours packed, other times over it [95% interval]"
    return Table(["layer T,B,I,H", "threads", "rows", *names], lines, title)


def _place(row: Row) -> tuple[str, ...]:
    told = row.options
    return f"{told['kind']} {shape(row)}", f"{told['threads']}", f"{told['rows']:.2f}"


def _told(row: Row) -> str:
    if row.status != MEASURED:
        return row.status.partition(":")[0]
    return f"{1e3 * row.seconds:.2f} ms" if row.implementation == PACKED else ratio(row)
