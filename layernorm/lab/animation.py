"""An animation of a few frames: it plays in the built book, and is a contact sheet elsewhere.

    animation(frames, alt="A digit appears in eight steps.")

One PNG holds all frames in a grid. A notebook on GitHub, in Colab or JupyterLab shows that grid.
The built book plays it with CSS alone: a window as large as one frame moves over the grid. A box
below it, printing, and a reader's wish for reduced motion show the grid instead.
"""

from __future__ import annotations

import hashlib
import html
import io
import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from layernorm.lab import book_renderer

MIME = "application/vnd.layernorm.animation+json"
GAP = 4  # white pixels between the frames of the grid
HOLD = 1.5  # seconds by which the last frame is shown longer


class Animation:
    """The result of `animation`; as a cell's last line it shows itself."""

    def __init__(self, sheet: np.ndarray, specification: dict[str, Any]) -> None:
        self.sheet, self.specification = sheet, specification

    def __repr__(self) -> str:
        return f"<animation of {self.specification['frames']} frames>"

    def png(self) -> bytes:
        """The contact sheet."""
        from PIL import Image

        buffer = io.BytesIO()
        Image.fromarray(self.sheet).save(buffer, "PNG", optimize=True)
        return buffer.getvalue()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict, dict]:
        picture = b64encode(self.png()).decode()
        data = {
            "text/plain": repr(self),
            "image/png": picture,
            MIME: {**self.specification, "png": picture},
        }
        return data, {"image/png": {"alt": self.specification["alt"]}}


def animation(
    frames: Iterable[Any], *, alt: str, columns: int = 4, seconds: float = 0.6
) -> Animation:
    """An animation of frames that all have the same size.

    Args:
        frames: pictures (height, width), or with a last dimension of 3 or 4 colors, of numbers from
            0 (black) to 1 (white) or of bytes; `drawn` makes one of a matplotlib figure.
        alt: the animation in words, for those who do not see it.
        columns: frames beside each other on the contact sheet.
        seconds: how long a frame is shown.

    Raises:
        ValueError: no frames, frames of different sizes or of numbers outside 0 to 1, no `alt`, or
            a number of columns or seconds that is not positive.
    """
    pictures = [_rgb(frame, place) for place, frame in enumerate(frames)]
    if not pictures:
        raise ValueError("frames must be at least one picture, got none")
    if not alt.strip():
        raise ValueError("alt must say what the animation shows, got an empty text")
    if type(columns) is not int or columns < 1:
        raise ValueError(f"columns must be a whole number of at least 1, got {columns!r}")
    if not 0 < seconds < 60:
        raise ValueError(f"seconds must lie above 0 and below 60, got {seconds!r}")
    if len(sizes := {picture.shape for picture in pictures}) > 1:
        found = ", ".join(f"{h} x {w}" for h, w, _ in sorted(sizes))
        raise ValueError(f"frames must have one size, got {found}; draw them on equal figures")
    height, width = pictures[0].shape[:2]
    columns = min(columns, len(pictures))
    specification = {
        "frames": len(pictures),
        "columns": columns,
        "width": width,
        "height": height,
        "seconds": seconds,
        "alt": alt,
    }
    return Animation(_grid(pictures, columns), specification)


def _rgb(frame: Any, place: int) -> np.ndarray:
    """A frame as bytes (height, width, 3); what is transparent becomes white."""
    picture = np.asarray(frame)
    if picture.ndim == 2:
        picture = picture[..., None].repeat(3, -1)
    if picture.ndim != 3 or picture.shape[-1] not in (3, 4) or not picture.size:
        raise ValueError(
            f"frames must have shape (height, width), (height, width, 3) or (height, width, 4), "
            f"got {np.shape(frame)} for frame {place}"
        )
    if picture.dtype != np.uint8:
        if not (np.isfinite(picture).all() and picture.min() >= 0 and picture.max() <= 1):
            raise ValueError(
                f"frames must be bytes, or numbers from 0 to 1; frame {place} has numbers from "
                f"{picture.min()} to {picture.max()}: divide them by the largest one"
            )
        picture = np.round(255.0 * picture)
    if picture.shape[-1] == 4:
        opaque = picture[..., 3:] / 255.0
        picture = np.round(opaque * picture[..., :3] + 255.0 * (1 - opaque))
    return picture.astype(np.uint8)


def _grid(pictures: Sequence[np.ndarray], columns: int) -> np.ndarray:
    height, width = pictures[0].shape[:2]
    rows = -(-len(pictures) // columns)
    size = rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3
    sheet = np.full(size, 255, np.uint8)
    for place, picture in enumerate(pictures):
        y, x = corner(place, columns, width, height)
        sheet[y : y + height, x : x + width] = picture
    return sheet


def corner(place: int, columns: int, width: int, height: int) -> tuple[int, int]:
    """The row and column of pixels at which a frame begins on the contact sheet.

    >>> corner(5, columns=4, width=10, height=20)
    (24, 14)
    """
    row, column = divmod(place, columns)
    return row * (height + GAP), column * (width + GAP)


def drawn(figure: Any) -> np.ndarray:
    """A matplotlib figure as a frame, bytes (height, width, 3); the figure is closed."""
    import matplotlib.pyplot as plt
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    picture = np.asarray(canvas.buffer_rgba())[..., :3].copy()
    plt.close(figure)
    return picture


def page(specification: dict[str, Any]) -> str:
    """The animation in HTML and CSS: it needs neither a network nor a script."""
    of = specification
    name = f"film-{hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:12]}"
    every = of["frames"] * of["seconds"] + HOLD
    moves = []
    for place in range(of["frames"]):
        y, x = corner(place, of["columns"], of["width"], of["height"])
        percent = 100 * place * of["seconds"] / every
        moves.append(f"{percent:.4f}% {{ transform: translate({-x}px, {-y}px); }}")
    still = (
        "{0} .window {{ width: auto !important; height: auto !important; }}"
        "{0} .window img {{ animation: none; max-width: 100%; }}"
    )
    return (
        f'<div class="animation" id="{name}"><style>'
        f"#{name} .window {{ overflow: hidden; max-width: 100%; "
        f"width: {of['width']}px; height: {of['height']}px; }}"
        f"#{name} .window img {{ display: block; max-width: none; image-rendering: pixelated; "
        f"animation: {name} {every:g}s step-end infinite; }}"
        f"#{name} .window:hover img {{ animation-play-state: paused; }}"
        f"@keyframes {name} {{ {' '.join(moves)} }}"
        f"{still.format(f'#{name} input:checked ~')}"
        f"@media (prefers-reduced-motion: reduce) {{ {still.format(f'#{name}')} "
        f"#{name} :is(input, label) {{ display: none; }} }}"
        f"@media print {{ {still.format(f'#{name}')} }}"
        f'</style><input type="checkbox" id="{name}-all"> '
        f'<label for="{name}-all">stop, and show all {of["frames"]} frames</label>'
        f'<div class="window"><img src="data:image/png;base64,{of["png"]}" '
        f'alt="{html.escape(of["alt"])}"></div></div>'
    )


class BookRenderer(book_renderer.BookRenderer):
    mime, page = MIME, staticmethod(page)
