"""The row of a benchmark: one implementation of one case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import median
from typing import Any

from layernorm.lab.benchmarks.measure.timing import median_interval, spread

Shape = tuple[int, ...]
MEASURED = "measured"
NO_DEVICE = "not measured yet on this device"
ABOVE = "above the roof: the bytes, the roof or the time is not what it seems; find out why"


@dataclass(frozen=True)
class Row:
    """One implementation of one case: times in seconds, sizes in bytes.

    `status` is "measured", "not measured yet on this device", "wrong: …" (it differs from the
    definition), "failed: …" (it raised) or "crashed: …" (with the process); all but the first have
    no times. `ratio` is the median of the ratios to `baseline` within each round, `ratio_low` and
    `ratio_high` are its 95% interval; of several processes each counts once, with the median of its
    rounds (`ratios`). `bandwidth` is `traffic` (the byte model) over the median time, `roof` the
    measured copy bandwidth, `fraction` their quotient.
    `error` is the largest error against the definition as a fraction of what the gate allows.
    `host` is how long the CPU takes to queue a call on a GPU; `options["launches"]` is "included"
    where that could not be kept out of the time. `held_memory` is what a forward pass leaves for
    its backward, `resident_memory` how much a process grows at most. `options` are the rounds, the
    machine and further choices, as in records.
    """

    benchmark: str
    method: str
    implementation: str
    baseline: str
    mode: str
    shape: Shape
    dtype: str
    device: str
    seed: int
    status: str
    error: float | None = None
    seconds: float | None = None
    p20: float | None = None
    p80: float | None = None
    host: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    traffic: int | None = None
    bandwidth: float | None = None
    roof: float | None = None
    fraction: float | None = None
    peak_memory: int | None = None
    held_memory: int | None = None
    resident_memory: int | None = None
    note: str = ""
    samples: tuple[float, ...] = ()
    ratios: tuple[float, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def machine(self) -> str:
        return self.options.get("machine", self.device)


def failure(error: Exception) -> str:
    """The status of what raised this, on one line."""
    return " ".join(f"failed: {type(error).__name__}: {error}".split())[:300]


Samples = Sequence[Sequence[float]]  # of each process


def times(samples: Samples, reference: Samples | None) -> dict[str, Any]:
    """The fields of a `Row` that samples fill; ratios to the reference's, if there are any.

    Where code and tensors lie in memory changes a time by several percent for as long as a process
    lives: its rounds do not tell how much, other processes do.
    """
    every = tuple(chain.from_iterable(samples))
    taken = spread(every)
    times = {"seconds": taken.median, "p20": taken.p20, "p80": taken.p80, "samples": every}
    if reference:
        ratios = [
            [a / b for a, b in zip(ours, theirs, strict=True)]
            for ours, theirs in zip(samples, reference, strict=True)
        ]
        found = [median(one) for one in ratios] if len(ratios) > 1 else ratios[0]
        low, high = median_interval(found)
        times |= {"ratio": median(found), "ratio_low": low, "ratio_high": high}
        times |= {"ratios": tuple(found)} if len(ratios) > 1 else {}
    return times


def quotient(one: Row, other: Row) -> tuple[float, float, float]:
    """Times of one implementation over another's of the same case: median and 95% interval.

    Within each process, where what slowed one slowed the other; from the ends of both intervals,
    which is wider, where there was one process.
    """
    if not (one.ratios and other.ratios):
        low, high = one.ratio_low / other.ratio_high, one.ratio_high / other.ratio_low
        return one.ratio / other.ratio, low, high
    found = [a / b for a, b in zip(one.ratios, other.ratios, strict=True)]
    return median(found), *median_interval(found)


def with_roof(row: Row) -> Row:
    """Add the fraction of the roof that a row reaches, and a note where it is above 1."""
    if not row.bandwidth or not row.roof:
        return row
    fraction = row.bandwidth / row.roof
    return replace(row, fraction=fraction, note=ABOVE if fraction > 1 else "")
