"""Arrays, and what is said of them in JSON, in one compressed file that comes with the package."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import numpy as np

from layernorm.lab.records.files import write_bytes

Made = TypeVar("Made")
UNFIT = (BadZipFile, ValueError, LookupError, TypeError, AttributeError, RuntimeError, EOFError)


def save(file: Path, about: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a whole file, or leave an earlier one as it is."""
    content = io.BytesIO()
    np.savez_compressed(content, about=np.array(json.dumps(about)), **arrays)
    write_bytes(file, content.getbuffer())


def load(
    file: Path, make: Callable[[Any, dict[str, np.ndarray]], Made], content: str, module: str
) -> Made:
    """Return `make(about, arrays)` of a file that `save` wrote; nothing in it is executed.

    Args:
        content: a word for it.
        module: the program that writes the file.

    Raises:
        FileNotFoundError: it is not there; says how to make it.
        ValueError: it is not such a file.
    """
    if not file.exists():
        raise FileNotFoundError(
            f"{file}: there are no {content}; make them with: python -m {module}"
        )
    try:
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        return make(json.loads(str(arrays.pop("about"))), arrays)
    except UNFIT as error:
        raise ValueError(f"{file}: no {content} that `save` wrote: {error}") from None
