"""Plans of `layernorm bench norms` from words on a command line; rows for a chapter."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch

from layernorm.lab.benchmarks.measure.byte_model import MODES
from layernorm.lab.benchmarks.measure.case import Row, Shape, measure
from layernorm.lab.benchmarks.measure.resume import Plan
from layernorm.lab.benchmarks.measure.words import device_of, one_of, positive, some_of
from layernorm.lab.benchmarks.norms import operations
from layernorm.lab.benchmarks.norms.case import CopyCase, ModuleCase, OperationCase
from layernorm.lab.benchmarks.norms.implementations import candidates
from layernorm.lab.benchmarks.norms.operations import COPY, at
from layernorm.methods import METHODS

BENCHMARKED = operations.every()
DTYPES = ("float32", "float16", "bfloat16")
COUNTS = (1, 16, 256, 4096, 65536)
WIDTHS = (32, 128, 512, 769, 1000, 1024, 2048, 4096, 5120, 8192, 16384, 32768, 65536)
MOST = {"cpu": 2**24, "cuda": 2**28}  # elements
QUICK_SHAPES = {
    "cpu": ((256, 769), (1024, 1024)),
    "cuda": ((16, 1024), (4096, 769), (4096, 1024), (4096, 8192)),
}
QUICK_DTYPES = {"cpu": ("float32",), "cuda": ("float32", "bfloat16")}
QUICK_MODES = ("forward", "forward+backward")
QUICK = {"rounds": 7, "sample_seconds": 5e-4, "profile": "quick"}


def cases(
    names: Iterable[str],
    sizes: Collection[tuple[int, ...]],
    dtypes: Iterable[str],
    modes: Iterable[str],
    device: torch.device,
    compiled: bool = True,
    **fields: Any,
) -> Plan:
    """Every name at every size (rows, elements of a row), type and mode, by all implementations
    that run on the device. Batch normalization of one row is not defined, and left out."""
    names, modes = list(names), list(modes)
    sources = {name: candidates(BENCHMARKED[name], device, compiled)[0] for name in names}
    return tuple(
        _kind(name)(
            name, at(name, *size), dtype, str(device), mode, tuple(sources[name].implementations),
            source=sources[name], **{"profile": f"full_{dtype}"} | fields,
        )
        for dtype in dtypes
        for size in sizes
        for name in names
        if (name, size[0]) != ("batch", 1)
        for mode in modes
    )  # fmt: skip


def copies(
    sizes: Iterable[Shape], dtypes: Iterable[str], device: torch.device, **fields: Any
) -> Plan:
    """A copy at every size and type, which takes as long as a norm at least."""
    sizes = list(sizes)
    return tuple(
        CopyCase(COPY.name, size, dtype, str(device), "forward", ("torch",), source=COPY, **fields)
        for dtype in dtypes
        for size in sizes
    )


def plan(
    quick: bool = False,
    device: str = "auto",
    methods: str | None = None,
    dtypes: str | None = None,
    modes: str | None = None,
    shapes: str | None = None,
    profile: str | None = None,
    compiled: bool = True,
) -> Plan:
    """The plan that these words describe; several names are separated by commas.

    Args:
        quick: few shapes and types and two modes, where nothing else is said.
        device: auto, cpu, cuda or cuda:1.
        methods: of the table of methods, or residual.
        shapes: such as 4096x1024, rows x elements of a row; None: all of 1 to 65536 rows and 32 to
            65536 elements of a row, up to 2^28 elements on a GPU and 2^24 on a CPU.
        profile: of the records; None: quick, or full_float32 and so on.

    Raises:
        ValueError: naming the option, what was expected, what came and what was probably meant.
    """
    on = device_of(device)
    names = some_of("methods", methods, BENCHMARKED, BENCHMARKED)
    types = some_of("dtypes", dtypes, DTYPES, QUICK_DTYPES[on.type] if quick else DTYPES)
    kinds = some_of("modes", modes, MODES, QUICK_MODES if quick else MODES)
    most = MOST[on.type]
    every = ((count, width) for width in WIDTHS for count in COUNTS if count * width <= most)
    sizes = QUICK_SHAPES[on.type] if quick else tuple(every)
    if shapes is not None:
        form = "rows x elements of a row, several with commas, such as 4096x1024,16x769"
        sizes = dict.fromkeys(positive(text, "x", 2, form) for text in shapes.split(","))
    for count, width in sizes:
        if count * width > most:
            raise ValueError(
                f"shapes: expected at most {most} elements on this device, got {count}x{width}"
            )
    fields = (QUICK if quick else {}) | ({} if profile is None else {"profile": profile})
    found = cases(names, sizes, types, kinds, on, compiled, **fields)
    if not found:
        raise ValueError("shapes: batch normalization needs two rows or more, got 1")
    return found


def _kind(name: str) -> type[OperationCase]:
    return OperationCase if name in operations.OPERATIONS else ModuleCase


def absent(plan: Plan) -> list[str]:
    """The implementations that cannot run a plan's operations here, and why."""
    known = (case for case in plan if case.operation in BENCHMARKED)
    asked = dict.fromkeys((case.operation, case.device) for case in known)
    refused = [candidates(BENCHMARKED[name], torch.device(on))[1] for name, on in asked]
    return list(dict.fromkeys(f"{name}: {why}" for one in refused for name, why in one.items()))


def rows(
    methods: Iterable[str] = tuple(METHODS),
    shape: Shape = (32, 32, 256),
    *,
    modes: Iterable[str] = ("forward", "forward+backward"),
    roof: float | None = None,
    **fields: Any,
) -> list[Row]:
    """Measure definitions and torch's own on summed inputs of shape (cases, units, positions).

    Batch normalization averages over cases and positions, layer and RMS normalization over units
    and positions, group normalization over four groups of units and the positions, instance
    normalization over positions. Weight normalization acts on as many weights instead. None is
    gain and bias alone. Times are given relative to torch's own (`ratio`).

    Args:
        methods: names in the table of methods, or "residual": x + residual and its layer norm.
        fields: further fields of `OperationCase`.

    Raises:
        ValueError: an unknown method, or as `measure` does.
    """
    return [
        row
        for name in [one_of("methods", name, BENCHMARKED) for name in methods]
        for mode in modes
        for row in measure(
            _kind(name)(
                name, shape, mode=mode, implementations=tuple(BENCHMARKED[name].implementations),
                source=BENCHMARKED[name], **fields,
            ),
            roof=roof,
        )
    ]  # fmt: skip


def quick(**arguments: Any) -> list[Row]:
    """As `rows`, with few and short samples unless told otherwise: some seconds."""
    return rows(**{"rounds": 11, "sample_seconds": 5e-4} | arguments)
