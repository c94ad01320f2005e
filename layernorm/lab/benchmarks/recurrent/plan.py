"""Plans of `layernorm bench recurrent` and of the recurrent part of `make bench-gpu`."""

from __future__ import annotations

import os

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
    SUBJECTS,
    WITHOUT,
)

SHAPES: tuple[Shape, ...] = (  # T steps, B sequences, I inputs, H units
    (50, 32, 128, 128),
    (100, 64, 256, 256),
    (100, 8, 400, 400),
    (200, 4, 512, 512),
    (64, 128, 256, 256),
    (784, 32, 1, 100),
    (37, 5, 61, 203),  # awkward: nothing is a multiple of a vector's length
    (300, 1, 300, 130),  # awkward: one sequence, so that threads cannot share the batch
)
# On a GPU: the targets' shapes, then a grid for `backend="auto"`.
TARGETS: tuple[Shape, ...] = ((100, 64, 512, 512), (200, 32, 1024, 1024))
GRID: tuple[Shape, ...] = tuple(
    (steps, batch, units, units)
    for units in (64, 512, 1024, 2048)
    for steps, batch in ((10, 4), (100, 64))
)
# Type of the inputs and parameters; whether products in float32 may round to TF32, as cuDNN's do
# unless it is told otherwise. Both sides have the same setting.
PRECISIONS = (("bfloat16", False), ("float32", False), ("float32", True))


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
    """The cases that these words describe; None: all shapes, all subjects, torch's threads. A
    subject that a kind does not have is left out of its cases.

    With huge pages besides ordinary ones, the second time is for ours and torch's alone; memory is
    that of ours and torch's in training without huge pages.

    Raises:
        ValueError: naming the option, what was expected, what came and what was probably meant.
    """
    one_of("kind", kind, [*KINDS, "both"])
    one_of("mode", mode, [*MODES, "both"])
    known = tuple(name for name in (*ON_CPU, WITHOUT) if name not in peers.MODULES)  # no GPU here
    names = some_of("subjects", subjects, known, known)
    most = os.cpu_count() or 1
    if threads is not None and not 1 <= threads <= most:
        raise ValueError(f"threads: expected 1 to {most}, got {threads}")
    one_of("huge-pages", huge_pages, ["off", "on", "both"])
    settings = {"off": (False,), "on": (True,), "both": (False, True)}[huge_pages]
    sizes = sizes_of(shapes) or SHAPES
    cases = tuple(
        RecurrentCase(
            one_kind, shape, mode=one_mode, profile=profile, rounds=rounds, processes=processes,
            implementations=tuple(n for n in names if n in (PAIR if again else SUBJECTS[one_kind])),
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


def gpu_plan(device: str = "cuda", profile: str | None = "cuda") -> Plan:
    """All that is to be measured on a GPU, the most wanted first; peers that are installed at the
    shapes that are aimed for."""
    common = {"device": device, "profile": profile}
    few = (ON_GPU, BASELINE, "definition")  # which `backend="auto"` would take otherwise

    def one_kernel(shape: Shape, dtype: str) -> tuple[str, ...]:
        """The weights of so many units stay on chip in half precision alone."""
        return (PERSISTENT,) if shape[-1] <= 1024 and dtype == "bfloat16" else ()

    both = [(kind, mode) for kind in KINDS for mode in MODES]
    wanted = [
        GpuCase(
            kind, shape, dtype, mode=mode, tf32=tf32, **common,
            implementations=(
                ON_GPU, BASELINE, *one_kernel(shape, dtype), *peers.installed(),
                *(("script",) if shape == TARGETS[0] else ()),  # Python waits for every step
            ),
        )
        for kind, mode in both
        for shape in TARGETS
        for dtype, tf32 in PRECISIONS
    ]  # fmt: skip
    wanted += [
        GpuCase(
            kind, shape, dtype, mode=mode, implementations=few + one_kernel(shape, dtype), **common
        )
        for kind, mode in both
        for shape in GRID
        for dtype in ("bfloat16", "float32")
        if shape not in TARGETS
    ]
    return tuple(wanted)
