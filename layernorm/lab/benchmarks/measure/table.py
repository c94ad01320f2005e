"""Tables of text, which commands print and chapters show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from layernorm.lab.benchmarks.measure.case import MEASURED, NO_DEVICE, Row

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Table:
    """Lines of cells under a head, each cell as it is read; the head says the units."""

    head: Sequence[str]
    lines: Sequence[Sequence[str]]
    title: str = ""

    def text(self) -> str:
        """The title and columns as wide as their longest cell."""
        widths = [max(map(len, column)) for column in zip(self.head, *self.lines, strict=True)]
        told = [self.title] if self.title else []
        for line in (self.head, *self.lines):
            cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            told.append("  ".join(cells).rstrip())
        return "\n".join(told)

    def frame(self, *index: str) -> pandas.DataFrame:
        """The table for a chapter; columns that are its index have no head, and need none."""
        import pandas

        whole = pandas.DataFrame(self.lines, columns=list(self.head))
        return whole.set_index([*index]).rename_axis([None] * len(index)) if index else whole


def number(value: float | None) -> str:
    """A ratio with two decimals, one from 10 on."""
    return "" if value is None else f"{value:.2f}" if value < 9.95 else f"{value:.1f}"


def ratio(row: Row, digits: int = 2) -> str:
    """A row's ratio with its 95% interval; that of the baseline to itself is 1 and nothing more."""
    if row.ratio is None:
        return ""
    if row.implementation == row.baseline:
        return f"{row.ratio:.{digits}f}"
    ends = f"[{row.ratio_low:.{digits}f}, {row.ratio_high:.{digits}f}]"
    return f"{row.ratio:.{digits}f} {ends}"


def megabytes(size: int | None) -> str:
    """In 10^6 bytes."""
    return "" if size is None else f"{size / 1e6:.1f}"


def shape(row: Row, between: str = ",") -> str:
    """A row's shape."""
    return between.join(map(str, row.shape))


def microseconds(row: Row) -> str:
    """A row's median time in µs."""
    return "" if row.seconds is None else f"{row.seconds * 1e6:.1f}"


def place(row: Row) -> str:
    """The case that a row belongs to."""
    options = row.options
    what = options.get("kind") or options.get("model") or row.benchmark
    numbers = "tf32" if options.get("tf32") else row.dtype
    pages = " with huge pages" if options.get("huge_pages") == "on" else ""
    return f"{what} {row.mode} {shape(row, 'x')} {numbers}{pages}"


def progress(rows: Sequence[Row]) -> str:
    """One line about a case: its times, or why there are none."""
    times = (f"{r.implementation} {microseconds(r)} µs" for r in rows if r.seconds is not None)
    return f"{place(rows[0])}: {', '.join(times) or rows[0].status}"


def problems(rows: Iterable[Row]) -> list[str]:
    """Why rows have no time: what is wrong, failed or crashed, each with its case."""
    return [
        f"{place(row)} {row.implementation}: {row.status}"
        for row in rows
        if row.status not in (MEASURED, NO_DEVICE)
    ]
