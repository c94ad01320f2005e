"""What `layernorm bench norms` measures: the cases, from words on a command line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from layernorm.lab import records
from layernorm.lab.benchmarks import norms
from layernorm.lab.benchmarks.byte_model import MODES
from layernorm.lab.benchmarks.harness import Shape
from layernorm.lab.benchmarks.recurrent import one_of

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


class Case(NamedTuple):
    """`count` rows of `width` elements; `graph`: replayed from a captured CUDA graph."""

    name: str
    count: int
    width: int
    dtype: str
    mode: str
    profile: str
    graph: bool = False

    @property
    def benchmark(self) -> str:
        """The name in rows and records: a replayed graph is another measurement."""
        return f"{self.name}_graph" if self.graph else self.name

    @property
    def shape(self) -> Shape:
        return norms.at(self.name, self.count, self.width)


@dataclass(frozen=True)
class Plan:
    """Cases on one device, in their order; `compiled`: with torch.compile; the rest as
    `harness.measure` says."""

    device: torch.device
    cases: tuple[Case, ...]
    compiled: bool = True
    rounds: int = 15
    sample_seconds: float = 1e-3


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
    names = _names("methods", methods, norms.BENCHMARKS, norms.BENCHMARKS)
    types = _names("dtypes", dtypes, DTYPES, QUICK_DTYPES[on.type] if quick else DTYPES)
    kinds = _names("modes", modes, MODES, QUICK_MODES if quick else MODES)
    if shapes is not None:
        sizes = tuple(dict.fromkeys(_size(text, MOST[on.type]) for text in shapes.split(",")))
    else:
        sizes = QUICK_SHAPES[on.type] if quick else grid(MOST[on.type])
    if profile is not None:
        records.key({"experiment": "bench_norms", "profile": profile, "arm": "torch",
                     "method": "layer", "seed": 0})  # fmt: skip
    chosen = [
        Case(name, *size, dtype, mode, profile or ("quick" if quick else f"full_{dtype}"))
        for dtype in types
        for size in sizes
        for name in names
        for mode in kinds
    ]
    cases = tuple(case for case in chosen if _defined(case))
    if not cases:
        raise ValueError("shapes: batch normalization needs two rows or more, got 1")
    return Plan(on, cases, compiled, **({"rounds": 7, "sample_seconds": 5e-4} if quick else {}))


def grid(most: int) -> tuple[tuple[int, int], ...]:
    """All sizes of at most so many elements."""
    return tuple((count, w) for w in WIDTHS for count in COUNTS if count * w <= most)


def device_of(text: str) -> torch.device:
    """The device of that name; "auto": the GPU if there is one.

    Raises:
        ValueError: there is no such kind of device.
    """
    if text == "auto":
        text = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(text)
    except RuntimeError:
        device = None
    if device is None or device.type not in MOST:
        raise ValueError(f"device: expected auto, cpu, cuda or cuda:1, got {text!r}")
    return device


def present(device: torch.device) -> bool:
    """Whether the device is there."""
    return device.type == "cpu" or (device.index or 0) < torch.cuda.device_count()


def _defined(case: Case) -> bool:
    try:
        return bool(case.shape)
    except ValueError:
        return False


def _names(
    option: str, text: str | None, known: Iterable[str], default: Iterable[str]
) -> tuple[str, ...]:
    names = default if text is None else (name.strip() for name in text.split(","))
    return tuple(dict.fromkeys(one_of(option, name, known) for name in names))


def _size(text: str, most: int) -> tuple[int, int]:
    numbers = text.strip().split("x")
    if len(numbers) != 2 or not all(n.isdecimal() and int(n) > 0 for n in numbers):
        raise ValueError(
            "shapes: expected rows x elements of a row, several with commas, such as "
            f"4096x1024,16x769; got {text!r}"
        )
    count, width = map(int, numbers)
    if count * width > most:
        raise ValueError(f"shapes: expected at most {most} elements on this device, got {text}")
    return count, width
