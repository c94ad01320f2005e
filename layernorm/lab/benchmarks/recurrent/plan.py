"""Plans of `layernorm bench recurrent` and of the recurrent part of `make bench-gpu`."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from layernorm.lab.benchmarks.measure.case import Shape
from layernorm.lab.benchmarks.measure.resume import Plan
from layernorm.lab.benchmarks.measure.words import one_of, positive, some_of
from layernorm.lab.benchmarks.recurrent import peers
from layernorm.lab.benchmarks.recurrent.case import MODES, ON_CPU, PAIR, GpuCase, RecurrentCase
from layernorm.lab.benchmarks.recurrent.subjects import (
    BASELINE,
    KINDS,
    ON_GPU,
    PERSISTENT,
)

SHAPES: tuple[Shape, ...] = (  # T steps, B sequences, I inputs, H units
    (50, 32, 128, 128),
    (100, 64, 256, 256),
    (100, 8, 400, 400),
    (200, 4, 512, 512),
    (64, 128, 256, 256),
    (784, 32, 1, 100),
    (37, 17, 61, 203),  # awkward: nothing is a multiple of a vector's length
    (37, 5, 61, 203),
    (300, 1, 300, 130),  # awkward: one sequence, so that threads cannot share the batch
)
# On a GPU: the targets' shapes, then a grid between whose neighbors `backend="auto"` chooses, of
# 40, 6400 and 51,200 rows in all steps. 51,200 of 2048 units would take too much memory in float64.
TARGETS: tuple[Shape, ...] = ((100, 64, 512, 512), (200, 32, 1024, 1024))
GRID: tuple[Shape, ...] = tuple(
    (steps, batch, units, units)
    for units in (512, 256, 1024, 128, 64, 2048)
    for steps, batch in ((10, 4), (100, 64), (100, 512))
    if (units, batch) != (2048, 512)
)


def plan(
    kind: str = "both",
    mode: str = "both",
    shapes: str | None = None,
    subjects: str | None = None,
    threads: int | None = None,
    rounds: int = 3,
    huge_pages: str = "both",
    with_memory: bool = True,
    profile: str | None = None,
    processes: int = 10,
) -> Plan:
    """The cases that these words describe; None: all shapes, all subjects, torch's threads.

    With huge pages besides ordinary ones, the second time is for ours and torch's alone; memory is
    that of ours and torch's in training without huge pages.

    Raises:
        ValueError: naming the option, what was expected, what came and what was probably meant.
    """
    one_of("kind", kind, [*KINDS, "both"])
    one_of("mode", mode, [*MODES, "both"])
    known = tuple(name for name in ON_CPU if name not in peers.MODULES)  # no GPU here
    names = some_of("subjects", subjects, known, known)
    one_of("huge-pages", huge_pages, ["off", "on", "both"])
    settings = {"off": (False,), "on": (True,), "both": (False, True)}[huge_pages]
    sizes = sizes_of(shapes) or SHAPES
    cases = tuple(
        RecurrentCase(
            one_kind, shape, mode=one_mode, profile=profile, rounds=rounds, processes=processes,
            implementations=tuple(n for n in names if not again or n in PAIR),
            threads=threads or torch.get_num_threads(), huge_pages=pages,
            with_memory=with_memory and not pages,
        )
        for again, pages in enumerate(settings)
        for one_kind in (KINDS if kind == "both" else (kind,))
        for one_mode in (MODES if mode == "both" else (mode,))
        for shape in sizes
    )  # fmt: skip
    cases = tuple(case for case in cases if case.implementations)
    for case in cases:
        case.check()
    return cases


def sizes_of(shapes: str | None) -> tuple[Shape, ...]:
    """The shapes (T, B, I, H) that the words name; None: none.

    Raises:
        ValueError: naming what was expected and what came.
    """
    form = "four positive integers T,B,I,H, several with semicolons, such as '5,2,3,4;6,1,8,9'"
    given = [] if shapes is None else shapes.split(";")
    return tuple(positive(text, ",", 4, form) for text in given)


def gpu_plan(device: str = "cuda") -> Plan:
    """All that is to be measured on a GPU, the most wanted first: training, then inference, then
    float32 whose products may round to TF32, as cuDNN's do unless it is told otherwise (both sides
    have the same setting)."""
    others = tuple(shape for shape in GRID if shape not in TARGETS)
    stages = [
        (mode, shapes, dtype, False)
        for mode in MODES
        for shapes in (TARGETS, others)
        for dtype in ("bfloat16", "float32")
    ]
    stages += [(mode, TARGETS, "float32", True) for mode in MODES]
    return tuple(
        GpuCase(
            kind, shape, dtype, mode=mode, tf32=tf32, device=device, profile="cuda",
            implementations=tuple(_on_gpu(shape, dtype, tf32)),
        )
        for mode, shapes, dtype, tf32 in stages
        for shape in shapes
        for kind in KINDS
    )  # fmt: skip


def _on_gpu(shape: Shape, dtype: str, tf32: bool) -> Iterator[str]:
    """The subjects of a case on a GPU; at the shapes that are aimed for, installed peers too."""
    yield from (ON_GPU, BASELINE)
    if shape[-1] <= 1024 and dtype == "bfloat16":  # whose weights then stay on chip
        yield PERSISTENT
    if shape in TARGETS:
        yield from peers.installed()
    if shape == TARGETS[0]:  # Python waits for every step
        yield "script"
    if not tf32:  # `backend="auto"` would take it otherwise
        yield "definition"
