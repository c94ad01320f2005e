"""The small studies of Parts I and III: plans over the one engine, like the other experiments.

    layernorm sweep drift --profile book

trains a fully connected net on the digits (`digits`, well under a second a run), or a recurrent
layer on tasks with a long lag (`sequences`) and on rows of digits (`digit_rows`), a few seconds.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from layernorm.lab.experiments.options import CommonOptions


class StudyOptions(CommonOptions):
    """Options of a study: the norm of the gradient is cut at `clip` (None: not) in all its runs."""

    fused: ClassVar[bool | None] = None
    precision: ClassVar[Literal["float32"]] = "float32"
    clip: ClassVar[float | None] = None
